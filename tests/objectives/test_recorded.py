"""Recorded steps without a GPU: instead of replaying a graph, the recorded function is called again into the same memory."""

import copy
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.catalog import Case, batch, cases, leaves
from nearkin import NCA, CenterLoss, Softmax
from nearkin.compose import InBatch, Points, SameLabel, SquaredEuclidean, any_positive, value_checks
from nearkin.kernels import cuda_graphs
from nearkin.objectives import NeighborhoodObjective, recorded


class Recorder:
    """Stands for CUDA: counts what is recorded."""

    captured = 0
    bytes = 0  # that all recordings took
    each = 0  # that the next one takes


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()

    def captured(function: Callable[[], tuple[Tensor, ...]]) -> tuple[Any, tuple[Tensor, ...]]:
        outputs = tuple([output.clone() for output in function()])
        found.captured += 1
        found.bytes += found.each

        def again() -> None:
            for mine, new in zip(outputs, function(), strict=True):
                mine.copy_(new)

        return SimpleNamespace(replay=again), outputs

    monkeypatch.setattr(cuda_graphs, "_captured", captured)
    monkeypatch.setattr(cuda_graphs, "_seen", cuda_graphs.OrderedDict())
    monkeypatch.setattr(recorded, "_known", recorded.WeakKeyDictionary())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: found.bytes)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=16 * 1000))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, raising=False)
    monkeypatch.setattr(recorded, "_other_rules_hold", lambda: False)
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: True))
    return found


def stepped(objective: Any, n: int, steps: int, monkeypatch: pytest.MonkeyPatch, on_cuda: bool) -> list[list[Tensor]]:
    """Loss, counts and gradients of each step; then the parameters move, and so does the state."""
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: on_cuda))
    found = []
    for number in range(steps):
        some = batch(objective.supervision, n)
        x = (some.embeddings + 0.1 * number).requires_grad_()
        torch.manual_seed(number)
        loss = objective(x, some.labels, ids=some.ids)
        gradients = torch.autograd.grad(loss, leaves(objective, x), allow_unused=True, materialize_grads=True)
        found.append([loss.detach(), *gradients, objective.last.skipped_mask, objective.last.active_on_device])
        with torch.no_grad():
            for parameter, gradient in zip(objective.parameters(), gradients[1:], strict=True):
                parameter.sub_(0.01 * gradient)
        objective.update(x.detach(), some.labels, ids=some.ids)
    return found


EVERY = [case for case in cases(options=False) if hasattr(case.build(), "outcome")]  # the others are made of these


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_recorded_steps_are_those_that_are_not(case: Case, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    objective = case.build()
    plain = stepped(copy.deepcopy(objective), 24, 6, monkeypatch, on_cuda=False)
    found = stepped(objective, 24, 6, monkeypatch, on_cuda=True)
    assert recorder.captured == 1
    for mine, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, theirs, check_dtype=False)


def step(objective: Any, x: Tensor, labels: Tensor, **more: Any) -> tuple[Tensor, Tensor]:
    live = x.clone().requires_grad_()
    loss = objective(live, labels, **more)
    return loss, torch.autograd.grad(loss.sum(), live)[0]


X, Y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


def test_a_setting_that_changes_is_another_recording(recorder: Recorder) -> None:
    objective = NCA()
    for _ in range(4):
        step(objective, X, Y)
    assert recorder.captured == 1
    objective.affinity = SquaredEuclidean(0.1)
    torch.testing.assert_close(step(objective, X, Y)[0], NCA(temperature=0.1)(X, Y))
    for other in (
        lambda: step(objective, X, Y, reduction="none"),
        lambda: step(objective, X[:9], Y[:9]),
        lambda: step(objective.eval(), X, Y),
    ):
        other()
    assert recorder.captured == 1


def test_another_arithmetic_is_another_recording(recorder: Recorder) -> None:
    objective = NCA()
    for _ in range(4):
        step(objective, X, Y)
    before = len(recorded._known[objective].seen)
    torch.use_deterministic_algorithms(True)
    try:
        step(objective, X, Y)
    finally:
        torch.use_deterministic_algorithms(False)
    assert recorder.captured == 1 and len(recorded._known[objective].seen) == before + 1


def test_results_belong_to_the_caller_and_gradients_to_their_loss(recorder: Recorder) -> None:
    objective, others = NCA(), [X + number for number in range(3)]
    for _ in range(4):
        step(objective, X, Y)
    live = [x.clone().requires_grad_() for x in (X, 2 * X)]
    losses = [objective(x, Y) for x in live]
    counts = objective.last
    step(objective, others[1], torch.arange(12))  # nobody has a positive
    for x, loss in zip(live, losses, strict=True):
        loss.backward()
        again = x.detach().requires_grad_()
        expected = NCA()(again, Y)
        torch.testing.assert_close([loss.detach(), x.grad], [expected.detach(), *torch.autograd.grad(expected, again)])
    assert counts.valid == 12 and objective.last.valid == 0


def test_second_derivatives_are_those_of_the_composition(recorder: Recorder) -> None:
    def second(objective: Any) -> Tensor:
        live = X.double().requires_grad_()
        (first,) = torch.autograd.grad(objective(live, Y), live, create_graph=True)
        return torch.autograd.grad(first.square().sum(), live)[0]

    objective = NCA()
    for _ in range(4):
        step(objective, X.double(), Y)
    torch.testing.assert_close(second(objective), second(NCA()))
    assert recorder.captured == 1


def test_parts_that_could_change_unseen_are_not_recorded(recorder: Recorder) -> None:
    weight = [1.0]
    objective = NeighborhoodObjective(InBatch(), SquaredEuclidean(), SameLabel(), any_positive, lambda z: weight[0] * z.square().mean())
    for _ in range(4):
        step(objective, X, Y)
    before = step(objective, X, Y)[0]
    weight[0] = 2.0
    assert recorder.captured == 0 and step(objective, X, Y)[0] > before


def test_what_cannot_be_recorded_is_evaluated(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Any:
        raise torch.OutOfMemoryError("no memory for a recording")

    monkeypatch.setattr(cuda_graphs, "_captured", refuse)
    objective = Softmax(3, 4)
    found = [step(objective, X, Y)[0] for _ in range(5)]
    assert all(torch.equal(one, found[0]) for one in found)


def test_batches_of_ever_other_sizes_are_recorded_a_few_times_only(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MOST_CAPTURES", 3)
    objective = NCA()
    for n in range(4, 12):
        for _ in range(4):
            step(objective, X[:n], Y[:n])
    assert recorder.captured == 3 and len(recorded._known[objective].seen) <= recorded.KEPT


def test_recordings_keep_no_more_memory_than_they_may(recorder: Recorder) -> None:
    """A sixteenth of the device's 16,000 bytes: two of 400 fit, a third one drives out the first, one of 1,200 is not kept."""
    objective = NCA()

    def steps_of(n: int, each: int) -> int:
        recorder.each, before = each, recorder.captured
        for _ in range(4):
            some = batch(objective.supervision, n)
            objective(some.embeddings.requires_grad_(), some.labels)
        return recorder.captured - before

    kept = recorded._known
    assert [steps_of(n, 400) for n in (20, 24)] == [1, 1]
    assert [steps_of(n, 400) for n in (20, 24)] == [0, 0]
    assert steps_of(28, 400) == 1
    assert sum(isinstance(step, recorded._Step) for step in kept[objective].seen.values()) == 2
    assert steps_of(20, 400) == 1  # again
    assert steps_of(32, 1200) == 1
    assert not any(isinstance(step, recorded._Step) and step.bytes == 1200 for step in kept[objective].seen.values())
    assert steps_of(32, 1200) == 0  # and not tried again


def test_recordings_go_with_their_objective(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(function: Callable[[], tuple[Tensor, ...]]) -> tuple[Any, tuple[Tensor, ...]]:
        recorder.captured += 1
        return SimpleNamespace(replay=lambda: None), function()  # as on CUDA, where a graph keeps the memory and not the function

    monkeypatch.setattr(cuda_graphs, "_captured", captured)
    objective = CenterLoss(3, 4)
    for _ in range(4):
        step(objective, X, Y)
    assert recorder.captured > 0 and len(recorded._known) > 0
    del objective
    gc.collect()
    assert len(recorded._known) == 0


def test_a_loss_that_the_caller_keeps_shares_no_leaf_with_a_recording(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leaves are on another stream, at which a capture must not wait: the recorded graph has aliases of the parameters."""
    objective, used = Softmax(3, 4), []
    own = list(objective.parameters())
    real = torch.autograd.grad

    def grad(outputs: Any, inputs: Any, *more: Any, **named: Any) -> Any:
        used.append(inputs)
        return real(outputs, inputs, *more, **named)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    kept = []
    for _ in range(4):
        live = X.clone().requires_grad_()
        kept.append(objective(live, Y))
        kept[-1].backward()
    assert recorder.captured == 1 and used
    leaves = [leaf for some in used for leaf in some]
    assert not any(leaf is parameter for leaf in leaves for parameter in own)
    assert {parameter.data_ptr() for parameter in own} <= {leaf.data_ptr() for leaf in leaves}
    assert all(a is b for a, b in zip(objective.parameters(), own, strict=True))
    other = Softmax(3, 4)
    other.load_state_dict(objective.state_dict())
    for _ in range(4):
        other.zero_grad()
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: False))
        other(X.clone().requires_grad_(), Y).backward()
    torch.testing.assert_close([4 * p.grad for p in other.parameters()], [p.grad for p in own])


def test_parameters_come_back_after_an_error() -> None:
    objective = CenterLoss(3, 4)
    own, pairs = list(objective.parameters()), dict(objective.named_parameters())

    def refuse() -> None:
        with recorded.with_own_leaves(objective) as leaves:
            assert [leaf.data_ptr() for leaf in leaves] == [p.data_ptr() for p in own] and all(leaf.is_leaf for leaf in leaves)
            assert not any(a is b for a, b in zip(leaves, own, strict=True))
            raise KeyError

    with pytest.raises(KeyError):
        refuse()
    assert all(pairs[name] is p for name, p in objective.named_parameters()) and all(isinstance(p, torch.nn.Parameter) for p in own)


def test_half_precision_gradients_are_scaled_before_they_are_rounded(recorder: Recorder) -> None:
    """A gradient scaler multiplies the loss so that small gradients survive 16 bits."""
    objective = NCA()
    for number in range(5):
        live = (1e-3 * X).half().requires_grad_()
        (objective(live, Y) * 2.0**14).backward()
        exact = (1e-3 * X).half().double().requires_grad_()
        (NCA(engine="dense")(exact, Y) * 2.0**14).backward()
        assert live.grad is not None and exact.grad is not None and live.grad.dtype == torch.float16, number
        torch.testing.assert_close(live.grad.double(), exact.grad, rtol=2e-3, atol=1e-3)
    assert recorder.captured == 1


def test_a_setting_that_becomes_an_array_is_evaluated(recorder: Recorder) -> None:
    objective = NCA()
    for _ in range(4):
        step(objective, X, Y)
    objective.note = np.ones(3)
    assert step(objective, X, Y)[0].isfinite() and recorder.captured == 1


def test_checks_inside_a_recording_are_sent_after_every_replay(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_checks, "READ_FROM", frozenset())
    monkeypatch.setattr(value_checks, "_told", set())
    monkeypatch.setattr(value_checks.Sender, "send", lambda self: sent.append((self.checks, self.numbers.tolist())))
    sent: list[Any] = []
    objective = NCA()
    for _ in range(4):
        step(objective, X, Y)
    sent.clear()
    step(objective, X, torch.zeros(12, dtype=torch.long))
    assert len(sent) == 1, "all checks of a step are sent at once"
    (checks, numbers), names = sent[0], []
    for kind, _, _, count in checks:
        names += [kind] * count
    assert ("two classes", 0.0) in zip(names, numbers, strict=True) and "embeddings" in names


def test_the_operator_of_compiled_steps_replays_recordings(recorder: Recorder) -> None:
    """From the third call on its results are those of the recording, copied; a parameter that the loss does not look at has zeros."""
    for objective in (Softmax(3, 4), NCA()):
        recorder.captured = 0
        own = [one.detach() for one in objective.parameters()]
        for number in range(4):
            x = X + number
            loss, counts, to_x, flat = torch.ops.nearkin.step(x, Y, None, own, objective._number, "mean")
            live = x.clone().requires_grad_()
            expected = objective.outcome(Points(live, Y, None), None).values.mean()
            slopes = torch.autograd.grad(expected, [live, *objective.parameters()])
            row = torch.cat([slope.flatten() for slope in slopes[1:]]) if own else torch.empty(0)
            torch.testing.assert_close([loss, to_x, flat], [expected.detach(), slopes[0], row])
            assert counts.shape == (14,) and counts[2:].all()
        assert recorder.captured == 1
