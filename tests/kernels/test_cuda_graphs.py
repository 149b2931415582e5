"""Recorded evaluations without a GPU: instead of replaying a graph, the recorded function is called again into the same memory."""

import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nearkin.kernels import autograd
from nearkin.kernels import cuda_graphs as replay
from nearkin.kernels.contract import Form
from nearkin.kernels.torch_tiles import TorchTiles
from tests.kernels.full_matrix import CASES, draw, found


class Squares:
    """value = |x|^2 and its gradient 2 x, in the shape that `recording` takes; can be set to run out of memory."""

    def __init__(self) -> None:
        self.starved, self.captured, self.stream = "", 0, 0

    def forward(self, tensors: Any) -> tuple[Tensor, ...]:
        self._starve("forward")
        return tensors[0].square().sum(1), torch.ones(len(tensors[0]), dtype=torch.bool), torch.ones(len(tensors[0])), 2 * tensors[0]

    def backward(self, tensors: Any, summary: Any, pull: Tensor) -> tuple[Tensor, ...]:
        self._starve("backward")
        return (summary[0] * pull[:, None],)

    def _starve(self, where: str) -> None:
        if self.starved == where:
            raise torch.OutOfMemoryError(where)

    def recorded(self, x: Tensor) -> replay.Recording | None:
        return replay.recording(self.forward, self.backward, [x, None], "squares")


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> Squares:
    task = Squares()

    def captured(function: Callable[[], tuple[Tensor, ...]]) -> tuple[Any, tuple[Tensor, ...]]:
        outputs = function()
        task.captured += 1

        def again() -> None:
            for mine, new in zip(outputs, function(), strict=True):
                mine.copy_(new)

        return SimpleNamespace(replay=again), outputs

    monkeypatch.setattr(replay, "_captured", captured)
    monkeypatch.setattr(replay, "_seen", replay.OrderedDict())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: task.stream, raising=False)
    return task


def points(seed: int, n: int = 5) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


def known(task: Squares, x: Tensor) -> replay.Recording:
    """The recording of the third call."""
    assert task.recorded(x) is None and task.recorded(x) is None
    found = task.recorded(x)
    assert found is not None
    return found


def gradient(recorded: replay.Recording, turn: int, x: Tensor) -> Tensor:
    return recorded.gradient(turn, [x, None], torch.ones(len(x)))[0]


def test_the_third_call_is_recorded_and_results_belong_to_the_caller(squares: Squares) -> None:
    a, b = points(0), points(1)
    recorded = known(squares, a)
    first = recorded.value([a, None])[0]
    for x in (b, a, b):
        assert squares.recorded(x) is recorded
        torch.testing.assert_close(recorded.value([x, None])[0], x.square().sum(1))
        found = gradient(recorded, recorded.turn, x)
        torch.testing.assert_close(found, 2 * x)
    torch.testing.assert_close(first, a.square().sum(1), msg="a later call must not write over it")
    assert squares.captured == 2


def test_a_gradient_belongs_to_its_own_value(squares: Squares) -> None:
    a, b = points(0), points(1)
    recorded = known(squares, a)
    recorded.value([a, None])
    of_a = recorded.turn
    recorded.value([b, None])
    of_b = recorded.turn
    torch.testing.assert_close(gradient(recorded, of_a, a), 2 * a)
    torch.testing.assert_close(gradient(recorded, of_b, b), 2 * b)
    torch.testing.assert_close(gradient(recorded, of_a, a), 2 * a)


def test_running_out_of_memory_leaves_a_recording_as_it_was(squares: Squares) -> None:
    a = points(0)
    recorded = known(squares, a)
    recorded.value([a, None])
    for captured in (1, 2, 2):  # while the gradient has its first run, while it is recorded, while it is replayed
        squares.starved = "backward"
        with pytest.raises(torch.OutOfMemoryError):
            gradient(recorded, recorded.turn, a)
        squares.starved = ""
        torch.testing.assert_close(gradient(recorded, recorded.turn, a), 2 * a)
        assert squares.captured == captured
    squares.starved = "forward"
    with pytest.raises(torch.OutOfMemoryError):
        recorded.value([points(1), None])
    squares.starved = ""
    torch.testing.assert_close(gradient(recorded, 1, a), 2 * a)


def test_a_recording_that_did_not_fit_is_tried_again(squares: Squares) -> None:
    a = points(0)
    assert squares.recorded(a) is None and squares.recorded(a) is None
    squares.starved = "forward"
    with pytest.raises(torch.OutOfMemoryError):
        squares.recorded(a)
    squares.starved = ""
    torch.testing.assert_close(known(squares, a).value([a, None])[0], a.square().sum(1))


def test_what_cannot_be_recorded_is_evaluated_as_it_is(squares: Squares, monkeypatch: pytest.MonkeyPatch) -> None:
    a, tried = points(0), []

    def refuse(function: Any) -> Any:
        tried.append(function)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(replay, "_captured", refuse)
    assert [squares.recorded(a) for _ in range(6)] == [None] * 6 and len(tried) == 1


def test_a_function_alone_is_launched_from_the_third_call_on(squares: Squares) -> None:
    inputs = [points(seed) for seed in range(5)]
    found = [replay.launched(lambda tensors: (tensors[0] + 1,), [x, None], "one more")[0] for x in inputs]
    for x, one in zip(inputs, found, strict=True):
        torch.testing.assert_close(one, x + 1, msg="a later call must not write over it")
    assert squares.captured == 1


def test_nothing_is_collected_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older graph that is freed meanwhile ends the capture."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    assert replay._captured(lambda: (gc.isenabled(),))[1] == (False,) and gc.isenabled()

    def refuse() -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        replay._captured(refuse)
    assert gc.isenabled()


def test_a_handful_of_shapes_is_kept_and_none_while_another_graph_is_recorded(squares: Squares, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(1, replay.KEPT + 3):
        known(squares, points(0, n))
    assert len(replay._seen) == replay.KEPT
    assert squares.recorded(points(0, 1)) is None and squares.recorded(points(0, replay.KEPT + 2)) is not None
    with replay.paused():
        assert squares.recorded(points(0, replay.KEPT + 2)) is None
    assert squares.recorded(points(0, replay.KEPT + 2)) is not None
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert squares.recorded(points(0, replay.KEPT + 2)) is None


def test_a_part_is_what_is_evaluated_while_something_larger_is_recorded(squares: Squares, monkeypatch: pytest.MonkeyPatch) -> None:
    a = points(0)
    with replay.paused():
        assert replay.is_part(a)
    assert not replay.is_part(a)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not replay.is_part(a), "a graph of the device does not hold what is evaluated on the host"
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
    assert replay.is_part(a)


def test_another_stream_has_its_own_recording(squares: Squares) -> None:
    a = points(0)
    of_first = known(squares, a)
    squares.stream = 1
    assert known(squares, a) is not of_first
    squares.stream = 0
    assert squares.recorded(a) is of_first


@pytest.mark.parametrize("references", ["own", "separate", "frozen"])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_every_kind_of_work_is_recorded_with_all_its_tensors(
    squares: Squares, relation: str, form: Form, references: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same shapes with other numbers, again and again: each result is that of the numbers passed in."""
    works = [draw(relation, references, seed=seed) for seed in range(6)]
    plain = [found(TorchTiles(), work, form) for work in works]
    monkeypatch.setattr(TorchTiles, "recordable", lambda *_: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
    recorded = [found(TorchTiles(), work, form) for work in works]
    assert squares.captured == 2  # the value at the third call, the gradient at the fourth
    for one, two in zip(recorded, plain, strict=True):
        for mine, theirs in zip(one, two, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_a_recording_keeps_nothing_of_the_call_that_made_it(squares: Squares, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the network behind its points would stay in memory."""
    monkeypatch.setattr(TorchTiles, "recordable", lambda *_: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
    monkeypatch.setattr(autograd, "choose", lambda *_: TorchTiles())
    gone = []
    for seed in range(5):
        work = draw("span", "separate", seed=seed)
        queries = work.queries.requires_grad_() * 2
        gone += [weakref.ref(queries), weakref.ref(work.skip)]
        autograd.soft_neighbors(work._replace(queries=queries), "log", 1.0).values.sum().backward()
    assert squares.captured == 2
    del work, queries
    assert [ref() for ref in gone] == [None] * len(gone)
