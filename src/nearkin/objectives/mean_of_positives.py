"""`criterion.mean_positive` of classes without the matrix: mean_j -log p_ij over the positives j of query i.

The kernels evaluate one positive of each query against all candidates, log sum_k exp(s_ik) - s_ij. The mean affinity of the positives is
that with the mean of their rows (for squared distances, also of their squared lengths), so what is missing costs O(n d).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nearkin.compose.outcome import Outcome
from nearkin.kernels.autograd import Soft
from nearkin.kernels.contract import Work


def mean_of_positives(
    work: Work, classes: tuple[Tensor, Tensor], skip: Tensor | None, temperature: float, evaluate: Callable[[Work], Soft]
) -> Outcome:
    """The outcome of queries and references by class; `skip` (n, e) are positions of the query itself, -1 where there are fewer."""
    mine, theirs = classes
    others = work.queries if work.references is None else work.references
    own = (
        mine.new_full((len(mine), 1), -1)
        if skip is None
        else torch.where((skip >= 0) & (theirs[skip.clamp_min(0)] == mine[:, None]), skip, -1)
    )
    ranked, order = theirs.sort(stable=True)
    low, high = torch.searchsorted(ranked, mine), torch.searchsorted(ranked, mine, right=True)
    count = high - low - (own >= 0).sum(1)  # (n,) positives
    valid = count > 0
    rows = torch.cat([others, others.square().sum(1, keepdim=True)], 1) if work.squared else others
    one = _one_positive(mine, order, low, high, own)
    listed = torch.where(valid, one, -1)[:, None]
    soft = evaluate(work._replace(listed=listed, skip=skip))
    beyond = rows[one] - _means(rows, torch.searchsorted(ranked, theirs), low, own, count)
    gap = (work.queries * beyond[:, : others.shape[1]]).sum(1)  # of the one positive's affinity and the mean one
    if work.squared:
        gap = 2 * gap - beyond[:, -1]
    alone = valid & ~soft.valid  # its one positive is its only candidate: a certain choice, which kernels skip
    values = torch.where(valid, torch.where(alone, 0.0, soft.values) + gap / temperature, 0.0)
    candidates = len(others) - (0 if skip is None else (skip >= 0).sum(1))
    return Outcome(values, valid.to(values.dtype), (candidates * valid).sum())


def _means(rows: Tensor, first: Tensor, low: Tensor, own: Tensor, count: Tensor) -> Tensor:
    """(n, d) the mean of the rows of each query's positives.

    A class goes by the place of its first member in the sorted order: `first` (m,) of the references, `low` (n,) of the queries.
    """
    totals = torch.zeros_like(rows).index_add(0, first, rows)
    itself = (rows[own.clamp_min(0)] * (own >= 0)[:, :, None]).sum(1)
    return (totals[low.clamp_max(len(rows) - 1)] - itself) / count.clamp_min(1)[:, None]


def _one_positive(mine: Tensor, order: Tensor, low: Tensor, high: Tensor, own: Tensor) -> Tensor:
    """(n,) the position of one positive: a member of the class that is not the query itself.

    Each query of a class takes another member. If all took one, the gradient of its row would be a difference of sums over the class.
    """
    tries = 1 + torch.arange(own.shape[1] + 1, device=low.device)  # (e + 1,): one of them is free
    tried = low[:, None] + (_turns(mine)[:, None] + tries) % (high - low).clamp_min(1)[:, None]
    positions = order[tried.clamp_max(len(order) - 1)]
    free = ~(positions[:, :, None] == own[:, None]).any(2)
    return positions.gather(1, free.long().argmax(1, keepdim=True))[:, 0]


def _turns(mine: Tensor) -> Tensor:
    """(n,) how many queries of its class come before each query."""
    ranked, order = mine.sort(stable=True)
    turns = torch.empty_like(order)
    turns[order] = torch.arange(len(mine), device=mine.device) - torch.searchsorted(ranked, ranked)
    return turns
