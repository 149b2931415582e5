// Keyboard shortcuts; they are off while the user types.

export const KEYS: [string, string][] = [
  ["/", "go to a point by its number"],
  ["N P", "next and previous in the list"],
  ["A", "accept the suggested label, or take it back"],
  ["I", "images on the map"],
  ["[ ]", "fewer and more neighbors"],
  ["Z", "zoom to the neighbors, or to the selection"],
  ["⌫", "back to the previous point"],
  ["Esc", "close the panel"],
  ["C", "next coloring"],
  ["L V", "lasso, and move"],
  ["← ↑ ↓ →", "move the map"],
  ["+ − 0", "zoom in, zoom out, the whole map"],
  ["T", "light or dark"],
  ["?", "these keys"],
];

interface Actions {
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
  accept(): void;
  images(): void;
}

export function listen(actions: Actions): void {
  const by: Record<string, () => unknown> = {
    "/": actions.find, l: actions.lasso, v: actions.move, "+": () => actions.zoom(1.6), "=": () => actions.zoom(1.6), "-": () => actions.zoom(1 / 1.6), "0": actions.whole,
    ArrowLeft: () => actions.pan(-1, 0), ArrowRight: () => actions.pan(1, 0), ArrowUp: () => actions.pan(0, 1), ArrowDown: () => actions.pan(0, -1),
    n: () => actions.walk(1), p: () => actions.walk(-1), z: actions.near, "]": () => actions.k(1), "[": () => actions.k(-1), Backspace: actions.back, Escape: actions.clear, t: actions.theme, "?": actions.help, c: actions.color, a: actions.accept, i: actions.images,
  };
  document.addEventListener("keydown", (event) => {
    const at = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || !isReady()) return;
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

function isReady(): boolean {
  return document.getElementById("cover")?.hidden === true;
}
