"""Votes: from the labels of k neighbors to one class."""

import torch
from torch import Tensor

from nearkin.compose.points import takes_arrays

ALMOST = 1 - 1e-12  # sums that differ by less are equal: they were only added in another order


@takes_arrays
def vote(labels: Tensor) -> Tensor:
    """Return the majority class among the neighbors of every query.

    Among classes with equally many votes, the class of the nearest neighbor wins.

    Parameters
    ----------
    labels : Tensor or ndarray (n, k) of integers
        The classes of the k neighbors, nearest first.

    Returns
    -------
    Tensor (n,)
        Of the type of the labels.

    Examples
    --------
    >>> import torch
    >>> from nearkin.search import vote
    >>> vote(torch.tensor([[2, 1, 1], [2, 1, 0]]))
    tensor([1, 2])
    """
    if labels.ndim != 2 or labels.shape[1] == 0 or labels.is_floating_point():
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} and type {labels.dtype}; give integer classes (n, k) of neighbors, k >= 1"
        )
    return weighted_vote(labels, torch.zeros(labels.shape, dtype=torch.float64, device=labels.device))


@takes_arrays
def weighted_vote(labels: Tensor, log_weights: Tensor) -> Tensor:
    """Return the class with the largest sum of weights among the neighbors of every query.

    Among classes with equal sums, the class of the nearest neighbor wins. Weights never overflow: the largest log-weight of a row is
    subtracted first.

    Parameters
    ----------
    labels : Tensor or ndarray (n, k) of integers
        The classes of the k neighbors, nearest first.
    log_weights : Tensor or ndarray (n, k)
        The logarithms of their weights, such as cosine / temperature. -inf leaves a neighbor out.

    Returns
    -------
    Tensor (n,)
        Of the type of the labels.

    Examples
    --------
    A low temperature favors the nearest neighbor, a high one the majority:

    >>> import torch
    >>> from nearkin.search import weighted_vote
    >>> labels, cosines = torch.tensor([[0, 1, 1]]), torch.tensor([[0.9, 0.8, 0.8]])
    >>> weighted_vote(labels, cosines / 0.07), weighted_vote(labels, cosines / 1.0)
    (tensor([0]), tensor([1]))

    References
    ----------
    [wu2018instance]
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
