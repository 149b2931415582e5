// Keys that work wherever one is, except while typing.

export const KEYS: [string, string][] = [
  ["/", "go to a point by its number"],
  ["N P", "next and previous in the list"],
  ["[ ]", "fewer and more neighbors"],
  ["Z", "zoom to the neighbors, or to the selection"],
  ["⌫", "back to the point before"],
  ["Esc", "close what is open"],
  ["C", "color by something else"],
  ["L V", "lasso, and back to moving"],
  ["← ↑ ↓ →", "move the map"],
  ["+ − 0", "zoom in, zoom out, the whole map"],
  ["T", "light or dark"],
  ["?", "these keys"],
];

interface Acts {
  find(): void;
  lasso(): void;
  move(): void;
  zoom(factor: number): void;
  pan(right: number, up: number): void;
  whole(): void;
  walk(step: number): void;
  near(): void;
  k(step: number): void;
  back(): unknown;
  clear(): void;
  theme(): void;
  help(): void;
  color(): void;
}

export function listen(acts: Acts): void {
  const by: Record<string, () => unknown> = {
    "/": acts.find, l: acts.lasso, v: acts.move, "+": () => acts.zoom(1.6), "=": () => acts.zoom(1.6), "-": () => acts.zoom(1 / 1.6), "0": acts.whole,
    ArrowLeft: () => acts.pan(-1, 0), ArrowRight: () => acts.pan(1, 0), ArrowUp: () => acts.pan(0, 1), ArrowDown: () => acts.pan(0, -1),
    n: () => acts.walk(1), p: () => acts.walk(-1), z: acts.near, "]": () => acts.k(1), "[": () => acts.k(-1), Backspace: acts.back, Escape: acts.clear, t: acts.theme, "?": acts.help, c: acts.color,
  };
  document.addEventListener("keydown", (event) => {
    const at = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || !byCover()) return;
    if (at.matches(event.key.startsWith("Arrow") ? "input, select, [role=tab]" : "input:not([type=range]), select, textarea")) {
      if (event.key === "Escape") at.blur();
      return;
    }
    const act = by[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function byCover(): boolean {
  return document.getElementById("cover")?.hidden === true;
}
