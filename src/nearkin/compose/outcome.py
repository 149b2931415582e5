"""Outcome: what a criterion found, query by query."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from nearkin.compose.value_checks import may_read

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")


class Outcome(NamedTuple):
    """The value of every query.

    The mean is sum(weight * values) / sum(weight): a skipped query has weight 0 and value 0, and a criterion whose unit is the pair gives
    each query its number of pairs.

    Parameters
    ----------
    values : Tensor
        (n,) the value of each query.
    weight : Tensor
        (n,) how much each counts; 0 where a query was skipped.
    active : Tensor
        () how many pairs or triplets had a part in the value.
    clamped : Tensor, optional
        () how many queries had fewer than k candidates, so that k was lowered for them.
    even : bool, default=False
        Whether every weight is 1, so that the mean is that of the values.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Outcome, reduce
    >>> reduce(Outcome(torch.tensor([1.0, 3.0, 0.0]), torch.tensor([1.0, 1.0, 0.0]), torch.tensor(2)), "mean")
    tensor(2.)
    """

    values: Tensor  # (n,)
    weight: Tensor  # (n,), 0 where a query could not be valid
    active: Tensor  # () pairs or triplets that bore on the price
    clamped: Tensor | None = None  # () queries whose k was lowered to their number of candidates
    even: bool = False  # every weight is 1


def reduce(outcome: Outcome, reduction: Reduction) -> Tensor:
    """Reduce an outcome to a scalar, or return the values themselves.

    Parameters
    ----------
    outcome : Outcome
        What a criterion found.
    reduction : {"mean", "sum", "none"}
        "mean" is the weighted mean over valid queries; without any, a zero that keeps the graph.

    Returns
    -------
    Tensor
        () or, with "none", (n,).

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Outcome, reduce
    >>> reduce(Outcome(torch.tensor([1.0, 3.0]), torch.ones(2), torch.tensor(2)), "sum")
    tensor(4.)
    """
    if reduction == "none":
        return outcome.values
    if outcome.even:
        return outcome.values.mean() if reduction == "mean" else outcome.values.sum()
    total = torch.dot(outcome.weight, outcome.values)
    if reduction == "sum":
        return total
    weight = outcome.weight.sum()
    if may_read(weight) and not weight.requires_grad:
        return total / (float(weight) or 1.0)
    return total / weight.masked_fill(weight == 0, 1.0)
