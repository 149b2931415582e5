"""Maps of embeddings: 2-D scatter plots colored by class or by a number."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearkin.compose.validation import check_finite
from nearkin.report.drawing import DPI, INK, LABEL, MARKERS, PALETTE, PAPER, QUIET, TITLE, blank, light, save, shortened

TOGETHER = 0.105  # labels closer than this share of a panel's side are moved apart
FEW = 12  # classes up to which names have full size
NAMELESS = ""  # the class of points without a class
NAMED = 30  # classes up to which names are shown


class Panel(NamedTuple):
    """One embedding to draw, for `embedding_map` and `scatter`.

    Parameters
    ----------
    title : str
        The title of the panel.
    embeddings : array-like of shape (n, 2)
        The points. `nearkin.report.projection.fit` brings other embeddings to 2 dimensions.
    labels : array-like of shape (n,), optional
        The class of each point. Without labels all points look the same.
    accuracy : float, optional
        1-NN accuracy between 0 and 1, added to the title.
    anchors : array-like of shape (C, 2), optional
        Fixed class vectors, in the order of the sorted classes of all panels, drawn as stars.
    half : float, optional
        Half the side of the shown square, centered at the origin. By default it fits the points.
    named : bool, default=True
        Whether to write the names of the classes. Turn it off if all classes lie on one spot.

    Examples
    --------
    >>> from nearkin.report import Panel
    >>> Panel("two points", [[0.0, 0.0], [1.0, 1.0]], ["cat", "dog"]).title
    'two points'
    """

    title: str
    embeddings: ArrayLike
    labels: ArrayLike | None = None
    accuracy: float | None = None
    anchors: ArrayLike | None = None
    half: float | None = None
    named: bool = True


def scatter(panels: Sequence[Panel], path: str | Path, *, width: int = 1200) -> Path:
    """Draw `embedding_map` and save it.

    Parameters
    ----------
    panels : sequence of Panel
        The embeddings to draw side by side.
    path : str or Path
        Where to write, as .png or .svg.
    width : int, default=1200
        The width in pixels.

    Returns
    -------
    Path
        The path that was written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from nearkin.report import Panel, scatter
    >>> panel = Panel("two points", [[0.0, 0.0], [1.0, 1.0]], ["cat", "dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scatter([panel], Path(folder) / "map.svg", width=400).name
    'map.svg'
    """
    return save(embedding_map(panels, width=width), path)


def embedding_map(panels: Sequence[Panel], *, width: int = 1200) -> Any:
    """Draw 2-D embeddings side by side, with one color for each class and its name at its center.

    Both axes of a panel have the same scale, because neighbors are found by distance. They have no numbers, because the units of
    an embedding mean nothing. From the eleventh class on colors repeat with another marker; above 30 classes no names are shown.

    Parameters
    ----------
    panels : sequence of Panel
        The embeddings.
    width : int, default=1200
        The width of the figure in pixels, at least 150 for each panel.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Raises
    ------
    ValueError
        If there is no panel, if a shape is wrong, if a value is not finite, or if the panels would be too small.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import Panel, embedding_map
    >>> points = np.random.default_rng(0).normal(size=(20, 2))
    >>> figure = embedding_map([Panel("random", points, np.arange(20) % 2, accuracy=0.5)], width=400)
    >>> print(figure.axes[0].get_title())
    random
    1-NN 50.0 %
    """
    checked = [_checked(panel) for panel in panels]
    if not checked:
        raise ValueError("panels is empty; pass at least one Panel(title, embeddings, labels)")
    if width < 150 * len(checked):
        raise ValueError(f"width ({width}) makes {len(checked)} panels too small to read; pass at least {150 * len(checked)}")
    classes = np.unique(np.concatenate([labels for _, _, labels, _ in checked])).tolist()
    for panel, (_, _, _, anchors) in zip(panels, checked, strict=True):
        if anchors is not None and len(anchors) != len(classes):
            raise ValueError(f"anchors of {panel.title!r} has {len(anchors)} rows for {len(classes)} classes; pass one for each class")
    side = width / len(checked)
    figure = blank(width, round(side + 3.0 * TITLE * DPI / 72))
    for i, (panel, (title, points, labels, anchors)) in enumerate(zip(panels, checked, strict=True)):
        axes = figure.add_axes(_place(i, side, figure))
        _draw(axes, points, labels, classes, anchors, half=panel.half, named=panel.named)
        axes.set_title(title, fontsize=TITLE, color=INK, pad=5, linespacing=1.35)
    return figure


def number_map(embeddings: ArrayLike, numbers: ArrayLike, title: str, what: str = "target", *, width: int = 700) -> Any:
    """Draw a 2-D embedding whose points are colored by a number, with a color scale that color-blind readers can read.

    Parameters
    ----------
    embeddings : array-like of shape (n, 2)
        The points.
    numbers : array-like of shape (n,)
        The number of each point.
    title : str
        The title.
    what : str, default="target"
        The name of the number, next to the color scale.
    width : int, default=700
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> from nearkin.report import number_map
    >>> figure = number_map([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0]], [10.0, 20.0, 30.0], "queries", "age")
    >>> figure.axes[1].get_ylabel()
    'age'
    """
    title, points, values, _ = _checked(Panel(title, embeddings, numbers))
    figure = blank(width, round(0.86 * width))
    axes = figure.add_axes((0.02, 0.02, 0.78, 0.90))
    _frame(axes, points)
    drawn = axes.scatter(*points.T, s=_size(points), c=values.astype(np.float64), cmap="cividis", alpha=0.85, linewidths=0)
    axes.set_title(title, fontsize=TITLE, color=INK, pad=5)
    scale = figure.colorbar(drawn, cax=figure.add_axes((0.83, 0.1, 0.03, 0.74)))
    scale.set_label(shortened(what, 30), fontsize=LABEL, color=INK)
    scale.ax.tick_params(labelsize=LABEL, color=QUIET, labelcolor=INK)
    scale.outline.set(edgecolor=QUIET, linewidth=0.6)
    return figure


def _place(i: int, side: float, figure: Any) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of a square panel, as shares of the figure."""
    gap = 0.04 * side
    wide, high = figure.get_size_inches() * DPI
    return (i * side + gap / 2) / wide, gap / 2 / high, (side - gap) / wide, (side - gap) / high


def _frame(axes: Any, points: np.ndarray, anchors: np.ndarray | None = None, half: float | None = None) -> tuple[np.ndarray, float]:
    middle, half = _window(points) if half is None else (np.zeros(2), half)
    if anchors is not None:
        half = max(half, 1.12 * float(np.abs(anchors - middle).max()))
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), xticks=[], yticks=[], facecolor=PAPER)
    for spine in axes.spines.values():
        spine.set(color=QUIET, linewidth=0.6)
    return middle, half


def _draw(
    axes: Any,
    points: np.ndarray,
    labels: np.ndarray,
    classes: list[Any],
    anchors: np.ndarray | None,
    *,
    half: float | None = None,
    named: bool = True,
) -> None:
    at = {name: i for i, name in enumerate(classes)}
    middle, half = _frame(axes, points, anchors, half)
    # One call for each marker, in a shuffled order: drawn class by class, the last class would cover the others.
    order = np.random.default_rng(0).permutation(len(points))
    number = np.array([at[name] for name in labels[order].tolist()])
    for i, marker in enumerate(MARKERS):
        mine = order[number // len(PALETTE) % len(MARKERS) == i]
        if len(mine):
            tints = [_color(at[name]) for name in labels[mine].tolist()]
            axes.scatter(*points[mine].T, s=_size(points), c=tints, marker=marker, alpha=0.75, linewidths=0)
    if anchors is not None:
        tints = [_color(i) for i in range(len(classes))]
        axes.scatter(*anchors.T, s=70, c=tints, marker="*", edgecolors=INK, linewidths=0.7, zorder=3)
    present = np.unique(labels)
    if named and len(present) <= NAMED and present.tolist() != [NAMELESS]:
        medians = np.stack([_middle(points[labels == name]) for name in present])
        edge = half * (1 - TOGETHER)  # labels stay inside the frame
        spots = np.clip(_spread(medians, 2 * half * TOGETHER), middle - edge, middle + edge)
        _name_classes(axes, present.tolist(), spots, [_color(at[name]) for name in present.tolist()])


def _middle(points: np.ndarray) -> np.ndarray:
    """The point nearest to the median: a class in two clusters is named on one of them, not between."""
    return np.asarray(points[np.linalg.norm(points - np.median(points, axis=0), axis=1).argmin()])


def _size(points: np.ndarray) -> float:
    return float(np.clip(1500 / len(points), 1.0, 6.0))


def _color(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def _name_classes(axes: Any, names: list[Any], spots: np.ndarray, colors: list[str]) -> None:
    """A badge in the class's color, with its name in black or white, whichever has more contrast."""
    for name, spot, color in zip(names, spots, colors, strict=True):
        text = shortened(name, 12)
        shape = "circle,pad=0.22" if len(text) <= 2 else "round,pad=0.25"
        badge = {"boxstyle": shape, "facecolor": color, "edgecolor": PAPER, "linewidth": 0.9}
        ink = INK if light(color) else PAPER
        axes.text(
            *spot,
            text,
            fontsize=LABEL if len(names) <= FEW else 0.8 * LABEL,
            fontweight="bold",
            color=ink,
            ha="center",
            va="center",
            bbox=badge,
        )


def _window(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The center and half the side of the shown square: all points with a margin, except the farthest percent on each side.

    Otherwise a single far point would shrink all the others to a spot.
    """
    low, high = np.percentile(points, [1, 99], axis=0)
    half = float((high - low).max()) / 2
    return (low + high) / 2, 1.12 * half if half > 0 else 1.0


def _spread(spots: np.ndarray, least: float) -> np.ndarray:
    """Move overlapping labels apart, each pair by half of the missing distance, for at most 100 rounds."""
    spots = spots.astype(np.float64) + 1e-6 * least * np.arange(len(spots))[:, None]  # two on one spot need a direction
    for _ in range(100):
        gap = spots[:, None] - spots[None]  # (C, C, 2)
        distance = np.linalg.norm(gap, axis=2) + np.eye(len(spots)) * 2 * least
        missing = np.clip(least - distance, 0, None)
        if not missing.any():
            break
        spots += 0.5 * (gap / distance[:, :, None] * missing[:, :, None]).sum(1)
    return spots


def _checked(panel: Panel) -> tuple[str, np.ndarray, np.ndarray, np.ndarray | None]:
    """Title, points, labels and anchors as arrays, checked."""
    points = np.asarray(panel.embeddings, dtype=np.float64)
    labels = np.full(len(points), NAMELESS) if panel.labels is None else np.asarray(panel.labels)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise ValueError(
            f"embeddings of {panel.title!r} have shape {points.shape}; a scatter needs (n, 2): embed or project to 2 dimensions"
        )
    if labels.shape != (len(points),):
        raise ValueError(f"labels of {panel.title!r} have shape {labels.shape} for {len(points)} points; pass one for each")
    check_finite(f"embeddings of {panel.title!r}", points)
    anchors = None if panel.anchors is None else np.asarray(panel.anchors, dtype=np.float64)
    if anchors is not None and (anchors.ndim != 2 or anchors.shape[1] != 2):
        raise ValueError(f"anchors of {panel.title!r} have shape {anchors.shape}; a scatter needs (C, 2)")
    title = panel.title if panel.accuracy is None else f"{panel.title}\n1-NN {100 * panel.accuracy:.1f} %"
    return title, points, labels, anchors
