"""Everyday batches on CUDA: loss and gradient of an objective as two launches, recorded as CUDA graphs.

With up to a few thousand points an objective launches dozens of kernels of microseconds each, and the host takes most of the time. The
third call with the same shapes and the same settings is recorded; later ones copy their inputs in, replay, and copy the results out:
nothing of the caller is ever overwritten. A step is recorded only if everything it depends on is known: tensors by their address, settings
by their value. An objective with a part whose settings could change unseen is evaluated as it is.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from nearkin.compose.outcome import Reduction, reduce
from nearkin.compose.points import Points
from nearkin.compose.value_checks import Check, collected, send
from nearkin.kernels.cuda_graphs import Recording

if TYPE_CHECKING:
    from nearkin.objectives.objective import Objective

MOST_POINTS = 4096  # above, the arithmetic takes longer than the launches
MOST_BYTES = 2**29  # that one recording may keep
KEPT, MOST_CAPTURES = 8, 32  # recordings of an objective at a time, and ever: batches of always other sizes are not worth recording
NOT_SETTINGS = {*vars(nn.Module()), "_counts", "_unmoved"}

_known: "WeakKeyDictionary[Objective, _Recordings]" = WeakKeyDictionary()


def replayed(objective: "Objective", batch: Points, reduction: Reduction) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]] | None:
    """Loss and counts (weight, active, clamped) of a step that has been recorded; None if it has not, or not yet."""
    x = batch.embeddings
    if torch.compiler.is_compiling() or not (x.is_cuda and x.requires_grad and len(x) <= MOST_POINTS) or _other_rules_hold():
        return None
    recordings = _known.get(objective)
    if recordings is None:
        recordings = _known[objective] = _Recordings()
    parameters = [one for one in objective.parameters() if one.requires_grad]
    step = recordings.find(objective, batch, reduction, parameters)
    if step is None:
        return None
    loss, weight, active, clamped = _Replay.apply(step, objective, reduction, *batch, *parameters)  # type: ignore[no-untyped-call]
    return loss, (weight, active, clamped)


def _other_rules_hold() -> bool:
    """Whether torch is transforming, recording or sharing this computation with other processes, or needs no gradient."""
    return (
        not torch.is_grad_enabled()
        or torch._C._are_functorch_transforms_active()
        or torch.cuda.is_current_stream_capturing()
        or (torch.distributed.is_available() and torch.distributed.is_initialized())
    )


class _Recordings:
    """The recordings of one objective, the last used ones."""

    def __init__(self) -> None:
        self.captures = 0
        self.seen: OrderedDict[Hashable, int | _Step | None] = OrderedDict()

    def find(self, objective: "Objective", batch: Points, reduction: Reduction, parameters: list[nn.Parameter]) -> "_Step | None":
        settings = _settings(objective)
        if settings is None or not objective.recordable(len(batch.embeddings)):
            return None
        kinds = [None if part is None else (part.shape, part.dtype, part.device) for part in batch]
        stream = torch._C._cuda_getCurrentRawStream(batch.embeddings.device.index)
        signature = (*settings, *kinds, stream, reduction, *_arithmetic())
        known = self.seen.pop(signature, 0)
        if known in (0, 1):
            known += 1  # the first call compiles, the second warms up
        elif known == 2:
            known = self._captured(objective, batch, reduction, parameters)
        self.seen[signature] = known
        while len(self.seen) > KEPT:
            self.seen.popitem(last=False)
        return known if isinstance(known, _Step) else None

    def _captured(self, objective: "Objective", batch: Points, reduction: Reduction, parameters: list[nn.Parameter]) -> "_Step | None":
        if self.captures >= MOST_CAPTURES:
            return None
        self.captures += 1
        before = torch.cuda.memory_reserved()
        try:
            step = _Step(objective, batch, reduction, parameters)
        except RuntimeError:  # no memory, or an operator that cannot be recorded: evaluated as it is, which says what is wrong
            return None
        return step if torch.cuda.memory_reserved() - before <= MOST_BYTES else None


def _arithmetic() -> tuple[Hashable, ...]:
    """The settings of torch that decide how operators compute."""
    mixed = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return mixed, torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()


def _settings(objective: "Objective") -> list[Hashable] | None:
    """Everything that decides what an objective computes, but for the numbers in its tensors; None if that cannot be known."""
    found: list[Hashable] = []
    for module in objective.modules():
        found.append(module.training)
        found += [(part.data_ptr(), part.requires_grad, part.shape) for part in _tensors(module)]
        for name, value in vars(module).items():
            if name not in NOT_SETTINGS:
                found.append(value.data_ptr() if isinstance(value, Tensor) else value)
                if not _unchanging(found[-1]):
                    return None
    return found


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    for held in (module._parameters, module._buffers):
        for part in held.values():
            if part is not None:
                yield part


def _unchanging(value: Any) -> bool:
    """Whether equal hashes mean equal behavior: values, frozen parts, and functions without variables of their own."""
    if isinstance(value, FunctionType):
        return value.__closure__ is None
    if isinstance(value, tuple):
        return all(map(_unchanging, value))
    by_value: Any = type(value).__hash__
    return value is None or isinstance(value, type | BuiltinFunctionType) or by_value not in (None, object.__hash__)


class _Step:
    """One recorded step: its graphs, and the checks that it sends after every replay."""

    def __init__(self, objective: "Objective", batch: Points, reduction: Reduction, parameters: list[nn.Parameter]) -> None:
        self.graph: tuple[Tensor, list[Tensor]]
        self.checks: list[Check] = []
        self.depends: list[bool] = []  # whether the loss depends on the embeddings and on each parameter

        def forward(mine: Any) -> tuple[Tensor, ...]:
            x, *rest = [None if part is None else part.data for part in mine]  # versions of their own: the next batch is no change of these
            x = cast(Tensor, x).requires_grad_()
            with torch.enable_grad(), collected() as self.checks:
                outcome = objective.outcome(Points(x, *rest), None)
                loss = reduce(outcome, reduction)
            self.graph = loss, [x, *parameters]
            clamped = torch.zeros_like(outcome.active) if outcome.clamped is None else outcome.clamped
            shown = loss, outcome.weight, outcome.active, clamped
            return *[part.detach() for part in shown], torch.ones_like(loss)

        def backward(_: Any, __: Any, pull: Tensor) -> tuple[Tensor, ...]:
            loss, leaves = self.graph
            found = torch.autograd.grad(loss, leaves, pull, retain_graph=True, allow_unused=True)
            self.depends = [gradient is not None for gradient in found]
            return tuple([gradient for gradient in found if gradient is not None])

        self.recording = Recording(forward, backward, batch, shown=4)
        value = self.recording.value(batch)[0]
        for _ in range(2):  # warms up, then records: now, for the optimizer will change parameters whose versions the graph has noted
            self.recording.gradient(self.recording.turn, batch, torch.ones_like(value))

    def value(self, batch: Points) -> list[Tensor]:
        """Loss, weight, active and clamped."""
        found = self.recording.value(batch)
        if self.checks:
            send(self.checks)
        return found

    def gradients(self, turn: int, batch: Points, upstream: Tensor) -> list[Tensor | None]:
        """One for the embeddings and each parameter; None where the loss does not depend on it."""
        found = iter(self.recording.gradient(turn, batch, upstream))
        return [next(found) if depends else None for depends in self.depends]


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: _Step, objective: "Objective", reduction: Reduction, *tensors: Any) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)  # with their graph, for second derivatives
        batch = Points(*tensors[:3])
        found = step.value(batch)
        ctx.step, ctx.objective, ctx.reduction, ctx.turn = step, objective, reduction, step.recording.turn
        ctx.mark_non_differentiable(*found[1:])
        ctx.set_materialize_grads(False)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        tensors, given = ctx.saved_tensors, upstream[0]
        if given is None:
            return (None,) * (3 + len(tensors))
        batch, parameters = Points(*tensors[:3]), tensors[3:]
        if torch.is_grad_enabled():  # create_graph=True: evaluated again, with a graph
            loss = reduce(ctx.objective.outcome(batch, None), ctx.reduction)
            found = torch.autograd.grad(loss, [batch.embeddings, *parameters], given, create_graph=True, allow_unused=True)
        else:
            found = ctx.step.gradients(ctx.turn, batch, given)
        return None, None, None, found[0], None, None, *found[1:]
