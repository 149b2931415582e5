// The theme, light or dark.

import { byId } from "./dom";

/** Follow the system's theme until the user switches it; `changed` is called after every change. Returns the switch. */
export function followTheme(changed: () => void): () => void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (on: boolean) => {
    document.documentElement.dataset.theme = on ? "dark" : "light";
    byId("theme").textContent = on ? "☀" : "☾";
    changed();
  };
  const toggle = () => set(document.documentElement.dataset.theme !== "dark");
  set(dark.matches);
  dark.addEventListener("change", () => set(dark.matches));
  byId("theme").onclick = toggle;
  return toggle;
}
