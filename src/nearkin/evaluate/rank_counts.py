"""Standing: for each of a query's kin, how many strangers stand above it, and how many are tied with it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 3  # equals that are looked for one by one


class Standing(NamedTuple):
    """The kin of n queries in falling order, padded to (n, g): one entry for each, or `weight` kin to an entry."""

    above: Tensor  # strangers strictly nearer
    tied: Tensor  # strangers equally near
    kin_above: Tensor  # kin strictly nearer
    kin_tied: Tensor  # kin equally near, itself included
    weight: Tensor  # kin that the entry stands for; 0 is padding
    kin: Tensor  # (n,) R
    candidates: Tensor  # (n,) all that are ranked

    @property
    def loose(self) -> Tensor:
        """(n,) where somebody is as near as one of the kin."""
        tie = (self.tied > 0) | (self.kin_tied > 1) | (self.weight > 1)
        return (tie & (self.weight > 0)).any(1)

    def some(self, rows: Tensor) -> "Standing":
        """Of some of the queries."""
        return Standing(*(x[rows] for x in self))


def standing(near: Tensor, spans: Tensor) -> Standing:
    """From near (n, m) with the gallery sorted by class, the kin of query i in columns spans[i, 0]..spans[i, 1]-1, -inf = not ranked."""
    return standing_over(lambda: iter([(near, spans)]), max(int((spans[:, 1] - spans[:, 0]).max()), 1))


def standing_over(parts: Callable[[], Iterator[tuple[Tensor, Tensor]]], most: int) -> Standing:
    """The same of a gallery that comes part by part, twice: for the kin, at most `most` to a query, and then for everybody.

    Everybody is sorted and the few kin are looked up there: to look up everybody among the kin takes many times as long.
    """
    up = _ascending(_all_kin(parts(), most).neg_())
    kin = up < torch.inf
    nearer, reached = torch.zeros_like(up, dtype=torch.int64), torch.zeros_like(up, dtype=torch.int64)  # strictly, and at least as near
    candidates = torch.zeros_like(up[:, 0], dtype=torch.int64)
    for near, _ in parts():
        ahead = _ascending(-near)  # +inf, which is not ranked, at the end
        before = torch.searchsorted(ahead, up)
        nearer += before
        reached += _past_equals(ahead, up, before)
        candidates += (near > -torch.inf).sum(1)
    places = torch.arange(up.shape[1], device=up.device).expand_as(up)
    first = torch.ones_like(kin)  # of equal kin
    first[:, 1:] = up[:, 1:] != up[:, :-1]
    kin_above = torch.where(first, places, 0).cummax(1).values
    kin_tied = _past_equals(up, up, places) - kin_above
    tied = torch.where(kin, reached - nearer - kin_tied, 0)
    return Standing(nearer - kin_above, tied, kin_above, kin_tied, kin.long(), kin.sum(1), candidates)


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


def _all_kin(parts: Iterator[tuple[Tensor, Tensor]], most: int) -> Tensor:
    """(n, g) the kin of all parts in no order, -inf where there are fewer."""
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


def single_tie(kin: Tensor, candidates: Tensor) -> Standing:
    """The standing of an embedding that tells nobody apart: all candidates in one tie. Its worth is the chance level."""
    nought = torch.zeros_like(kin)[:, None]
    return Standing(nought, (candidates - kin)[:, None], nought, kin[:, None], kin[:, None], kin, candidates)
