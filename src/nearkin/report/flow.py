"""Confusion as a flow diagram, from the class of the queries to the class of their wrong neighbors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearkin.report.drawing import GRAY, INK, LABEL, PALETTE, TITLE, blank, matplotlib_part, shortened

MOST = 14  # classes on each side; bands of more would be too thin
GAP = 0.018  # between two classes, as a share of the height
BEND = 0.45  # how far a band runs straight before it bends


def neighbor_flow(counts: ArrayLike, classes: Sequence[object], *, width: int = 1100) -> Any:
    """Draw wrong neighbors as bands from the query's class to the neighbor's class; the width of a band is their number.

    Right neighbors (the diagonal) are not drawn: in a good model they would hide the rest. Their share is written next to each
    class. Of many classes, only the 14 with the most wrong neighbors are shown.

    Parameters
    ----------
    counts : array-like of shape (C, C)
        How often a query of the row's class has a neighbor of the column's class.
    classes : sequence
        The names of the classes.
    width : int, default=1100
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Raises
    ------
    ValueError
        If `counts` is not square, if a number is negative or not finite, or if a class has no name.

    Examples
    --------
    >>> from nearkin.report import neighbor_flow
    >>> figure = neighbor_flow([[9, 1, 0], [2, 8, 0], [0, 0, 10]], ["cat", "dog", "fox"])
    >>> print(figure.axes[0].get_title())
    3 of 30 neighbors are wrong
    from the query's class to the wrong neighbor's
    """
    table = _checked(counts, classes)
    wrong = table - np.diag(np.diag(table))
    shown = _busiest(wrong)
    seen = wrong[np.ix_(shown, shown)]
    figure = blank(width, round(width * (0.24 + 0.036 * max(len(shown), 4))))
    axes = figure.add_axes((0.0, 0.02, 1.0, 0.86))
    axes.set(xlim=(0, 1), ylim=(1, 0))
    axes.axis("off")
    axes.set_title(_title(wrong, seen, table), fontsize=TITLE, color=INK, pad=5, linespacing=1.35)
    if seen.sum() == 0:
        axes.text(0.5, 0.5, "no wrong neighbors", fontsize=TITLE, color=GRAY, ha="center", va="center")
        return figure
    left, right = _extents(seen.sum(1)), _extents(seen.sum(0))
    _bands(axes, seen, shown, left, right)
    line = 1.2 * LABEL / 72 / (axes.get_position().height * figure.get_size_inches()[1])  # height of a name, as a share of the axes
    names_left, names_right = _spread(left.mean(1), line), _spread(right.mean(1), line)
    for i, number in enumerate(shown):
        row = table[number]
        share = f"{100 * row[number] / row.sum():.1f} % right" if row.sum() else "no queries"
        _name(axes, 0.285, names_left[i], f"{shortened(classes[number], 15)}  ({share})", "right")
        _name(axes, 0.715, names_right[i], f"{shortened(classes[number], 15)}  ({seen[:, i].sum():,.0f} times)", "left")
    return figure


def _bands(axes: Any, seen: np.ndarray, shown: list[int], left: np.ndarray, right: np.ndarray) -> None:
    path, patches = matplotlib_part("path").Path, matplotlib_part("patches")
    unit = (1 - GAP * (len(seen) - 1)) / seen.sum()
    out, into = left[:, 0].copy(), right[:, 0].copy()
    x0, x1 = 0.30, 0.70
    near, far = x0 + BEND * (x1 - x0), x1 - BEND * (x1 - x0)
    for i in range(len(seen)):
        for j in np.flatnonzero(seen[i]).tolist():
            wide, a, b = unit * seen[i, j], out[i], into[j]
            spots = [(x0, a), (near, a), (far, b), (x1, b), (x1, b + wide), (far, b + wide), (near, a + wide), (x0, a + wide), (x0, a)]
            codes = [path.MOVETO, *[path.CURVE4] * 3, path.LINETO, *[path.CURVE4] * 3, path.CLOSEPOLY]
            color = PALETTE[shown[i] % len(PALETTE)]
            axes.add_patch(patches.PathPatch(path(spots, codes), facecolor=color, alpha=0.6, edgecolor=color, linewidth=0.2))
            out[i], into[j] = a + wide, b + wide


def _name(axes: Any, x: float, y: float, text: str, side: str) -> None:
    axes.text(x, y, text, fontsize=LABEL, color=INK, ha=side, va="center")


def _spread(heights: np.ndarray, line: float) -> np.ndarray:
    """Heights (C,) in order, moved as little as possible so that names do not overlap and stay inside 0..1."""
    least = min(line, 0.98 / max(len(heights) - 1, 1))
    placed = heights.copy()
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + least)
    placed[-1] = min(placed[-1], 0.99)
    for i in range(len(placed) - 2, -1, -1):
        placed[i] = min(placed[i], placed[i + 1] - least)
    return placed


def _extents(totals: np.ndarray) -> np.ndarray:
    """(C, 2) top and bottom of each class, with gaps between them."""
    high = totals / totals.sum() * (1 - GAP * (len(totals) - 1))
    top = np.concatenate([[0], np.cumsum(high[:-1] + GAP)])
    return np.stack([top, top + high], axis=1)


def _busiest(wrong: np.ndarray) -> list[int]:
    """The classes with the most wrong neighbors, as queries or as neighbors, in their own order; those with none are left out."""
    total = wrong.sum(0) + wrong.sum(1)
    order = np.argsort(-total, kind="stable")[:MOST]
    return sorted(order[total[order] > 0].tolist()) or order[:2].tolist()


def _title(wrong: np.ndarray, seen: np.ndarray, table: np.ndarray) -> str:
    hidden = wrong.sum() - seen.sum()
    rest = f" (the {len(seen)} classes with the most; {hidden:,.0f} more are between other classes)" if hidden else ""
    return f"{wrong.sum():,.0f} of {table.sum():,.0f} neighbors are wrong{rest}\nfrom the query's class to the wrong neighbor's"


def _checked(counts: ArrayLike, classes: Sequence[object]) -> np.ndarray:
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"counts has shape {table.shape}; pass (C, C), queries' classes by neighbors' classes")
    if len(classes) != len(table):
        raise ValueError(f"classes has {len(classes)} names for {len(table)} rows of counts; pass one for each")
    if not np.isfinite(table).all() or (table < 0).any():
        raise ValueError("counts holds negative or non-finite numbers; pass the number of neighbors for each pair of classes")
    return table
