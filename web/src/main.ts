// The explorer: what is shown, and what every part does to the others.

import { labelOf, type Atlas } from "./atlas";
import { disk, service, type Backend } from "./backend";
import { colorings, type Coloring } from "./colors";
import { button, byId, count, make } from "./dom";
import { hoverCard } from "./hovering";
import { inspect, selection, welcome, type Visit } from "./inspector";
import { KEYS, listen } from "./keys";
import { legend } from "./legend";
import { tabs, type Tab } from "./lists";
import { MapView } from "./map";
import { cover, note } from "./notices";
import { dropping, lights, opened } from "./surroundings";

const backend: Backend = window.nearkin ? disk : service;
const STEP = 20;

let atlas: Atlas;
let maps: MapView[] = [];
let ways: Coloring[][] = []; // for each model
let way = 0;
let hidden = new Set<number>();
let k = 10;
let visit: Visit | null = null;
let chosen: { title: string; rows: number[] } | null = null;
let before: number[] = []; // points visited, for the way back
let turn = 0;
let shelves: Tab[] = [];
let shelf = 0;
let walked = -1;
let listed = 0; // entries of the open list that are in the page

async function open(): Promise<void> {
  cover("Opening the atlas");
  try {
    for (;;) {
      const state = await backend.open();
      if (state.atlas) {
        await show(state.atlas);
        if (state.says) void follow(state.atlas);
        if (state.failed) note(`The map is that of an older index: ${state.failed}`, true);
        return;
      }
      cover("Drawing the atlas", `${state.says ?? ""} …`);
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
  } catch (error) {
    cover("That did not work", (error as Error).message, false);
  }
}

/** While a better map is being drawn: take it over when it is there; what is being looked at stays open. */
async function follow(drawn: Atlas): Promise<void> {
  byId("about").dataset.busy = "true";
  try {
    for (let state = await backend.open(); state.says; state = await backend.open()) {
      byId("about").title = `${state.says} …`;
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
    const state = await backend.open();
    const better = state.atlas && (state.atlas.version !== drawn.version || state.atlas.models.some((model, at) => model.method !== drawn.models[at].method));
    if (better) await show(state.atlas!);
  } catch (error) {
    note((error as Error).message, true);
  } finally {
    delete byId("about").dataset.busy;
    byId("about").title = "";
  }
}

async function show(fresh: Atlas): Promise<void> {
  const same = atlas !== undefined && atlas.version === fresh.version;
  atlas = fresh;
  const room = byId("maps");
  for (const map of maps) map.destroy();
  const beside = atlas.models.length > 1;
  maps = atlas.models.map((model) => new MapView(atlas, model, { hover, pick, select: (rows) => select("Selection", rows), clear }, beside ? model.name : ""));
  room.replaceChildren(...maps.map((map) => map.element));
  room.classList.toggle("beside", beside);
  for (const map of maps) map.start();
  ways = atlas.models.map((_, at) => colorings(atlas, at));
  if (!same) {
    way = 0;
    hidden = new Set();
    [visit, chosen, before] = [null, null, []];
  }
  choices();
  await paint();
  const drawn = { tsne: "t-SNE", pca: "PCA" };
  const names = atlas.models.map((model) => model.name).join(" and ");
  byId("about").textContent = `${names} · ${count(atlas.count, "point")} · ${atlas.models[0].dimension} dimensions · map by ${drawn[atlas.models[0].method as "tsne"]}`;
  shelves = tabs(atlas, backend, { pick, select, pair: (row, other) => void pair(row, other), note });
  if (!same) shelf = Math.max(0, shelves.findIndex((tab) => tab.total));
  shelve();
  byId("find").hidden = false;
  byId("choose").hidden = !atlas.pictured;
  cover(null);
  side();
  point();
  document.documentElement.dataset.drawn = `${atlas.count} ${atlas.models[0].method}`;
  performance.mark("drawn");
}

function choices(): void {
  const by = byId<HTMLSelectElement>("by");
  by.replaceChildren(...ways[0].map((one, at) => {
    const option = make("option", "", one.name);
    option.value = String(at);
    return option;
  }));
  by.value = String(way);
}

async function paint(): Promise<void> {
  legend(ways[0][way], hidden, (next) => {
    hidden = next;
    void paint();
  });
  await Promise.all(maps.map((map, at) => map.color(ways[at][way], hidden)));
}

function recolor(next: number): void {
  [way, hidden] = [next, new Set()];
  byId<HTMLSelectElement>("by").value = String(way);
  void paint();
}

function shelve(): void {
  byId("tabs").replaceChildren(...shelves.map((tab, at) => {
    const own = button("", "", () => { shelf = at; shelve(); }, tab.name, make("small", "", tab.total.toLocaleString("en")));
    own.setAttribute("role", "tab");
    own.setAttribute("aria-selected", String(at === shelf));
    own.id = `tab-${tab.key}`;
    return own;
  }));
  const tab = shelves[shelf];
  [walked, listed] = [-1, 0];
  const says = tab ? tab.says : "Without labels and splits there is nothing to list.";
  byId("list").replaceChildren(make("p", "says", says), ...(tab?.head ? [tab.head()] : []));
  grow();
}

/** More entries of the open list: each may load a sheet of pictures, so they come as they are scrolled to. */
function grow(): void {
  const more = shelves[shelf]?.entries.slice(listed, listed + STEP) ?? [];
  listed += more.length;
  byId("list").append(...more.map((entry) => entry()));
}

/** The next or the one before in the open list. */
function walk(step: number): void {
  if (walked + step >= listed) grow();
  const entries = [...byId("list").querySelectorAll<HTMLButtonElement>(".entry")];
  if (!entries.length) return;
  walked = Math.min(entries.length - 1, Math.max(0, walked + step));
  entries[walked].scrollIntoView({ block: "nearest" });
  entries[walked].click();
}

function current(row: number | null): void {
  const entries = [...byId("list").querySelectorAll<HTMLElement>(".entry")];
  entries.forEach((entry, at) => {
    const own = row !== null && entry.dataset.row === String(row);
    entry.classList.toggle("current", own);
    if (own) walked = at;
  });
}

function side(): void {
  const right = byId("right");
  const acts = { pick, point: ring, k: setK, zoom, back: before.length > 1 ? back : null, clear };
  if (visit) {
    const focused = document.activeElement?.id === "k";
    right.replaceChildren(inspect(atlas, backend, visit, k, acts));
    if (focused) byId("k").focus();
  } else if (chosen) right.replaceChildren(selection(atlas, backend, chosen.title, chosen.rows, acts));
  else {
    const worst = atlas.models[0].lists.worst;
    right.replaceChildren(welcome(atlas, worst.length ? () => pick(worst[0]) : null, atlas.live));
  }
}

/** Show on the maps what is being looked at. */
function point(): void {
  maps.forEach((map, at) => {
    map.gather(chosen && !visit ? chosen.rows : []);
    const found = visit?.near.models[at];
    map.point(found ? { row: visit!.row, at: found.at, picture: visit!.picture, rows: found.rows.slice(0, k), right: found.right.slice(0, k) } : null);
  });
}

function setK(value: number): void {
  k = Math.max(1, Math.min(Math.min(...atlas.models.map((model) => model.k)), value));
  side();
  point();
}

function pick(row: number): void {
  before.push(row);
  void go(row);
}

function back(): void {
  before.pop();
  const row = before.at(-1);
  if (row !== undefined) void go(row);
}

async function go(row: number): Promise<void> {
  const mine = ++turn;
  current(row);
  hover(null, null);
  try {
    const near = await backend.near(atlas, row);
    if (mine !== turn) return;
    visit = { row, near };
    side();
    point();
    maps.forEach((map, at) => map.approach([row, ...near.models[at].rows.slice(0, k)]));
  } catch (error) {
    note((error as Error).message, true);
  }
}

async function pair(row: number, other: number): Promise<void> {
  before.push(row);
  await go(row);
  if (visit?.row === row) maps.forEach((map) => map.ring(other));
}

function select(title: string, rows: number[]): void {
  turn++;
  [visit, chosen, before] = [null, { title, rows }, []];
  current(rows[0]);
  side();
  point();
}

function clear(): void {
  turn++;
  if (!visit && !chosen) return;
  if (visit) visit = null;
  else chosen = null;
  before = [];
  current(null);
  ring(null);
  side();
  point();
}

function hover(row: number | null, at: [number, number] | null): void {
  hoverCard(atlas, backend, maps, row, at);
}

function ring(row: number | null): void {
  for (const map of maps) map.ring(row);
}

async function take(files: Iterable<File> | null | undefined): Promise<void> {
  const file = [...(files ?? [])].find((one) => one.type.startsWith("image/"));
  if (!file) return note("That is not a picture. PNG, JPEG, WebP, GIF and BMP can be read.", true);
  if (!atlas) return;
  const mine = ++turn;
  note(atlas.live ? "Looking for its neighbors …" : "");
  try {
    const near = await backend.drop(atlas, file);
    if (mine !== turn) return;
    visit = { row: null, near, picture: await opened(file) };
    [chosen, before] = [null, []];
    note("");
    side();
    point();
    maps.forEach((map, at) => map.approach(near.models[at].rows.slice(0, k)));
  } catch (error) {
    note((error as Error).message, true);
  }
}

function zoom(): void {
  if (visit) maps.forEach((map, at) => map.approach([...(visit!.row === null ? [] : [visit!.row]), ...visit!.near.models[at].rows.slice(0, k)], true));
  else if (chosen) maps.forEach((map) => map.approach(chosen!.rows, true));
}

function find(text: string): void {
  const id = Number(text.replace(/^#/, "").trim());
  const row = text.trim() === "" ? -1 : atlas.ids.indexOf(id);
  if (row < 0) return note(`No point has the number ${text || "nothing"}. There are ${count(atlas.count, "point")}, from ${atlas.ids[0]} on.`, true);
  pick(row);
  maps.forEach((map) => map.approach([row], true));
}

function lasso(on: boolean): void {
  for (const map of maps) map.lasso(on);
  byId("lasso").setAttribute("aria-pressed", String(on));
  byId("pan").setAttribute("aria-pressed", String(!on));
}

function begin(): void {
  const turned = lights(() => maps.forEach((map) => map.dress()));
  byId("again").onclick = () => void open();
  byId<HTMLSelectElement>("by").onchange = (event) => recolor(Number((event.target as HTMLSelectElement).value));
  byId("find").onsubmit = (event) => {
    event.preventDefault();
    find(byId<HTMLInputElement>("id").value);
  };
  byId("choose").onclick = () => (atlas.live ? byId("file").click() : void backend.drop(atlas, new File([], "")).catch((error: Error) => note(error.message)));
  byId("file").onchange = () => {
    const input = byId<HTMLInputElement>("file");
    void take(input.files ? [...input.files] : null);
    input.value = "";
  };
  byId("list").onscroll = () => {
    const { scrollTop, clientHeight, scrollHeight } = byId("list");
    if (scrollTop + clientHeight > scrollHeight - 200) grow();
  };
  byId("pan").onclick = () => lasso(false);
  byId("lasso").onclick = () => lasso(true);
  byId("closer").onclick = () => maps.forEach((map) => map.zoom(1.6));
  byId("farther").onclick = () => maps.forEach((map) => map.zoom(1 / 1.6));
  byId("whole").onclick = () => maps.forEach((map) => map.whole());
  const keys = byId<HTMLDialogElement>("keys");
  keys.querySelector("dl")!.append(...KEYS.flatMap(([key, what]) => [make("dt", "", ...key.split(" ").map((one) => make("kbd", "", one))), make("dd", "", what)]));
  byId("help").onclick = () => keys.showModal();
  listen({
    find: () => byId("id").focus(),
    lasso: () => lasso(true),
    move: () => lasso(false),
    zoom: (factor) => maps.forEach((map) => map.zoom(factor)),
    pan: (right, up) => maps.forEach((map) => map.pan(right, up)),
    whole: () => maps.forEach((map) => map.whole()),
    walk,
    near: zoom,
    k: (step) => setK(k + step),
    back: () => before.length > 1 && back(),
    clear,
    theme: turned,
    help: () => keys.showModal(),
    color: () => recolor((way + 1) % ways[0].length),
  });
  dropping((files) => void take(files));
  void open();
}

/** For tests and for the curious: where a point is on the screen, and what is shown. */
Object.assign(window, {
  explorer: {
    screen: (row: number, which = 0) => {
      const at = maps[which].screen(row);
      const box = maps[which].element.getBoundingClientRect();
      return at && [at[0] + box.left, at[1] + box.top];
    },
    label: (row: number) => labelOf(atlas, row),
    row: () => visit?.row ?? null,
    selected: () => chosen?.rows ?? [],
  },
});

begin();
