"""Everyday batches on CUDA: loss and gradient of an objective as one launch, recorded as a CUDA graph.

With up to a few thousand points an objective launches dozens of kernels of microseconds each, and the host takes most of the time; with
16,384 points still half of it. The third call with the same shapes and the same settings is recorded; later ones copy their inputs in,
replay, and copy the results out: nothing of the caller is ever overwritten. The gradient is computed with the loss, whose own upstream
gradient is a number that it is multiplied by. A step is recorded only if everything it depends on is known: tensors by their address,
settings by their value. An objective with a part whose settings could change unseen is evaluated as it is.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from nearkin.compose.derivatives import apply
from nearkin.compose.outcome import Reduction, reduce
from nearkin.compose.points import Points
from nearkin.compose.value_checks import Check, Sender, collected, numbers_of
from nearkin.kernels.cuda_graphs import Launch, Tensors, paused

if TYPE_CHECKING:
    from nearkin.objectives.objective import Objective

MOST_POINTS = 1 << 16  # above, the arithmetic takes far longer than the launches
MOST_BYTES, MOST_SHARE = 1 << 30, 1 / 16  # of memory, and of the device's, that the recordings of an objective may keep
KEPT, MOST_CAPTURES = 8, 32  # recordings of an objective at a time, and ever: batches of always other sizes are not worth recording
NOT_SETTINGS = frozenset([*vars(nn.Module()), "_counts", "_steps", "_unmoved", "_number"])

_known: "WeakKeyDictionary[Objective, _Recordings]" = WeakKeyDictionary()


def replayed(objective: "Objective", batch: Points, reduction: Reduction) -> tuple[Tensor, Tensor] | None:
    """Loss, and its counts as one tensor (active, clamped, weights), of a step that was recorded; None if it was not, or not yet."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not batch.embeddings.requires_grad:
        return None
    step = step_of(objective, batch, reduction)
    if step is None:
        return None
    loss: Tensor = apply(_Replay, step, objective, *batch, *step.parameters)
    return loss, step.counts


def step_of(objective: "Objective", batch: Points, reduction: Reduction) -> "_Step | None":
    """The recorded step of a batch of which only types and shapes have been checked; None if there is none, or not yet."""
    x = batch.embeddings
    if not x.is_cuda or len(x) > MOST_POINTS or reduction == "none" or _other_rules_hold():
        return None
    recordings = _known.get(objective)
    if recordings is None:
        recordings = _known[objective] = _Recordings()
    return recordings.find(objective, batch, reduction)


def _other_rules_hold() -> bool:
    """Whether torch is transforming, recording or sharing this computation with other processes."""
    return (
        torch._C._are_functorch_transforms_active()
        or torch.cuda.is_current_stream_capturing()
        or (torch.distributed.is_available() and torch.distributed.is_initialized())
    )


class _Recordings:
    """The recordings of one objective, the last used ones."""

    def __init__(self) -> None:
        self.captures = 0
        self.seen: OrderedDict[Hashable, int | _Step | None] = OrderedDict()
        self.last: tuple[list[Any], _Step] | None = None  # mostly the next one, too: comparing is quicker than looking up

    def find(self, objective: "Objective", batch: Points, reduction: Reduction) -> "_Step | None":
        settings: list[Any] = []
        _add_settings(objective, settings)
        signature = settings + _circumstances(batch, reduction)
        if self.last is not None and _same(self.last[0], signature):
            return self.last[1]
        self.last = None
        if not all(map(_unchanging, settings)) or not objective.recordable(len(batch.embeddings)):
            return None
        key = tuple(signature)
        known = self.seen.pop(key, 0)
        if known in (0, 1):
            known += 1  # the first call compiles, the second warms up
        elif known == 2:
            known = self._captured(objective, batch, reduction)
        self.seen[key] = known
        room = _room(batch.embeddings)
        while len(self.seen) > KEPT or sum(step.bytes for step in self.seen.values() if isinstance(step, _Step)) > room:
            self.seen.popitem(last=False)
        if not isinstance(known, _Step):
            return None
        self.last = signature, known
        return known

    def _captured(self, objective: "Objective", batch: Points, reduction: Reduction) -> "_Step | None":
        if self.captures >= MOST_CAPTURES:
            return None
        self.captures += 1
        try:
            step = _Step(objective, batch, reduction)
        except RuntimeError:  # no memory, or an operator that cannot be recorded: evaluated as it is, which says what is wrong
            return None
        return step if step.bytes <= _room(batch.embeddings) else None


def _room(x: Tensor) -> int:
    """Bytes that the recordings of one objective may keep on the device of its batch."""
    return min(MOST_BYTES, int(MOST_SHARE * torch.cuda.get_device_properties(x.device).total_memory))


def _same(known: list[Any], now: list[Any]) -> bool:
    try:
        return known == now
    except (ValueError, RuntimeError):  # a setting that is now an array, which has no truth value
        return False


def _circumstances(batch: Points, reduction: Reduction) -> list[Any]:
    """What decides beside the settings of an objective how its step is computed."""
    found: list[Any] = [reduction, torch._C._cuda_getCurrentRawStream(batch.embeddings.device.index)]
    for part in batch:
        if part is not None:
            found += (part.shape, part.dtype, part.device)
        found.append(None)
    found.append(torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None)
    found += (torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled())
    return found


def _add_settings(module: nn.Module, found: list[Any]) -> None:
    """Add the settings of a module and of those in it: values, and where tensors are. It is walked at every call, so without generators."""
    for name, value in module.__dict__.items():
        if name not in NOT_SETTINGS:
            found.append(value.data_ptr() if isinstance(value, Tensor) else value)
    found.append(module.training)
    for held in (module._parameters, module._buffers):
        for part in held.values():
            if part is not None:
                found += (part.data_ptr(), part.requires_grad, part.shape)
    for inner in module._modules.values():
        if inner is not None:
            _add_settings(inner, found)


def _unchanging(value: Any) -> bool:
    """Whether equal hashes mean equal behavior: values, frozen parts, and functions without variables of their own."""
    if isinstance(value, FunctionType):
        return value.__closure__ is None
    if isinstance(value, tuple):
        return all(map(_unchanging, value))
    by_value: Any = type(value).__hash__
    return value is None or isinstance(value, type | BuiltinFunctionType) or by_value not in (None, object.__hash__)


@contextmanager
def with_own_leaves(objective: nn.Module) -> Iterator[list[Tensor]]:
    """Give a module aliases of its parameters for a while, and yield those that need a gradient: leaves of a graph of their own.

    The parameters themselves may already be leaves of a graph that the caller keeps, on another stream, at which a recording would wait.
    """
    holders: list[tuple[dict[str, Any], dict[str, Any]]] = [(inner._parameters, dict(inner._parameters)) for inner in objective.modules()]
    aliases = {p: p.data.requires_grad_(p.requires_grad) for p in objective.parameters()}
    try:
        for holder, own in holders:
            holder.update({name: None if p is None else aliases[p] for name, p in own.items()})
        yield [alias for alias in aliases.values() if alias.requires_grad]
    finally:
        for holder, own in holders:
            holder.update(own)


def packed(weight: Tensor, active: Tensor, clamped: Tensor | None) -> Tensor:
    """(n + 2,) the counts of a step as one tensor: active, clamped, weights."""
    lowered = torch.zeros_like(active) if clamped is None else clamped
    return torch.cat([active.detach().double()[None], lowered.double()[None], weight.detach().double()])


def above_autograd() -> Any:
    """Turn on what torch turns off around an operator: autograd inside of it."""
    keys = torch._C.DispatchKey
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in (keys.BackendSelect, keys.ADInplaceOrView):
        include = include.add(key)
    for key in (keys.AutogradCPU, keys.AutogradCUDA, keys.AutogradOther, keys.AutogradFunctionality, keys.ADInplaceOrView):
        exclude = exclude.remove(key)
    return torch._C._ForceDispatchKeyGuard(include, exclude)


class _Step:
    """One recorded step: loss and gradients, and the checks that it sends after every replay. `turn` counts the replays."""

    def __init__(self, objective: "Objective", batch: Points, reduction: Reduction) -> None:
        self.parameters = [one for one in objective.parameters() if one.requires_grad]
        self.reduction, self.turn = reduction, 0
        self.depends: list[bool] = []  # whether the loss depends on the embeddings and on each parameter
        checks: list[Check] = []
        # A gradient in float16 would be rounded before its upstream factor keeps it from underflow; bfloat16 ends where float32 does.
        kept = (torch.float64, torch.bfloat16) if objective.reads_half(batch) else (torch.float64,)

        def compute(mine: Tensors) -> tuple[Tensor, ...]:
            nonlocal checks
            x, *rest = [None if part is None else part.data for part in mine]  # versions of their own: the next batch is no change of these
            assert x is not None
            x = (x if x.dtype in kept else x.float()).requires_grad_()
            with torch.enable_grad(), with_own_leaves(objective) as leaves, collected() as checks:
                outcome = objective.evaluated(Points(x, *rest))
                loss = reduce(outcome, reduction)
                found = torch.autograd.grad(loss, [x, *leaves], allow_unused=True)
            self.depends = [gradient is not None for gradient in found]
            counts = packed(outcome.weight, outcome.active, outcome.clamped)
            numbers = numbers_of(checks) if checks else counts[:0]
            return loss.detach(), counts, numbers, *[gradient for gradient in found if gradient is not None]

        with above_autograd():
            with paused():
                compute(batch)  # warms up: kernels must be compiled before they are recorded
            torch.cuda.empty_cache()  # as recording does, so that the difference is what the recording takes
            before = torch.cuda.memory_reserved(batch.embeddings.device)
            self.launch = Launch(compute, batch)
            self.bytes = torch.cuda.memory_reserved(batch.embeddings.device) - before
        self._loss, self._counts, numbers, *self._gradients = self.launch.results
        self.counts = self._counts
        self.sender = Sender([check.words() for check in checks], numbers) if checks else None

    def loss(self, batch: Points) -> Tensor:
        """The loss; its counts are in `counts`, and its gradients stay here until the next turn."""
        self.turn += 1
        self.launch.replay(batch)
        if self.sender is not None:
            self.sender.send()
        self.counts = self._counts.clone()
        return self._loss.clone()

    def copied(self, batch: Points) -> list[Tensor]:
        """The gradients of the last loss for the embeddings and each parameter, zero where it does not depend on one."""
        found, shapes = iter(self._gradients), [batch.embeddings, *self.parameters]
        return [
            next(found).clone(memory_format=torch.contiguous_format) if depends else torch.zeros_like(like)
            for depends, like in zip(self.depends, shapes, strict=True)
        ]

    def pulled(self, turn: int, batch: Points, upstream: Tensor) -> list[Tensor | None]:
        """The gradients of the loss at `turn` for the embeddings and each parameter; None where the loss does not depend on it."""
        if turn != self.turn:  # another one came in between
            self.turn += 1
            self.launch.replay(batch)
        found = iter(torch._foreach_mul(self._gradients, upstream) if len(self._gradients) > 1 else [g * upstream for g in self._gradients])
        return [next(found) if depends else None for depends in self.depends]


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: _Step, objective: "Objective", *tensors: Any) -> Tensor:
        ctx.save_for_backward(*tensors)  # with their graph, for second derivatives
        loss = step.loss(Points(*tensors[:3]))
        ctx.step, ctx.objective, ctx.turn = step, objective, step.turn
        return loss

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Any, ...]:
        tensors, step = ctx.saved_tensors, ctx.step
        batch, parameters = Points(*tensors[:3]), tensors[3:]
        if torch.is_grad_enabled():  # create_graph=True: evaluated again, with a graph
            loss = reduce(ctx.objective.evaluated(batch), step.reduction)
            found = torch.autograd.grad(loss, [batch.embeddings, *parameters], upstream[0], create_graph=True, allow_unused=True)
        else:
            found = step.pulled(ctx.turn, batch, upstream[0])
            if found[0] is not None and found[0].dtype != batch.embeddings.dtype:
                found[0] = found[0].to(batch.embeddings.dtype)
        return None, None, found[0], None, None, *found[1:]
