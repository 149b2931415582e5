"""The soft-neighbour contract: exact loss and gradient over all pairs in O((n + m) d) memory.

With A_i and B_i the log-sum-exps of the affinities of query i's right and wrong candidates,

    log form:       value_i = log(1 + e^(B_i - A_i))          gradient weight  (1 - p_i)
    expected form:  value_i = 1 / (1 + e^(A_i - B_i)) = 1-p_i   gradient weight  p_i (1 - p_i)

and both push on the same matrix W (see `Engine.gradients`), so that one pair of passes serves NCA, instance
discrimination and neighbourhood discovery, and its graded sibling serves NCA regression. Nothing n x m is ever kept.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.engines import choose
from nearkin.kernels.replay import MOST_PAIRS, Recording, recording
from nearkin.kernels.work import Engine, Work, sizes

Form = Literal["log", "expected"]


class Soft(NamedTuple):
    """Per-query values, and whether each counts."""

    values: Tensor  # (n,)
    priced: Tensor  # (n,) bool


def soft_neighbours(work: Work, form: Form, temperature: float, *, engine: str = "auto", precision: str = "highest") -> Soft:
    """Value per query, differentiable in `work.queries` and `work.references`, which are in the caller's own units."""
    _check(work, form)
    if 0 in sizes(work)[:2]:  # nobody chooses, or there is nobody to choose
        nothing = 0 * work.queries.sum(1) + (0 if work.references is None else 0 * work.references.sum())
        return Soft(nothing, torch.zeros_like(nothing, dtype=torch.bool))
    references = work.queries.new_empty(0, work.queries.shape[1]) if work.references is None else work.references
    chosen = choose(engine, work.queries, precision)
    evaluate: Any = _Evaluate.apply
    if torch.compiler.is_compiling():  # torch.compile would follow numba and Triton into their own compilers
        evaluate = torch.compiler.disable(evaluate)  # type: ignore[no-untyped-call]
    values, priced = evaluate(work.queries, references, work, form, temperature, chosen)
    return Soft(values, priced)


def _check(work: Work, form: Form) -> None:
    if work.targets is not None and form == "log":
        raise ValueError("form 'log' needs right and wrong neighbours; label distances take form='expected'")
    given = [points.dtype for points in (work.queries, work.references) if points is not None]
    if given[0] not in (torch.float32, torch.float64) or len(set(given)) > 1:
        raise TypeError(f"points are {' and '.join(map(str, given))}; the kernels take float32 or float64, all alike: use .float()")


def _scale(temperature: float) -> float:
    """Points times this have base-2 affinities."""
    return math.sqrt(math.log2(math.e) / temperature)


def _scaled(work: Work, temperature: float) -> Work:
    """The same work in base-2 units; centred on the references where distances do not mind."""
    scale = _scale(temperature)
    own = work.references is None
    references = work.queries if own else work.references
    assert references is not None
    if work.squared:
        centre = references.mean(0)
        queries, references = (work.queries - centre).mul_(scale), None if own else (references - centre).mul_(scale)
    else:
        queries, references = work.queries * scale, None if own else references * scale
    return work._replace(queries=queries, references=references)


def _values(work: Work, form: Form, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(value, gradient weight, priced) of every query from its two summaries."""
    if work.targets is not None:
        priced = first != -torch.inf
        return second, priced.to(second.dtype), priced
    gap = (second - first).double() * math.log(2)  # B - A in natural units; nan without any candidate
    right, wrong = first != -torch.inf, second != -torch.inf  # nan counts as there: broken embeddings must show in the loss
    if form == "log":
        value = torch.where(right & wrong, torch.nn.functional.softplus(gap, threshold=40), 0.0)
        weight = torch.where(right & wrong, torch.sigmoid(gap), 0.0)
        priced = right
    else:
        value = torch.where(right & wrong, torch.sigmoid(gap), wrong.double())
        weight = torch.where(right & wrong, torch.sigmoid(gap) * torch.sigmoid(-gap), 0.0)
        priced = right | wrong
    return value.to(first.dtype), weight.to(first.dtype), priced


def _tensors(work: Work) -> list[Tensor | None]:
    """All tensors of a piece of work, for `recording`."""
    targets = work.targets or (None, None)
    return [work.queries, work.references, work.span, work.listed, *targets, work.skip]


def _with(work: Work, tensors: Sequence[Tensor | None]) -> Work:
    """The same work on other tensors."""
    queries, references, span, listed, mine, theirs, skip = tensors
    assert queries is not None
    targets = None if mine is None or theirs is None else (mine, theirs)
    return work._replace(queries=queries, references=references, span=span, listed=listed, targets=targets, skip=skip)


def _forward(work: Work, form: Form, temperature: float, engine: Engine) -> tuple[Tensor, ...]:
    """Value and whether priced; then what the gradient needs: both summaries, the gradient weight and the scaled points."""
    scaled = _scaled(work, temperature)
    first, second = engine.summaries(scaled)
    value, weight, priced = _values(work, form, first, second)
    points = (scaled.queries,) if scaled.references is None else (scaled.queries, scaled.references)
    return value.to(work.queries.dtype), priced, first, second, weight, *points


def _backward(work: Work, summary: Sequence[Tensor], upstream: Tensor, temperature: float, engine: Engine) -> tuple[Tensor, ...]:
    """Gradients of the queries and, where asked for, of the references."""
    first, second, weight, queries, *references = summary
    pull = upstream.to(first.dtype) * weight
    # A query without a right (or wrong) reference has pull 0; its missing summary only must not be infinite.
    finite = torch.where(first > -torch.inf, first, torch.where(second > -torch.inf, second, torch.zeros_like(first)))
    other = second if work.targets is not None else torch.where(second > -torch.inf, second, finite)
    scaled = work._replace(queries=queries, references=references[0] if references else None)
    found = engine.gradients(scaled, finite, other, pull)
    back = 1 / (_scale(temperature) * temperature)
    return tuple((gradient * back).to(work.queries.dtype) for gradient in found if gradient is not None)


def _recording(work: Work, form: Form, temperature: float, engine: Engine) -> Recording | None:
    """The evaluation as CUDA graphs, where launches, not arithmetic, are what it costs and a graph may hold it."""
    n, m, _ = sizes(work)
    if not work.queries.is_cuda or n * m > MOST_PAIRS or not engine.recordable(work):
        return None
    return recording(
        lambda tensors: _forward(_with(work, tensors), form, temperature, engine),
        lambda tensors, summary, upstream: _backward(_with(work, tensors), summary, upstream, temperature, engine),
        _tensors(work),
        (form, temperature, engine, work.squared, work.reference_gradient),
    )


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, references: Tensor, work: Work, form: Form, temperature: float, engine: Engine
    ) -> tuple[Tensor, Tensor]:
        own = work.references is None
        work = work._replace(
            queries=queries.detach(),
            references=None if own else references.detach(),
            reference_gradient=not own and ctx.needs_input_grad[1],
        )
        recorded = _recording(work, form, temperature, engine)
        summary: Sequence[Tensor] = ()
        if recorded is None:
            value, priced, *summary = _forward(work, form, temperature, engine)
        else:
            value, priced = recorded.value(_tensors(work))
        ctx.save_for_backward(queries, references, *summary)  # with their graph: a second derivative must be refused
        ctx.own, ctx.recorded, ctx.turn = own, recorded, 0 if recorded is None else recorded.turn
        ctx.rest = (work._replace(queries=queries[:0], references=None), temperature, engine)
        ctx.mark_non_differentiable(priced)
        return value, priced

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, references, *summary = ctx.saved_tensors
        bare, temperature, engine = ctx.rest
        work = bare._replace(queries=queries.detach(), references=None if ctx.own else references.detach())

        def differentiate(given: Tensor) -> tuple[Tensor, ...]:
            if ctx.recorded is None:
                return _backward(work, summary, given, temperature, engine)
            found: tuple[Tensor, ...] = ctx.recorded.gradient(ctx.turn, _tensors(work), given)
            return found

        if torch.is_grad_enabled():  # asked with create_graph=True
            to_queries, *rest = _FirstDerivative.apply(upstream[0], queries, references, differentiate)  # type: ignore[no-untyped-call]
        else:
            to_queries, *rest = differentiate(upstream[0])
        return to_queries, (rest[0] if work.reference_gradient else None), None, None, None, None


class _FirstDerivative(torch.autograd.Function):
    """The gradient as a step of its own, so that asking for a second one gets an answer in words."""

    @staticmethod
    def forward(
        ctx: Any, upstream: Tensor, queries: Tensor, references: Tensor, differentiate: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, Tensor]:
        to_queries, *rest = differentiate(upstream.detach())
        return to_queries, rest[0] if rest else references.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, ...]:
        raise RuntimeError("the streaming engines give first derivatives only; for double backward build the objective with engine='dense'")
