"""The pairs set apart from the tiles, one by one: listed neighbours and what is special in one direction only.

They are few (n times the length of a list), so they are evaluated from differences in float64, in chunks.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.layout import NO_CANDIDATE, RIGHT, Apart
from nearkin.kernels.work import Work

_CHUNK = 1 << 20  # numbers gathered at a time


class _Pairs(NamedTuple):
    rows: Tensor  # (p,)
    columns: Tensor  # (p,)
    right: Tensor  # (p,) bool
    affinity: Tensor  # (p,) float64
    slope: Tensor  # (p, d) half of the affinity's gradient in the query: r - q, or r for an inner product
    cost: Tensor  # (p,) float64, of targets; 0 without


def _chunks(work: Work, apart: Apart) -> Iterator[_Pairs]:
    references = work.queries if work.references is None else work.references
    candidates = (apart.kind != NO_CANDIDATE).nonzero()[:, 0]
    for part in torch.split(candidates, max(1, _CHUNK // work.queries.shape[1])):
        rows, columns = apart.rows[part], apart.columns[part]
        query, reference = work.queries[rows].double(), references[columns].double()
        slope = reference - query if work.squared else reference
        affinity = -slope.square().sum(1) if work.squared else (query * reference).sum(1)
        cost = torch.zeros_like(affinity)
        if work.targets is not None:
            cost = (work.targets[0][rows].double() - work.targets[1][columns].double()).square().sum(1)
        yield _Pairs(rows, columns, apart.kind[part] == RIGHT, affinity, slope, cost)


def _log_sums(n: int, rows: Tensor, affinity: Tensor) -> Tensor:
    """(n,) log2 of the sum of 2^affinity in each row, -inf for an empty one."""
    top = torch.full((n,), -torch.inf, dtype=affinity.dtype, device=affinity.device)
    top.scatter_reduce_(0, rows, affinity, "amax")
    total = torch.zeros_like(top).index_add_(0, rows, torch.exp2(affinity - top[rows]))
    return torch.where(total > 0, top + torch.log2(total), -torch.inf)


def with_apart(work: Work, apart: Apart, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The tiles' summaries (float64) joined with those of the pairs set apart."""
    n = len(first)
    for pairs in _chunks(work, apart):
        if work.targets is None:
            first = torch.logaddexp2(first, _log_sums(n, pairs.rows[pairs.right], pairs.affinity[pairs.right]))
            second = torch.logaddexp2(second, _log_sums(n, pairs.rows[~pairs.right], pairs.affinity[~pairs.right]))
        else:
            total = _log_sums(n, pairs.rows, pairs.affinity)
            share = torch.exp2(pairs.affinity - total[pairs.rows])
            mean = torch.zeros_like(second).index_add_(0, pairs.rows, share * pairs.cost)
            first, second = joined(first, second, total, mean)
    return first, second


def joined(first: Tensor, mean: Tensor, other: Tensor, other_mean: Tensor) -> tuple[Tensor, Tensor]:
    """Two log-sums of the same rows as one, and the mean cost under both."""
    total = torch.logaddexp2(first, other)
    there = total != -torch.inf
    mine, theirs = torch.exp2(first - total), torch.exp2(other - total)
    return total, torch.where(there, mine * mean + theirs * other_mean, 0.0)


def push_apart(work: Work, apart: Apart, summary: tuple[Tensor, Tensor, Tensor], to_queries: Tensor, to_references: Tensor | None) -> None:
    """Add the gradients of the pairs set apart (see `Engine.gradients`) to the tiles', in place."""
    first, second, pull = summary
    for pairs in _chunks(work, apart):
        rows = pairs.rows
        if work.targets is None:
            shift = torch.where(pairs.right, first[rows], second[rows])
            weight = torch.where(pairs.right, -pull[rows], pull[rows]) * torch.exp2(pairs.affinity - shift)
        else:
            weight = pull[rows] * torch.exp2(pairs.affinity - first[rows]) * (pairs.cost - second[rows])
        weight = torch.where(pull[rows] != 0, weight, 0.0)[:, None]  # (p, 1)
        forth = weight * pairs.slope * (2 if work.squared else 1)
        to_queries.index_add_(0, rows, forth.to(to_queries.dtype))
        own = work.references is None
        target = to_queries if own else to_references
        if target is not None:
            back = -forth if work.squared else weight * work.queries[rows].double()
            target.index_add_(0, pairs.columns, back.to(target.dtype))
