"""Ranks: criteria that smooth the place of every positive in the ranking of its query.

A place is one plus the number of candidates before it. Binned, that number comes from soft histograms of the affinities; smooth, from a
sigmoid of every difference of two affinities of a row.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nearkin.compose.criterion import right_and_wrong
from nearkin.compose.outcome import Outcome
from nearkin.compose.relation import Related

AT_ONCE = 2**22  # differences of affinities held together; more are computed again in the backward pass


@dataclass(frozen=True)
class BinnedPrecision:
    """1 - average precision, with ranks from soft histograms of squared distances of unit vectors.

        AP_i = 1/|P_i| sum_z h+_z H+_z / H_z

    h+ are the soft counts of positives in each bin, H+ and H the counts of positives and of all candidates up to that bin.

    Parameters
    ----------
    bins : int, default=10
        Bins of the range of squared distances, 0 to 4.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import BinnedPrecision, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> BinnedPrecision()(torch.tensor([[-0.0, -2.0]]), related).values  # the positive stands first
    tensor([0.])
    """

    bins: int = 10

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, _ = right_and_wrong(relation)
        place = (-affinity).clamp(0, 4) * (self.bins / 4)  # in bins
        low = place.detach().floor().clamp_max(self.bins - 1)
        share = place - low  # of the upper of the two nodes between which it lies
        nodes = affinity.new_zeros(len(affinity), self.bins + 1)
        at = low.long()

        def counted(mask: Tensor) -> Tensor:
            return nodes.scatter_add(1, at, (1 - share) * mask).scatter_add(1, at + 1, share * mask)

        positive, every = counted(right), counted(relation.candidate)
        before, reached = positive.cumsum(1), every.cumsum(1)
        some = reached > 0
        precision = torch.where(some, before / torch.where(some, reached, 1.0), 0.0)
        count = right.sum(1)
        values = 1 - (positive * precision).sum(1) / count.clamp_min(1)
        return Outcome(torch.where(count > 0, values, 0.0), (count > 0).to(values.dtype), count.sum())


@dataclass(frozen=True)
class SmoothPrecision:
    """1 - average precision, with ranks from sigmoids of the differences of affinities.

        AP_i = 1/|P_i| sum_(j in P_i) R(j, P_i) / R(j, C_i),   R(j, S) = 1 + sum_(k in S, k != j) sigmoid((s_ik - s_ij) / temperature)

    P_i are the positives, C_i all candidates.

    Parameters
    ----------
    temperature : float, default=0.01
        Of the sigmoid. Toward 0 the value is the true one, and has no gradient.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Related, SmoothPrecision
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> SmoothPrecision()(torch.tensor([[0.2, 0.5]]), related).values  # the positive stands second
    tensor([0.5000])
    """

    temperature: float = 0.01

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, _ = right_and_wrong(relation)

        def value(affinity: Tensor, right: Tensor, candidate: Tensor) -> Tensor:
            before = _before(affinity, self.temperature)
            among, every = _places(before, right), _places(before, candidate)
            return 1 - (right * among / every).sum(1) / right.sum(1).clamp_min(1)

        count = right.sum(1)
        values = _in_blocks(value, affinity, right, relation.candidate)
        return Outcome(torch.where(count > 0, values, 0.0), (count > 0).to(values.dtype), count.sum())


@dataclass(frozen=True)
class SmoothRecall:
    """1 - recall at several k, with ranks from sigmoids of differences and the count inside k from another sigmoid.

        recall_i(k) = 1/min(k, |P_i|) sum_(j in P_i) sigmoid((k - R(j, C_i)) / rank_temperature)

    R(j, C_i) is the smooth place of j among all candidates, as in `SmoothPrecision`; the value is 1 minus the mean over `ks`.

    Parameters
    ----------
    ks : tuple of int, default=(1, 2, 4, 8, 16)
        The k to average over.
    temperature : float, default=0.01
        Of the sigmoid over differences of affinities.
    rank_temperature : float, default=1.0
        Of the sigmoid over ranks.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Related, SmoothRecall
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> SmoothRecall((1,))(torch.tensor([[0.5, 0.2]]), related).values  # exactly at the edge of the first
    tensor([0.5000])
    """

    ks: tuple[int, ...] = (1, 2, 4, 8, 16)
    temperature: float = 0.01
    rank_temperature: float = 1.0

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, _ = right_and_wrong(relation)

        def value(affinity: Tensor, right: Tensor, candidate: Tensor) -> Tensor:
            places, count = _places(_before(affinity, self.temperature), candidate), right.sum(1)
            recalls = [(right * ((k - places) / self.rank_temperature).sigmoid()).sum(1) / count.clamp(1, k) for k in self.ks]
            return 1 - torch.stack(recalls).mean(0)

        count = right.sum(1)
        values = _in_blocks(value, affinity, right, relation.candidate)
        return Outcome(torch.where(count > 0, values, 0.0), (count > 0).to(values.dtype), count.sum())


def _before(affinity: Tensor, temperature: float) -> Tensor:
    """(b, m, m) how far column k stands before column j, 0..1; nothing stands before itself."""
    difference = (affinity[:, None, :] - affinity[:, :, None]) / temperature
    itself = torch.eye(affinity.shape[1], dtype=torch.bool, device=affinity.device)
    return difference.sigmoid().masked_fill(itself, 0.0)


def _places(before: Tensor, mask: Tensor) -> Tensor:
    """(b, m) one plus how many of the mask stand before each column."""
    return 1 + (before @ mask.to(before.dtype)[:, :, None])[:, :, 0]


def _in_blocks(value: Callable[..., Tensor], affinity: Tensor, right: Tensor, candidate: Tensor) -> Tensor:
    """The values (n,) of a function of rows, a few rows at a time where they have many columns; the blocks depend on the shape alone."""
    n, m = affinity.shape
    step = max(1, AT_ONCE // (m * m))
    if step >= n:
        return value(affinity, right, candidate)
    blocks = zip(*(torch.split(x, step) for x in (affinity, right, candidate)), strict=True)
    return torch.cat([checkpoint(value, *block, use_reentrant=False) for block in blocks])
