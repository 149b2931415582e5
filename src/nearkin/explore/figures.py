"""Figures of embeddings, drawn by matplotlib (`pip install 'nearkin[plot]'`), which is imported when first needed.

Figures are made without pyplot and with every size and colour given, so that neither the caller's backend, nor his
open figures, nor his rcParams are touched or matter.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# Ten colours that stay apart for normal, protan, deutan and tritan sight: at least 15 OKLab steps (of 100) between any two,
# where matplotlib's own ten come as near as 1. Found by search; a test measures them.
PALETTE = ("#21275d", "#d97812", "#0f8398", "#a43cfc", "#b02c1d", "#e1c93c", "#a09cf9", "#5a0b01", "#56e4d2", "#6c06b2")
INK, QUIET, PAPER = "#1b1b1b", "#c8c8c8", "#ffffff"
DPI = 200
TITLE, LABEL = 8.0, 6.5  # points; at 1,200 pixels shown 850 wide a title is about 16 pixels high
TOGETHER = 0.105  # labels nearer than this share of a panel's side are pushed apart


class Panel(NamedTuple):
    """One embedding to be drawn."""

    title: str
    embeddings: ArrayLike  # (n, 2)
    labels: ArrayLike  # (n,) classes
    accuracy: float | None = None  # of 1-NN, between 0 and 1, for the title


def scatter(panels: Sequence[Panel], path: str | Path, *, width: int = 1200) -> Path:
    """2-D embeddings side by side as a PNG `width` pixels wide: a colour for each class, and its name at its median.

    Both axes of a panel have one scale, since neighbours are judged by distance; they carry no numbers, since an embedding's
    units mean nothing.
    """
    checked = [_checked(panel) for panel in panels]
    if not checked:
        raise ValueError("panels is empty; give at least one Panel(title, embeddings, labels)")
    if width < 150 * len(checked):
        raise ValueError(f"width ({width}) leaves {len(checked)} panels too small to read; give at least {150 * len(checked)}")
    classes = np.unique(np.concatenate([labels for _, _, labels in checked]))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(classes.tolist())}
    side = width / len(checked)
    figure = _figure(width, round(side + 3.0 * TITLE * DPI / 72))
    for i, (title, points, labels) in enumerate(checked):
        axes = figure.add_axes(_place(i, side, figure))
        _draw(axes, points, labels, colours)
        axes.set_title(title, fontsize=TITLE, color=INK, pad=5, linespacing=1.35)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=DPI, facecolor=PAPER)
    return path


def _figure(width: int, height: int) -> Any:
    figure = _matplotlib("figure").Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    _matplotlib("backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def _matplotlib(part: str) -> Any:
    try:
        return import_module(f"matplotlib.{part}")
    except ImportError as error:
        raise ImportError("figures need matplotlib, which is not installed; pip install 'nearkin[plot]'") from error


def _place(i: int, side: float, figure: Any) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of a square panel, as shares of the figure."""
    gap = 0.04 * side
    wide, high = figure.get_size_inches() * DPI
    return (i * side + gap / 2) / wide, gap / 2 / high, (side - gap) / wide, (side - gap) / high


def _draw(axes: Any, points: np.ndarray, labels: np.ndarray, colours: dict[Any, str]) -> None:
    middle, half = _window(points)
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), xticks=[], yticks=[], facecolor=PAPER)
    for spine in axes.spines.values():
        spine.set(color=QUIET, linewidth=0.6)
    # One call in a shuffled order: drawn class by class, the last would hide the others.
    order = np.random.default_rng(0).permutation(len(points))
    tints = [colours[name] for name in labels[order].tolist()]
    size = float(np.clip(1500 / len(points), 1.0, 6.0))
    axes.scatter(*points[order].T, s=size, c=tints, alpha=0.75, linewidths=0)
    present = np.unique(labels)
    medians = np.stack([np.median(points[labels == name], axis=0) for name in present])
    edge = half * (1 - TOGETHER)  # labels stay inside the frame
    spots = np.clip(_spread(medians, 2 * half * TOGETHER), middle - edge, middle + edge)
    _name_classes(axes, present.tolist(), spots, colours)


def _name_classes(axes: Any, names: list[Any], spots: np.ndarray, colours: dict[Any, str]) -> None:
    """A badge in the class's colour, with its name in whichever of black and white stands out from it."""
    for name, spot in zip(names, spots, strict=True):
        badge = {"boxstyle": "circle,pad=0.22", "facecolor": colours[name], "edgecolor": PAPER, "linewidth": 0.9}
        ink = INK if _light(colours[name]) else PAPER
        axes.text(*spot, str(name), fontsize=LABEL, fontweight="bold", color=ink, ha="center", va="center", bbox=badge)


def _light(colour: str) -> bool:
    """Whether black reads better on it than white, by its relative luminance."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return bool(linear @ [0.2126, 0.7152, 0.0722] > 0.25)


def _window(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The middle and half the side of the square that is shown: all points with a margin, but for the farthest few.

    A single point far out would shrink all the others to a blot.
    """
    low, high = np.percentile(points, [1, 99], axis=0)
    half = float((high - low).max()) / 2
    return (low + high) / 2, 1.12 * half if half > 0 else 1.0


def _spread(spots: np.ndarray, least: float) -> np.ndarray:
    """Labels that would cover one another pushed apart, each pair by half of what is missing, until all is well or it is late."""
    spots = spots.astype(np.float64) + 1e-6 * least * np.arange(len(spots))[:, None]  # two on one spot need a direction
    for _ in range(100):
        gap = spots[:, None] - spots[None]  # (C, C, 2)
        distance = np.linalg.norm(gap, axis=2) + np.eye(len(spots)) * 2 * least
        missing = np.clip(least - distance, 0, None)
        if not missing.any():
            break
        spots += 0.5 * (gap / distance[:, :, None] * missing[:, :, None]).sum(1)
    return spots


def _checked(panel: Panel) -> tuple[str, np.ndarray, np.ndarray]:
    """Title, points and labels as they will be drawn."""
    points, labels = np.asarray(panel.embeddings, dtype=np.float64), np.asarray(panel.labels)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise ValueError(
            f"embeddings of {panel.title!r} have shape {points.shape}; a scatter needs (n, 2): embed or project to 2 dimensions"
        )
    if labels.shape != (len(points),):
        raise ValueError(f"labels of {panel.title!r} have shape {labels.shape} for {len(points)} points; give one for each")
    if not np.isfinite(points).all():
        raise ValueError(f"embeddings of {panel.title!r} hold NaN or infinity; drop these points")
    title = panel.title if panel.accuracy is None else f"{panel.title}\n1-NN {100 * panel.accuracy:.1f} %"
    return title, points, labels
