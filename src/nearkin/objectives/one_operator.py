"""Everyday batches on CUDA under torch.compile: the whole step, loss and gradient, is one operator of the graph.

Traced through, an objective is dozens of nodes, hundreds of guards and several operators of ours, and the host takes longer than the
device. As one operator it is the recorded step of `recorded.py`, which reads the objective's settings at every call, so no guard has to.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from nearkin.compose.outcome import Reduction
from nearkin.compose.points import Points
from nearkin.compose.value_checks import define_operator
from nearkin.objectives.recorded import above_autograd, packed, step_of

if TYPE_CHECKING:
    from nearkin.objectives.objective import Objective

MOST_POINTS = 4096  # above, the arithmetic takes longer than the launches, and what is traced saves memory
DEVICES = frozenset(["cuda"])  # where a step waits for the host
MORE = 2  # numbers beside the weights among the counts: active and clamped

_objectives: "WeakValueDictionary[int, Objective]" = WeakValueDictionary()
_numbers = itertools.count(1)


def numbered(objective: "Objective") -> int:
    """Give an objective a number by which the operator finds it."""
    number = next(_numbers)
    _objectives[number] = objective
    return number


def takes(embeddings: Any, labels: Any, ids: Any, references: Points | None, reduction: str) -> bool:
    """Whether a call under torch.compile is that of an everyday batch, with tensors on the device alone."""
    if not isinstance(embeddings, Tensor) or embeddings.device.type not in DEVICES or embeddings.ndim != 2 or references is not None:
        return False
    if (
        torch.compiler._is_exporting_flag  # traced by torch 2.11, `is_exporting()` is always True
        or not torch.is_grad_enabled()
        or not embeddings.requires_grad
        or embeddings.shape[0] > MOST_POINTS
        or reduction == "none"
    ):
        return False
    return all(part is None or (isinstance(part, Tensor) and part.device == embeddings.device) for part in (labels, ids))


def evaluated(number: int, batch: Points, reduction: Reduction, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Loss and counts (active, clamped, weights) as a node of a graph."""
    found: tuple[Tensor, Tensor] = _Step.apply(*batch, number, reduction, *parameters)  # type: ignore[no-untyped-call]
    return found


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, labels: Any, ids: Any, number: int, reduction: str, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        loss, counts, to_x, to_parameters = torch.ops.nearkin.step(x, labels, ids, parameters, number, reduction)
        ctx.save_for_backward(to_x, to_parameters, *parameters)
        ctx.mark_non_differentiable(counts)
        ctx.kind = x.dtype
        return loss, counts

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Any, ...]:
        to_x, flat, *parameters = ctx.saved_tensors
        flat, start, found = flat * upstream[0], 0, []
        for parameter in parameters:
            found.append(flat[start : start + parameter.numel()].view(parameter.shape).to(parameter.dtype))
            start += parameter.numel()
        return (to_x * upstream[0]).to(ctx.kind), None, None, None, None, *found


def _kind(x: Tensor) -> torch.dtype:
    """The type that an objective computes in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _evaluated(objective: "Objective", batch: Points, reduction: Reduction) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The same without a recording."""
    x, labels, ids = batch
    with above_autograd(), torch.enable_grad():
        live = x.detach().to(_kind(x)).requires_grad_()  # 16 bits are rounded to after the upstream gradient
        loss = objective.forward(live, labels, ids=ids, reduction=reduction)  # not by its call, which may be the compiled one
        own = [one for one in objective.parameters() if one.requires_grad]
        found = torch.autograd.grad(loss, [live, *own], allow_unused=True, materialize_grads=True)
    assert objective._counts is not None
    counts = objective._counts if isinstance(objective._counts, Tensor) else packed(*objective._counts)
    return loss.detach(), counts, list(found)


def _step(x: Tensor, labels: Any, ids: Any, _parameters: list[Tensor], number: int, reduction: Reduction) -> tuple[Tensor, ...]:
    """Loss, counts, and the gradients of the embeddings and of all parameters in one row."""
    objective = _objectives[number]
    batch = objective._shaped(x, labels, ids)
    step = step_of(objective, batch, reduction)
    if step is None:
        loss, counts, found = _evaluated(objective, batch, reduction)
    else:
        loss, counts, found = step.loss(batch), step.counts, step.copied(batch)
    rows = [gradient.reshape(-1).to(_kind(x)) for gradient in found[1:]]
    return loss, counts, found[0].to(_kind(x)).contiguous(), torch.cat(rows) if rows else x.new_empty(0, dtype=_kind(x))


def _shapes(x: Tensor, _labels: Any, _ids: Any, parameters: list[Tensor], *_: Any) -> tuple[Tensor, ...]:
    kind, room = _kind(x), sum(parameter.numel() for parameter in parameters)
    counts = x.new_empty(x.shape[0] + MORE, dtype=torch.float64)
    return (
        x.new_empty((), dtype=kind),
        counts,
        torch.empty_like(x, dtype=kind, memory_format=torch.contiguous_format),
        x.new_empty(room, dtype=kind),
    )


define_operator(
    "step(Tensor x, Tensor? labels, Tensor? ids, Tensor[] parameters, int number, str reduction) -> (Tensor, Tensor, Tensor, Tensor)",
    _step,
    _shapes,
)
