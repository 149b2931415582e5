"""Rankings of all points of shards without holding them in memory.

The affinities of a query's positives are read in a first pass. In a second pass over all points, each negative is counted at its rank
among them. In memory are one number per positive of a query, and one row group.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.cluster.search import Engine, in_order
from nearkin.compose.affinity import Affinity
from nearkin.data.shards import Shards
from nearkin.evaluate.comparison import rounded
from nearkin.evaluate.rank_counts import rank_counts_in_parts
from nearkin.evaluate.retrieval import Piece, concatenate_pieces, metrics_of
from nearkin.search.exact import all_pairs
from nearkin.search.measure import GRAIN, measure

HELD = 1 << 22  # affinities to positives, and to negatives, in memory at once


class Ranked(NamedTuple):
    """Queries (n, d) of known classes (n,), and the position of each among all points, or -1."""

    queries: Tensor
    classes: Tensor
    own: Tensor

    def some(self, rows: slice) -> "Ranked":
        return Ranked(*(part[rows] for part in self))


def ranked_over(
    queries: Ranked,
    shards: Shards,
    classes: np.ndarray,
    affinity: Affinity,
    ks: Sequence[int],
    *,
    engine: Engine = "local",
    address: str | None = None,
) -> Piece:
    """Rank all points for each query and measure the rankings; points whose class (m,) is below 0 are not ranked."""
    most = max(int(np.bincount(classes[classes >= 0]).max()), 1)
    work = _Work(queries, shards, classes, affinity, tuple(ks), most)
    numbers = list(range(0, len(queries.queries), work.step))
    parts = (_measured(work, start) for start in numbers) if engine == "local" else in_order(_measured, work, numbers, address)
    return concatenate_pieces(list(parts))


class _Work(NamedTuple):
    """All that a worker needs."""

    queries: Ranked
    shards: Shards
    classes: np.ndarray
    affinity: Affinity
    ks: tuple[int, ...]
    most: int  # points of the largest class

    @property
    def step(self) -> int:
        """Queries whose positives are in memory at once."""
        return max(HELD // self.most, 1)


def _measured(work: _Work, start: int) -> Piece:
    some = work.queries.some(slice(start, start + work.step))
    return metrics_of(rank_counts_in_parts(lambda: _parts(some, work.shards, work.classes, work.affinity), work.most), work.ks)


def _parts(queries: Ranked, shards: Shards, classes: np.ndarray, affinity: Affinity) -> Iterator[tuple[Tensor, Tensor]]:
    """Affinities (n, some) of consecutive points, sorted by class, and where each query's class begins and ends."""
    start, step = 0, max(HELD // len(queries.queries), 1)
    for block in shards.blocks():
        vectors = torch.from_numpy(np.array(block.vectors))
        for first in range(0, len(vectors), step):
            some = vectors[first : first + step]
            labels = torch.from_numpy(classes[start + first : start + first + len(some)]).long()
            near = _near(queries.queries, some, affinity)
            near[:, labels < 0] = -torch.inf
            own = queries.own - start - first
            here = ((own >= 0) & (own < len(some))).nonzero()[:, 0]
            near[here, own[here]] = -torch.inf
            labels, order = labels.sort(stable=True)
            spans = torch.stack([torch.searchsorted(labels, queries.classes, right=right) for right in (False, True)], 1)
            yield near[:, order], spans
        start += len(vectors)


def _near(queries: Tensor, references: Tensor, affinity: Affinity) -> Tensor:
    """(n, m) float32, larger is nearer, computed pair by pair, so that ties do not depend on the partition."""
    how = measure(affinity)
    if how is None:
        return affinity(queries.double(), references.double()).float()
    return rounded(all_pairs(how, queries, references), torch.tensor(0.0 if how.squared and not how.unit_queries else GRAIN))
