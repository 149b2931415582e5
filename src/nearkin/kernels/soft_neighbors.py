"""The soft-neighbor contract: exact loss and gradient over all pairs in O((n + m) d) memory.

With A_i and B_i the log-sum-exps of the affinities of query i's right and wrong candidates,

    log form:       value_i = log(1 + e^(B_i - A_i))          gradient weight  (1 - p_i)
    expected form:  value_i = 1 / (1 + e^(A_i - B_i)) = 1-p_i   gradient weight  p_i (1 - p_i)

and both push on the same matrix W (see `Engine.gradients`), so that one pair of passes serves NCA, instance
discrimination and neighborhood discovery, and its graded sibling serves NCA regression. Nothing n x m is ever kept.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.contract import Engine, Form, Work, sizes
from nearkin.kernels.cuda_graphs import MOST_PAIRS, Recording, Tensors, recording
from nearkin.kernels.engines import choose


class Soft(NamedTuple):
    """Per-query values, and whether each counts."""

    values: Tensor  # (n,)
    valid: Tensor  # (n,) bool


class _How(NamedTuple):
    """All but the work itself."""

    form: Form
    temperature: float
    engine: Engine


def soft_neighbors(work: Work, form: Form, temperature: float, *, engine: str = "auto", precision: str = "highest") -> Soft:
    """Value per query, differentiable in `work.queries` and `work.references`, which are in the caller's own units."""
    _check(work, form)
    if 0 in sizes(work)[:2]:  # nobody chooses, or there is nobody to choose
        nothing = 0 * work.queries.sum(1) + (0 if work.references is None else 0 * work.references.sum())
        return Soft(nothing, torch.zeros_like(nothing, dtype=torch.bool))
    how = _How(form, temperature, choose(engine, work.queries, precision))
    evaluate: Any = _Evaluate.apply
    if torch.compiler.is_compiling():  # torch.compile would follow numba and Triton into their own compilers
        evaluate = torch.compiler.disable(evaluate)  # type: ignore[no-untyped-call]
    values, valid = evaluate(work.queries, work.references, work, how)
    return Soft(values, valid)


def _check(work: Work, form: Form) -> None:
    if work.targets is not None and form == "log":
        raise ValueError("form 'log' needs right and wrong neighbors; label distances take form='expected'")
    kind, references = work.queries.dtype, work.references
    if kind not in (torch.float32, torch.float64) or (references is not None and references.dtype != kind):
        given = f"{kind}" if references is None else f"{kind} and {references.dtype}"
        raise TypeError(f"points are {given}; the kernels take float32 or float64, all alike: use .float()")


def _scale(temperature: float) -> float:
    """Points times this have base-2 affinities."""
    return math.sqrt(math.log2(math.e) / temperature)


def _scaled(work: Work, temperature: float) -> Work:
    """The same work in base-2 units; centered on the references where distances do not mind."""
    scale = _scale(temperature)
    own = work.references is None
    references = work.queries if own else work.references
    assert references is not None
    if work.squared:
        center = references.mean(0)
        queries, references = (work.queries - center).mul_(scale), None if own else (references - center).mul_(scale)
    else:
        queries, references = work.queries * scale, None if own else references * scale
    return work._replace(queries=queries, references=references)


def _tensors(work: Work) -> list[Tensor | None]:
    """All tensors of a piece of work, for `recording`."""
    targets = work.targets or (None, None)
    return [work.queries, work.references, work.span, work.listed, *targets, work.skip]


def _work(tensors: Tensors, squared: bool, reference_gradient: bool) -> Work:
    """The work that has these tensors."""
    queries, references, span, listed, mine, theirs, skip = tensors
    assert queries is not None
    targets = None if mine is None or theirs is None else (mine, theirs)
    return Work(queries, references, squared, span, listed, targets, skip, reference_gradient)


def _detached(work: Work) -> Work:
    """Points that numba can read."""
    return work._replace(queries=work.queries.detach(), references=None if work.references is None else work.references.detach())


def _forward(work: Work, how: _How) -> tuple[Tensor, ...]:
    """Value and whether valid; then what the gradient needs: its weight, both summaries and the scaled points."""
    scaled = _scaled(work, how.temperature)
    back = 1 / (_scale(how.temperature) * how.temperature)  # from a gradient in base-2 units to one in the caller's
    value, *rest = how.engine.values(work, how.form, *how.engine.summaries(scaled), back)
    points = (scaled.queries,) if scaled.references is None else (scaled.queries, scaled.references)
    return value.to(work.queries.dtype), *rest, *points


def _backward(work: Work, summary: Sequence[Tensor], pull: Tensor, engine: Engine) -> tuple[Tensor, ...]:
    """Gradients of the queries and, where asked for, of the references."""
    first, second, queries, *references = summary
    scaled = work._replace(queries=queries, references=references[0] if references else None)
    found = engine.gradients(scaled, first, second, pull)
    return tuple(gradient.to(work.queries.dtype) for gradient in found if gradient is not None)


def _recording(work: Work, tensors: Tensors, how: _How) -> Recording | None:
    """The evaluation as CUDA graphs, where launches, not arithmetic, are what it costs and a graph may hold it."""
    n, m, _ = sizes(work)
    if not work.queries.is_cuda or n * m > MOST_PAIRS or not how.engine.recordable(work):
        return None
    rest = work.squared, work.reference_gradient  # not the work: what is kept would keep the graph behind its points
    return recording(
        lambda mine: _forward(_work(mine, *rest), how),
        lambda mine, summary, pull: _backward(_work(mine, *rest), summary, pull, how.engine),
        tensors,
        (how, rest),
    )


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, references: Tensor | None, work: Work, how: _How) -> tuple[Tensor, Tensor]:
        work = work._replace(reference_gradient=ctx.needs_input_grad[1])
        tensors = _tensors(work)
        recorded = _recording(work, tensors, how)
        summary: Sequence[Tensor] = ()
        if recorded is None:
            value, valid, *summary = _forward(_detached(work), how)
        else:
            value, valid = recorded.value(tensors)
            ctx.turn = recorded.turn
        ctx.save_for_backward(queries, references, *summary)  # with their graph: a second derivative must be refused
        ctx.recorded, ctx.engine, ctx.rest = recorded, how.engine, work[2:]
        ctx.mark_non_differentiable(valid)
        ctx.set_materialize_grads(False)  # or zeros would be made for `valid`
        return value, valid

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        queries, references, *summary = ctx.saved_tensors
        given = upstream[0]
        if given is None:
            return (None,) * 4
        work = Work(queries, references, *ctx.rest)

        def differentiate(given: Tensor) -> tuple[Tensor, ...]:
            if ctx.recorded is None:
                weight, *rest = summary
                return _backward(_detached(work), rest, given * weight, ctx.engine)
            found: tuple[Tensor, ...] = ctx.recorded.gradient(ctx.turn, _tensors(work), given)
            return found

        if torch.is_grad_enabled():  # asked with create_graph=True
            to_queries, *rest = _FirstDerivative.apply(given, queries, references, differentiate)  # type: ignore[no-untyped-call]
        else:
            to_queries, *rest = differentiate(given)
        return to_queries, (rest[0] if work.reference_gradient else None), None, None


class _FirstDerivative(torch.autograd.Function):
    """The gradient as a step of its own, so that asking for a second one gets an answer in words."""

    @staticmethod
    def forward(
        ctx: Any, upstream: Tensor, queries: Tensor, references: Tensor | None, differentiate: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, Tensor]:
        to_queries, *rest = differentiate(upstream.detach())
        return to_queries, rest[0] if rest else upstream.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, ...]:
        raise RuntimeError("the streaming engines give first derivatives only; for double backward build the objective with engine='dense'")
