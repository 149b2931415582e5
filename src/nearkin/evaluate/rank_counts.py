"""RankCounts: for each of a query's positives, how many negatives stand above it, and how many are tied with it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 3  # equals that are looked for one by one


class RankCounts(NamedTuple):
    """The positives of n queries in falling order, padded to (n, g): one entry for each, or `weight` positives to an entry."""

    above: Tensor  # negatives strictly nearer
    tied: Tensor  # negatives equally near
    positives_above: Tensor  # positives strictly nearer
    positives_tied: Tensor  # positives equally near, itself included
    weight: Tensor  # positives that the entry stands for; 0 is padding
    positives: Tensor  # (n,) R
    candidates: Tensor  # (n,) all that are ranked

    @property
    def has_tie(self) -> Tensor:
        """(n,) where somebody is as near as one of the positives."""
        tie = (self.tied > 0) | (self.positives_tied > 1) | (self.weight > 1)
        return (tie & (self.weight > 0)).any(1)

    def some(self, rows: Tensor) -> "RankCounts":
        """Of some of the queries."""
        return RankCounts(*(x[rows] for x in self))


def rank_counts(near: Tensor, spans: Tensor) -> RankCounts:
    """From near (n, m) with the gallery sorted by class, the positives of query i in columns spans[i, 0]..spans[i, 1]-1, -inf = not ranked."""
    return rank_counts_in_parts(lambda: iter([(near, spans)]), max(int((spans[:, 1] - spans[:, 0]).max()), 1))


def rank_counts_in_parts(parts: Callable[[], Iterator[tuple[Tensor, Tensor]]], most: int) -> RankCounts:
    """The same of a gallery that comes part by part, twice: for the positives, at most `most` to a query, and then for everybody.

    Everybody is sorted and the few positives are looked up there: to look up everybody among the positives takes many times as long.
    """
    up = _ascending(_all_positive(parts(), most).neg_())
    positives = up < torch.inf
    nearer, reached = torch.zeros_like(up, dtype=torch.int64), torch.zeros_like(up, dtype=torch.int64)  # strictly, and at least as near
    candidates = torch.zeros_like(up[:, 0], dtype=torch.int64)
    for near, _ in parts():
        ahead = _ascending(-near)  # +inf, which is not ranked, at the end
        before = torch.searchsorted(ahead, up)
        nearer += before
        reached += _past_equals(ahead, up, before)
        candidates += (near > -torch.inf).sum(1)
    places = torch.arange(up.shape[1], device=up.device).expand_as(up)
    first = torch.ones_like(positives)  # of equal positives
    first[:, 1:] = up[:, 1:] != up[:, :-1]
    positives_above = torch.where(first, places, 0).cummax(1).values
    positives_tied = _past_equals(up, up, places) - positives_above
    tied = torch.where(positives, reached - nearer - positives_tied, 0)
    return RankCounts(nearer - positives_above, tied, positives_above, positives_tied, positives.long(), positives.sum(1), candidates)


def _ascending(x: Tensor) -> Tensor:
    """The rows of x (n, m), each sorted, in place where that can be: numpy's sort is many times as quick as torch's on a CPU."""
    if x.device.type != "cpu":
        return x.sort(dim=1).values
    x.numpy().sort(axis=1)
    return x


def _past_equals(rows: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """Where the values (n, g) end in sorted rows (n, m), when none equal to them stands before `at` (n, g).

    A few steps, since most have few equals, and a search in the rows where some have more.
    """
    last = rows.shape[1] - 1
    for _ in range(STEPS):
        equal = (rows.gather(1, at.clamp_max(last)) == values) & (at <= last)
        at = at + equal
    more = equal.any(1).nonzero()[:, 0]
    return at.index_copy(0, more, torch.searchsorted(rows[more], values[more], right=True)) if len(more) else at


def _all_positive(parts: Iterator[tuple[Tensor, Tensor]], most: int) -> Tensor:
    """(n, g) the positives of all parts in no order, -inf where there are fewer."""
    held: Tensor | None = None
    for near, spans in parts:
        columns = spans[:, :1] + torch.arange(max(int((spans[:, 1] - spans[:, 0]).max()), 1), device=near.device)
        some = near.gather(1, columns.clamp_max(near.shape[1] - 1)).masked_fill(columns >= spans[:, 1:], -torch.inf)
        if held is None:
            held, filled = near.new_full((len(near), most + 1), -torch.inf), torch.zeros(len(near), dtype=torch.int64, device=near.device)
        there = some > -torch.inf
        held.scatter_(1, torch.where(there, filled[:, None] + there.cumsum(1) - 1, most), some)  # the last column is for nobody
        filled += there.sum(1)
    assert held is not None
    return held[:, :most].contiguous()


def single_tie(positives: Tensor, candidates: Tensor) -> RankCounts:
    """The standing of an embedding that tells nobody apart: all candidates in one tie. Its worth is the chance level."""
    nought = torch.zeros_like(positives)[:, None]
    return RankCounts(nought, (candidates - positives)[:, None], nought, positives[:, None], positives[:, None], positives, candidates)
