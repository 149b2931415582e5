"""The two passes of an evaluation through an engine, from the caller's units and back."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.contract import Engine, Form, Frame, Work, kind_of, sizes
from nearkin.kernels.cuda_graphs import Tensors

_AT_ONCE = 8192  # rows


class How(NamedTuple):
    """The settings of an evaluation."""

    form: Form
    temperature: float
    engine: Engine


def _scale(temperature: float) -> float:
    """The factor that gives points base-2 affinities."""
    return math.sqrt(math.log2(math.e) / temperature)


def _lengths(points: Tensor) -> Tensor:
    """(n,) lengths of rows, 1 for those of length 0, which stay 0."""
    found: Tensor = torch.linalg.vector_norm(points, dim=1, dtype=kind_of(points))
    return found.masked_fill_(found == 0, 1.0)


def _center(points: Tensor, lengths: Tensor | None) -> Tensor:
    """(d,) the mean of the rows, or of the rows at length 1, some at a time: without a copy of all in float32."""
    if lengths is None and points.is_cuda and points.dtype == torch.float32:  # as a product: the library's mean of columns is slow
        return points.new_full((len(points),), 1 / len(points)) @ points
    if lengths is None:
        return points.mean(0, dtype=kind_of(points))
    parts = [slice(start, start + _AT_ONCE) for start in range(0, len(points), _AT_ONCE)]
    return torch.stack([(points[part] / lengths[part, None]).sum(0) for part in parts]).sum(0).div_(len(points))


def _frame(work: Work, temperature: float) -> Frame:
    """Base-2 units; for distances, centered on the mean of the references."""
    own = work.references is None
    mine = _lengths(work.queries) if work.unit_queries else None
    theirs = mine if own else _lengths(work.references) if work.references is not None and work.unit_references else None
    others = work.queries if work.references is None else work.references
    return Frame(_scale(temperature), _center(others, theirs) if work.squared else None, mine, theirs)


def _packed(frame: Frame, own: bool, like: Tensor) -> Tensor:
    """The tensors of a frame, which are kept for the gradient, as one."""
    held = [x for x in (frame.center, frame.query_lengths, None if own else frame.reference_lengths) if x is not None]
    return torch.cat(held) if len(held) > 1 else held[0] if held else like.new_empty(0, dtype=kind_of(like))


def _unpacked(packed: Tensor, work: Work, temperature: float) -> Frame:
    """The inverse of `_packed`."""
    n, m, d = sizes(work)
    own = work.references is None
    ends = [d * work.squared]
    ends.append(ends[0] + n * work.unit_queries)
    center, mine, theirs = packed[: ends[0]], packed[ends[0] : ends[1]], packed[ends[1] : ends[1] + m * (not own and work.unit_references)]
    held = [part if len(part) else None for part in (center, mine, mine if own else theirs)]
    return Frame(_scale(temperature), *held)


def _as_read(work: Work, frame: Frame, engine: Engine) -> Work:
    """The work as an engine reads it: with the caller's points and their frame, or with the one copy of them in base-2 units."""
    if engine.reads_points(work):
        return work._replace(frame=frame)
    others = None if work.references is None else frame.of_references(work.references)
    return work._replace(queries=frame.of_queries(work.queries), references=others)


def _to_points(gradient: Tensor, points: Tensor, lengths: Tensor | None) -> Tensor:
    """The gradient of points from that of their copies, but for the scale: across the rows that were set to length 1."""
    if lengths is not None:
        rows = points / lengths[:, None]
        along = (gradient * rows).sum(1, keepdim=True)
        gradient = gradient.addcmul(rows, along, value=-1).div_(lengths[:, None])
    return gradient.to(points.dtype)


def tensors_of(work: Work) -> list[Tensor | None]:
    """All tensors of an evaluation, for `recording`."""
    targets = work.targets or (None, None)
    return [work.queries, work.references, work.span, work.listed, *targets, work.skip]


class Rest(NamedTuple):
    """What a work is beside its tensors."""

    squared: bool
    reference_gradient: bool
    unit_queries: bool = False
    unit_references: bool = False

    @staticmethod
    def of(work: Work) -> "Rest":
        """Those of a work; not the work itself, for keeping it would keep the autograd graph behind its points."""
        return Rest(work.squared, work.reference_gradient, work.unit_queries, work.unit_references)


def work_of(tensors: Tensors, rest: Rest) -> Work:
    """The inverse of `tensors_of`."""
    queries, references, span, listed, mine, theirs, skip = tensors
    assert queries is not None
    targets = None if mine is None or theirs is None else (mine, theirs)
    return Work(queries, references, rest.squared, span, listed, targets, skip, *rest[1:])


def detached(work: Work) -> Work:
    """The same work with detached points, which numba can read."""
    return work._replace(queries=work.queries.detach(), references=None if work.references is None else work.references.detach())


def forward_of(work: Work, how: How) -> tuple[Tensor, ...]:
    """Return value and valid; then what the gradient needs: its weight, both summaries and the frame of the points."""
    frame = _frame(work, how.temperature)
    back = 1 / (_scale(how.temperature) * how.temperature)  # converts a gradient from base-2 units to the caller's units
    value, *rest = how.engine.values(work, how.form, *how.engine.summaries(_as_read(work, frame, how.engine)), back)
    return value.to(kind_of(work.queries)), *rest, _packed(frame, work.references is None, work.queries)


def backward_of(work: Work, summary: Sequence[Tensor], pull: Tensor, engine: Engine, temperature: float) -> tuple[Tensor, ...]:
    """Return the gradients of the queries and, if needed, of the references."""
    first, second, packed = summary
    frame = _unpacked(packed, work, temperature)
    read = _as_read(work, frame, engine)
    to_queries, to_references = engine.gradients(read, first, second, pull)
    if read.frame is None:
        to_queries = _to_points(to_queries, work.queries, frame.query_lengths)
        if to_references is not None and work.references is not None:
            to_references = _to_points(to_references, work.references, frame.reference_lengths)
    return (to_queries,) if to_references is None else (to_queries, to_references)
