"""The two passes of an evaluation through an engine, from the caller's units and back."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.contract import Engine, Form, Work
from nearkin.kernels.cuda_graphs import Tensors


class How(NamedTuple):
    """The settings of an evaluation."""

    form: Form
    temperature: float
    engine: Engine


def _scale(temperature: float) -> float:
    """The factor that gives points base-2 affinities."""
    return math.sqrt(math.log2(math.e) / temperature)


def kind_of(work: Work) -> torch.dtype:
    """The type that is computed with: float32 for points of 16 bits."""
    return torch.float64 if work.queries.dtype == torch.float64 else torch.float32


def _scaled(work: Work, temperature: float) -> Work:
    """The same work in base-2 units; for distances, centered on the mean of the references.

    Points of 16 bits are read as they are: this is the only copy of them in float32.
    """
    scale, kind = _scale(temperature), kind_of(work)
    queries, references = work.queries, work.references
    if work.squared:
        center = (queries if references is None else references).mean(0, dtype=kind)
        moved = [None if x is None else (x - center).mul_(scale) for x in (queries, references)]
    else:
        moved = [None if x is None else x.to(kind, copy=True).mul_(scale) for x in (queries, references)]
    assert moved[0] is not None
    return work._replace(queries=moved[0], references=moved[1])


def tensors_of(work: Work) -> list[Tensor | None]:
    """All tensors of an evaluation, for `recording`."""
    targets = work.targets or (None, None)
    return [work.queries, work.references, work.span, work.listed, *targets, work.skip]


def work_of(tensors: Tensors, squared: bool, reference_gradient: bool) -> Work:
    """The inverse of `tensors_of`."""
    queries, references, span, listed, mine, theirs, skip = tensors
    assert queries is not None
    targets = None if mine is None or theirs is None else (mine, theirs)
    return Work(queries, references, squared, span, listed, targets, skip, reference_gradient)


def detached(work: Work) -> Work:
    """The same work with detached points, which numba can read."""
    return work._replace(queries=work.queries.detach(), references=None if work.references is None else work.references.detach())


def forward_of(work: Work, how: How) -> tuple[Tensor, ...]:
    """Return value and valid; then what the gradient needs: its weight, both summaries and the scaled points."""
    scaled = _scaled(work, how.temperature)
    back = 1 / (_scale(how.temperature) * how.temperature)  # converts a gradient from base-2 units to the caller's units
    value, *rest = how.engine.values(work, how.form, *how.engine.summaries(scaled), back)
    points = (scaled.queries,) if scaled.references is None else (scaled.queries, scaled.references)
    return value.to(kind_of(work)), *rest, *points


def backward_of(work: Work, summary: Sequence[Tensor], pull: Tensor, engine: Engine) -> tuple[Tensor, ...]:
    """Return the gradients of the queries and, if needed, of the references."""
    first, second, queries, *references = summary
    scaled = work._replace(queries=queries, references=references[0] if references else None)
    found = engine.gradients(scaled, first, second, pull)
    return tuple(gradient.to(work.queries.dtype) for gradient in found if gradient is not None)
