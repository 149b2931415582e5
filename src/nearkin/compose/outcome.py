"""Outcome: what a criterion found, query by query."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")


class Outcome(NamedTuple):
    """The price of every query.

    The mean is sum(weight * values) / sum(weight): a query that could not be valid has weight 0 and value 0, and an
    objective whose unit is the pair gives each query its number of pairs.
    """

    values: Tensor  # (n,)
    weight: Tensor  # (n,), 0 where a query could not be valid
    active: Tensor  # () pairs or triplets that bore on the price
    clamped: Tensor | None = None  # () queries whose k was lowered to their number of candidates


def reduce(outcome: Outcome, reduction: Reduction) -> Tensor:
    """A scalar, or the values themselves. Without any valid query: a zero that keeps the graph."""
    if reduction == "none":
        return outcome.values
    total = torch.dot(outcome.weight, outcome.values)
    if reduction == "sum":
        return total
    weight = outcome.weight.sum()
    return total / weight.masked_fill(weight == 0, 1.0)
