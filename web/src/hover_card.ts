// The card next to the point under the pointer.

import { nameOf, type Atlas } from "./atlas";
import type { Backend } from "./backend";
import { byId, make, percent } from "./dom";
import { pictures } from "./inspector";
import type { MapView } from "./map";

const PANEL = 400; // pixels on the right that the card must not cover

export function hoverCard(atlas: Atlas, backend: Backend, maps: MapView[], row: number | null, at: [number, number] | null): void {
  const card = byId("hover");
  card.hidden = row === null;
  for (const map of maps) map.ring(row);
  if (row === null || !at) return;
  const map = maps.find((one) => one.element.matches(":hover")) ?? maps[0];
  const purity = atlas.models[maps.indexOf(map)].purity?.[row];
  const words = [make("b", "", nameOf(atlas, row))];
  if (purity !== undefined && !Number.isNaN(purity)) words.push(make("b", "small", `${percent(purity)} right`));
  card.replaceChildren(...pictures(atlas, backend, row), make("span", "words", ...words));
  card.dataset.row = String(row);
  const box = map.element.getBoundingClientRect();
  const [left, top] = [box.left + at[0], box.top + at[1]];
  card.style.left = `${left + 150 > innerWidth - PANEL ? left - card.offsetWidth - 16 : left + 16}px`;
  card.style.top = `${Math.min(innerHeight - card.offsetHeight - 12, Math.max(60, top - card.offsetHeight / 2))}px`;
}
