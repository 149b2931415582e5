"""The paper and ink of every figure, and the one way to save it. matplotlib (`pip install 'nearkin[plot]'`) is imported when needed.

Figures are made without pyplot and with every size and color given, so that neither the caller's backend, nor his
open figures, nor his rcParams are touched or matter.
"""

import io
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

# Ten colors that stay apart for normal, protan, deutan and tritan sight: at least 15 OKLab steps (of 100) between any two,
# where matplotlib's own ten come as near as 1. Found by search; a test measures them.
PALETTE = ("#21275d", "#d97812", "#0f8398", "#a43cfc", "#b02c1d", "#e1c93c", "#a09cf9", "#5a0b01", "#56e4d2", "#6c06b2")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")  # after ten classes colors come again, with another shape
RIGHT, WRONG = "#0a7f5a", "#cc3311"  # bluish green and vermilion; a sign stands beside them, for those who see no difference
INK, GRAY, QUIET, PAPER = "#1b1b1b", "#6a6a6a", "#c8c8c8", "#ffffff"
DPI = 200
TITLE, LABEL = 8.0, 6.5  # points; at 1,200 pixels shown 850 wide a title is about 16 pixels high
FORMATS = (".png", ".svg")


def blank(width: int, height: int) -> Any:
    """An empty figure of so many pixels."""
    figure = matplotlib_part("figure").Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    matplotlib_part("backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure as .png or .svg, as the path says, and make its folder."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"path {path} ends with {path.suffix or 'nothing'!r}; figures are written as {' or '.join(FORMATS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_bytes(figure, path.suffix))
    return path


def as_bytes(figure: Any, suffix: str = ".png") -> bytes:
    """The file that `save` would write; an SVG carries no date, so that equal figures stay equal."""
    page = io.BytesIO()
    metadata = {"Date": None} if suffix == ".svg" else None
    figure.savefig(page, format=suffix[1:], dpi=DPI, facecolor=PAPER, metadata=metadata)
    return page.getvalue()


def matplotlib_part(part: str) -> Any:
    """A module of matplotlib, or a word on how to get it."""
    try:
        return import_module(f"matplotlib.{part}")
    except ImportError as error:
        raise ImportError("figures need matplotlib, which is not installed; pip install 'nearkin[plot]'") from error


def framed(axes: Any) -> Any:
    """Axes with a thin frame on two sides, a faint grid and small numbers."""
    for side, spine in axes.spines.items():
        spine.set(color=QUIET, linewidth=0.6, visible=side in ("left", "bottom"))
    axes.tick_params(labelsize=LABEL, color=QUIET, labelcolor=INK, width=0.6, length=2.5)
    axes.grid(color=QUIET, linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    axes.set_facecolor(PAPER)
    return axes


def named(axes: Any, title: str, across: str, up: str) -> None:
    """Title and axis labels in the house's sizes."""
    axes.set_title(title, fontsize=TITLE, color=INK, pad=6, linespacing=1.35)
    axes.set_xlabel(across, fontsize=LABEL + 0.5, color=INK)
    axes.set_ylabel(up, fontsize=LABEL + 0.5, color=INK)


def key(axes: Any, **where: Any) -> None:
    """A legend on paper of its own, so that lines do not cross it."""
    axes.legend(fontsize=LABEL, facecolor=PAPER, edgecolor="none", framealpha=0.9, labelcolor=INK, **where)


def light(color: str) -> bool:
    """Whether black reads better on it than white, by its relative luminance."""
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return bool(linear @ [0.2126, 0.7152, 0.0722] > 0.25)


def shortened(name: object, most: int = 16) -> str:
    """A name that fits: its beginning and an ellipsis when it is longer than `most`."""
    text = str(name)
    return text if len(text) <= most else text[: most - 1] + "…"


def as_picture(image: ArrayLike) -> np.ndarray:
    """An image (c, h, w), uint8 or floats in 0..1, as matplotlib draws it: (h, w, 3) floats in 0..1; gray is repeated.

    With two channels, or more than three, the first is shown.
    """
    array = np.asarray(image)
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"an image has shape {array.shape}; give (c, h, w)")
    scaled = array.astype(np.float64) / (255 if array.dtype == np.uint8 else 1)
    shown = scaled if len(scaled) == 3 else np.repeat(scaled[:1], 3, axis=0)
    return np.clip(shown.transpose(1, 2, 0), 0, 1)
