"""Tiles: float32 products of queries and gallery, read while they are in cache; among themselves, each serves both sides."""

from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.evaluate.numba_rank_counts import Gallery, RankState, bins_for, count_tile, finish_counting, start_counting
from nearkin.evaluate.rank_counts import RankCounts
from nearkin.search.measure import Factors, Measure, factors, inverse_lengths
from nearkin.search.threads import run_in_threads

SIDE = 512  # queries, and points of the gallery, whose products are held at once
HELD = 1 << 27  # bytes of counts that may be held for all queries at once
MANY_OPEN = 0.05  # share of pairs compared one by one above which float64 products are faster


class TiledSides(NamedTuple):
    """Queries and a gallery sorted by class, made ready for products."""

    how: Measure
    queries: Tensor  # (n, d) float32
    to_unit: Tensor  # (n,)
    made: Factors
    turned: tuple[Tensor, ...]  # (d, side) each, the gallery's factors
    gallery: Gallery
    spans: Tensor  # (n, 2)
    own: Tensor  # (n,)
    side: int

    def state(self, rows: slice) -> RankState:
        """Of some of the queries, nothing counted yet."""
        made = self.made._replace(queries=self.made.queries[rows], squares=self.made.squares[rows])
        spans, own = self.spans[rows].contiguous().numpy(), self.own[rows].contiguous().numpy()
        return start_counting(self.how, self.queries[rows], self.to_unit[rows], made, self.gallery, spans, own)


def sides(how: Measure, queries: Tensor, gallery: Tensor, spans: Tensor, own: Tensor, side: int) -> TiledSides:
    """From contiguous float32 queries (n, d) and gallery (m, d); `own` (n,) is where a query stands in the gallery, or -1.

    Products are held for `side` points of the gallery at once.
    """
    mine, theirs = inverse_lengths(queries, how.unit_queries), inverse_lengths(gallery, how.unit_references)
    made = factors(how, queries, gallery, (mine, theirs))
    turned = tuple(part.T.contiguous() for part in torch.split(made.references, side))
    ready = Gallery(gallery.numpy(), theirs.numpy(), made.minus.numpy(), how.squared)
    return TiledSides(how, queries, mine, made, turned, ready, spans, own, side)


def count_rows(ready: TiledSides, rows: slice) -> RankCounts | None:
    """The finish_counting of some queries; None when products decide too little."""
    state, mine, m = ready.state(rows), ready.made.queries[rows], len(ready.gallery.references)
    compared = 0
    for number, part in enumerate(ready.turned):
        compared += count_tile(torch.mm(mine, part).numpy(), False, number * ready.side, state, ready.gallery)
        if compared > MANY_OPEN * len(mine) * min((number + 1) * ready.side, m):
            return None
    return finish_counting(state, m)


def fits_in_memory(ready: TiledSides) -> bool:
    """Whether the counts of all queries can be held at once."""
    (n, d), widest = ready.queries.shape, int((ready.spans[:, 1] - ready.spans[:, 0]).max())
    return n * (4 * bins_for(widest) + 24 * widest + 8 * d) <= HELD


def count_all(ready: TiledSides) -> dict[int, RankCounts] | None:
    """The finish_counting of all queries when they are the gallery, in blocks named by their start; None when products decide too little.

    A tile of products counts for its rows and for its columns, so half of them are enough.
    """
    n, gallery = len(ready.queries), ready.gallery
    blocks = [slice(start, min(start + ready.side, n)) for start in range(0, n, ready.side)]
    state: dict[int, RankState] = {}
    locks = [Lock() for _ in blocks]
    too_close: list[tuple[int, int]] = []
    # along the diagonals: two threads seldom want the same block
    pairs = [(row, row + apart) for apart in range(len(blocks)) for row in range(len(blocks) - apart)]

    def begin(some: slice) -> None:
        state[some.start] = ready.state(blocks[some.start])

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
