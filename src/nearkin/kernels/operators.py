"""The evaluation as two operators of torch, for torch.compile and torch.export: its value, and its gradient.

A graph then holds one node for each, whose shapes are known without computing anything, and never looks into numba or Triton. Outside of a
graph `autograd.py` calls the same engines with less between.
"""

from typing import Any

import torch
from torch import Tensor

from nearkin.kernels.contract import Form, Work
from nearkin.kernels.engines import choose
from nearkin.kernels.passes import How, backward_of, detached, forward_of, tensors_of, work_of


def evaluated(work: Work, form: Form, temperature: float, engine: str, precision: str) -> tuple[Tensor, Tensor]:
    """Values and which of them are valid, (n,) each, as nodes of a graph."""
    found = soft_values(*tensors_of(work), work.squared, form, temperature, engine, precision)
    return found[0], found[1]


@torch.library.custom_op("nearkin::soft_values", mutates_args=())
def soft_values(
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
    """Value and valid (n,), then what `soft_gradients` needs: weight and both summaries (3, n), and both sides in base-2 units."""
    work = detached(work_of((queries, references, span, listed, mine, theirs, skip), squared, True))
    how = How(form, temperature, choose(engine, queries, precision))  # type: ignore[arg-type]
    value, valid, weight, first, second, *points = forward_of(work, how)
    turned = points[1] if len(points) > 1 else queries.new_empty(0)
    return value, valid, torch.stack([weight.double(), first.double(), second.double()]), points[0], turned


@soft_values.register_fake
def _(queries: Tensor, references: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    row = queries.new_empty(len(queries))
    summary = queries.new_empty(3, len(queries), dtype=torch.float64)
    turned = queries.new_empty(0) if references is None else torch.empty_like(references, memory_format=torch.contiguous_format)
    return row, torch.empty_like(row, dtype=torch.bool), summary, torch.empty_like(queries, memory_format=torch.contiguous_format), turned


@torch.library.custom_op("nearkin::soft_gradients", mutates_args=())
def soft_gradients(
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
    """Gradients of queries and references; the second is empty where there is none."""
    weight, first, second = summary.unbind(0)
    references = others if others.numel() else None
    work = work_of((queries, references, span, listed, mine, theirs, skip), squared, both)
    points = [queries] if references is None else [queries, references]
    pull = upstream * weight
    found = backward_of(work, [first, second, *points], pull, choose(engine, queries, precision))
    return found[0], found[1] if len(found) > 1 else queries.new_empty(0)


@soft_gradients.register_fake
def _(_upstream: Tensor, _summary: Tensor, queries: Tensor, others: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    both = rest[6]
    return torch.empty_like(queries), torch.empty_like(others) if both else queries.new_empty(0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[2:7], *output[2:])
    ctx.squared, ctx.engine, ctx.precision = inputs[7], *inputs[10:]
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    *rest, summary, queries, others = ctx.saved_tensors
    none = (None,) * 10
    if upstream[0] is None:
        return None, None, *none
    both = bool(ctx.needs_input_grad[1])
    settings = ctx.squared, both, ctx.engine, ctx.precision
    to_queries, to_references = soft_gradients(upstream[0], summary, queries, others, *rest, *settings)
    return to_queries, to_references if both else None, *none


soft_values.register_autograd(_backward, setup_context=_setup)
