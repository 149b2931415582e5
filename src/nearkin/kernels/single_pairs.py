"""Single pairs, handled one by one: listed neighbors, and pairs that are special in one direction only.

There are few of them (n times the length of a list), so their affinities are computed from differences and in float64.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from nearkin.kernels.contract import Work
from nearkin.kernels.layout import NO_CANDIDATE, POSITIVE, SinglePairs

_CHUNK = 1 << 20  # numbers gathered at a time


def candidates(pairs: SinglePairs) -> SinglePairs:
    """The pairs that are candidates."""
    some = pairs.kind != NO_CANDIDATE
    return pairs if bool(some.all()) else SinglePairs(pairs.rows[some], pairs.columns[some], pairs.kind[some])


def _chunks(work: Work, pairs: SinglePairs) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """(pairs, queries, references) in float64, a few at a time."""
    references = work.queries if work.references is None else work.references
    step = max(1, _CHUNK // work.queries.shape[1])
    for start in range(0, len(pairs.rows), step):
        here = slice(start, start + step)
        yield here, work.queries[pairs.rows[here]].double(), references[pairs.columns[here]].double()


def affinities(work: Work, pairs: SinglePairs) -> Tensor:
    """(p,) s of each pair in float64."""
    out = torch.empty(len(pairs.rows), dtype=torch.float64, device=pairs.rows.device)
    for here, query, reference in _chunks(work, pairs):
        out[here] = -(query - reference).square().sum(1) if work.squared else (query * reference).sum(1)
    return out


def add_gradients(work: Work, pairs: SinglePairs, weights: Tensor, to_queries: Tensor, to_references: Tensor | None) -> None:
    """Add the gradient of sum_p weight_p s_p to that of the tiles, in place."""
    target = to_queries if work.references is None else to_references
    for here, query, reference in _chunks(work, pairs):
        weight = weights[here, None]
        forth = 2 * weight * (reference - query) if work.squared else weight * reference
        _add(to_queries, pairs.rows[here], forth.to(to_queries.dtype))
        if target is not None:
            back = -forth if work.squared else weight * query
            _add(target, pairs.columns[here], back.to(target.dtype))


def _add(to: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Add values to their rows in a fixed order: on CUDA the order of `index_add_` is random."""
    return to.index_put_((rows,), values, accumulate=True)


def _costs(work: Work, pairs: SinglePairs) -> Tensor:
    assert work.targets is not None
    return (work.targets[0][pairs.rows].double() - work.targets[1][pairs.columns].double()).square().sum(1)


def _log_sums(n: int, rows: Tensor, affinity: Tensor) -> Tensor:
    """(n,) log2 of the sum of 2^affinity in each row, -inf for an empty one."""
    top = torch.full((n,), -torch.inf, dtype=affinity.dtype, device=affinity.device)
    top.scatter_reduce_(0, rows, affinity, "amax")
    total = _add(torch.zeros_like(top), rows, torch.exp2(affinity - top[rows]))
    return torch.where(total > 0, top + torch.log2(total), -torch.inf)


def add_single_pairs(work: Work, pairs: SinglePairs, affinity: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Add the single pairs to the summaries of the tiles (float64)."""
    if len(affinity) == 0:
        return first, second
    n = len(first)
    if work.targets is None:
        positive = pairs.kind == POSITIVE
        first = torch.logaddexp2(first, _log_sums(n, pairs.rows[positive], affinity[positive]))
        return first, torch.logaddexp2(second, _log_sums(n, pairs.rows[~positive], affinity[~positive]))
    total = _log_sums(n, pairs.rows, affinity)
    share = torch.exp2(affinity - total[pairs.rows])
    mean = _add(torch.zeros_like(second), pairs.rows, share * _costs(work, pairs))
    return join_summaries(first, second, total, mean)


def join_summaries(first: Tensor, mean: Tensor, other: Tensor, other_mean: Tensor) -> tuple[Tensor, Tensor]:
    """Join two log-sums of the same rows, and the mean costs under them."""
    total = torch.logaddexp2(first, other)
    mine, theirs = torch.exp2(first - total), torch.exp2(other - total)
    return total, torch.where(total != -torch.inf, mine * mean + theirs * other_mean, 0.0)


def weights(work: Work, pairs: SinglePairs, affinity: Tensor, first: Tensor, second: Tensor, pull: Tensor) -> Tensor:
    """(p,) W of each pair (see `Engine.gradients`); summaries and pulls in float64."""
    here = pull[pairs.rows]
    if work.targets is None:
        positive = pairs.kind == POSITIVE
        shift = torch.where(positive, first[pairs.rows], second[pairs.rows])
        weight = torch.where(positive, -here, here) * torch.exp2(affinity - shift)
    else:
        weight = here * torch.exp2(affinity - first[pairs.rows]) * (_costs(work, pairs) - second[pairs.rows])
    return torch.where(here != 0, weight, 0.0)
