// What comes from outside the page: light or dark, and pictures dropped or pasted.

import { byId } from "./dom";

/** Follow the system, until it is switched here; `dress` is told of every change. Returns the switch. */
export function lights(dress: () => void): () => void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (on: boolean) => {
    document.documentElement.dataset.theme = on ? "dark" : "light";
    byId("theme").textContent = on ? "☀" : "☾";
    dress();
  };
  const turned = () => set(document.documentElement.dataset.theme !== "dark");
  set(dark.matches);
  dark.addEventListener("change", () => set(dark.matches));
  byId("theme").onclick = turned;
  return turned;
}

export function dropping(take: (files: File[]) => void): void {
  const over = byId("dropping");
  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) take([...event.clipboardData.files]);
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    over.hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) over.hidden = true;
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    over.hidden = true;
    take([...(event.dataTransfer?.files ?? [])]);
  });
}

/** A picture file as an element, once it is decoded. */
export async function opened(file: File): Promise<HTMLImageElement> {
  const picture = document.createElement("img");
  const address = URL.createObjectURL(file);
  picture.src = address;
  await picture.decode().catch(() => undefined); // the service could read it, or there would be no neighbors
  URL.revokeObjectURL(address);
  return picture;
}
