"""The evaluation as two operators of torch, its value and its gradient: for torch.compile, torch.export and torch.func.

A graph then holds one node for each, whose shapes are known without computing anything, and never looks into numba or Triton. Outside of a
graph `autograd.py` calls the same engines with less between.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from nearkin.kernels.contract import Engine, Form, Work, sizes
from nearkin.kernels.cuda_graphs import MOST_PAIRS, Tensors, launched
from nearkin.kernels.engines import choose
from nearkin.kernels.passes import How, backward_of, detached, forward_of, tensors_of, work_of


def evaluated(work: Work, form: Form, temperature: float, engine: str, precision: str) -> tuple[Tensor, Tensor]:
    """Values and which of them are valid, (n,) each, as nodes of a graph, or under a transform of torch.func."""
    evaluate: Any = soft_values if torch.compiler.is_compiling() else _Transformed.apply
    found = evaluate(*tensors_of(work), work.squared, form, temperature, engine, precision)
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
    form: str,
    temperature: float,
    engine: str,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Value and valid (n,), then what `gradients` needs: weight and both summaries (3, n), and both sides in base-2 units."""
    how = How(form, temperature, choose(engine, queries, precision))  # type: ignore[arg-type]

    def compute(tensors: Tensors) -> tuple[Tensor, ...]:
        value, valid, weight, first, second, *points = forward_of(detached(work_of(tensors, squared, True)), how)
        turned = points[1] if len(points) > 1 else value.new_empty(0)
        return value, valid, torch.stack([weight.double(), first.double(), second.double()]), points[0], turned

    tensors = queries, references, span, listed, mine, theirs, skip
    value, valid, summary, points, turned = _launched(compute, tensors, tensors, squared, how.engine, how)
    return value, valid, summary, points, turned


def gradients(
    upstream: Tensor,
    summary: Tensor,
    queries: Tensor,
    others: Tensor,
    span: Tensor | None,
    listed: Tensor | None,
    mine: Tensor | None,
    theirs: Tensor | None,
    skip: Tensor | None,
    squared: bool,
    both: bool,
    engine: str,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of queries and references, which come in base-2 units; the second is empty where there is none."""
    chosen = choose(engine, queries, precision)

    def compute(tensors: Tensors) -> tuple[Tensor, ...]:
        upstream, summary, queries, references, *rest = tensors
        assert upstream is not None and summary is not None and queries is not None
        weight, first, second = summary.unbind(0)
        points = [queries] if references is None else [queries, references]
        found = backward_of(work_of((queries, references, *rest), squared, both), [first, second, *points], upstream * weight, chosen)
        return found[0], found[1] if len(found) > 1 else queries.new_empty(0)

    tensors = queries, others if others.numel() else None, span, listed, mine, theirs, skip
    to_queries, to_references = _launched(compute, (upstream, summary, *tensors), tensors, squared, chosen, both)
    return to_queries, to_references


def _launched(
    compute: Callable[[Tensors], tuple[Tensor, ...]], given: Tensors, tensors: Tensors, squared: bool, engine: Engine, how: Hashable
) -> tuple[Tensor, ...]:
    """What `compute` gives, recorded where launches dominate the time and a graph can hold it."""
    work = work_of(tensors, squared, True)
    n, m, _ = sizes(work)
    if not work.queries.is_cuda or n * m > MOST_PAIRS or not engine.recordable(work):
        return compute(given)
    key: Any = squared, engine, how
    return launched(compute, given, key)


soft_values = torch.library.custom_op("nearkin::soft_values", values, mutates_args=())
soft_gradients = torch.library.custom_op("nearkin::soft_gradients", gradients, mutates_args=())


@soft_values.register_fake
def _(queries: Tensor, references: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    kind = torch.float64 if queries.dtype == torch.float64 else torch.float32
    row = queries.new_empty(len(queries), dtype=kind)
    summary = queries.new_empty(3, len(queries), dtype=torch.float64)
    points, turned = (
        queries.new_empty(0, dtype=kind) if x is None else torch.empty_like(x, dtype=kind, memory_format=torch.contiguous_format)
        for x in (queries, references)
    )
    return row, torch.empty_like(row, dtype=torch.bool), summary, points, turned


@soft_gradients.register_fake
def _(_upstream: Tensor, _summary: Tensor, queries: Tensor, others: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    both = rest[6]
    return torch.empty_like(queries), torch.empty_like(others) if both else queries.new_empty(0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[2:7], *output[2:])
    ctx.squared, ctx.engine, ctx.precision = inputs[7], *inputs[10:]
    ctx.kind = inputs[0].dtype
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(differentiate: Any, ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    *rest, summary, queries, others = ctx.saved_tensors
    none = (None,) * 10
    if upstream[0] is None:
        return None, None, *none
    both = bool(ctx.needs_input_grad[1])
    settings = ctx.squared, both, ctx.engine, ctx.precision
    to_queries, to_references = differentiate(upstream[0], summary, queries, others, *rest, *settings)
    return to_queries.to(ctx.kind), to_references.to(ctx.kind) if both else None, *none


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
