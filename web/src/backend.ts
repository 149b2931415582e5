// The source of neighbors and images: the service, or the folder that the page was opened from.

import { bytes, decoded, type Atlas } from "./atlas";
import { make } from "./dom";

export type Row = Record<string, unknown>;

export interface Found {
  rows: number[];
  affinity: number[];
  right: number[]; // 1 right, 0 wrong, -1 unknown
  cells?: Row[]; // the metadata of the neighbors
  at?: [number, number]; // position of an uploaded image
  none_of_these?: boolean; // whether that image is like no known point
  p_value?: number; // share of the known points that are no nearer to the others
}

export interface Near {
  source: string;
  metadata: Record<string, unknown>;
  models: Found[];
}

/** An image that may still be loading, and the part of it that shows a point: left, top, width, height as shares of the image. */
export interface Thumbnail {
  image: HTMLImageElement;
  part: [number, number, number, number];
}

const loaded = new Map<string, HTMLImageElement>();

function imageAt(url: string): HTMLImageElement {
  const known = loaded.get(url);
  if (known) return known;
  const image = new Image();
  image.src = url;
  if (loaded.size > 2000) loaded.delete(loaded.keys().next().value!);
  loaded.set(url, image);
  return image;
}

export interface State {
  atlas?: Atlas;
  building?: string; // what is being computed
  failed?: string;
}

export interface Backend {
  open(): Promise<State>;
  near(atlas: Atlas, row: number): Promise<Near>;
  picture(atlas: Atlas, row: number): HTMLElement;
  thumbnail(atlas: Atlas, row: number): Thumbnail; // to draw on a canvas
  drop(atlas: Atlas, file: File): Promise<Near>;
  ask(atlas: Atlas, text: string): Promise<Near>;
}

export const NEEDS_SERVER =
  "This page was opened from disk, so it cannot encode new images. Run `nearkin serve` on the model folder and drop the image there.";

async function fetchJson(url: string, options?: RequestInit) {
  let answer: Response;
  try {
    answer = await fetch(url, options);
  } catch {
    throw new Error("The service does not respond. Is `nearkin serve` still running?");
  }
  const page = await answer.json();
  if (!answer.ok) throw new Error(page.error.message);
  return page;
}

export const service: Backend = {
  async open() {
    const page = await fetchJson("/atlas");
    if (page.state === "failed") throw new Error(page.message);
    if (page.state === "building") return { building: page.message };
    return { atlas: decoded(page.atlas), building: page.building ?? undefined, failed: page.failed ?? undefined };
  },
  near: (atlas, row) => fetchJson(`/atlas/near/${row}?k=${atlas.models[0].k}&version=${atlas.version}`),
  picture(atlas, row) {
    const image = make("img", "picture");
    image.alt = "";
    image.loading = "lazy";
    image.onload = () => image.classList.toggle("tiny", image.naturalWidth <= 64);
    image.src = `/image/${atlas.ids[row]}`;
    return image;
  },
  thumbnail: (atlas, row) => ({ image: imageAt(`/image/${atlas.ids[row]}`), part: [0, 0, 1, 1] }),
  async drop(atlas, file) {
    const kind = file.type || "image/png";
    const page = await fetchJson(`/atlas/drop?k=${atlas.models[0].k}&version=${atlas.version}`, {
      method: "POST",
      headers: { "Content-Type": kind },
      body: file,
    });
    return { source: file.name || "your image", metadata: {}, models: page.models };
  },
  async ask(atlas, text) {
    const page = await fetchJson(`/atlas/drop?k=${atlas.models[0].k}&version=${atlas.version}`, {
      method: "POST",
      headers: { "Content-Type": "text/plain" },
      body: text,
    });
    return { source: "", metadata: { text }, models: page.models };
  },
};

interface Chunk {
  sources: string[];
  metadata: Record<string, unknown>[];
  models: { rows: string; affinity: string; right: string }[];
}

declare global {
  interface Window {
    nearkin?: Record<string, unknown>;
  }
}

const loading = new Map<number, Promise<Chunk>>();

/** The neighbors of a thousand points: a script in the same folder, since a page from disk may not read files. */
function chunk(number: number): Promise<Chunk> {
  const known = loading.get(number);
  if (known) return known;
  const inside = window.nearkin![String(number)] as Chunk | undefined; // a page that holds everything
  if (inside) return Promise.resolve(inside);
  const loaded = new Promise<Chunk>((resolve, reject) => {
    const script = make("script");
    script.src = `near/${number}.js`;
    script.onload = () => resolve(window.nearkin![String(number)] as Chunk);
    script.onerror = () => reject(new Error(`near/${number}.js is missing in the folder of this page. Copy the whole folder, or export it again.`));
    document.head.append(script);
  });
  loading.set(number, loaded);
  return loaded;
}

async function rowOf(atlas: Atlas, row: number): Promise<Row> {
  return (await chunk(Math.floor(row / atlas.chunk))).metadata[row % atlas.chunk];
}

/** Where a sheet of images is: in the folder, or in the page itself. */
function sheet(atlas: Atlas, number: number): string {
  return (window.nearkin!.pictures as string[] | undefined)?.[number] ?? `pictures/${number}.${atlas.sheets!.suffix}`;
}

export const disk: Backend = {
  async open() {
    return { atlas: decoded(window.nearkin!.atlas) };
  },
  async near(atlas, row) {
    const part = await chunk(Math.floor(row / atlas.chunk));
    const at = row % atlas.chunk;
    const models = await Promise.all(part.models.map(async (json, number): Promise<Found> => {
      const k = atlas.models[number].k;
      const cut = <T extends { slice(a: number, b: number): T }>(array: T) => array.slice(at * k, (at + 1) * k);
      const rows = [...cut(new Int32Array(bytes(json.rows)))];
      const there = rows.filter((one) => one >= 0).length;
      const near = rows.slice(0, there);
      const cells = atlas.pictured ? undefined : await Promise.all(near.map((one) => rowOf(atlas, one)));
      return {
        rows: near,
        affinity: [...cut(new Float32Array(bytes(json.affinity)))].slice(0, there),
        right: [...cut(new Int8Array(bytes(json.right)))].slice(0, there),
        cells,
      };
    }));
    return { source: part.sources[at], metadata: part.metadata[at], models };
  },
  picture(atlas, row) {
    const tile = make("span", "picture");
    const sheets = atlas.sheets;
    if (!sheets) return tile;
    const at = row % atlas.chunk;
    const place = (which: number, of: number) => `${of > 1 ? (100 * which) / (of - 1) : 0}%`;
    tile.style.backgroundImage = `url(${sheet(atlas, Math.floor(row / atlas.chunk))})`;
    tile.style.backgroundSize = `${100 * sheets.across}% ${100 * sheets.down}%`;
    tile.style.backgroundPosition = `${place(at % sheets.across, sheets.across)} ${place(Math.floor(at / sheets.across), sheets.down)}`;
    tile.classList.toggle("tiny", sheets.side <= 64);
    return tile;
  },
  thumbnail(atlas, row) {
    const { across, down } = atlas.sheets!;
    const at = row % atlas.chunk;
    return { image: imageAt(sheet(atlas, Math.floor(row / atlas.chunk))), part: [(at % across) / across, Math.floor(at / across) / down, 1 / across, 1 / down] };
  },
  async drop() {
    throw new Error(NEEDS_SERVER);
  },
  async ask() {
    throw new Error(NEEDS_SERVER);
  },
};
