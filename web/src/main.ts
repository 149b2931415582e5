// The explorer: its state, and how its parts change it.

import { labelOf, type Atlas } from "./atlas";
import { disk, service, type Backend, type Near } from "./backend";
import { colorings, type Coloring } from "./colors";
import { button, byId, count, make } from "./dom";
import { hoverCard } from "./hover_card";
import { inspect, selection, welcome, type Visit } from "./inspector";
import { KEYS, listen } from "./keys";
import { legend } from "./legend";
import { tabs, type Tab } from "./lists";
import { MapView } from "./map";
import { cover, note } from "./notices";
import { followTheme } from "./theme";
import { decodedImage, onUpload } from "./upload";

const backend: Backend = window.nearkin ? disk : service;
const STEP = 20;

let atlas: Atlas;
let maps: MapView[] = [];
let choices: Coloring[][] = []; // for each model
let choice = 0;
let hidden = new Set<number>();
let k = 10;
let visit: Visit | null = null;
let chosen: { title: string; rows: number[] } | null = null;
let before: number[] = []; // points shown before, for the back button
let request = 0; // number of the latest one
let lists: Tab[] = [];
let list = 0; // the open one
let position = -1; // of the current entry
let listed = 0; // entries of the open list that are in the page

async function open(): Promise<void> {
  cover("Opening the map");
  try {
    for (;;) {
      const state = await backend.open();
      if (state.atlas) {
        await show(state.atlas);
        if (state.building) void follow(state.atlas);
        if (state.failed) note(`This map shows an older index: ${state.failed}`, true);
        return;
      }
      cover("Building the map", `${state.building ?? ""} …`);
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
  } catch (error) {
    cover("Something went wrong", (error as Error).message, false);
  }
}

/** While labels are judged and a better map is computed: show them when they are ready, and keep the panel open. */
async function follow(drawn: Atlas): Promise<void> {
  byId("about").dataset.busy = "true";
  try {
    for (;;) {
      const state = await backend.open();
      const fresh = state.atlas;
      const moved = fresh && (fresh.version !== drawn.version || fresh.models.some((model, at) => model.method !== drawn.models[at].method));
      if (moved) await show(drawn = fresh);
      else if (fresh && fresh.models[0].lists.judged !== drawn.models[0].lists.judged) relist(drawn = fresh);
      if (!state.building) break;
      byId("about").title = `${state.building} …`;
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  } catch (error) {
    note((error as Error).message, true);
  } finally {
    delete byId("about").dataset.busy;
    byId("about").title = "";
  }
}

/** Show other lists of the same map. */
function relist(fresh: Atlas): void {
  atlas.models.forEach((model, at) => { model.lists = fresh.models[at].lists; });
  lists = tabs(atlas, backend, { pick, select, pair: (row, other) => void pair(row, other), note });
  showLists();
}

async function show(fresh: Atlas): Promise<void> {
  const same = atlas !== undefined && atlas.version === fresh.version;
  atlas = fresh;
  const container = byId("maps");
  for (const map of maps) map.destroy();
  const compared = atlas.models.length > 1;
  maps = atlas.models.map((model) => new MapView(atlas, model, { hover, pick, select: (rows) => select("Selection", rows), clear }, compared ? model.name : ""));
  container.replaceChildren(...maps.map((map) => map.element));
  container.classList.toggle("compared", compared);
  for (const map of maps) map.start();
  choices = atlas.models.map((_, at) => colorings(atlas, at));
  if (!same) {
    choice = 0;
    hidden = new Set();
    [visit, chosen, before] = [null, null, []];
  }
  showChoices();
  await paint();
  const method = { tsne: "t-SNE", pca: "PCA" };
  const names = atlas.models.map((model) => model.name).join(" and ");
  byId("about").textContent = `${names} · ${count(atlas.count, "point")} · ${atlas.models[0].dimension} dimensions · map by ${method[atlas.models[0].method as "tsne"]}`;
  if (!same) list = 0;
  relist(atlas);
  if (!same && !lists[list]?.total) {
    list = Math.max(0, lists.findIndex((tab) => tab.total));
    showLists();
  }
  byId("find").hidden = false;
  byId("images").hidden = !atlas.pictured;
  images(same ? byId("images").matches("[aria-pressed=true]") : atlas.kind === "nothing");
  byId<HTMLInputElement>("id").placeholder = atlas.searches ? "Search a text, or a number" : atlas.sources ? "Point id" : "Point number";
  byId("choose").hidden = !(atlas.images ?? atlas.pictured);
  cover(null);
  side();
  point();
  document.documentElement.dataset.drawn = `${atlas.count} ${atlas.models[0].method}`;
  performance.mark("drawn");
}

function showChoices(): void {
  const by = byId<HTMLSelectElement>("by");
  by.replaceChildren(...choices[0].map((one, at) => {
    const option = make("option", "", one.name);
    option.value = String(at);
    return option;
  }));
  by.value = String(choice);
}

async function paint(): Promise<void> {
  legend(choices[0][choice], hidden, (next) => {
    hidden = next;
    void paint();
  });
  await Promise.all(maps.map((map, at) => map.color(choices[at][choice], hidden)));
}

function recolor(next: number): void {
  [choice, hidden] = [next, new Set()];
  byId<HTMLSelectElement>("by").value = String(choice);
  void paint();
}

function showLists(): void {
  byId("tabs").replaceChildren(...lists.map((tab, at) => {
    const own = button("", "", () => { list = at; showLists(); }, tab.name, make("small", "", tab.total.toLocaleString("en")));
    own.setAttribute("role", "tab");
    own.setAttribute("aria-selected", String(at === list));
    own.id = `tab-${tab.key}`;
    return own;
  }));
  const tab = lists[list];
  [position, listed] = [-1, 0];
  const text = tab ? tab.text : "There are no labels and no splits, so there is nothing to list.";
  byId("list").replaceChildren(make("p", "caption", text), ...(tab?.head ? [tab.head()] : []));
  grow();
}

/** Add entries to the open list as the user scrolls: each may load a sheet of images. */
function grow(): void {
  const more = lists[list]?.entries.slice(listed, listed + STEP) ?? [];
  listed += more.length;
  byId("list").append(...more.map((entry) => entry()));
}

/** Go to the next or the previous entry of the open list. */
function walk(step: number): void {
  if (position + step >= listed) grow();
  const entries = [...byId("list").querySelectorAll<HTMLButtonElement>(".entry")];
  if (!entries.length) return;
  position = Math.min(entries.length - 1, Math.max(0, position + step));
  entries[position].scrollIntoView({ block: "nearest" });
  entries[position].click();
}

function current(row: number | null): void {
  const entries = [...byId("list").querySelectorAll<HTMLElement>(".entry")];
  entries.forEach((entry, at) => {
    const own = row !== null && entry.dataset.row === String(row);
    entry.classList.toggle("current", own);
    if (own) position = at;
  });
}

function side(): void {
  const right = byId("right");
  const actions = { pick, point: ring, k: setK, zoom, back: before.length > 1 ? back : null, clear };
  if (visit) {
    const focused = document.activeElement?.id === "k";
    right.replaceChildren(inspect(atlas, backend, visit, k, actions));
    if (focused) byId("k").focus();
  } else if (chosen) right.replaceChildren(selection(atlas, backend, chosen.title, chosen.rows, actions));
  else {
    const worst = atlas.models[0].lists.worst;
    right.replaceChildren(welcome(atlas, worst.length ? () => pick(worst[0]) : null, atlas.live && atlas.images !== false));
  }
}

/** Show the current point or selection on the maps. */
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
  const own = ++request;
  current(row);
  hover(null, null);
  try {
    const near = await backend.near(atlas, row);
    if (own !== request) return;
    visit = { row, near };
    tell([row]);
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
  request++;
  [visit, chosen, before] = [null, { title, rows }, []];
  tell(rows);
  current(rows[0]);
  side();
  point();
}

function clear(): void {
  request++;
  if (!visit && !chosen) return;
  if (visit) visit = null;
  else chosen = null;
  tell(chosen?.rows ?? []);
  before = [];
  current(null);
  ring(null);
  side();
  point();
}

/** In a notebook, tell the cell which points are selected, by their ids. */
function tell(rows: number[]): void {
  if (window.nearkin?.notebook) window.parent.postMessage({ nearkin: { selection: rows.map((row) => atlas.ids[row]) } }, "*");
}

/** In a notebook, show the points that the cell selects. */
function hear(): void {
  window.addEventListener("message", (event) => {
    const ids = event.source === window.parent ? (event.data?.nearkin?.show as number[] | undefined) : undefined;
    const rows = (ids ?? []).map((id) => atlas.ids.indexOf(id)).filter((row) => row >= 0);
    if (rows.length) select("Selection", rows);
  });
}

function hover(row: number | null, at: [number, number] | null): void {
  hoverCard(atlas, backend, maps, row, at);
}

function ring(row: number | null): void {
  for (const map of maps) map.ring(row);
}

async function take(files: Iterable<File> | null | undefined): Promise<void> {
  const file = [...(files ?? [])].find((one) => one.type.startsWith("image/"));
  if (!file) return note("That is not an image. PNG, JPEG, WebP, GIF and BMP are supported.", true);
  if (atlas) await seek(() => backend.drop(atlas, file), () => decodedImage(file));
}

/** Show the neighbors of something that is not on the map: an image, or a text. */
async function seek(search: () => Promise<Near>, picture?: () => Promise<HTMLImageElement>): Promise<void> {
  const own = ++request;
  note(atlas.live ? "Searching its neighbors …" : "");
  try {
    const near = await search();
    if (own !== request) return;
    visit = { row: null, near, picture: await picture?.() };
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
  if (atlas.searches && text.trim() && !/^#?\d+$/.test(text.trim()) && !atlas.sources?.includes(text.trim())) return void seek(() => backend.ask(atlas, text.trim()));
  const named = text.trim() === "" ? -1 : (atlas.sources ?? []).indexOf(text.trim());
  const row = named >= 0 || text.trim() === "" ? named : atlas.ids.indexOf(Number(text.replace(/^#/, "").trim()));
  if (row < 0) return note(`No point has the ${atlas.sources ? "id or the number" : "number"} ${text || "nothing"}. There are ${count(atlas.count, "point")}, such as ${atlas.sources?.[0] ?? atlas.ids[0]}.`, true);
  pick(row);
  maps.forEach((map) => map.approach([row], true));
}

function lasso(on: boolean): void {
  for (const map of maps) map.lasso(on);
  byId("lasso").setAttribute("aria-pressed", String(on));
  byId("pan").setAttribute("aria-pressed", String(!on));
}

/** Show or hide images on the map. */
function images(on: boolean): void {
  const drawn = on && atlas.pictured;
  for (const map of maps) map.images(drawn ? (row) => backend.thumbnail(atlas, row) : null);
  byId("images").setAttribute("aria-pressed", String(drawn));
}

function begin(): void {
  const toggleTheme = followTheme(() => maps.forEach((map) => map.applyTheme()));
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
  byId("images").onclick = () => images(!byId("images").matches("[aria-pressed=true]"));
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
    theme: toggleTheme,
    help: () => keys.showModal(),
    color: () => recolor((choice + 1) % choices[0].length),
    accept: () => visit?.row != null && lists[list]?.accept?.(visit.row),
    images: () => images(!byId("images").matches("[aria-pressed=true]")),
  });
  onUpload((files) => void take(files));
  if (window.nearkin?.notebook) hear();
  void open();
}

/** For tests: the position of a point on the screen, and what is shown. */
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
    pictures: () => maps[0].pictures,
    names: () => maps[0].named,
  },
});

begin();
