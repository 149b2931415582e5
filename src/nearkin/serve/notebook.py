"""The explorer in a notebook: the same page in a frame, whose selection comes back to Python (`pip install 'nearkin[notebook]'`)."""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from nearkin.compose.validation import check_choice, check_whole
from nearkin.data.progress import Report
from nearkin.index.given import index_vectors
from nearkin.serve.atlas.export import page_text
from nearkin.serve.atlas.model_maps import Indexed, build_maps

FRAME = """
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-forms allow-downloads allow-modals");
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 1px solid #8884; border-radius: 8px`;
  frame.title = "nearkin explorer";
  frame.srcdoc = model.get("page");
  const hear = (event) => {
    const ids = event.source === frame.contentWindow ? event.data?.nearkin?.selection : undefined;
    if (!ids) return;
    model.set("selection", ids);
    model.save_changes();
  };
  const tell = () => frame.contentWindow?.postMessage({ nearkin: { show: model.get("shown") } }, "*");
  window.addEventListener("message", hear);
  model.on("change:shown", tell);
  el.append(frame);
  return () => {
    window.removeEventListener("message", hear);
    model.off("change:shown", tell);
  };
}
export default { render };
"""


def show(
    embeddings: Any,
    labels: Any = None,
    images: Any = None,
    *,
    metric: str | None = None,
    method: str = "tsne",
    height: int = 720,
    report: Report | None = None,
) -> Any:
    """Show embeddings in a notebook: a map, exact neighbors, wrong labels and copies, on the page of `nearkin serve`.

    Parameters
    ----------
    embeddings : array, tensor, frame or path
        Vectors (n, d), as of `nearkin.index_vectors`.
    labels : sequence, optional
        (n,) class names, numbers or None.
    images : path, sequence of paths, array or sequence of Pillow images, optional
        One for each point: a folder, files, an array (n, h, w) or (n, h, w, c) of uint8, or images.
    metric : {"cosine", "squared_euclidean", "inner_product", "hamming"}, optional
        How vectors are compared; chosen from their lengths by default.
    method : {"tsne", "pca"}, default="tsne"
        How the map is computed; PCA takes seconds.
    height : int, default=720
        Height of the frame in pixels.
    report : callable, optional
        Called with each line of progress, such as `print`.

    Returns
    -------
    anywidget.AnyWidget
        Its `selection` is the list of the rows that are selected on the page, as they are now; `widget.observe` follows them. Assign rows
        to its `shown` to select them on the page.

    Raises
    ------
    ImportError
        If anywidget is not installed.
    ValueError
        If vectors, labels and images do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> import nearkin
    >>> vectors = np.random.default_rng(0).normal(size=(40, 3))
    >>> widget = nearkin.show(vectors, labels=["cat", "dog"] * 20, method="pca")  # doctest: +SKIP
    >>> widget.selection  # doctest: +SKIP
    []
    """
    check_choice("method", method, ("tsne", "pca"))
    check_whole("height", height)
    widget = _widget_class()
    with TemporaryDirectory() as place:
        files = None if images is None else _files(images, Path(place) / "images")
        collection = index_vectors(embeddings, Path(place) / "embeddings", labels=labels, images=files, metric=metric, report=report)
        maps = list(build_maps([Indexed(Path(place) / "embeddings", collection.index)], method, report))[-1]  # type: ignore[arg-type]
        return widget(page=page_text(maps), height=height)


def _widget_class() -> Any:
    """The widget; its class needs anywidget, which is imported only here."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError(f"show needs anywidget ({error}); install it with: pip install 'nearkin[notebook]'") from error

    class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
        """The page in a frame."""

        _esm = FRAME
        page = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int(720).tag(sync=True)
        selection = traitlets.List(traitlets.Int()).tag(sync=True)
        shown = traitlets.List(traitlets.Int()).tag(sync=True)

    return Explorer


def _files(images: Any, folder: Path) -> str | os.PathLike[str] | Sequence[str]:
    """Paths as they are; arrays and Pillow images as files in a folder."""
    if isinstance(images, str | os.PathLike):
        return images
    listed = [np.asarray(one) if not isinstance(one, str | os.PathLike | Image.Image) else one for one in images]
    if all(isinstance(one, str | os.PathLike) for one in listed):
        return [os.fspath(one) for one in listed]  # type: ignore[arg-type]
    folder.mkdir()
    paths = []
    for row, one in enumerate(listed):
        paths.append(str(folder / f"{row:08d}.png"))
        (one if isinstance(one, Image.Image) else Image.fromarray(_pixels(one, row))).save(paths[-1])
    return paths


def _pixels(image: Any, row: int) -> np.ndarray:
    """(h, w) or (h, w, 3) uint8; channels may be first, and may be one."""
    found = np.asarray(image)
    if found.ndim == 3 and found.shape[0] in (1, 3) and found.shape[2] not in (1, 3):
        found = found.transpose(1, 2, 0)
    found = found[:, :, 0] if found.ndim == 3 and found.shape[2] == 1 else found
    if found.dtype != np.uint8 or found.ndim not in (2, 3):
        raise ValueError(
            f"images: image {row} is {found.dtype} {np.shape(image)}; give uint8 pixels (h, w), (h, w, c), files or Pillow images"
        )
    return np.ascontiguousarray(found)
