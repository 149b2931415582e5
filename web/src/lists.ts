// The lists on the left, and the CSV of suspected labels.

import { nameOf, type Atlas } from "./atlas";
import type { Backend } from "./backend";
import { change } from "./colors";
import { button, count, formatted, make, percent } from "./dom";
import { pictures } from "./inspector";

interface Actions {
  pick(row: number): void;
  select(title: string, rows: number[]): void;
  pair(row: number, other: number): void;
  note(text: string): void;
}

export interface Tab {
  key: string;
  name: string;
  total: number;
  text: string;
  head?: () => HTMLElement;
  entries: (() => HTMLElement)[];
  accept?: (row: number) => void; // or take it back
}

const SHOWN = 200; // entries of a list, as in lists.py
const COPIES = 500;

export function tabs(atlas: Atlas, backend: Backend, actions: Actions): Tab[] {
  const { worst, confused, duplicates, compared } = atlas.models[0].lists;
  const thumb = (row: number) => pictures(atlas, backend, row);
  const entry = (row: number, title: string, small: string, act: () => void, ...more: HTMLElement[]) => () => {
    const item = button("entry", "", act, ...more, make("span", "words", make("b", "", title), make("small", "", small)));
    item.dataset.row = String(row);
    return item;
  };
  const point = (row: number, title: string, small: string) => entry(row, title, small, () => actions.pick(row), ...thumb(row));
  const found: Tab[] = [];
  if (atlas.models.length > 1 && atlas.models.every((model) => model.purity)) found.push(...changed(atlas, point));
  if (atlas.kind !== "nothing") {
    found.push({
      key: "worst", name: "Worst", total: worst.length,
      text: atlas.kind === "numbers" ? offText(atlas) : worst.length ? `${worst.length >= SHOWN ? `The ${SHOWN} points` : "Points"} with the fewest right neighbors among their ${atlas.near} nearest` : `No point has a wrong neighbor among its ${atlas.near} nearest.`,
      entries: worst.map((row) => point(row, nameOf(atlas, row), `${atlas.kind === "numbers" ? `off by ${formatted(atlas.models[0].residual![row], 3)}` : `${percent(atlas.models[0].purity![row])} right`} · #${atlas.ids[row]}`)),
    });
  }
  if (atlas.kind === "classes") {
    found.push({
      key: "confused", name: "Confused", total: confused.length,
      text: confused.length ? "Pairs of classes whose points are nearest neighbors of each other" : "No point's nearest neighbor has another class.",
      entries: confused.map(([a, b, rows]) => {
        const title = `${atlas.classes[a]} and ${atlas.classes[b]}`;
        return entry(rows[0], title, count(rows.length, "point"), () => actions.select(title, rows), ...rows.slice(0, 2).flatMap(thumb));
      }),
    });
    found.push(labels(atlas, actions, thumb));
  }
  const split = atlas.splits.length > 1;
  if (split || compared[1] > 1) {
    const most = duplicates.length >= COPIES ? `The ${COPIES} nearest pairs. ` : "";
    const sample = compared[0] < compared[1] ? `${compared[0].toLocaleString("en")} of ${count(compared[1], "point")} were compared. ` : "";
    const some = split ? "Nearly the same points in two splits: test results on these are too good" : "Nearly the same points: one of each pair may be redundant";
    const none = split ? "No point has a near copy in another split." : "No two points are nearly the same.";
    const where = (row: number) => (split ? atlas.splits[atlas.split[row]] : nameOf(atlas, row));
    found.push({
      key: "duplicates", name: "Duplicates", total: duplicates.length,
      text: most + sample + (duplicates.length ? some : none),
      entries: duplicates.map(([row, other, apart]) => {
        return entry(row, `${where(row)} · ${where(other)}`, apart ? `differ by ${percent(apart)}` : "identical", () => actions.pair(row, other), ...thumb(row), ...thumb(other));
      }),
    });
  }
  return found;
}

function offText(atlas: Atlas): string {
  const some = atlas.models[0].lists.worst.length;
  return some ? `Points whose number is farthest from the mean of their ${atlas.near} nearest` : `No number is far from the mean of its ${atlas.near} nearest.`;
}

function changed(atlas: Atlas, point: (row: number, title: string, small: string) => () => HTMLElement): Tab[] {
  const difference = change(atlas);
  const rows = [...difference.keys()].filter((row) => difference[row]);
  const [own, other] = atlas.models;
  const words = (row: number) => `${percent(other.purity![row])} → ${percent(own.purity![row])} right`;
  const tab = (key: string, name: string, sign: number): Tab => {
    const some = rows.filter((row) => sign * difference[row] > 0).sort((a, b) => sign * (difference[b] - difference[a]));
    const text = `${count(some.length, "point")} with ${sign > 0 ? "more" : "fewer"} right neighbors with ${own.name} than with ${other.name}`;
    return { key, name, total: some.length, text, entries: some.slice(0, SHOWN).map((row) => point(row, nameOf(atlas, row), words(row))) };
  };
  return [tab("better", "Better", 1), tab("worse", "Worse", -1)];
}

/** Suspected labels. Accepted ones are the labels in the CSV that `nearkin train --labels` reads; the browser remembers them. */
function labels(atlas: Atlas, actions: Actions, thumb: (row: number) => HTMLElement[]): Tab {
  const suspects = atlas.models[0].lists.suspects;
  const suggested = new Map(suspects.map(([row, label]) => [row, label]));
  const accepted = remembered(atlas);
  const shown = new Map<number, () => void>(); // how to draw an entry that is in the page again
  const status = make("span");
  status.id = "accepted";
  const all = button("small", "Accept every suggestion of this list, or take all of them back", () => {
    const every = accepted.size < suspects.length;
    for (const [row, label] of suspects) if (!every) accepted.delete(row); else if (!accepted.has(row)) accepted.set(row, label);
    update();
  }, "Accept all");
  all.id = "accept-all";
  const update = () => {
    status.textContent = accepted.size ? `${accepted.size} accepted` : "none accepted yet";
    all.textContent = accepted.size < suspects.length ? "Accept all" : "Accept none";
    remember(atlas, accepted);
    for (const draw of shown.values()) draw();
  };
  const toggle = (row: number) => {
    if (!suggested.has(row)) return;
    if (!accepted.delete(row)) accepted.set(row, suggested.get(row)!);
    update();
  };
  const save = button("main small", "Columns path and label, for `nearkin train --labels`", () => {
    download("suspected_labels.csv", csv(atlas, accepted));
    actions.note("Saved. Use it with: nearkin train DATA --labels suspected_labels.csv");
  }, "Download CSV");
  save.id = "csv";
  const entries = suspects.slice(0, SHOWN).map(([row, label, share, source]) => () => {
    const item = button("entry", source, () => actions.pick(row), ...thumb(row));
    const title = make("b", "");
    item.append(make("span", "words", title, make("small", "", `${percent(share)} sure · #${atlas.ids[row]}`)));
    item.dataset.row = String(row);
    const accept = button("accept", "", () => toggle(row), "✓");
    const other = chooser(atlas, row, label, (next) => {
      accepted.set(row, next);
      update();
    });
    const draw = () => {
      const now = accepted.get(row) ?? label;
      title.textContent = `${nameOf(atlas, row)} → ${atlas.classes[now]}${accepted.has(row) ? "" : "?"}`;
      accept.setAttribute("aria-pressed", String(accepted.has(row)));
      accept.setAttribute("aria-label", `accept ${atlas.classes[now]}`);
      accept.title = `Use ${atlas.classes[now]} as the label in the CSV (A)`;
      other.value = String(now);
    };
    shown.set(row, draw);
    draw();
    return make("div", "pair", item, other, accept);
  });
  update();
  const head = () => make("div", "action", save, all, status);
  const none = atlas.models[0].lists.judged ? "No label is contradicted by classifiers that did not see it." : "The labels are being judged; this takes a while for many points.";
  const text = suspects.length ? "Classifiers that did not see these labels contradict them. Accept the corrections you agree with (A), or choose another label" : none;
  return { key: "labels", name: "Labels", total: suspects.length, text, head: suspects.length ? head : undefined, entries, accept: toggle };
}

/** Every class but the point's own, the suggestion first. */
function chooser(atlas: Atlas, row: number, label: number, choose: (label: number) => void): HTMLSelectElement {
  const select = make("select", "other");
  select.setAttribute("aria-label", "another label");
  select.title = "Another label";
  const others = [...atlas.classes.keys()].filter((one) => one !== label && one !== atlas.labels[row]);
  select.append(...[label, ...others].map((one) => {
    const option = make("option", "", atlas.classes[one]);
    option.value = String(one);
    return option;
  }));
  select.onchange = () => choose(Number(select.value));
  return select;
}

/** Accepted labels by row, as this browser remembers them for this page: by source and class name, so that a new index keeps them. */
function remembered(atlas: Atlas): Map<number, number> {
  const found = new Map<number, number>();
  try {
    const kept = JSON.parse(localStorage.getItem(place(atlas)) ?? "{}") as Record<string, string>;
    for (const [row, , , source] of atlas.models[0].lists.suspects) {
      const label = source in kept ? atlas.classes.indexOf(kept[source]) : -1;
      if (label >= 0 && label !== atlas.labels[row]) found.set(row, label);
    }
  } catch { /* no storage in this frame: nothing is remembered */ }
  return found;
}

function remember(atlas: Atlas, accepted: Map<number, number>): void {
  const kept: Record<string, string> = {};
  for (const [row, , , source] of atlas.models[0].lists.suspects) if (accepted.has(row)) kept[source] = atlas.classes[accepted.get(row)!];
  try {
    localStorage.setItem(place(atlas), JSON.stringify(kept));
  } catch { /* no storage in this frame */ }
}

function place(atlas: Atlas): string {
  return `nearkin labels ${location.pathname} ${atlas.models[0].name}`;
}

export function csv(atlas: Atlas, accepted: Map<number, number>): string {
  // A spreadsheet would run a cell that begins like a formula; `nearkin train --labels` takes the quotation mark off again.
  const inert = (value: string) => (/^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value);
  const cell = (value: string) => (/[",\n\r]/.test(value) ? `"${inert(value).replaceAll('"', '""')}"` : inert(value));
  const lines = atlas.models[0].lists.suspects.map(([row, label, share, source]) => {
    const [was, better] = [atlas.classes[atlas.labels[row]], atlas.classes[label]];
    return [source, atlas.classes[accepted.get(row) ?? atlas.labels[row]], was, better, share.toFixed(2), atlas.splits[atlas.split[row]]].map(cell).join(",");
  });
  return ["path,label,was,suggested,confidence,split", ...lines, ""].join("\r\n");
}

function download(name: string, text: string): void {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
