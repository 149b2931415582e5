"""Voting: from the labels of k neighbors to one class."""

import torch
from torch import Tensor

from nearkin.compose.points import takes_arrays

ALMOST = 1 - 1e-12  # weights that differ by less are equal: they were only added in another order


@takes_arrays
def vote(labels: Tensor) -> Tensor:
    """(n, k) labels of neighbors, nearest first, to the majority label (n,).

    Among classes with equally many votes, the one with the nearest member wins.
    """
    if labels.ndim != 2 or labels.shape[1] == 0 or labels.is_floating_point():
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} and type {labels.dtype}; give integer classes (n, k) of neighbors, k >= 1"
        )
    return weighted_vote(labels, torch.zeros(labels.shape, dtype=torch.float64, device=labels.device))


@takes_arrays
def weighted_vote(labels: Tensor, log_weights: Tensor) -> Tensor:
    """(n, k) labels of neighbors, nearest first, and their log-weights to the label with the largest sum of weights (n,).

    The largest log-weight of a row is taken off first, so that no weight overflows. Among equals the nearest member wins.
    """
    n, k = labels.shape
    weights = (log_weights - log_weights.amax(1, keepdim=True)).double().exp()  # (n, k), the largest is 1
    order = labels.argsort(dim=1, stable=True)
    by_label, sums = labels.gather(1, order), weights.gather(1, order).cumsum(1)
    last = torch.ones_like(by_label, dtype=torch.bool)
    last[:, :-1] = by_label[:, 1:] != by_label[:, :-1]
    places = torch.arange(k, device=labels.device).expand(n, k)
    end = torch.where(last, places, k).flip(1).cummin(1).values.flip(1)  # of each run of one label
    start = torch.where(torch.roll(last, 1, 1) | (places == 0), places, -1).cummax(1).values
    before = torch.where(start > 0, sums.gather(1, (start - 1).clamp_min(0)), 0.0)
    totals = torch.empty_like(weights).scatter_(1, order, sums.gather(1, end) - before)
    winner = torch.where(totals >= totals.amax(1, keepdim=True) * ALMOST, places, k).amin(1)  # the nearest of the best
    return labels.gather(1, winner[:, None])[:, 0]
