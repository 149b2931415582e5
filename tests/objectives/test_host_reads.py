"""No objective reads a value back to the host in forward or backward, for tensors that the host would have to wait for.

There need not be a GPU: `value_checks.READ_FROM` says which devices are read at once, and without the CPU among them every check and every
choice of a shorter way is made as on CUDA. What then reads a value, or makes a shape of values, is refused by a dispatch mode. Where there
is a GPU, torch's own debug mode counts synchronizations: `python -m bench.synchronizations`.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.catalog import Case, batch, cases, leaves
from bench.synchronizations import synchronizations
from nearkin.compose import routes, value_checks
from nearkin.compose.points import Points
from nearkin.compose.references import MemoryBank
from nearkin.kernels import class_order
from nearkin.kernels.autograd import Soft
from nearkin.kernels.contract import COPIES
from nearkin.objectives import NCA, CenterPull, NCARegression, NeighborhoodDiscovery, Softmax, streaming
from tests.recording import Recordable

every = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU counts as a device that the host must not wait for; the kernels, which are tested by themselves, are their shapes."""

    def kernels(work: Any, *_: Any, **__: Any) -> Soft:
        return Soft(work.queries.sum(1), torch.ones_like(work.queries[:, 0], dtype=torch.bool))

    monkeypatch.setattr(value_checks, "READ_FROM", frozenset())
    monkeypatch.setattr(streaming, "soft_neighbors", kernels)


@every
@pytest.mark.parametrize("many", [0, 2**40], ids=["streamed", "small"])
def test_nothing_is_read_in_a_step(case: Case, many: int, far_away: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MANY_PAIRS", many)
    monkeypatch.setattr(routes, "MANY_ON_CUDA", many)
    monkeypatch.setattr(routes, "MANY_ON_CPU", many)
    objective = case.build()
    some = batch(objective.supervision)
    some.embeddings.requires_grad_()
    with Recordable():
        loss = some.loss(objective)
        torch.autograd.grad(loss, leaves(objective, some.embeddings), allow_unused=True)
        objective.update(some.embeddings.detach(), some.labels, ids=some.ids)
        some.loss(objective)


@pytest.mark.parametrize(
    "read", [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: x.unique(), lambda x: bool(x.any())]
)
def test_a_read_is_noticed(read: Any) -> None:
    with Recordable(), pytest.raises(AssertionError):
        read(torch.ones(3))


@every
def test_the_way_without_reads_gives_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for far in (False, True):
        if far:
            monkeypatch.setattr(value_checks, "READ_FROM", frozenset())
        torch.manual_seed(0)
        objective = case.build()
        some = batch(objective.supervision)
        some.embeddings.requires_grad_()
        torch.manual_seed(1)  # distance-weighted triplets draw
        loss = some.loss(objective)
        gradients = torch.autograd.grad(loss, leaves(objective, some.embeddings), allow_unused=True, materialize_grads=True)
        found.append((loss.detach(), *gradients))
    torch.testing.assert_close(found[0], found[1])


class Device:
    """A device whose copies arrive when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.idle = False
        monkeypatch.setattr(value_checks, "READ_FROM", frozenset())
        monkeypatch.setattr(value_checks, "_sent", value_checks.deque())
        monkeypatch.setattr(value_checks, "_told", set())
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: True))
        monkeypatch.setattr(class_order, "has_triton", lambda: False)  # which would look for the device
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: None, query=lambda: self.idle))
        made = torch.empty
        monkeypatch.setattr(torch, "empty", lambda *shape, dtype=None, **_: made(*shape, dtype=dtype))  # no memory is pinned here


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


X, Y, IDS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(6)
WRONG = {
    "embeddings": (NCA, (X * torch.nan, Y), "embeddings of an earlier call contains NaN or infinity; lower the learning rate"),
    "too long": (NCA, (X * 1e16, Y), "embeddings of an earlier call are as long as .* their squares overflow"),
    "targets": (NCARegression, (X, Y / 0.0), "labels of an earlier call contain NaN or infinity; drop these samples"),
    "classes": (
        lambda: Softmax(2, 4),
        (X, Y),
        "labels of an earlier call run from 0 to 2, but this objective was built for the",
    ),
    "centers": (lambda: CenterPull(2, 4), (X, Y), "labels of an earlier call run from 0 to 2"),
    "ids": (
        lambda: NeighborhoodDiscovery(5, 4),
        (X, None, IDS),
        "ids of an earlier call run from 0 to 5, but the bank has",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_comes_with_a_later_call_and_the_one_after_works(name: str, device: Device) -> None:
    build, (x, y, *ids), words = WRONG[name]
    objective, fine = build(), NCA()
    objective(x, y, ids=ids[0] if ids else None)  # nothing is known yet
    fine(X, Y)
    device.idle = True
    with pytest.raises(ValueError, match=words):
        [fine(X, Y) for _ in range(2)]
    for _ in range(3):
        assert fine(X, Y).isfinite()


def test_one_class_is_warned_of_later_and_once(device: Device) -> None:
    objective = NCA()
    assert objective(X, torch.zeros_like(Y)) == 0 and objective.last is not None
    device.idle = True
    with pytest.warns(UserWarning, match="NCA: the labels of a batch of an earlier call contain one class only") as told:
        [objective(X, torch.zeros_like(Y)) for _ in range(3)]
    assert len(told) == 1 and objective.last.skipped == 6


def test_more_copies_of_a_sample_than_can_be_left_out_give_nan_and_then_an_error(device: Device) -> None:
    """How often a sample occurs is not read back: a few copies are left out exactly, more are no silent error."""
    x, y = X.repeat(4, 1), Y.repeat(4)
    ids = IDS.repeat(4)
    torch.testing.assert_close(NCA(engine="torch")(x, y, ids=ids), NCA(engine="dense")(x, y, ids=ids))
    objective = NCA(engine="torch")
    assert objective(x, y, ids=torch.arange(24) % 2).isnan() and COPIES < 12
    device.idle = True
    with pytest.raises(ValueError, match="ids of an earlier call: a sample occurs 12 times among the references, and at most 8 copies"):
        NCA()(X, Y)


def test_ids_outside_of_a_bank_do_not_end_the_process(device: Device) -> None:
    bank = MemoryBank(5, 4)
    bank.update(Points(X, None, IDS))  # an index out of bounds would
    assert bank.vectors.isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every
def test_torch_counts_no_synchronization(case: Case) -> None:
    assert synchronizations(case, 64) is None and synchronizations(case, 2200) is None


def test_a_capture_asks_nothing_about_earlier_events(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA ends a capture in which an event is queried."""
    NCA()(X, Y)

    def refused() -> bool:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for sent in value_checks._sent:
        sent.there.query = refused
    assert len(value_checks._sent) > 0 and NCA()(X, Y).isfinite()
