// The left side below: lists that select points, and the CSV of suspected labels.

import { nameOf, type Atlas } from "./atlas";
import type { Backend } from "./backend";
import { change } from "./colors";
import { button, count, make, percent } from "./dom";
import { pictures } from "./inspector";

interface Acts {
  pick(row: number): void;
  select(title: string, rows: number[]): void;
  pair(row: number, other: number): void;
  note(text: string): void;
}

export interface Tab {
  key: string;
  name: string;
  total: number;
  says: string;
  head?: () => HTMLElement;
  entries: (() => HTMLElement)[];
}

const SHOWN = 200; // entries of a list, as lists.py cuts them
const COPIES = 500;

export function tabs(atlas: Atlas, backend: Backend, acts: Acts): Tab[] {
  const { worst, confused, duplicates, compared } = atlas.models[0].lists;
  const thumb = (row: number) => pictures(atlas, backend, row);
  const entry = (row: number, title: string, small: string, act: () => void, ...more: HTMLElement[]) => () => {
    const item = button("entry", "", act, ...more, make("span", "words", make("b", "", title), make("small", "", small)));
    item.dataset.row = String(row);
    return item;
  };
  const point = (row: number, title: string, small: string) => entry(row, title, small, () => acts.pick(row), ...thumb(row));
  const found: Tab[] = [];
  if (atlas.models.length > 1 && atlas.models.every((model) => model.purity)) found.push(...changed(atlas, point));
  if (atlas.kind !== "nothing") {
    found.push({
      key: "worst", name: "Worst", total: worst.length,
      says: worst.length ? `${worst.length >= SHOWN ? `The ${SHOWN} with the fewest` : "Fewest"} right ones among their ${atlas.near} nearest` : `No point has a wrong one among its ${atlas.near} nearest.`,
      entries: worst.map((row) => point(row, nameOf(atlas, row), `${percent(atlas.models[0].purity![row])} right · #${atlas.ids[row]}`)),
    });
  }
  if (atlas.kind === "classes") {
    found.push({
      key: "confused", name: "Confused", total: confused.length,
      says: confused.length ? "Classes whose points have each other as nearest neighbor" : "No point's nearest neighbor is of another class.",
      entries: confused.map(([a, b, rows]) => {
        const title = `${atlas.classes[a]} and ${atlas.classes[b]}`;
        return entry(rows[0], title, count(rows.length, "point"), () => acts.select(title, rows), ...rows.slice(0, 2).flatMap(thumb));
      }),
    });
    found.push(labels(atlas, acts, thumb));
  }
  const parted = atlas.splits.length > 1;
  if (parted || compared[1] > 1) {
    const most = duplicates.length >= COPIES ? `The ${COPIES} nearest pairs. ` : "";
    const asked = compared[0] < compared[1] ? `${compared[0].toLocaleString("en")} of ${count(compared[1], "point")} were compared. ` : "";
    const some = parted ? "Nearly the same in two splits: a test on these measures memory" : "Nearly the same: one of each pair may do";
    const none = parted ? "No point is nearly that of another split." : "No point is nearly another.";
    const where = (row: number) => (parted ? atlas.splits[atlas.split[row]] : nameOf(atlas, row));
    found.push({
      key: "duplicates", name: "Duplicates", total: duplicates.length,
      says: most + asked + (duplicates.length ? some : none),
      entries: duplicates.map(([row, other, apart]) => {
        return entry(row, `${where(row)} · ${where(other)}`, apart ? `differ by ${percent(apart)}` : "the very same", () => acts.pair(row, other), ...thumb(row), ...thumb(other));
      }),
    });
  }
  return found;
}

function changed(atlas: Atlas, point: (row: number, title: string, small: string) => () => HTMLElement): Tab[] {
  const gone = change(atlas);
  const rows = [...gone.keys()].filter((row) => gone[row]);
  const [own, other] = atlas.models;
  const words = (row: number) => `${percent(other.purity![row])} → ${percent(own.purity![row])} right`;
  const tab = (key: string, name: string, sign: number): Tab => {
    const some = rows.filter((row) => sign * gone[row] > 0).sort((a, b) => sign * (gone[b] - gone[a]));
    const says = `${count(some.length, "point")} with ${sign > 0 ? "purer" : "less pure"} neighborhoods by ${own.name} than by ${other.name}`;
    return { key, name, total: some.length, says, entries: some.slice(0, SHOWN).map((row) => point(row, nameOf(atlas, row), words(row))) };
  };
  return [tab("better", "Better", 1), tab("worse", "Worse", -1)];
}

/** Suspected labels. What is accepted here is the label in the CSV that `nearkin train --labels` reads. */
function labels(atlas: Atlas, acts: Acts, thumb: (row: number) => HTMLElement[]): Tab {
  const suspects = atlas.models[0].lists.suspects;
  const accepted = new Set<number>();
  const said = make("span");
  const tell = () => { said.textContent = accepted.size ? `${accepted.size} accepted` : "none accepted yet"; };
  const save = button("main small", "Columns path and label, which `nearkin train --labels` reads", () => {
    download("suspected_labels.csv", csv(atlas, accepted));
    acts.note("Saved. Then: nearkin train DATA --labels suspected_labels.csv");
  }, "Download CSV");
  save.id = "csv";
  tell();
  const entries = suspects.slice(0, SHOWN).map(([row, says, share, source]) => () => {
    const item = button("entry", source, () => acts.pick(row), ...thumb(row));
    const words = make("span", "words", make("b", "", `${nameOf(atlas, row)} → ${atlas.classes[says]}?`), make("small", "", `${percent(share)} say so · #${atlas.ids[row]}`));
    item.append(words);
    item.dataset.row = String(row);
    const accept = button("accept", `Call it ${atlas.classes[says]} in the CSV`, () => {
      if (!accepted.delete(row)) accepted.add(row);
      accept.setAttribute("aria-pressed", String(accepted.has(row)));
      tell();
    }, "✓");
    accept.setAttribute("aria-pressed", String(accepted.has(row)));
    accept.setAttribute("aria-label", `accept ${atlas.classes[says]}`);
    return make("div", "pair", item, accept);
  });
  const head = () => make("div", "action", save, said);
  const says = suspects.length ? "Most neighbors contradict the label. Tick those you agree with" : `No label is contradicted by most of its ${atlas.near} nearest.`;
  return { key: "labels", name: "Labels", total: suspects.length, says, head: suspects.length ? head : undefined, entries };
}

export function csv(atlas: Atlas, accepted: Set<number>): string {
  const cell = (value: string) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const lines = atlas.models[0].lists.suspects.map(([row, says, share, source]) => {
    const [was, better] = [atlas.classes[atlas.labels[row]], atlas.classes[says]];
    return [source, accepted.has(row) ? better : was, was, better, share.toFixed(2), atlas.splits[atlas.split[row]]].map(cell).join(",");
  });
  return ["path,label,was,neighbors_say,confidence,split", ...lines, ""].join("\r\n");
}

function download(name: string, text: string): void {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
