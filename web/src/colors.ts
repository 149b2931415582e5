// The colors of the points, and their legend.

import type { Atlas } from "./atlas";
import { formatted } from "./dom";

export interface Bin {
  name: string;
  color: string;
  count: number;
}

/** A coloring: the bin of every point, which the legend can show or hide, and the color of every point. */
export interface Coloring {
  key: string;
  name: string;
  bins: Bin[];
  bin: Uint16Array; // (n,) number of the bin
  z: Float32Array; // (n,) category, or value between 0 and 1
  continuous: boolean;
  palette: string[];
  scale: { low: string; high: string; text: string } | null;
}

export const RIGHT = "#1f9d6b";
export const WRONG = "#d64b3f";
const GRAY = "#9a9a94";
const HUES = ["#4c78a8", "#f08a24", "#54a24b", "#d8576b", "#63b3b1", "#d9b52c", "#a874a6", "#ef8fa0", "#94705a", "#5f6fd0"];
const SEQUENCE = ["#31446b", "#3a6488", "#3f8794", "#54a98f", "#8bc57f", "#cbd873", "#f6e27a"]; // dark to light, even in lightness
const SEQUENCE_BACK = [...SEQUENCE].reverse();
const GOODNESS = [WRONG, "#e39a5a", "#d9cfa8", "#86bd8f", RIGHT];
const CHANGE = [WRONG, "#dd9387", "#b9b9b4", "#83bd9f", RIGHT];
const BINS = 5;

/** A color for each class; beyond ten, hues by the golden angle. */
export function categorical(n: number): string[] {
  return Array.from({ length: n }, (_, at) => (n <= HUES.length ? HUES[at] : hsl((at * 137.508) % 360, 52, at % 2 ? 44 : 58)));
}

export function colorings(atlas: Atlas, which: number): Coloring[] {
  const model = atlas.models[which];
  const found: Coloring[] = [];
  if (atlas.classes.length) found.push(byName("class", "Class", atlas.classes, atlas.labels));
  const pure = model.purity && byValue("purity", "Neighborhood purity", model.purity, GOODNESS, [0, 1], (value) => `${Math.round(100 * value)}%`, `share of right neighbors among the ${atlas.near} nearest`);
  if (pure && atlas.kind !== "numbers") found.push(pure);
  if (model.clusters) {
    const most = model.clusters.reduce((a, b) => Math.max(a, b), 0) + 1;
    found.push(byName("cluster", "Cluster", Array.from({ length: most }, (_, at) => `Cluster ${at + 1}`), Int32Array.from(model.clusters)));
  }
  if (model.sparse) found.push(byValue("density", "Density", model.sparse, SEQUENCE_BACK, spread(model.sparse), formatted, `mean distance to the ${atlas.near} nearest; lonely points are dark`));
  if (model.apart) found.push(byValue("apart", "Distance to the nearest", model.apart, SEQUENCE_BACK, spread(model.apart), formatted, "copies are light, outliers dark"));
  for (const [at, one] of atlas.targets.entries()) {
    found.push(byValue(`target-${at}`, one.name === "target" ? "Target" : `Target: ${one.name}`, one.values, SEQUENCE, range(one.values), formatted, one.name));
  }
  if (model.residual) {
    const text = `distance from the mean of the ${atlas.near} nearest`;
    found.push(byValue("residual", "Residual", model.residual, SEQUENCE_BACK, [0, quantile(model.residual, 0.98)], formatted, text));
  }
  if (pure && atlas.kind === "numbers") found.push(pure);
  if (atlas.splits.length > 1 || !(found.length || atlas.columns.length)) found.push(byName("split", "Split", atlas.splits, Int32Array.from(atlas.split)));
  for (const [at, one] of atlas.columns.entries()) {
    if (one.names) found.push(byName(`column-${at}`, one.name, one.names, one.values as Int32Array));
    else found.push(byValue(`column-${at}`, one.name, one.values as Float32Array, SEQUENCE, range(one.values as Float32Array), formatted, one.name));
  }
  if (atlas.models.length > 1 && atlas.models.every((one) => one.purity)) {
    const difference = change(atlas);
    const text = `purity with ${atlas.models[0].name} minus purity with ${atlas.models[1].name}`;
    found.unshift(byValue("change", "What changed", difference, CHANGE, [-1, 1], (value) => `${value > 0 ? "+" : ""}${Math.round(100 * value)}%`.replace("-", "−"), text));
  }
  return found;
}

/** (n,) purity of each neighborhood with the first model minus purity with the second. */
export function change(atlas: Atlas): Float32Array {
  const [own, other] = atlas.models;
  return Float32Array.from(own.purity!, (value, row) => value - other.purity![row]);
}

function byName(key: string, name: string, names: string[], codes: Int32Array): Coloring {
  const colors = categorical(names.length);
  const unknown = codes.some((code) => code < 0);
  const palette = unknown ? [...colors, GRAY] : colors;
  const bin = Uint16Array.from(codes, (code) => (code < 0 ? names.length : code));
  const counts = tally(bin, palette.length);
  const bins = palette.map((color, at) => ({ name: names[at] ?? "unknown", color, count: counts[at] }));
  return { key, name, bins, bin, z: Float32Array.from(bin), continuous: false, palette, scale: null };
}

function byValue(
  key: string, name: string, values: Float32Array, stops: string[], [low, high]: [number, number], format: (value: number) => string, text: string,
): Coloring {
  const span = high - low || 1;
  const z = Float32Array.from(values, (value) => (Number.isFinite(value) ? Math.min(1, Math.max(0, (value - low) / span)) : 0.5));
  const unknown = values.some((value) => !Number.isFinite(value));
  const bin = Uint16Array.from(values, (value, row) => (Number.isFinite(value) ? Math.min(BINS - 1, Math.floor(z[row] * BINS)) : BINS));
  const counts = tally(bin, BINS + 1);
  const edge = (at: number) => format(low + (span * at) / BINS);
  const bins = Array.from({ length: BINS }, (_, at) => ({ name: `${edge(at)} to ${edge(at + 1)}`, color: blend(stops, (at + 0.5) / BINS), count: counts[at] }));
  if (unknown) bins.push({ name: "unknown", color: GRAY, count: counts[BINS] });
  const palette = Array.from({ length: 64 }, (_, at) => blend(stops, at / 63));
  return { key, name, bins, bin, z, continuous: true, palette, scale: { low: format(low), high: format(high), text } };
}

function tally(bins: Uint16Array, n: number): number[] {
  const counts = new Array<number>(n).fill(0);
  for (const bin of bins) counts[bin]++;
  return counts;
}

function range(values: Float32Array): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low <= high ? [low, high] : [0, 1];
}

function quantile(values: Float32Array, share: number): number {
  const known = values.filter(Number.isFinite).sort();
  return known.length ? known[Math.min(known.length - 1, Math.floor(share * known.length))] || 1 : 1;
}

/** From the least to nearly the largest, so that one outlier does not take all colors. */
function spread(values: Float32Array): [number, number] {
  return [range(values)[0], quantile(values, 0.98)];
}

function blend(stops: string[], share: number): string {
  const at = share * (stops.length - 1);
  const [from, to] = [Math.floor(at), Math.min(stops.length - 1, Math.floor(at) + 1)];
  const channel = (color: string, which: number) => parseInt(color.slice(1 + 2 * which, 3 + 2 * which), 16);
  const mixed = [0, 1, 2].map((which) => Math.round(channel(stops[from], which) * (1 - at + from) + channel(stops[to], which) * (at - from)));
  return `#${mixed.map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}

function hsl(hue: number, saturation: number, lightness: number): string {
  const [s, l] = [saturation / 100, lightness / 100];
  const part = (n: number) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return `#${[0, 8, 4].map((n) => part(n).toString(16).padStart(2, "0")).join("")}`;
}
