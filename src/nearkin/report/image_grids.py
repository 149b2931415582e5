"""Grids of images: queries with their neighbors, contact sheets, first-layer filters, and heat maps over images."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearkin.report.drawing import DPI, GRAY, INK, LABEL, PAPER, RIGHT, TITLE, WRONG, as_picture, blank, shortened

TILES = 64  # filters or images shown at most; more would be too small to see
STRETCH = 0.35  # heat, as a share of the largest, from which an overlay shows it fully


class Hit(NamedTuple):
    """An image with a caption, for `gallery`, `contact_sheet` and `attention`.

    Parameters
    ----------
    image : array-like of shape (c, h, w)
        The image: uint8, or floats in 0..1.
    caption : str, default=""
        The text under it.
    right : bool, optional
        Whether it is a right neighbor: framed green with a tick or red with a cross; gray if not known.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import Hit
    >>> Hit(np.zeros((1, 8, 8)), "cat", right=True).caption
    'cat'
    """

    image: ArrayLike
    caption: str = ""
    right: bool | None = None


def gallery(rows: Sequence[tuple[Hit, Sequence[Hit]]], *, title: str = "", width: int = 1400) -> Any:
    """Draw queries with their neighbors, one query for each row, the nearest first.

    Right neighbors have a green frame and a tick, wrong ones a red frame and a cross.

    Parameters
    ----------
    rows : sequence of (Hit, sequence of Hit)
        Each query and its neighbors.
    title : str, default=""
        The title of the figure.
    width : int, default=1400
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import Hit, gallery
    >>> image = np.zeros((1, 8, 8))
    >>> figure = gallery([(Hit(image, "query"), [Hit(image, "cat", True), Hit(image, "dog", False)])], width=400)
    >>> len(figure.axes)
    3
    """
    if not rows:
        raise ValueError("rows is empty; pass at least one (query, neighbors)")
    return _tiled([(query, *found) for query, found in rows], title, width, gap=0.3)


def contact_sheet(hits: Sequence[Hit], columns: int, *, title: str = "", width: int = 1200) -> Any:
    """Draw images in a grid, with a caption under each.

    Parameters
    ----------
    hits : sequence of Hit
        The images, row by row. A line break in a caption makes two lines.
    columns : int
        The number of images in a row.
    title : str, default=""
        The title of the figure.
    width : int, default=1200
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import Hit, contact_sheet
    >>> figure = contact_sheet([Hit(np.zeros((3, 8, 8)), f"image {i}") for i in range(5)], columns=3, width=400)
    >>> len(figure.axes)
    5
    """
    if not hits or columns < 1:
        raise ValueError(f"{len(hits)} images in {columns} columns cannot be drawn; pass at least one of each")
    return _tiled([hits[i : i + columns] for i in range(0, len(hits), columns)], title, width, gap=0.0)


def _tiled(rows: Sequence[Sequence[Hit]], title: str, width: int, gap: float) -> Any:
    """Rows of tiles, with a gap of `gap` tiles after the first of each row."""
    columns, left = max(map(len, rows)), 0.02
    lines = 1 + max(hit.caption.count("\n") for row in rows for hit in row)
    side = width / (columns + gap + 2 * left)
    text = (1.1 + 1.2 * lines) * LABEL * DPI / 72
    top = 2.6 * TITLE * DPI / 72 if title else 0.1 * text
    figure = blank(width, round(len(rows) * (side + text) + top))
    high = figure.get_size_inches()[1] * DPI
    if title:
        figure.text(0.5, 1 - 0.5 * top / high, title, fontsize=TITLE, color=INK, ha="center", va="center")
    for i, row in enumerate(rows):
        for j, hit in enumerate(row):
            x = (left + j + (gap if j else 0)) * side
            y = high - top - (i + 1) * (side + text) + text
            axes = figure.add_axes(((x + 0.05 * side) / width, (y + 0.03 * side) / high, 0.9 * side / width, 0.9 * side / high))
            _tile(axes, hit, most=max(6, round(side / 10.5)))
    return figure


def _tile(axes: Any, hit: Hit, most: int) -> None:
    axes.imshow(as_picture(hit.image), interpolation="nearest", aspect="equal")
    axes.set(xticks=[], yticks=[])
    color = GRAY if hit.right is None else RIGHT if hit.right else WRONG
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=0.8 if hit.right is None else 2.2)
    caption = "\n".join(shortened(text, most) for text in hit.caption.split("\n"))
    axes.set_xlabel(caption, fontsize=LABEL, color=INK, labelpad=2.5)
    if hit.right is not None:
        badge = {"boxstyle": "circle,pad=0.15", "facecolor": color, "edgecolor": PAPER, "linewidth": 0.7}
        sign = "✓" if hit.right else "✗"
        axes.text(0.985, 0.985, sign, transform=axes.transAxes, fontsize=LABEL, color=PAPER, ha="right", va="top", bbox=badge)


def filters(weights: ArrayLike, images: ArrayLike, *, width: int = 1200) -> Any:
    """Draw first-layer filters next to some input images.

    All filters have the same scale; zero is middle gray. Filters with three channels are drawn in color, for others each channel
    is a tile. At most 64 tiles are drawn on each side.

    Parameters
    ----------
    weights : array-like of shape (m, c, h, w)
        The filters.
    images : array-like of shape (n, c, H, W)
        Input images.
    width : int, default=1200
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import filters
    >>> random = np.random.default_rng(0)
    >>> figure = filters(random.normal(size=(8, 1, 5, 5)), random.random(size=(4, 1, 16, 16)), width=400)
    >>> figure.axes[0].get_title()
    '4 input images'
    """
    kernels = np.asarray(weights, dtype=np.float64)
    if kernels.ndim != 4 or 0 in kernels.shape:
        raise ValueError(f"weights have shape {kernels.shape}; pass filters (maps, channels, height, width)")
    slices = kernels if kernels.shape[1] in (1, 3) else kernels.reshape(-1, 1, *kernels.shape[2:])
    largest = float(np.abs(slices).max()) or 1.0
    drawn = [as_picture(0.5 + 0.5 * one / largest) for one in slices[:TILES]]
    pictures = np.asarray(images)
    if pictures.ndim != 4 or not len(pictures):
        raise ValueError(f"images have shape {pictures.shape}; pass (n, c, h, w) with at least one image")
    inputs = [as_picture(one) for one in pictures[:TILES]]
    figure = blank(width, round(0.5 * width + 3 * TITLE * DPI / 72))
    part = len(drawn) < len(slices)
    size = f"{kernels.shape[2]} x {kernels.shape[3]}"
    titles = (
        f"{len(inputs)} input images",
        f"{f'{len(drawn)} of ' if part else ''}{len(slices)} first-layer filters, {size}; gray is 0, white {largest:.2g}",
    )
    for i, (tiles, title) in enumerate(zip((inputs, drawn), titles, strict=True)):
        axes = figure.add_axes((0.02 + 0.5 * i, 0.02, 0.46, 0.88))
        axes.imshow(_mosaic(tiles), interpolation="nearest", aspect="equal")
        axes.axis("off")
        axes.set_title(title, fontsize=TITLE, color=INK, pad=5)
    return figure


def _mosaic(tiles: Sequence[np.ndarray]) -> np.ndarray:
    """Tiles (h, w, 3) of one size as one nearly square picture with white lines between them."""
    columns = math.ceil(math.sqrt(len(tiles)))
    rows = math.ceil(len(tiles) / columns)
    h, w, _ = tiles[0].shape
    rule = max(1, round(0.08 * max(h, w)))
    page = np.ones((rows * (h + rule) - rule, columns * (w + rule) - rule, 3))
    for i, tile in enumerate(tiles):
        y, x = i // columns * (h + rule), i % columns * (w + rule)
        page[y : y + h, x : x + w] = tile
    return page


def attention(rows: Sequence[tuple[Hit, ArrayLike, Hit, ArrayLike]], *, title: str = "", width: int = 1000) -> Any:
    """Draw queries and their neighbors with heat maps over both, one pair for each row.

    Each map is scaled to its own largest value. The neighbor's frame shows whether it is right.

    Parameters
    ----------
    rows : sequence of (Hit, array-like of shape (h, w), Hit, array-like of shape (h, w))
        A query, its heat map, its neighbor and the heat map of that one; `grad_cam` computes the maps.
    title : str, default=""
        The title of the figure.
    width : int, default=1000
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import Hit, attention
    >>> image, heat = np.zeros((1, 8, 8)), np.eye(8)
    >>> figure = attention([(Hit(image, "query"), heat, Hit(image, "neighbor", True), heat)], width=400)
    >>> len(figure.axes)
    4
    """
    if not rows:
        raise ValueError("rows is empty; pass at least one (query, map, neighbor, map)")
    tiles = []
    for query, query_map, found, found_map in rows:
        on_query = Hit(_heated(query.image, query_map), "query's heat")
        on_found = Hit(_heated(found.image, found_map), "neighbor's heat")
        tiles.append((query, [on_query, found, on_found]))
    return gallery(tiles, title=title, width=width)


def attention_by_stage(rows: Sequence[tuple[Hit, Sequence[tuple[str, ArrayLike, bool | None]]]], *, width: int = 1000) -> Any:
    """Draw images with the heat maps of several stages of a training, one image for each row.

    Parameters
    ----------
    rows : sequence of (Hit, sequence of (str, array-like of shape (h, w), bool or None))
        An image, and for each stage its name, its heat map and whether the neighbor found at that stage is right.
    width : int, default=1000
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import Hit, attention_by_stage
    >>> rows = [(Hit(np.zeros((1, 8, 8)), "query"), [("step 1", np.eye(8), False), ("step 2", np.eye(8), True)])]
    >>> len(attention_by_stage(rows, width=400).axes)
    3
    """
    tiles = []
    for image, stages in rows:
        tiles.append((image, [Hit(_heated(image.image, heat), name, right) for name, heat, right in stages]))
    return gallery(tiles, width=width)


def _heated(image: ArrayLike, heat: ArrayLike) -> np.ndarray:
    """(3, h, w): the image in gray with the heat over it, from transparent through orange to yellow."""
    picture, weight = as_picture(image), np.asarray(heat, dtype=np.float64)
    if weight.shape != picture.shape[:2]:
        raise ValueError(f"a map has shape {weight.shape} for an image of {picture.shape[:2]}; pass one number for each pixel")
    most = weight.max()
    weight = np.clip(weight / most, 0, 1) if most > 0 else np.zeros_like(weight)
    color = np.stack([np.clip(2.2 * weight, 0, 1), np.clip(1.5 * weight - 0.35, 0, 1), 0.1 * weight], axis=2)
    gray = picture.mean(axis=2, keepdims=True)
    share = np.clip(weight / STRETCH, 0, 1)[:, :, None] * 0.75
    return np.asarray((1 - share) * gray + share * color).transpose(2, 0, 1)
