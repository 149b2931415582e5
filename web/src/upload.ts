// Images that are dropped on the page or pasted.

import { byId } from "./dom";

export function onUpload(take: (files: File[]) => void): void {
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

/** An image file as an element, once it is decoded. */
export async function decodedImage(file: File): Promise<HTMLImageElement> {
  const picture = document.createElement("img");
  const address = URL.createObjectURL(file);
  picture.src = address;
  await picture.decode().catch(() => undefined); // the service has decoded it, since there are neighbors
  URL.revokeObjectURL(address);
  return picture;
}
