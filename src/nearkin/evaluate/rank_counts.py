"""Rank counts: for each positive of a query, how many negatives rank above it, and how many are tied with it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 3  # equal values that are searched step by step


class RankCounts(NamedTuple):
    """The positives of n queries, nearest first, padded to (n, g): one entry for each positive, or for `weight` tied positives."""

    above: Tensor  # negatives strictly nearer
    tied: Tensor  # negatives equally near
    positives_above: Tensor  # positives strictly nearer
    positives_tied: Tensor  # positives equally near, itself included
    weight: Tensor  # number of positives in the entry; 0 is padding
    positives: Tensor  # (n,) R
    candidates: Tensor  # (n,) all ranked points

    @property
    def has_tie(self) -> Tensor:
        """(n,) whether any point is tied with a positive."""
        tie = (self.tied > 0) | (self.positives_tied > 1) | (self.weight > 1)
        return (tie & (self.weight > 0)).any(1)

    def some(self, rows: Tensor) -> "RankCounts":
        """The counts of some of the queries."""
        return RankCounts(*(x[rows] for x in self))


def rank_counts(near: Tensor, spans: Tensor) -> RankCounts:
    """Count from affinities (n, m), -inf where a point is not ranked.

    The gallery is sorted by class: the positives of query i are in columns spans[i, 0] .. spans[i, 1] - 1.
    """
    return rank_counts_in_parts(lambda: iter([(near, spans)]), max(int((spans[:, 1] - spans[:, 0]).max()), 1))


def rank_counts_in_parts(parts: Callable[[], Iterator[tuple[Tensor, Tensor]]], most: int) -> RankCounts:
    """The same for a gallery in parts, which are read twice: for the positives, at most `most` for a query, and then for all points.

    All points are sorted and the few positives are looked up: to look up all points among the positives takes many times as long.
    """
    up = _ascending(_all_positive(parts(), most).neg_())
    positives = up < torch.inf
    nearer, reached = (
        torch.zeros_like(up, dtype=torch.int64),
        torch.zeros_like(up, dtype=torch.int64),
    )  # strictly nearer; at least as near
    candidates = torch.zeros_like(up[:, 0], dtype=torch.int64)
    for near, _ in parts():
        ahead = _ascending(-near)  # +inf, which is not ranked, at the end
        before = torch.searchsorted(ahead, up)
        nearer += before
        reached += _past_equals(ahead, up, before)
        candidates += (near > -torch.inf).sum(1)
    places = torch.arange(up.shape[1], device=up.device).expand_as(up)
    first = torch.ones_like(positives)  # first of equal positives
    first[:, 1:] = up[:, 1:] != up[:, :-1]
    positives_above = torch.where(first, places, 0).cummax(1).values
    positives_tied = _past_equals(up, up, places) - positives_above
    tied = torch.where(positives, reached - nearer - positives_tied, 0)
    return RankCounts(nearer - positives_above, tied, positives_above, positives_tied, positives.long(), positives.sum(1), candidates)


def _ascending(x: Tensor) -> Tensor:
    """The rows of x (n, m), each sorted, in place on a CPU, where numpy sorts many times faster than torch."""
    if x.device.type != "cpu":
        return x.sort(dim=1).values
    x.numpy().sort(axis=1)
    return x


def _past_equals(rows: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """The position after the last equal of each value (n, g) in sorted rows (n, m), given that of the first equal, `at` (n, g).

    A few steps, since most have few equals, then a search in the rows with more.
    """
    last = rows.shape[1] - 1
    for _ in range(STEPS):
        equal = (rows.gather(1, at.clamp_max(last)) == values) & (at <= last)
        at = at + equal
    more = equal.any(1).nonzero()[:, 0]
    return at.index_copy(0, more, torch.searchsorted(rows[more], values[more], right=True)) if len(more) else at


def _all_positive(parts: Iterator[tuple[Tensor, Tensor]], most: int) -> Tensor:
    """(n, g) the affinities of the positives of all parts, unordered, -inf where there are fewer."""
    held: Tensor | None = None
    for near, spans in parts:
        columns = spans[:, :1] + torch.arange(max(int((spans[:, 1] - spans[:, 0]).max()), 1), device=near.device)
        some = near.gather(1, columns.clamp_max(near.shape[1] - 1)).masked_fill(columns >= spans[:, 1:], -torch.inf)
        if held is None:
            held, filled = near.new_full((len(near), most + 1), -torch.inf), torch.zeros(len(near), dtype=torch.int64, device=near.device)
        there = some > -torch.inf
        held.scatter_(1, torch.where(there, filled[:, None] + there.cumsum(1) - 1, most), some)  # the last column is discarded
        filled += there.sum(1)
    assert held is not None
    return held[:, :most].contiguous()


def single_tie(positives: Tensor, candidates: Tensor) -> RankCounts:
    """The counts of an embedding in which all candidates tie. Its metrics are the chance level."""
    zero = torch.zeros_like(positives)[:, None]
    return RankCounts(zero, (candidates - positives)[:, None], zero, positives[:, None], positives[:, None], positives, candidates)
