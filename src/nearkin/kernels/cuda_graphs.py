"""Replay small evaluations as two launches: value and gradient, recorded as CUDA graphs over the same memory.

With a few thousand points an evaluation takes more than a dozen launches of microseconds each, and the host is the bottleneck. The third
call with the same shapes is recorded. Inputs are copied in and results copied out, so no tensor of the caller is ever
overwritten; what the gradient needs from the value stays inside. At most KEPT recordings are kept.
"""

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

MOST_PAIRS = 1 << 29  # above this, the arithmetic takes longer than the launches
KEPT = 16  # recordings

Tensors = Sequence[Tensor | None]
Forward = Callable[[Tensors], tuple[Tensor, ...]]  # inputs -> value, valid (or more that is shown), weight, summary...
Backward = Callable[[Tensors, Sequence[Tensor], Tensor], tuple[Tensor, ...]]  # inputs, summary, weight times upstream -> gradients


class Recording:
    """One recorded evaluation and its memory. `turn` counts the values computed, so that a gradient can name its value.

    The first `shown` outputs are for the caller, the next is the weight that the upstream gradient is multiplied by, and the rest is what
    the gradient needs.
    """

    def __init__(self, forward: Forward, backward: Backward, tensors: Tensors, shown: int = 2) -> None:
        self.turn, self._shown = 0, shown
        self._inputs = [None if t is None else t.detach().clone() for t in tensors]
        self._alike = _alike(self._inputs)
        self._backward = backward
        self._forward_graph, self._outputs = _captured(lambda: forward(self._inputs))
        self._pull = torch.zeros_like(self._outputs[shown])
        self._backward_graph: torch.cuda.CUDAGraph | None = None
        self._gradients: tuple[Tensor, ...] = ()
        self._warm = False

    def value(self, tensors: Tensors) -> list[Tensor]:
        """Return value, valid and what else is shown as copies that belong to the caller."""
        self._compute(tensors)
        return [output.clone() for output in self._outputs[: self._shown]]

    def gradient(self, turn: int, tensors: Tensors, upstream: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of the value computed at `turn`; that value is computed again if another one came in between."""
        if turn != self.turn:
            self._compute(tensors)
        torch.mul(upstream, self._outputs[self._shown], out=self._pull)
        if not self._warm:  # the kernels must be compiled before they are recorded
            found = self._backward(self._inputs, self._outputs[self._shown + 1 :], self._pull)
            self._warm = True  # not reached if memory ran out
            return found
        if self._backward_graph is None:
            self._backward_graph, self._gradients = _captured(
                lambda: self._backward(self._inputs, self._outputs[self._shown + 1 :], self._pull)
            )
        self._backward_graph.replay()
        return tuple([gradient.clone() for gradient in self._gradients])

    def _compute(self, tensors: Tensors) -> None:
        self.turn += 1
        _copy(tensors, self._alike)
        self._forward_graph.replay()


def _copy(tensors: Tensors, into: list[tuple[list[int], list[Tensor]]]) -> None:
    for places, mine in into:
        if len(places) == 1:  # takes the host half of the time
            mine[0].copy_(tensors[places[0]])  # type: ignore[arg-type]
        else:
            torch._foreach_copy_(mine, [t for place in places if (t := tensors[place]) is not None])


def _alike(inputs: Tensors) -> list[tuple[list[int], list[Tensor]]]:
    """Group the inputs by type, with their positions: one call copies each group."""
    there = [(place, t) for place, t in enumerate(inputs) if t is not None]
    kinds = {t.dtype for _, t in there}
    return [([place for place, t in there if t.dtype == kind], [t for _, t in there if t.dtype == kind]) for kind in kinds]


class Launch:
    """One recorded function of tensors and its memory."""

    def __init__(self, function: Callable[[Tensors], tuple[Tensor, ...]], tensors: Tensors) -> None:
        self._inputs = [None if t is None else t.detach().clone() for t in tensors]
        self._alike = _alike(self._inputs)
        self._graph, self.results = _captured(lambda: function(self._inputs))  # in memory that every replay writes over

    def replay(self, tensors: Tensors) -> None:
        """Compute the results for these."""
        _copy(tensors, self._alike)
        self._graph.replay()

    def outputs(self, tensors: Tensors) -> tuple[Tensor, ...]:
        """Return what the function gives for these, as copies that belong to the caller."""
        self.replay(tensors)
        return tuple([output.clone() for output in self.results])


_Kept = TypeVar("_Kept", Recording, Launch)
_seen: OrderedDict[Hashable, int | Recording | Launch | None] = OrderedDict()  # calls so far; None: it cannot be recorded


def recording(forward: Forward, backward: Backward, tensors: Tensors, key: Hashable) -> Recording | None:
    """Return the recording of an evaluation that depends only on its tensors and `key`; None for the first two calls."""
    return _known(key, tensors, Recording, lambda: Recording(forward, backward, tensors))


def launched(function: Callable[[Tensors], tuple[Tensor, ...]], tensors: Tensors, key: Hashable) -> tuple[Tensor, ...]:
    """Return what a function of tensors and `key` gives, from the third call with these shapes on by one launch."""
    known = _known(key, tensors, Launch, lambda: Launch(function, tensors))
    return function(tensors) if known is None else known.outputs(tensors)


_pauses: list[object] = []  # one for each `paused` that is open


@contextmanager
def paused() -> Iterator[None]:
    """Evaluate as it is what is about to be recorded as a part of something larger."""
    _pauses.append(object())
    try:
        yield
    finally:
        _pauses.pop()


def is_part(x: Tensor) -> bool:
    """Whether an evaluation of x is a part of something larger that is recorded: inside `paused`, or while a graph is captured."""
    return bool(_pauses) or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def _known(key: Hashable, tensors: Tensors, kind: type[_Kept], record: Callable[[], _Kept]) -> _Kept | None:
    if _pauses or torch.cuda.is_current_stream_capturing():
        return None
    signature = (kind, key, _stream(tensors), *[None if t is None else (t.shape, t.dtype) for t in tensors])
    known = _seen.pop(signature, 0)
    if isinstance(known, int):
        known = known + 1 if known < 2 else _recorded(record)  # the first call compiles, the second warms up
    _seen[signature] = known
    while len(_seen) > KEPT:
        _seen.popitem(last=False)
    return known if isinstance(known, kind) else None


def _recorded(record: Callable[[], _Kept]) -> _Kept | None:
    try:
        return record()
    except torch.OutOfMemoryError:  # said, and tried again
        raise
    except RuntimeError:  # an operator that cannot be recorded
        return None


def _stream(tensors: Tensors) -> tuple[torch.device, int]:
    """Device and raw stream of an evaluation. `torch.cuda.current_stream` would build an object each time, which costs host time."""
    assert tensors[0] is not None
    device = tensors[0].device
    return device, torch._C._cuda_getCurrentRawStream(device.index)


def _captured(function: Callable[[], tuple[Tensor, ...]]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
    graph, collecting = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()  # an older graph that is collected during a capture would end it
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = function()
    finally:
        if collecting:
            gc.enable()
    return graph, outputs
