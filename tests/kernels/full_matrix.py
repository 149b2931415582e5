"""Evaluations for the CPU engines, and their exact value and gradient: the equation written out on the full matrix in float64."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from nearkin.kernels import autograd
from nearkin.kernels.contract import Engine, Form, Work
from nearkin.kernels.numba_tiles import NumbaTiles
from nearkin.kernels.torch_tiles import TorchTiles

BOTH = pytest.mark.parametrize("kind", [TorchTiles, NumbaTiles])


def truth(n: int, m: int, positions: Tensor | None) -> Tensor:
    """(n, m) bool: which positions each row lists, -1 for none."""
    table = torch.zeros(n, m, dtype=torch.bool)
    for i, row in enumerate([] if positions is None else positions.tolist()):
        for j in row:
            if j >= 0:
                table[i, j] = True
    return table


def log_sum(s: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """log of the sum of e^s over True, 0 where there is none; and whether there is any."""
    some = among.any(1)
    return torch.logsumexp(torch.where(some[:, None], s.masked_fill(~among, -math.inf), 0.0), 1), some


def oracle(work: Work, form: Form, temperature: float) -> tuple[Tensor, Tensor]:
    """Values and which queries are valid, from the whole matrix."""
    q = work.queries
    r = q if work.references is None else work.references
    n, m = len(q), len(r)
    s = (-(q[:, None] - r[None]).square().sum(2) if work.squared else q @ r.T) / temperature
    candidate = ~truth(n, m, work.skip)
    if work.targets is not None:
        cost = (work.targets[0].double()[:, None] - work.targets[1].double()[None]).square().sum(2)
        total, some = log_sum(s, candidate)
        chance = torch.exp(s.masked_fill(~candidate, -math.inf) - total[:, None])
        return (chance * cost).sum(1), some
    positive = truth(n, m, work.listed)
    if work.span is not None:
        column = torch.arange(m)
        positive = (work.span[:, :1] <= column) & (column < work.span[:, 1:])
    a, has_positive = log_sum(s, candidate & positive)
    b, has_negative = log_sum(s, candidate & ~positive)
    both = has_positive & has_negative
    if form == "log":
        return torch.where(both, torch.nn.functional.softplus(b - a), 0.0), has_positive
    return torch.where(both, torch.sigmoid(b - a), has_negative.double()), has_positive | has_negative


class Found(NamedTuple):
    values: Tensor
    valid: Tensor
    to_queries: Tensor
    to_references: Tensor | None


def found(engine: Engine | None, work: Work, form: Form, temperature: float = 0.7) -> Found:
    """Values, and gradients under a fixed random upstream, of an engine or (None) of the oracle in float64."""
    kind = torch.float64 if engine is None else work.queries.dtype
    queries = work.queries.detach().to(kind).clone().requires_grad_()
    references = None
    if work.references is not None:
        references = work.references.detach().to(kind).clone().requires_grad_(work.reference_gradient)
    live = work._replace(queries=queries, references=references)
    if engine is None:
        values, valid = oracle(live, form, temperature)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(autograd, "choose", lambda *_: engine)
            values, valid = autograd.soft_neighbors(live, form, temperature)
    upstream = torch.rand(len(queries), generator=torch.Generator().manual_seed(5), dtype=torch.float64) - 0.3
    inputs = [t for t in (queries, references) if t is not None and t.requires_grad]
    grads = torch.autograd.grad((values * upstream.to(kind)).sum() + 0 * queries.sum(), inputs, allow_unused=True)
    return Found(values.detach(), valid, grads[0], grads[1] if len(grads) > 1 else None)


def evaluated(engine: Engine, work: Work, form: Form, upstream: float = 1.0) -> tuple[Tensor, ...]:
    """Values and the gradient of the queries, for exactly the tensors passed in."""
    queries = work.queries.detach().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autograd, "choose", lambda *_: engine)
        values, _ = autograd.soft_neighbors(work._replace(queries=queries), form, 0.7)
    return values.detach(), *torch.autograd.grad(values, queries, torch.full_like(values, upstream))


def gap(a: Tensor, b: Tensor) -> float:
    """||a - b|| over ||b||; over 1, the size of an embedding, where b is smaller: sums that cancel keep its rounding."""
    return float((a.double() - b).norm() / b.norm().clamp_min(1))


def agree(mine: Found, theirs: Found, tolerance: float) -> None:
    assert torch.equal(mine.valid, theirs.valid)
    assert gap(mine.values, theirs.values) < tolerance
    assert gap(mine.to_queries, theirs.to_queries) < tolerance
    assert (mine.to_references is None) == (theirs.to_references is None)
    if mine.to_references is not None and theirs.to_references is not None:
        assert gap(mine.to_references, theirs.to_references) < tolerance


def runs(labels: Tensor, among: Tensor) -> Tensor:
    """(n, 2): where each label begins and ends in sorted labels."""
    return torch.stack([torch.searchsorted(among, labels), torch.searchsorted(among, labels, right=True)], 1)


def draw(
    relation: str,
    references: str,
    *,
    n: int = 23,
    m: int = 17,
    d: int = 5,
    squared: bool = True,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Work:
    """Work with all awkward cases: singleton and absent classes, samples that occur twice, ragged lists."""
    generator = torch.Generator().manual_seed(seed * 1_000_000 + n * 1000 + m)

    def pick(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    own = references == "own"
    m = n if own else m
    queries, others = torch.randn(n, d, generator=generator, dtype=dtype), torch.randn(m, d, generator=generator, dtype=dtype)
    skip = pick(-1, m, n, 3)
    if own:
        twin = torch.arange(n).roll(1)  # a sample that occurs twice: it and its twin skip each other
        skip = torch.stack([torch.arange(n), torch.where(torch.arange(n) % 5 == 0, twin, -1), skip[:, 0]], 1)
    work = Work(queries, None if own else others, squared, skip=skip, reference_gradient=references == "separate")
    if relation == "span":
        labels = pick(0, 6, n).sort().values
        return work._replace(span=runs(labels, labels if own else pick(0, 6, m).sort().values))
    if relation == "asymmetric":
        return work._replace(span=pick(0, m + 1, n, 2))
    if relation == "listed":
        return work._replace(listed=pick(-1, m, n, 4))
    targets = torch.randn(m, 2, generator=generator) + 2000
    return work._replace(targets=(targets if own else torch.randn(n, 2, generator=generator) + 2000, targets))


CASES = [("span", "log"), ("span", "expected"), ("asymmetric", "log"), ("listed", "log"), ("listed", "expected"), ("targets", "expected")]
