"""Figures made of images: what was retrieved, what the first layer looks for, where a network looked."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearkin.report.drawing import DPI, GRAY, INK, LABEL, PAPER, RIGHT, TITLE, WRONG, as_picture, blank, shortened

TILES = 64  # filters or images shown; more would be too small to see
STRETCH = 0.35  # share of the heat in an overlay that is all heat


class Hit(NamedTuple):
    """An image (c, h, w) with a word under it; `right` says whether it should be near, None where nobody knows."""

    image: ArrayLike
    caption: str = ""
    right: bool | None = None


def gallery(rows: Sequence[tuple[Hit, Sequence[Hit]]], *, title: str = "", width: int = 1400) -> Any:
    """Each row a query and what was found for it, nearest first: right ones framed green with a tick, wrong ones red with a cross."""
    if not rows:
        raise ValueError("rows is empty; give at least one (query, found)")
    return _tiled([(query, *found) for query, found in rows], title, width, gap=0.3)


def contact_sheet(hits: Sequence[Hit], columns: int, *, title: str = "", width: int = 1200) -> Any:
    """Images row by row, `columns` of them in each, with a word under each; a line break in it makes two lines."""
    if not hits or columns < 1:
        raise ValueError(f"{len(hits)} images in {columns} columns cannot be drawn; give at least one of each")
    return _tiled([hits[i : i + columns] for i in range(0, len(hits), columns)], title, width, gap=0.0)


def _tiled(rows: Sequence[Sequence[Hit]], title: str, width: int, gap: float) -> Any:
    """Rows of tiles; `gap` stands after the first of each, in tiles."""
    columns, left = max(map(len, rows)), 0.02
    lines = 1 + max(hit.caption.count("\n") for row in rows for hit in row)
    side = width / (columns + gap + 2 * left)
    words = (1.1 + 1.2 * lines) * LABEL * DPI / 72
    top = 2.6 * TITLE * DPI / 72 if title else 0.1 * words
    figure = blank(width, round(len(rows) * (side + words) + top))
    high = figure.get_size_inches()[1] * DPI
    if title:
        figure.text(0.5, 1 - 0.5 * top / high, title, fontsize=TITLE, color=INK, ha="center", va="center")
    for i, row in enumerate(rows):
        for j, hit in enumerate(row):
            x = (left + j + (gap if j else 0)) * side
            y = high - top - (i + 1) * (side + words) + words
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
    """First-layer filters (m, c, h, w) beside some input images (n, c, H, W).

    All filters share one scale, zero being middle gray. Filters of three channels are drawn in color; of other numbers each channel is a
    tile of its own. At most 64 tiles are drawn on a side, and the title says of how many.
    """
    kernels = np.asarray(weights, dtype=np.float64)
    if kernels.ndim != 4 or 0 in kernels.shape:
        raise ValueError(f"weights have shape {kernels.shape}; filters are (maps, channels, height, width)")
    slices = kernels if kernels.shape[1] in (1, 3) else kernels.reshape(-1, 1, *kernels.shape[2:])
    largest = float(np.abs(slices).max()) or 1.0
    drawn = [as_picture(0.5 + 0.5 * one / largest) for one in slices[:TILES]]
    pictures = np.asarray(images)
    if pictures.ndim != 4 or not len(pictures):
        raise ValueError(f"images have shape {pictures.shape}; give (n, c, h, w) with at least one")
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
    """Tiles (h, w, 3) of one size as one white-ruled, nearly square picture."""
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
    """Each row a query, where it was looked at, its neighbor, and where that was: images (c, h, w) and maps (h, w) from `grad_cam`.

    Heat is scaled for each map to its own largest value; a map of zeros stays cold. The neighbor's frame says whether it is right.
    """
    if not rows:
        raise ValueError("rows is empty; give at least one (query, map, neighbor, map)")
    tiles = []
    for query, query_map, found, found_map in rows:
        seen, looked = Hit(_heated(query.image, query_map), "query's heat"), Hit(_heated(found.image, found_map), "neighbor's heat")
        tiles.append((query, [seen, found, looked]))
    return gallery(tiles, title=title, width=width)


def attention_by_stage(rows: Sequence[tuple[Hit, Sequence[tuple[str, ArrayLike, bool | None]]]], *, width: int = 1000) -> Any:
    """Each row an image and where it was looked at in one stage of a training after the other: (name, map (h, w), was it right?)."""
    tiles = []
    for image, stages in rows:
        tiles.append((image, [Hit(_heated(image.image, heat), name, right) for name, heat, right in stages]))
    return gallery(tiles, width=width)


def _heated(image: ArrayLike, heat: ArrayLike) -> np.ndarray:
    """(3, h, w): the image in gray with the heat over it, from transparent through orange to yellow."""
    picture, weight = as_picture(image), np.asarray(heat, dtype=np.float64)
    if weight.shape != picture.shape[:2]:
        raise ValueError(f"a map has shape {weight.shape} for an image of {picture.shape[:2]}; give one number for each pixel")
    most = weight.max()
    weight = np.clip(weight / most, 0, 1) if most > 0 else np.zeros_like(weight)
    color = np.stack([np.clip(2.2 * weight, 0, 1), np.clip(1.5 * weight - 0.35, 0, 1), 0.1 * weight], axis=2)
    gray = picture.mean(axis=2, keepdims=True)
    share = np.clip(weight / STRETCH, 0, 1)[:, :, None] * 0.75
    return np.asarray((1 - share) * gray + share * color).transpose(2, 0, 1)
