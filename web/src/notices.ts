// Messages: the cover while the page waits or has failed, and short notes.

import { byId } from "./dom";

/** Cover the page with a title and a text; null removes the cover. */
export function cover(title: string | null, text = "", busy = true): void {
  const over = byId("cover");
  over.hidden = title === null;
  over.classList.toggle("wrong", !busy);
  byId("state").textContent = title ?? "";
  byId("detail").textContent = text;
  byId("again").hidden = busy;
}

let timer = 0;

/** A note that disappears after a few seconds. */
export function note(text: string, wrong = false): void {
  const toast = byId("toast");
  toast.hidden = !text;
  toast.textContent = text;
  toast.classList.toggle("wrong", wrong);
  clearTimeout(timer);
  if (text) timer = window.setTimeout(() => note(""), 8000);
}
