// One map: regl-scatterplot for the points, and a canvas above it for labels and highlights.

import createScatterplot from "regl-scatterplot";
import type { Atlas, Model } from "./atlas";
import type { Thumbnail } from "./backend";
import { RIGHT, WRONG, type Coloring } from "./colors";
import { make, shortened } from "./dom";

export interface Shown {
  row: number | null; // the query, or null for an uploaded image
  at?: [number, number]; // position of that image
  picture?: HTMLImageElement;
  rows: number[];
  right: number[];
}

export interface Actions {
  hover(row: number | null, at: [number, number] | null): void;
  pick(row: number): void;
  select(rows: number[]): void;
  clear(): void;
}

const WHOLE = { x: -1.04, y: -1.1, width: 2.08, height: 2.14 }; // with space below for the tools
const MIDDLE: [number, number] = [WHOLE.x + WHOLE.width / 2, WHOLE.y + WHOLE.height / 2];
const [PICTURE, CELL] = [36, 42]; // pixels of an image on the map, and of the cell that has at most one
const MOST_NAMES = 24; // classes whose names fit on a map
const [LINE, GAP, LONGEST] = [17, 3, 40]; // pixels of a name's line, pixels between names, characters of a name
const SHIFTS = [0, -1, 1, -2, 2]; // lines by which a name may be moved to where it covers no other

interface Box {
  text: string;
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export class MapView {
  readonly element = make("figure", "map");
  private readonly canvas = make("canvas", "points");
  private readonly above = make("canvas", "above");
  private plot!: ReturnType<typeof createScatterplot>;
  private shown: Shown | null = null;
  private group: number[] = [];
  private pointed: number | null = null;
  private coloring: Coloring | null = null;
  private names: { text: string; row: number }[] = []; // largest class first
  private placed: Box[] = []; // the names that were drawn last
  private lassoed = false;
  private visible: Set<number> | null = null;
  private drawn = false;
  private thumbnail: ((row: number) => Thumbnail) | null = null;
  private pictured: { row: number; drawn: Thumbnail }[] = []; // points whose images are on the map
  private waiting = 0; // the timer after which images are chosen again
  private ends: [number, number] = [0, 0]; // two rows far apart in both directions, to convert positions to pixels

  constructor(private readonly atlas: Atlas, private readonly model: Model, private readonly actions: Actions, title: string) {
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Map of ${atlas.count} points${title ? ` by ${title}` : ""}`);
    this.element.append(this.canvas, this.above);
    if (title) this.element.append(make("figcaption", "", title));
    new ResizeObserver(() => this.mark()).observe(this.element);
  }

  /** Set up WebGL; the element must be in the page, since the plot takes its size from it. */
  start(): void {
    const wide = this.element.clientWidth / this.element.clientHeight || 1;
    const narrow = Math.min(1, wide); // the map is zoomed out by this factor, and so are its points
    const size = (this.atlas.count < 3000 ? 6 : this.atlas.count < 20000 ? 4 : 2.5) / narrow ** 0.8;
    const opacity = this.atlas.count < 3000 ? 0.9 : this.atlas.count < 20000 ? 0.75 : 0.6;
    this.plot = createScatterplot({
      canvas: this.canvas, width: "auto", height: "auto", pointSize: size, opacity, pointSizeSelected: 2, pointOutlineWidth: 1.5,
      lassoInitiator: false, lassoMinDelay: 8, lassoMinDist: 3, deselectOnEscape: false, deselectOnDblClick: false,
      opacityInactiveMax: 1, opacityInactiveScale: 1, showReticle: false, cameraTarget: MIDDLE, cameraDistance: Math.max(WHOLE.height, WHOLE.width / wide) / 2, ...({ actionKeyMap: { lasso: "shift" } } as object),
    });
    if (!this.plot.isSupported) throw new Error("This browser has no WebGL, which the map needs. Turn on hardware acceleration, or use another browser.");
    this.plot.subscribe("pointover" as "pointOver", (row: number) => this.actions.hover(row, this.screen(row)));
    this.plot.subscribe("pointout" as "pointOut", () => this.actions.hover(null, null));
    this.plot.subscribe("lassoEnd", () => { this.lassoed = true; });
    this.plot.subscribe("select", ({ points }: { points: number[] }) => {
      const lasso = this.lassoed;
      this.lassoed = false;
      if (points.length === 1 && !lasso) this.actions.pick(points[0]);
      else if (points.length) this.actions.select([...points]);
    });
    this.plot.subscribe("deselect", () => this.actions.clear());
    this.plot.subscribe("draw", () => {
      this.mark();
      if (!this.thumbnail) return;
      window.clearTimeout(this.waiting);
      this.waiting = window.setTimeout(() => this.choosePictures(), 120);
    });
    this.ends = this.far();
    this.applyTheme();
  }

  /** Apply the colors of the theme. */
  applyTheme(): void {
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => hex(style.getPropertyValue(name).trim());
    this.plot.set({ backgroundColor: color("--map"), pointColorActive: color("--ink"), pointColorHover: color("--ink"), lassoColor: color("--accent") });
    this.mark();
  }

  async color(coloring: Coloring, hidden: Set<number>): Promise<void> {
    const fresh = this.coloring !== coloring;
    this.coloring = coloring;
    if (fresh) {
      this.plot.set({ colorBy: "valueA", pointColor: coloring.palette.length > 1 ? coloring.palette : [coloring.palette[0], coloring.palette[0]] });
      const values = { x: this.model.x, y: this.model.y, z: coloring.z };
      await this.plot.draw(values, { zDataType: coloring.continuous ? "continuous" : "categorical" });
      this.drawn = true;
      this.names = coloring.key === "class" && coloring.bins.length <= MOST_NAMES ? this.middles(coloring) : [];
    }
    await this.show(hidden);
    this.mark();
  }

  private async show(hidden: Set<number>): Promise<void> {
    const bin = this.coloring!.bin;
    if (!hidden.size) {
      if (this.visible) await this.plot.unfilter({ preventEvent: true });
      this.visible = null;
      return;
    }
    const rows: number[] = [];
    for (let row = 0; row < bin.length; row++) if (!hidden.has(bin[row])) rows.push(row);
    this.visible = new Set(rows);
    await this.plot.filter(rows, { preventEvent: true });
  }

  /** Draw images of points that do not overlap, or none. */
  images(thumbnail: ((row: number) => Thumbnail) | null): void {
    this.thumbnail = thumbnail;
    this.choosePictures();
  }

  /** How many images are on the map. */
  get pictures(): number {
    return this.pictured.length;
  }

  /** One point in each cell of the screen whose image covers no other. */
  private choosePictures(): void {
    this.pictured = [];
    const [a, b] = this.ends;
    const [pa, pb] = this.drawn && this.thumbnail ? [this.screen(a), this.screen(b)] : [null, null];
    if (!this.thumbnail || !pa || !pb) return this.mark();
    const { x, y } = this.model;
    const [dx, dy] = [x[b] === x[a] ? 0 : (pb[0] - pa[0]) / (x[b] - x[a]), y[b] === y[a] ? 0 : (pb[1] - pa[1]) / (y[b] - y[a])];
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    const taken = new Map<number, [number, number]>();
    const across = Math.ceil(width / CELL) + 1;
    for (let row = 0; row < x.length; row++) {
      const [left, top] = [pa[0] + (x[row] - x[a]) * dx, pa[1] + (y[row] - y[a]) * dy];
      if (left < 0 || top < 0 || left > width || top > height || (this.visible && !this.visible.has(row))) continue;
      const cell = Math.floor(top / CELL) * across + Math.floor(left / CELL);
      const near = (step: number) => {
        const other = taken.get(cell + step);
        return other !== undefined && Math.abs(other[0] - left) < CELL && Math.abs(other[1] - top) < CELL;
      };
      if (taken.has(cell) || [-across - 1, -across, 1 - across, -1, 1, across - 1, across, across + 1].some(near)) continue;
      taken.set(cell, [left, top]);
      const drawn = this.thumbnail(row);
      if (!drawn.image.complete) drawn.image.addEventListener("load", () => this.mark(), { once: true });
      this.pictured.push({ row, drawn });
    }
    this.mark();
  }

  private markPictures(pen: CanvasRenderingContext2D, paper: string): void {
    for (const { row, drawn: { image, part } } of this.pictured) {
      const at = this.screen(row);
      if (!at || !image.complete || !image.naturalWidth) continue;
      const [w, h] = [image.naturalWidth * part[2], image.naturalHeight * part[3]];
      const scale = PICTURE / Math.max(w, h);
      const [left, top] = [at[0] - (w * scale) / 2, at[1] - (h * scale) / 2];
      pen.fillStyle = this.coloring ? this.colorOf(row) : paper;
      pen.fillRect(left - 2, top - 2, w * scale + 4, h * scale + 4);
      pen.imageSmoothingEnabled = scale < 1;
      pen.drawImage(image, image.naturalWidth * part[0], image.naturalHeight * part[1], w, h, left, top, w * scale, h * scale);
    }
  }

  /** Show a query with its neighbors, or nothing. */
  point(shown: Shown | null): void {
    this.shown = shown;
    this.release(shown?.row ?? null);
    this.mark();
  }

  /** Clear the plot's own selection, unless it is the query: every change of it draws all points again. */
  private release(row: number | null): void {
    const held = this.plot.get("selectedPoints") as number[];
    if (held.length && !(held.length === 1 && held[0] === row)) this.plot.deselect({ preventEvent: true });
  }

  ring(row: number | null): void {
    this.pointed = row;
    this.mark();
  }

  /** Mark a group of points. */
  gather(rows: number[]): void {
    this.group = rows;
  }

  /** Make points visible, unless all of them are. */
  approach(rows: number[], force = false): void {
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    const inside = rows.every((row) => {
      const at = this.screen(row);
      return at && at[0] > 20 && at[0] < width - 20 && at[1] > 20 && at[1] < height - 20;
    });
    if (inside && !force) return;
    if (force) void this.plot.zoomToPoints(rows, { padding: 0.4, transition: true, transitionDuration: 300 });
    else this.whole();
  }

  lasso(on: boolean): void {
    this.plot.set({ mouseMode: on ? "lasso" : "panZoom" });
  }

  zoom(factor: number): void {
    this.look(0, 0, factor);
  }

  /** Move by a fifth of the visible part. */
  pan(right: number, up: number): void {
    this.look(0.4 * right, 0.4 * up, 1);
  }

  private look(right: number, up: number, factor: number): void {
    const camera = this.plot.get("camera") as { target: number[]; distance: number[] };
    const [distance] = camera.distance;
    const target: [number, number] = [camera.target[0] + right * distance, camera.target[1] + up * distance];
    void this.plot.zoomToLocation(target, distance / factor, { transition: true, transitionDuration: 160 });
  }

  whole(): void {
    void this.plot.zoomToArea(WHOLE, { transition: true, transitionDuration: 250 });
  }

  /** The position of a point in pixels of this element. */
  screen(row: number): [number, number] | null {
    return (this.plot.getScreenPosition(row) as [number, number] | undefined) ?? null;
  }

  /** The position of any place of the map in pixels, by interpolation between two points. */
  private spot(at: [number, number]): [number, number] | null {
    const [a, b] = this.ends;
    const [pa, pb] = [this.screen(a), this.screen(b)];
    if (!pa || !pb) return null;
    const along = (value: number, from: number, to: number, low: number, high: number) => (from === to ? low : low + ((value - from) / (to - from)) * (high - low));
    const { x, y } = this.model;
    return [along(at[0], x[a], x[b], pa[0], pb[0]), along(at[1], y[a], y[b], pa[1], pb[1])];
  }

  /** The two rows that are farthest apart along one diagonal. */
  private far(): [number, number] {
    let [low, high] = [0, 0];
    const { x, y } = this.model;
    for (let row = 1; row < x.length; row++) {
      if (x[row] + y[row] < x[low] + y[low]) low = row;
      if (x[row] + y[row] > x[high] + y[high]) high = row;
    }
    return [low, high];
  }

  /** The point of each class that is nearest to the median of its points. */
  private middles(coloring: Coloring): { text: string; row: number }[] {
    const rows: number[][] = coloring.bins.map(() => []);
    for (let row = 0; row < coloring.bin.length; row++) rows[coloring.bin[row]].push(row);
    const largest = [...rows.keys()].sort((a, b) => rows[b].length - rows[a].length);
    return largest.flatMap((at) => {
      const own = rows[at];
      if (!own.length || coloring.bins[at].name === "unknown") return [];
      const middle = (values: Float32Array) => Float32Array.from(own, (row) => values[row]).sort()[own.length >> 1];
      const [mx, my] = [middle(this.model.x), middle(this.model.y)];
      const gap = (row: number) => (this.model.x[row] - mx) ** 2 + (this.model.y[row] - my) ** 2;
      return [{ text: shortened(coloring.bins[at].name, LONGEST), row: own.reduce((best, row) => (gap(row) < gap(best) ? row : best), own[0]) }];
    });
  }

  /** Draw names, the group, the query with its neighbors, and the point under the pointer. */
  private mark(): void {
    if (!this.drawn) return;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    if (this.above.width !== width * ratio || this.above.height !== height * ratio) [this.above.width, this.above.height] = [width * ratio, height * ratio];
    const pen = this.above.getContext("2d")!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const [ink, paper] = [style.getPropertyValue("--ink"), style.getPropertyValue("--map")];
    this.markPictures(pen, paper);
    this.markGroup(pen, ink, paper);
    this.markNames(pen, ink, paper);
    this.markShown(pen, ink, paper);
    if (this.pointed !== null) this.dot(pen, this.screen(this.pointed), 7, "transparent", ink, 2);
  }

  private markGroup(pen: CanvasRenderingContext2D, ink: string, paper: string): void {
    const radius = this.group.length > 2000 ? 2 : this.group.length > 200 ? 3 : 4.5;
    for (const row of this.group) {
      if (this.visible && !this.visible.has(row)) continue;
      this.dot(pen, this.screen(row), radius, this.colorOf(row), this.group.length > 2000 ? "transparent" : ink, 1.2, paper);
    }
  }

  private markNames(pen: CanvasRenderingContext2D, ink: string, paper: string): void {
    pen.font = "600 13px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    this.placed = [];
    for (const { text, row } of this.names) {
      const at = this.screen(row);
      const box = at && !(this.visible && !this.visible.has(row)) ? this.place(text, at, pen.measureText(text).width) : null;
      if (!box) continue;
      this.placed.push(box);
      const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
      pen.lineWidth = 4;
      pen.strokeStyle = paper;
      pen.strokeText(text, x, y);
      pen.fillStyle = ink;
      pen.fillText(text, x, y);
    }
  }

  /** Where a name stands, at its point or a few lines off; null if it would cover those of larger classes everywhere. */
  private place(text: string, at: [number, number], width: number): Box | null {
    const half = width / 2 + GAP;
    const whole = this.element.clientWidth;
    const inside = at[0] >= 0 && at[0] <= whole && 2 * half <= whole;
    const center = inside ? Math.min(Math.max(at[0], half), whole - half) : at[0]; // not cut off by the edge of the map
    for (const shift of SHIFTS) {
      const middle = at[1] + shift * LINE;
      const box = { text, left: center - half, right: center + half, top: middle - LINE / 2, bottom: middle + LINE / 2 };
      if (!this.placed.some((one) => box.left < one.right && one.left < box.right && box.top < one.bottom && one.top < box.bottom)) return box;
    }
    return null;
  }

  /** The names of classes on the map, and where they stand. */
  get named(): readonly Box[] {
    return this.placed;
  }

  private markShown(pen: CanvasRenderingContext2D, ink: string, paper: string): void {
    if (!this.shown) return;
    const from = this.shown.row === null ? this.spot(this.shown.at!) : this.screen(this.shown.row);
    if (!from) return;
    const sign = (right: number) => (right === 1 ? RIGHT : right === 0 ? WRONG : ink);
    const order = this.shown.rows.map((row, at) => ({ row, right: this.shown!.right[at] })).sort((a, b) => b.right - a.right); // wrong neighbors on top
    for (const { row, right } of order) {
      const to = this.screen(row);
      if (!to) continue;
      pen.globalAlpha = right === 0 ? 0.9 : 0.45;
      pen.strokeStyle = sign(right);
      pen.lineWidth = right === 0 ? 1.6 : 1.1;
      pen.beginPath();
      pen.moveTo(...from);
      pen.lineTo(...to);
      pen.stroke();
      pen.globalAlpha = 1;
      this.dot(pen, to, 5, sign(right), paper, 1.5);
    }
    if (this.shown.picture) this.pin(pen, from, this.shown.picture, ink, paper);
    this.dot(pen, from, 8, paper, ink, 2.5);
    this.dot(pen, from, 3.5, ink, "transparent", 0);
  }

  /** An uploaded image above its position. */
  private pin(pen: CanvasRenderingContext2D, at: [number, number], picture: HTMLImageElement, ink: string, paper: string): void {
    const side = 52;
    const [left, top] = [at[0] - side / 2, at[1] - side - 20];
    pen.fillStyle = paper;
    pen.strokeStyle = ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.roundRect(left - 4, top - 4, side + 8, side + 8, 8);
    pen.fill();
    pen.stroke();
    pen.beginPath();
    pen.moveTo(at[0], top + side + 4);
    pen.lineTo(...at);
    pen.stroke();
    const scale = side / Math.max(picture.naturalWidth, picture.naturalHeight, 1);
    const [width, height] = [picture.naturalWidth * scale, picture.naturalHeight * scale];
    pen.imageSmoothingEnabled = scale < 1;
    pen.drawImage(picture, left + (side - width) / 2, top + (side - height) / 2, width, height);
  }

  private colorOf(row: number): string {
    const { palette, z, continuous } = this.coloring!;
    return palette[continuous ? Math.round(z[row] * (palette.length - 1)) : z[row]];
  }

  private dot(pen: CanvasRenderingContext2D, at: [number, number] | null, radius: number, fill: string, line: string, width: number, halo = ""): void {
    if (!at) return;
    pen.beginPath();
    pen.arc(at[0], at[1], radius, 0, 2 * Math.PI);
    if (halo) {
      pen.strokeStyle = halo;
      pen.lineWidth = width + 2;
      pen.stroke();
    }
    pen.fillStyle = fill;
    pen.fill();
    pen.strokeStyle = line;
    pen.lineWidth = width;
    if (width) pen.stroke();
  }

  destroy(): void {
    this.plot?.destroy();
  }
}

/** Any color that CSS knows, as #rrggbb. */
function hex(color: string): string {
  const pen = make("canvas").getContext("2d")!;
  pen.fillStyle = color;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  return `#${[red, green, blue].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}
