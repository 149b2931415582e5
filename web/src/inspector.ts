// The right side: a point or an uploaded image with its neighbors, a selection, or a welcome.

import { labelOf, nameOf, type Atlas } from "./atlas";
import type { Backend, Found, Near, Row } from "./backend";
import { button, count, make, percent, formatted, shortened } from "./dom";

export interface Visit {
  row: number | null; // null: an uploaded image, or a text
  near: Near;
  picture?: HTMLImageElement;
}

interface Actions {
  pick(row: number): void;
  point(row: number | null): void; // ring it on the map
  k(value: number): void;
  zoom(): void;
  back: (() => void) | null;
  clear(): void;
}

export function welcome(atlas: Atlas, first: (() => void) | null, picture: boolean): HTMLElement {
  const box = make("div", "welcome");
  const judged = atlas.kind !== "nothing";
  box.append(make("h2", "", judged ? "Which neighbors are wrong?" : "What is near what?"));
  box.append(make("p", "", `Click a point to see its exact nearest neighbors in the embedding.${judged ? " Wrong neighbors are red." : ""}`));
  if (first) box.append(button("main", "", first, "Show the worst point"));
  else if (!judged) box.append(make("p", "quiet", "These points have no labels, so the explorer cannot say which neighbors are right."));
  else box.append(make("p", "quiet", `No point has a wrong neighbor among its ${atlas.near} nearest.`));
  const tips = ["Scroll to zoom, drag to move. Hold Shift and drag to select with a lasso.", "Click the legend to hide points."];
  if (picture) tips.push("Drop an image anywhere to see its position and its neighbors.");
  box.append(make("ul", "tips", ...tips.map((tip) => make("li", "", tip))));
  return box;
}

export function inspect(atlas: Atlas, backend: Backend, visit: Visit, k: number, actions: Actions): HTMLElement {
  const box = make("div", "visit");
  box.append(top(atlas, backend, visit, actions));
  box.append(slider(atlas, k, actions), button("link", "Zoom to the neighbors (Z)", actions.zoom, "Zoom to the neighbors"));
  for (const [at, found] of visit.near.models.entries()) {
    if (visit.near.models.length > 1) box.append(make("h3", "", atlas.models[at].name));
    box.append(...neighbors(atlas, backend, visit, found, k, actions));
  }
  return box;
}

function top(atlas: Atlas, backend: Backend, visit: Visit, actions: Actions): HTMLElement {
  const { row, near } = visit;
  const picture = row !== null && !atlas.texts ? pictures(atlas, backend, row) : visit.picture ? [own(visit.picture)] : [];
  const words = make("div", "words");
  const title = row === null ? (visit.picture ? "Your image" : "Your text") : labelOf(atlas, row) || `Point ${atlas.ids[row]}`;
  words.append(make("h2", "", title));
  const source = make("p", "source", shortened(near.source));
  source.title = near.source;
  if (atlas.texts) words.append(make("p", "text", String(near.metadata.text ?? "")));
  words.append(source, make("dl", "facts", ...facts(atlas, visit).flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)])));
  const close = make("div", "corner");
  if (actions.back) close.append(button("icon", "Back (Backspace)", actions.back, "←"));
  close.append(button("icon", "Close (Escape)", actions.clear, "×"));
  return make("div", picture.length ? "query" : "query bare", ...picture, words, close);
}

/** The image or the text of a point, if it has one. */
export function pictures(atlas: Atlas, backend: Backend, row: number): HTMLElement[] {
  if (atlas.texts) return [make("span", "text", atlas.texts[row])];
  return atlas.pictured ? [backend.picture(atlas, row)] : [];
}

function own(picture: HTMLImageElement): HTMLElement {
  picture.className = picture.naturalWidth <= 64 ? "picture tiny" : "picture";
  picture.alt = "your image";
  return picture;
}

const OWN = new Set(["data", "split", "set", "group", "text"]); // fields of the metadata that are shown in other ways

function facts(atlas: Atlas, { row, near }: Visit): [string, string][] {
  if (row === null) {
    const { none_of_these, p_value } = near.models[0];
    const far: [string, string][] = none_of_these ? [["none of these", `like no known point: ${percent(p_value!)} of them are as far from their neighbors`]] : [];
    return [...far, ["majority", majority(atlas, near.models[0])]];
  }
  const found: [string, string][] = [["number", String(atlas.ids[row])]];
  if (atlas.splits.length > 1 || atlas.splits[0] !== "no split") found.push(["split", atlas.splits[atlas.split[row]]]);
  for (const one of atlas.targets) found.push([one.name, formatted(one.values[row])]);
  if (Array.isArray(near.metadata.set)) found.push(["labels", near.metadata.set.join(", ") || "none"]);
  for (const [name, value] of Object.entries(near.metadata)) {
    if (OWN.has(name) || value === null || typeof value === "object" || atlas.targets.some((one) => one.name === name)) continue;
    found.push([name, typeof value === "number" ? formatted(value) : String(value)]);
  }
  for (const model of atlas.models) {
    const tail = atlas.models.length > 1 ? `, ${model.name}` : "";
    if (model.purity && !Number.isNaN(model.purity[row])) found.push([`purity${tail}`, percent(model.purity[row])]);
    if (model.residual) found.push([`residual${tail}`, formatted(model.residual[row])]);
  }
  return found;
}

/** The class of most of the ten nearest. */
function majority(atlas: Atlas, found: Found): string {
  const near = found.rows.slice(0, atlas.near);
  const votes = new Map<string, number>();
  for (const row of near) if (labelOf(atlas, row)) votes.set(labelOf(atlas, row), (votes.get(labelOf(atlas, row)) ?? 0) + 1);
  const best = [...votes].sort((a, b) => b[1] - a[1])[0];
  return best ? `${best[0]} (${best[1]} of ${near.length})` : "none: the points have no labels";
}

function slider(atlas: Atlas, k: number, actions: Actions): HTMLElement {
  const most = Math.min(...atlas.models.map((model) => model.k));
  const input = make("input");
  Object.assign(input, { type: "range", id: "k", min: "1", max: String(most), value: String(Math.min(k, most)) });
  input.oninput = () => actions.k(Number(input.value));
  const output = make("output", "", String(Math.min(k, most)));
  output.htmlFor = "k";
  const label = make("label", "", "Neighbors ");
  label.htmlFor = "k";
  return make("div", "slider", label, input, output);
}

function neighbors(atlas: Atlas, backend: Backend, visit: Visit, found: Found, k: number, actions: Actions): HTMLElement[] {
  const rows = found.rows.slice(0, k);
  const right = found.right.slice(0, k);
  const judged = right.some((one) => one >= 0);
  const wrong = right.filter((one) => one === 0).length;
  const strip = make("div", "strip", ...right.map((one) => make("i", sign(one))));
  const text = judged
    ? `${right.filter((one) => one === 1).length} right, ${wrong} wrong`
    : visit.row === null ? "nearest first; it has no label to compare with" : "nearest first; the points have no labels to compare";
  const metric = { cosine: "cosine", squared_euclidean: "minus squared distance", inner_product: "inner product", hamming: "minus differing bits" }[atlas.models[0].metric] ?? atlas.models[0].metric;
  const tally = make("p", "tally", text);
  tally.title = `Exact neighbors in the embedding. Affinity: ${metric}; larger is nearer.`;
  const grid = make("ol", "grid", ...rows.map((row, at) => make("li", "", tile(atlas, backend, row, found.affinity[at], found.right[at], at, actions, atlas.pictured ? [] : columns(found.cells?.[at], visit.row === null ? {} : visit.near.metadata)))));
  return [make("div", "sum", tally, judged ? strip : ""), grid];
}

function cell(value: unknown): string {
  return value === undefined || value === null ? "missing" : typeof value === "number" ? formatted(value) : String(value);
}

/** The columns of a point, such as those of a table's row; cells that differ from the query's are marked. */
function columns(row: Row | undefined, query: Row): HTMLElement[] {
  const names = row ? Object.keys({ ...query, ...row }).filter((name) => !OWN.has(name)) : [];
  const parts = names.flatMap((name) => {
    const own = make("dd", query[name] !== row![name] ? "differs" : "", cell(row![name]));
    if (own.className) own.title = `the query has ${cell(query[name])}`;
    return [make("dt", "", name), own];
  });
  return parts.length ? [make("dl", "columns", ...parts)] : [];
}

function tile(atlas: Atlas, backend: Backend, row: number, affinity: number, right: number, at: number, actions: Actions, more: HTMLElement[] = []): HTMLElement {
  const word = { [1]: "right", [0]: "wrong", [-1]: "" }[right] ?? "";
  const name = make("span", "name", nameOf(atlas, row));
  const own = button(`tile ${sign(right)}`, `${at + 1}. ${nameOf(atlas, row)} ${word}, affinity ${formatted(affinity, 6)}`, () => actions.pick(row));
  if (word) own.append(make("b", "badge", right === 1 ? "✓" : "✗"));
  own.append(...pictures(atlas, backend, row), name, make("span", "affinity", formatted(affinity, 3)), ...more);
  own.setAttribute("aria-label", `neighbor ${at + 1}: ${nameOf(atlas, row)} ${word}, affinity ${formatted(affinity, 3)}`);
  own.dataset.row = String(row);
  own.onmouseenter = own.onfocus = () => actions.point(row);
  own.onmouseleave = own.onblur = () => actions.point(null);
  return own;
}

function sign(right: number): string {
  return right === 1 ? "right" : right === 0 ? "wrong" : "unknown";
}

const SHOWN = 60;

export function selection(atlas: Atlas, backend: Backend, title: string, rows: number[], actions: Actions): HTMLElement {
  const box = make("div", "selection");
  const head = make("div", "query", make("div", "words", make("h2", "", title), make("p", "source", count(rows.length, "point"))));
  head.append(make("div", "corner", button("icon", "Close (Escape)", actions.clear, "×")));
  box.append(head);
  if (atlas.classes.length) box.append(shares(atlas, rows));
  const model = atlas.models[0];
  if (model.purity) {
    const known = rows.map((row) => model.purity![row]).filter((one) => !Number.isNaN(one));
    const mean = known.reduce((sum, one) => sum + one, 0) / (known.length || 1);
    if (known.length) box.append(make("p", "tally", `mean purity ${percent(mean)}`));
  }
  const grid = make("ol", "grid");
  for (const row of rows.slice(0, SHOWN)) {
    const own = button("tile unknown", `point ${atlas.ids[row]}`, () => actions.pick(row), ...pictures(atlas, backend, row), make("span", "name", nameOf(atlas, row)));
    own.dataset.row = String(row);
    own.onmouseenter = own.onfocus = () => actions.point(row);
    own.onmouseleave = own.onblur = () => actions.point(null);
    grid.append(make("li", "", own));
  }
  box.append(grid);
  if (rows.length > SHOWN) box.append(make("p", "quiet", `and ${count(rows.length - SHOWN, "more point", "more points")} on the map`));
  return box;
}

/** The share of each class in a selection. */
function shares(atlas: Atlas, rows: number[]): HTMLElement {
  const counts = new Map<number, number>();
  for (const row of rows) counts.set(atlas.labels[row], (counts.get(atlas.labels[row]) ?? 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 6);
  return make("ul", "shares", ...most.map(([label, number]) => {
    const bar = make("i");
    bar.style.width = `${(100 * number) / rows.length}%`;
    return make("li", "", make("span", "", label < 0 ? "unknown" : atlas.classes[label]), make("span", "track", bar), make("span", "number", number.toLocaleString("en")));
  }));
}
