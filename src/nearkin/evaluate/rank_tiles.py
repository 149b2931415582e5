"""Rank counts from tiles of float32 products, read while they are in cache; without a gallery, each tile serves both sides."""

from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.evaluate.numba_rank_counts import Gallery, RankState, bins_for, count_tile, finish_counting, start_counting
from nearkin.evaluate.rank_counts import RankCounts
from nearkin.search.measure import Factors, Measure, factors, inverse_lengths
from nearkin.search.threads import run_in_threads

SIDE = 512  # rows and columns of a tile
HELD = 1 << 27  # largest number of bytes for the counts of all queries at once
MANY_OPEN = 0.05  # share of pairs scored one by one above which float64 products are faster


class TiledSides(NamedTuple):
    """Queries and a gallery sorted by class, prepared for products."""

    how: Measure
    queries: Tensor  # (n, d) float32
    to_unit: Tensor  # (n,)
    made: Factors
    turned: tuple[Tensor, ...]  # (d, side) each, the gallery's factors
    gallery: Gallery
    spans: Tensor  # (n, 2)
    own: Tensor  # (n,)
    side: int

    def start(self, rows: slice) -> RankState:
        """The state of some of the queries, with nothing counted yet."""
        made = self.made._replace(queries=self.made.queries[rows], squares=self.made.squares[rows])
        spans, own = self.spans[rows].contiguous().numpy(), self.own[rows].contiguous().numpy()
        return start_counting(self.how, self.queries[rows], self.to_unit[rows], made, self.gallery, spans, own)


def prepare_sides(how: Measure, queries: Tensor, gallery: Tensor, spans: Tensor, own: Tensor, side: int) -> TiledSides:
    """Prepare contiguous float32 queries (n, d) and gallery (m, d); `own` (n,) is the position of a query in the gallery, or -1.

    Tiles have `side` columns.
    """
    mine, theirs = inverse_lengths(queries, how.unit_queries), inverse_lengths(gallery, how.unit_references)
    made = factors(how, queries, gallery, (mine, theirs))
    turned = tuple(part.T.contiguous() for part in torch.split(made.references, side))
    ready = Gallery(gallery.numpy(), theirs.numpy(), made.minus.numpy(), how.squared)
    return TiledSides(how, queries, mine, made, turned, ready, spans, own, side)


def count_rows(ready: TiledSides, rows: slice) -> RankCounts | None:
    """Count the ranks of some queries; None when products decide too few pairs."""
    state, mine, m = ready.start(rows), ready.made.queries[rows], len(ready.gallery.references)
    compared = 0
    for number, part in enumerate(ready.turned):
        compared += count_tile(torch.mm(mine, part).numpy(), False, number * ready.side, state, ready.gallery)
        if compared > MANY_OPEN * len(mine) * min((number + 1) * ready.side, m):
            return None
    return finish_counting(state, m)


def fits_in_memory(ready: TiledSides) -> bool:
    """Whether the counts of all queries fit in memory at once."""
    (n, d), widest = ready.queries.shape, int((ready.spans[:, 1] - ready.spans[:, 0]).max())
    return n * (4 * bins_for(widest) + 24 * widest + 8 * d) <= HELD


def count_all(ready: TiledSides) -> dict[int, RankCounts] | None:
    """Count the ranks of all queries when they are the gallery, in blocks keyed by their start; None when products decide too few pairs.

    A tile of products counts for its rows and for its columns, so half of the tiles are enough.
    """
    n, gallery = len(ready.queries), ready.gallery
    blocks = [slice(start, min(start + ready.side, n)) for start in range(0, n, ready.side)]
    state: dict[int, RankState] = {}
    locks = [Lock() for _ in blocks]
    too_close: list[tuple[int, int]] = []
    # along the diagonals, so that two threads seldom need the same block
    pairs = [(row, row + offset) for offset in range(len(blocks)) for row in range(len(blocks) - offset)]

    def begin(some: slice) -> None:
        state[some.start] = ready.start(blocks[some.start])

    def count(some: slice) -> None:
        row, column = pairs[some.start]
        if too_close:
            return
        tile = torch.mm(ready.made.queries[blocks[row]], ready.turned[column]).numpy()
        with locks[row]:
            compared = count_tile(tile, False, blocks[column].start, state[row], gallery)
        if row != column:
            with locks[column]:
                compared += count_tile(tile, True, blocks[row].start, state[column], gallery)
        if compared > MANY_OPEN * tile.size * (1 + (row != column)):
            too_close.append((row, column))

    run_in_threads(begin, len(blocks), 1)
    run_in_threads(count, len(pairs), 1)
    return None if too_close else {block.start: finish_counting(state[number], n) for number, block in enumerate(blocks)}
