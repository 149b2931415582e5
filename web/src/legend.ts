// The legend: the meaning of each color, and a switch for each.

import type { Coloring } from "./colors";
import { button, byId, make } from "./dom";

/** Show the legend of a coloring; `changed` receives the hidden bins. */
export function legend({ bins, scale }: Coloring, hidden: Set<number>, changed: (hidden: Set<number>) => void): void {
  const toggled = (at: number) => {
    const next = new Set(hidden);
    if (!next.delete(at)) next.add(at);
    changed(next.size === bins.length ? new Set() : next);
  };
  const only = (at: number) => changed(new Set([...bins.keys()].filter((other) => other !== at)));
  const rows = bins.map((bin, at) => {
    const swatch = make("i", "swatch");
    swatch.style.background = bin.color;
    const number = make("span", "number", bin.count.toLocaleString("en"));
    const title = hidden.has(at) ? "Show" : "Hide; double-click for this one only";
    const item = button("", title, () => toggled(at), swatch, make("span", "name", bin.name), number);
    item.setAttribute("aria-pressed", String(!hidden.has(at)));
    item.ondblclick = () => only(at);
    return make("li", "", item);
  });
  const caption = scale ? [make("li", "caption", scale.text)] : [];
  const all = hidden.size ? [make("li", "", button("all", "", () => changed(new Set()), "Show all"))] : [];
  byId("legend").replaceChildren(...caption, ...rows, ...all);
}
