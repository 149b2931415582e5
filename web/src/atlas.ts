// What the page knows before anybody clicks: the header that wire.py writes, with its columns decoded.

import { said } from "./dom";

export interface Lists {
  worst: number[];
  confused: [number, number, number[]][]; // two classes, and the points of either whose nearest is of the other
  suspects: [number, number, number, string][]; // row, what the neighbors say, their share, source
  duplicates: [number, number, number][]; // a point, the one it copies, how far apart
  compared: [number, number];
}

export interface Model {
  name: string;
  metric: string;
  dimension: number;
  method: string;
  k: number;
  x: Float32Array;
  y: Float32Array;
  purity: Float32Array | null; // NaN where nobody can tell
  residual: Float32Array | null;
  lists: Lists;
}

export interface Atlas {
  count: number;
  kind: "classes" | "sets" | "numbers" | "nothing";
  near: number; // neighbors that purity looks at
  ids: Float64Array;
  classes: string[];
  labels: Int32Array;
  splits: string[];
  split: Uint8Array;
  targets: { name: string; values: Float32Array }[];
  pictured: boolean;
  live: boolean;
  version: string;
  chunk: number;
  sheets: { side: number; across: number; down: number; suffix: string } | null;
  models: Model[];
}

const UNJUDGED = 255;

export function bytes(text: string): ArrayBuffer {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) found[at] = raw.charCodeAt(at);
  return found.buffer;
}

type Wire = any; // JSON from wire.py

export function decoded(wire: Wire): Atlas {
  const ids = Float64Array.from(new BigInt64Array(bytes(wire.ids)), Number);
  return {
    ...wire,
    ids,
    version: wire.version ?? "",
    labels: new Int32Array(bytes(wire.labels)),
    split: new Uint8Array(bytes(wire.split)),
    targets: wire.targets.map((one: Wire) => ({ name: one.name, values: new Float32Array(bytes(one.values)) })),
    models: wire.models.map(model),
  };
}

function model(wire: Wire): Model {
  const points = new Uint16Array(bytes(wire.points));
  const n = points.length / 2;
  const [x, y] = [new Float32Array(n), new Float32Array(n)];
  for (let row = 0; row < n; row++) {
    x[row] = (points[2 * row] / 65535) * 2 - 1;
    y[row] = (points[2 * row + 1] / 65535) * 2 - 1;
  }
  const purity = wire.purity && Float32Array.from(new Uint8Array(bytes(wire.purity)), (one) => (one === UNJUDGED ? NaN : one / 100));
  return { ...wire, x, y, purity, residual: wire.residual && new Float32Array(bytes(wire.residual)) };
}

export function labelOf(atlas: Atlas, row: number): string {
  const label = atlas.labels[row];
  return label < 0 ? "" : atlas.classes[label];
}

/** How a point is called where there is room for a word: its class, its first target, or its number. */
export function nameOf(atlas: Atlas, row: number): string {
  return labelOf(atlas, row) || (atlas.targets.length ? said(atlas.targets[0].values[row], 3) : `#${atlas.ids[row]}`);
}
