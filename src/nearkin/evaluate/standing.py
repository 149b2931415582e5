"""Standing: for each of a query's kin, how many strangers stand above it, and how many are tied with it."""

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
    widest = max(int((spans[:, 1] - spans[:, 0]).max()), 1)
    columns = spans[:, :1] + torch.arange(widest, device=near.device)
    inside = columns < spans[:, 1:]
    kin = near.gather(1, columns.clamp_max(near.shape[1] - 1)).masked_fill(~inside, -torch.inf).sort(dim=1, descending=True).values
    weight = kin > -torch.inf
    number = weight.sum(1)
    above, tied, candidates = _strangers(near, spans, kin)
    kin_above = torch.searchsorted(-kin, -kin)
    kin_tied = torch.searchsorted(-kin, -kin, right=True) - kin_above
    return Standing(above, tied, kin_above, kin_tied, weight.long(), number, candidates + number)


def single_tie(kin: Tensor, candidates: Tensor) -> Standing:
    """The standing of an embedding that tells nobody apart: all candidates in one tie. Its worth is the chance level."""
    nought = torch.zeros_like(kin)[:, None]
    return Standing(nought, (candidates - kin)[:, None], nought, kin[:, None], kin[:, None], kin, candidates)


def _strangers(near: Tensor, spans: Tensor, kin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, g) strangers above and tied with each kin, and (n,) all of them."""
    columns = torch.arange(near.shape[1], device=near.device)
    ranked = (near > -torch.inf) & ~((columns >= spans[:, :1]) & (columns < spans[:, 1:]))
    up = -kin  # ascending
    first, last = torch.searchsorted(up, -near), torch.searchsorted(up, -near, right=True)
    counts = torch.zeros(len(kin), kin.shape[1] + 1, dtype=torch.int64, device=near.device)
    reached = counts.scatter_add(1, first, ranked.long()).cumsum(1)[:, :-1]  # strangers at least as near as the kin
    nearer = counts.scatter_add(1, last, ranked.long()).cumsum(1)[:, :-1]  # strictly nearer
    return nearer, reached - nearer, ranked.sum(1)
