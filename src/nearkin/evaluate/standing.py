"""Standing: for each of a query's kin, how many strangers stand above it, and how many are tied with it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor


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
    """The same of a gallery that comes part by part, twice: for the kin, at most `most` to a query, and then for the strangers."""
    kin = _all_kin(parts(), most)
    up = -kin  # ascending
    weight = kin > -torch.inf
    number = weight.sum(1)
    reached, nearer = (torch.zeros(len(kin), kin.shape[1] + 1, dtype=torch.int64, device=kin.device) for _ in range(2))
    strangers = torch.zeros_like(number)
    for near, spans in parts():
        columns = torch.arange(near.shape[1], device=near.device)
        ranked = (near > -torch.inf) & ~((columns >= spans[:, :1]) & (columns < spans[:, 1:]))
        reached.scatter_add_(1, torch.searchsorted(up, -near), ranked.long())  # at least as near as the kin
        nearer.scatter_add_(1, torch.searchsorted(up, -near, right=True), ranked.long())  # strictly nearer
        strangers += ranked.sum(1)
    above = nearer.cumsum(1)[:, :-1]
    kin_above = torch.searchsorted(up, up)
    kin_tied = torch.searchsorted(up, up, right=True) - kin_above
    return Standing(above, reached.cumsum(1)[:, :-1] - above, kin_above, kin_tied, weight.long(), number, strangers + number)


def _all_kin(parts: Iterator[tuple[Tensor, Tensor]], most: int) -> Tensor:
    """(n, g) the kin of all parts in falling order, -inf at the end."""
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
    return held[:, :most].sort(dim=1, descending=True).values


def single_tie(kin: Tensor, candidates: Tensor) -> Standing:
    """The standing of an embedding that tells nobody apart: all candidates in one tie. Its worth is the chance level."""
    nought = torch.zeros_like(kin)[:, None]
    return Standing(nought, (candidates - kin)[:, None], nought, kin[:, None], kin[:, None], kin, candidates)
