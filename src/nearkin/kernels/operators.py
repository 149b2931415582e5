"""The evaluation as two operators of torch, its value and its gradient: for torch.compile, torch.export and torch.func.

A graph then holds one node for each, whose shapes are known without computing anything, and never looks into numba or Triton. Outside of a
graph `autograd.py` calls the same engines with less between.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from nearkin.kernels.contract import Engine, Form, Work, kind_of, sizes
from nearkin.kernels.cuda_graphs import MOST_PAIRS, Tensors, launched
from nearkin.kernels.engines import choose
from nearkin.kernels.passes import How, Rest, backward_of, detached, forward_of, tensors_of, work_of


def evaluated(work: Work, form: Form, temperature: float, engine: str, precision: str) -> tuple[Tensor, Tensor]:
    """Values and which of them are valid, (n,) each, as nodes of a graph, or under a transform of torch.func."""
    evaluate: Any = soft_values if torch.compiler.is_compiling() else _Transformed.apply
    rest = work.squared, work.unit_queries, work.unit_references
    found = evaluate(*tensors_of(work), *rest, form, temperature, engine, precision)
    return found[0], found[1]


def refuse_second_derivative() -> NoReturn:
    """Raise the error of a double backward."""
    raise RuntimeError("the streaming engines give first derivatives only; for double backward build the objective with engine='dense'")


def values(
    queries: Tensor,
    references: Tensor | None,
    span: Tensor | None,
    listed: Tensor | None,
    mine: Tensor | None,
    theirs: Tensor | None,
    skip: Tensor | None,
    squared: bool,
    unit_queries: bool,
    unit_references: bool,
    form: str,
    temperature: float,
    engine: str,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value and valid (n,), then what `gradients` needs: weight and both summaries (3, n), and the frame of the points."""
    how = How(form, temperature, choose(engine, queries, precision))  # type: ignore[arg-type]
    rest = Rest(squared, True, unit_queries, unit_references)

    def compute(tensors: Tensors) -> tuple[Tensor, ...]:
        value, valid, weight, first, second, frame = forward_of(detached(work_of(tensors, rest)), how)
        return value, valid, torch.stack([weight.double(), first.double(), second.double()]), frame

    tensors = queries, references, span, listed, mine, theirs, skip
    value, valid, summary, frame = _launched(compute, tensors, tensors, rest, how.engine, how)
    return value, valid, summary, frame


def gradients(
    upstream: Tensor,
    summary: Tensor,
    frame: Tensor,
    queries: Tensor,
    references: Tensor | None,
    span: Tensor | None,
    listed: Tensor | None,
    mine: Tensor | None,
    theirs: Tensor | None,
    skip: Tensor | None,
    squared: bool,
    unit_queries: bool,
    unit_references: bool,
    both: bool,
    temperature: float,
    engine: str,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of queries and references; the second is empty where there is none."""
    chosen = choose(engine, queries, precision)
    rest = Rest(squared, both, unit_queries, unit_references)

    def compute(tensors: Tensors) -> tuple[Tensor, ...]:
        upstream, summary, frame, *points = tensors
        assert upstream is not None and summary is not None and frame is not None
        weight, first, second = summary.unbind(0)
        found = backward_of(detached(work_of(points, rest)), [first, second, frame], upstream * weight, chosen, temperature)
        return found[0], found[1] if len(found) > 1 else queries.new_empty(0)

    tensors = queries, references, span, listed, mine, theirs, skip
    to_queries, to_references = _launched(compute, (upstream, summary, frame, *tensors), tensors, rest, chosen, (both, temperature))
    return to_queries, to_references


def _launched(
    compute: Callable[[Tensors], tuple[Tensor, ...]], given: Tensors, tensors: Tensors, rest: Rest, engine: Engine, how: Hashable
) -> tuple[Tensor, ...]:
    """What `compute` gives, recorded where launches dominate the time and a graph can hold it."""
    work = work_of(tensors, rest)
    n, m, _ = sizes(work)
    if not work.queries.is_cuda or n * m > MOST_PAIRS or not engine.recordable(work):
        return compute(given)
    key: Any = rest, engine, how
    return launched(compute, given, key)


soft_values = torch.library.custom_op("nearkin::soft_values", values, mutates_args=())
soft_gradients = torch.library.custom_op("nearkin::soft_gradients", gradients, mutates_args=())


@soft_values.register_fake
def _(queries: Tensor, references: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    squared, unit_queries, unit_references = rest[5:8]
    row = queries.new_empty(len(queries), dtype=kind_of(queries))
    summary = queries.new_empty(3, len(queries), dtype=torch.float64)
    n, d = queries.shape
    held = d * squared + n * unit_queries + (len(references) if references is not None and unit_references else 0)
    return row, torch.empty_like(row, dtype=torch.bool), summary, row.new_empty(held)


@soft_gradients.register_fake
def _(_upstream: Tensor, _summary: Tensor, _frame: Tensor, queries: Tensor, references: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    both = rest[8]
    found = [None if x is None else torch.empty_like(x, memory_format=torch.contiguous_format) for x in (queries, references)]
    assert found[0] is not None
    return found[0], found[1] if both and found[1] is not None else queries.new_empty(0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[2:], *inputs[:7])
    ctx.frame, ctx.temperature, ctx.how = inputs[7:10], inputs[11], inputs[12:]
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(differentiate: Any, ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    none = (None,) * 12
    if upstream[0] is None:
        return None, None, *none
    both = bool(ctx.needs_input_grad[1])
    to_queries, to_references = differentiate(upstream[0], *ctx.saved_tensors, *ctx.frame, both, ctx.temperature, *ctx.how)
    return to_queries, to_references if both else None, *none


soft_values.register_autograd(partial(_backward, soft_gradients), setup_context=_setup)


class _Transformed(torch.autograd.Function):
    """The value under a transform of torch.func, which does not know the gradient that is registered for an operator."""

    forward = staticmethod(values)
    setup_context = staticmethod(_setup)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        return _backward(_Derivative.apply, ctx, *upstream)


class _Derivative(torch.autograd.Function):
    """The gradient there, so that a second derivative raises a clear error."""

    forward = staticmethod(gradients)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> NoReturn:
        refuse_second_derivative()
