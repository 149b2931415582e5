// What the page says while it waits, and when something goes wrong.

import { byId } from "./dom";

/** Over everything: what is being done, or what went wrong. Without a title it goes away. */
export function cover(title: string | null, text = "", busy = true): void {
  const over = byId("cover");
  over.hidden = title === null;
  over.classList.toggle("wrong", !busy);
  byId("state").textContent = title ?? "";
  byId("says").textContent = text;
  byId("again").hidden = busy;
}

let telling = 0;

/** A line that goes away by itself. */
export function note(text: string, wrong = false): void {
  const toast = byId("toast");
  toast.hidden = !text;
  toast.textContent = text;
  toast.classList.toggle("wrong", wrong);
  clearTimeout(telling);
  if (text) telling = window.setTimeout(() => note(""), 8000);
}
