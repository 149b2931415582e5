"""Exact soft-neighbor loss and gradient over all pairs in O((n + m) d) memory, as an autograd function.

With A_i and B_i the log-sum-exps of the affinities of query i to its positive and to its negative candidates,

    log form:       value_i = log(1 + e^(B_i - A_i))          gradient weight  (1 - p_i)
    expected form:  value_i = 1 / (1 + e^(A_i - B_i)) = 1-p_i   gradient weight  p_i (1 - p_i)

and both forms differentiate through the same matrix W (see `Engine.gradients`). One pair of passes therefore serves NCA, instance
discrimination and neighborhood discovery; with target costs it serves NCA regression. The n x m matrix is never stored.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from nearkin.kernels.contract import KINDS, Form, Work, kind_of, sizes
from nearkin.kernels.cuda_graphs import MOST_PAIRS, Recording, Tensors, is_part, recording
from nearkin.kernels.engines import choose
from nearkin.kernels.operators import evaluated, refuse_second_derivative
from nearkin.kernels.passes import How, Rest, backward_of, detached, forward_of, tensors_of, work_of


class Soft(NamedTuple):
    """The result of `soft_neighbors`.

    Parameters
    ----------
    values : Tensor (n,)
        The loss of each query, differentiable; 0 where `valid` is False.
    valid : Tensor (n,) bool
        Whether the query counts: it has the candidates that its form needs.

    Examples
    --------
    A query without a positive is not valid in the log form:

    >>> import torch
    >>> from nearkin.kernels import Work, soft_neighbors
    >>> work = Work(torch.zeros(2, 1), torch.zeros(3, 1), True, span=torch.tensor([[0, 1], [0, 0]]))
    >>> soft_neighbors(work, "log", 1.0, engine="torch").valid
    tensor([ True, False])
    """

    values: Tensor  # (n,)
    valid: Tensor  # (n,) bool


def soft_neighbors(work: Work, form: Form, temperature: float, *, engine: str = "auto", precision: str = "highest") -> Soft:
    """Evaluate the soft-neighbor loss of every query, differentiable in `work.queries` and `work.references`.

        log form:       value_i = log(1 + e^(B_i - A_i))
        expected form:  value_i = 1 / (1 + e^(A_i - B_i)),   or the mean target cost

    where A_i and B_i are the log-sum-exps of affinity / temperature over the positive and the negative candidates of query i.

    Parameters
    ----------
    work : Work
        Queries and references in your own units, and which references are positives of each query.
    form : {"log", "expected"}
        "log" is -log p_i and skips queries without a positive; "expected" is 1 - p_i and counts them as 1. Target costs need "expected".
    temperature : float
        Divides the affinities.
    engine : {"auto", "torch", "numba", "triton"}, default "auto"
        See `choose`.
    precision : {"highest", "high", "fast"}, default "highest"
        See `choose`.

    Returns
    -------
    Soft
        Values (n,) and which of them are valid (n,).

    Raises
    ------
    ValueError
        If target costs are combined with the log form.
    TypeError
        If the points are not all float32, all float64, all bfloat16 or all float16. The last two are computed with in float32, and
        their gradients returned as they are.

    Examples
    --------
    Four points in two classes. Each query skips itself:

    >>> import torch
    >>> from nearkin.kernels import Work, soft_neighbors
    >>> x = torch.tensor([[0.0], [1.0], [5.0], [6.0]], requires_grad=True)
    >>> span = torch.tensor([[0, 2], [0, 2], [2, 4], [2, 4]])
    >>> soft = soft_neighbors(Work(x, None, True, span=span, skip=torch.arange(4)[:, None]), "log", 10.0, engine="torch")
    >>> [round(value, 4) for value in soft.values.tolist()]
    [0.1141, 0.273, 0.273, 0.1141]
    >>> soft.values.mean().backward()
    >>> x.grad.shape
    torch.Size([4, 1])
    """
    _check(work, form)
    if 0 in sizes(work)[:2]:  # no queries, or no references
        nothing = 0 * work.queries.to(kind_of(work.queries)).sum(1) + (0 if work.references is None else 0 * work.references.sum())
        return Soft(nothing, torch.zeros_like(nothing, dtype=torch.bool))
    # torch.compile would follow numba and Triton into their own compilers, and torch.func takes tensors that they cannot read.
    if torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None:
        return Soft(*evaluated(work, form, temperature, engine, precision))
    how = How(form, temperature, choose(engine, work.queries, precision))
    evaluate: Any = _Evaluate.apply
    values, valid = evaluate(work.queries, work.references, work, how)
    return Soft(values, valid)


def _check(work: Work, form: Form) -> None:
    if work.targets is not None and form == "log":
        raise ValueError("form 'log' needs positives and negatives; target costs need form='expected'")
    kind, references = work.queries.dtype, work.references
    if kind not in KINDS or (references is not None and references.dtype != kind):
        given = f"{kind}" if references is None else f"{kind} and {references.dtype}"
        raise TypeError(f"points are {given}; the kernels take float32, float64, bfloat16 or float16, all alike: use .float()")


def _recording(work: Work, tensors: Tensors, how: How) -> Recording | None:
    """Return CUDA graphs of the evaluation, where launches dominate the time and a graph can hold it; else None."""
    n, m, _ = sizes(work)
    if not work.queries.is_cuda or n * m > MOST_PAIRS or not how.engine.recordable(work):
        return None
    rest, kept = Rest.of(work), list[Any]()
    return recording(
        lambda mine: forward_of(work_of(mine, rest)._replace(kept=kept), how),
        lambda mine, summary, pull: backward_of(work_of(mine, rest)._replace(kept=kept), summary, pull, how.engine, how.temperature),
        tensors,
        (how, rest),
    )


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, references: Tensor | None, work: Work, how: How) -> tuple[Tensor, Tensor]:
        work = work._replace(reference_gradient=ctx.needs_input_grad[1], kept=[] if is_part(queries) else None)
        tensors = tensors_of(work)
        recorded = _recording(work, tensors, how)
        summary: Sequence[Tensor] = ()
        if recorded is None:
            value, valid, *summary = forward_of(detached(work), how)
        else:
            value, valid = recorded.value(tensors)
            ctx.turn = recorded.turn
        ctx.save_for_backward(queries, references, *summary)  # with their graph, so that a second derivative can be refused
        ctx.recorded, ctx.how, ctx.rest = recorded, how, work[2:]  # with what the first pass kept
        ctx.mark_non_differentiable(valid)
        ctx.set_materialize_grads(False)  # else zeros would be allocated for `valid`
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
                return backward_of(detached(work), rest, given * weight, ctx.how.engine, ctx.how.temperature)
            found: tuple[Tensor, ...] = ctx.recorded.gradient(ctx.turn, tensors_of(work), given)
            return found

        if torch.is_grad_enabled():  # create_graph=True
            to_queries, *rest = _FirstDerivative.apply(given, queries, references, differentiate)  # type: ignore[no-untyped-call]
        else:
            to_queries, *rest = differentiate(given)
        return to_queries, (rest[0] if work.reference_gradient else None), None, None


class _FirstDerivative(torch.autograd.Function):
    """The gradient as a function of its own, so that a second derivative raises a clear error."""

    @staticmethod
    def forward(
        ctx: Any, upstream: Tensor, queries: Tensor, references: Tensor | None, differentiate: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, Tensor]:
        to_queries, *rest = differentiate(upstream.detach())
        return to_queries, rest[0] if rest else upstream.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> NoReturn:
        refuse_second_derivative()
