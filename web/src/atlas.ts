// The data that the page loads first: the header that page_data.py writes, with its columns decoded.

import { formatted } from "./dom";

export interface Lists {
  worst: number[];
  confused: [number, number, number[]][]; // two classes, and the points of each whose nearest is of the other
  suspects: [number, number, number, string][]; // row, suggested class, how sure, source
  judged: boolean; // false while labels are being judged
  duplicates: [number, number, number][]; // a point, its copy, their distance
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
  purity: Float32Array | null; // NaN if unknown
  residual: Float32Array | null;
  clusters: Uint8Array | null; // of points without labels
  apart: Float32Array | null; // distance to the nearest, of points without labels
  sparse: Float32Array | null; // mean distance to the nearest, of points without labels
  lists: Lists;
}

export interface Atlas {
  count: number;
  kind: "classes" | "sets" | "numbers" | "nothing";
  near: number; // neighbors that count for purity
  ids: Float64Array;
  classes: string[];
  labels: Int32Array;
  splits: string[];
  split: Uint8Array;
  targets: { name: string; values: Float32Array }[];
  columns: { name: string; names: string[] | null; values: Float32Array | Int32Array }[]; // metadata: numbers, or positions in names
  pictured: boolean; // whether there are thumbnails
  texts: string[] | null; // the beginning of each text, if the points are texts
  sources?: string[] | null; // what each point is called, if these are short
  searches?: boolean; // whether new texts can be searched
  images?: boolean; // whether the models read images
  live: boolean;
  version: string;
  chunk: number;
  sheets: { side: number; across: number; down: number; suffix: string } | null;
  models: Model[];
}

const UNKNOWN = 255;

export function bytes(text: string): ArrayBuffer {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) found[at] = raw.charCodeAt(at);
  return found.buffer;
}

type Json = any; // from page_data.py

export function decoded(json: Json): Atlas {
  const ids = Float64Array.from(new BigInt64Array(bytes(json.ids)), Number);
  return {
    ...json,
    ids,
    version: json.version ?? "",
    labels: new Int32Array(bytes(json.labels)),
    split: new Uint8Array(bytes(json.split)),
    targets: json.targets.map((one: Json) => ({ name: one.name, values: new Float32Array(bytes(one.values)) })),
    columns: (json.columns ?? []).map((one: Json) => ({ ...one, values: one.names ? new Int32Array(bytes(one.values)) : new Float32Array(bytes(one.values)) })),
    models: json.models.map(model),
  };
}

function model(json: Json): Model {
  const points = new Uint16Array(bytes(json.points));
  const n = points.length / 2;
  const [x, y] = [new Float32Array(n), new Float32Array(n)];
  for (let row = 0; row < n; row++) {
    x[row] = (points[2 * row] / 65535) * 2 - 1;
    y[row] = (points[2 * row + 1] / 65535) * 2 - 1;
  }
  const purity = json.purity && Float32Array.from(new Uint8Array(bytes(json.purity)), (one) => (one === UNKNOWN ? NaN : one / 100));
  const numbers = (text?: string) => (text ? new Float32Array(bytes(text)) : null);
  const clusters = json.clusters ? new Uint8Array(bytes(json.clusters)) : null;
  return { ...json, x, y, purity, residual: numbers(json.residual), clusters, apart: numbers(json.apart), sparse: numbers(json.sparse) };
}

export function labelOf(atlas: Atlas, row: number): string {
  const label = atlas.labels[row];
  return label < 0 ? "" : atlas.classes[label];
}

/** The short name of a point: its class, its first target, or its number. */
export function nameOf(atlas: Atlas, row: number): string {
  return labelOf(atlas, row) || (atlas.targets.length ? formatted(atlas.targets[0].values[row], 3) : `#${atlas.ids[row]}`);
}
