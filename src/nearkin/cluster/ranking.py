"""Rankings of all points of shards, without holding them: kin first, strangers counted between them after.

A query's kin are read once for their affinities; when everybody passes by a second time, each stranger is counted where it stands among
them. What is held is as many numbers as a query has kin, and one row group.
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

HELD = 1 << 22  # affinities to kin, and to strangers, that are held at once


class Ranked(NamedTuple):
    """Queries (n, d) of known classes (n,), and where each stands itself among all points, or -1."""

    queries: Tensor
    classes: Tensor
    own: Tensor

    def some(self, rows: slice) -> "Ranked":
        return Ranked(*(part[rows] for part in self))


def ranked_over(
    asked: Ranked,
    shards: Shards,
    classes: np.ndarray,
    affinity: Affinity,
    ks: Sequence[int],
    *,
    engine: Engine = "local",
    address: str | None = None,
) -> Piece:
    """What the ranking of all points by each query is worth; `classes` (m,) are theirs, and those below 0 are not ranked."""
    most = max(int(np.bincount(classes[classes >= 0]).max()), 1)
    work = _Work(asked, shards, classes, affinity, tuple(ks), most)
    numbers = list(range(0, len(asked.queries), work.step))
    return concatenate_pieces(
        [_worth(work, start) for start in numbers] if engine == "local" else list(in_order(_worth, work, numbers, address))
    )


class _Work(NamedTuple):
    """All that a worker needs to know."""

    asked: Ranked
    shards: Shards
    classes: np.ndarray
    affinity: Affinity
    ks: tuple[int, ...]
    most: int  # points of the largest class

    @property
    def step(self) -> int:
        """Queries whose kin are held at once."""
        return max(HELD // self.most, 1)


def _worth(work: _Work, start: int) -> Piece:
    some = work.asked.some(slice(start, start + work.step))
    return metrics_of(rank_counts_in_parts(lambda: _parts(some, work.shards, work.classes, work.affinity), work.most), work.ks)


def _parts(asked: Ranked, shards: Shards, classes: np.ndarray, affinity: Affinity) -> Iterator[tuple[Tensor, Tensor]]:
    """Affinities (n, some) of consecutive points, sorted by class, and where each query's class begins and ends there."""
    start, step = 0, max(HELD // len(asked.queries), 1)
    for block in shards.blocks():
        vectors = torch.from_numpy(np.array(block.vectors))
        for first in range(0, len(vectors), step):
            some = vectors[first : first + step]
            theirs = torch.from_numpy(classes[start + first : start + first + len(some)]).long()
            near = _near(asked.queries, some, affinity)
            near[:, theirs < 0] = -torch.inf
            own = asked.own - start - first
            here = ((own >= 0) & (own < len(some))).nonzero()[:, 0]
            near[here, own[here]] = -torch.inf
            theirs, order = theirs.sort(stable=True)
            spans = torch.stack([torch.searchsorted(theirs, asked.classes, right=right) for right in (False, True)], 1)
            yield near[:, order], spans
        start += len(vectors)


def _near(queries: Tensor, references: Tensor, affinity: Affinity) -> Tensor:
    """(n, m) float32, larger is nearer, pair by pair: equals are equal in whatever part they stand."""
    how = measure(affinity)
    if how is None:
        return affinity(queries.double(), references.double()).float()
    return rounded(all_pairs(how, queries, references), torch.tensor(0.0 if how.squared and not how.unit_queries else GRAIN))
