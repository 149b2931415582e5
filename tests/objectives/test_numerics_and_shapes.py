"""Inputs that are rare but real: enormous numbers, odd widths, strided memory, other types, a forgotten line of the training loop."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.catalog import CLASSES, DIMENSION, MEMORY, Case, batch, cases, leaves
from nearkin.compose import Points, value_checks
from nearkin.objectives import (
    NCA,
    Contrastive,
    DirectRegression,
    InstanceDiscrimination,
    LargeMarginSoftmax,
    NCARegression,
    NearestClassMean,
    Softmax,
    Triplet,
)

every = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [12, pytest.param(100, marks=pytest.mark.soak)])
def test_enormous_embeddings_are_finite_or_refused(case: Case, dtype: torch.dtype, n: int) -> None:
    """Never a silent infinity or NaN: up to a length that is documented everything is finite, above it is an error in words."""
    objective = case.build().to(dtype)
    some = batch(objective.supervision, n, dtype=dtype)
    unit = some.embeddings / some.embeddings.norm()
    bound = value_checks.largest(dtype) ** (0.5 if case.name == "VICReg" else 1.0)  # it sums fourth powers
    live = (0.9 * bound * unit).requires_grad_()
    loss = some._replace(embeddings=live).loss(objective)
    found = torch.autograd.grad(loss, leaves(objective, live), allow_unused=True, materialize_grads=True)
    assert loss.isfinite() and all(x.isfinite().all() for x in found)
    for size in (1.2 * bound, 1e18 if dtype == torch.float32 else 1e170, torch.finfo(dtype).max):
        with pytest.raises(ValueError, match=r"embeddings are as long as .* together, first in rows \[.*\]; above \de\+?.* overflow"):
            some._replace(embeddings=size * unit).loss(objective)
    assert some.loss(objective).isfinite(), "the next call works"


def wide(name: str, d: int) -> Any:
    made = {
        "NCA": NCA,
        "streamed": lambda: NCA(engine="numba"),
        "tiles": lambda: NCA(engine="torch"),
        "cosine": lambda: NCA(metric="cosine", temperature=0.1, engine="numba"),
        "numbers": lambda: NCARegression(engine="numba"),
        "Contrastive": Contrastive,
        "Triplet": Triplet,
        "Softmax": lambda: Softmax(CLASSES, d),
        "bank": lambda: InstanceDiscrimination(MEMORY, d, engine="numba"),
    }
    return made[name]()


@pytest.mark.parametrize("d", [1, 3, 4097])
@pytest.mark.parametrize("name", ["NCA", "streamed", "tiles", "cosine", "numbers", "Contrastive", "Triplet", "Softmax", "bank"])
def test_odd_widths_and_strided_memory(name: str, d: int) -> None:
    """Every other column of a transposed matrix, next to the same numbers side by side and to float64."""
    objective = wide(name, d)
    some = batch(objective.supervision, 40, d)
    room = torch.zeros(2 * d, 40)
    room[::2] = some.embeddings.T
    strided = room.T[:, ::2].detach().requires_grad_()
    plain = some.embeddings.clone().requires_grad_()
    exact = some.embeddings.double().requires_grad_()
    found = []
    for live in (strided, plain, exact):
        twin = objective.double() if live is exact else objective
        loss = some._replace(embeddings=live).loss(twin)
        loss.backward()
        assert live.grad is not None and live.grad.dtype == live.dtype
        found.append((loss.detach().double(), live.grad.double()))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found[1], found[2], rtol=2e-3, atol=2e-4)


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_give_half_precision_gradients(case: Case, dtype: torch.dtype) -> None:
    """The value is that of the rounded embeddings in float32, and the gradient comes back in the type that came in."""
    objective = case.build()
    some = batch(objective.supervision, 24)
    narrow = some.embeddings.to(dtype).requires_grad_()
    rounded = narrow.detach().float().requires_grad_()
    found = []
    for live in (narrow, rounded):
        torch.manual_seed(3)
        loss = some._replace(embeddings=live).loss(objective)
        loss.backward()
        assert loss.dtype == torch.float32 and live.grad is not None and live.grad.dtype == live.dtype
        found.append((loss.detach(), live.grad.float()))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-2, atol=1e-3)


def test_mixed_types_and_empty_sides() -> None:
    some = batch("classes", 12)
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        others = Points(some.embeddings.to(kind), some.labels, some.ids + 100)
        assert NCA()(some.embeddings, some.labels, ids=some.ids, references=others).dtype == torch.float32
    with pytest.raises(ValueError, match=r"embeddings is empty, shape \(0, 16\); a batch needs at least one row and one column"):
        NCA()(some.embeddings[:0], some.labels[:0])
    with pytest.raises(ValueError, match=r"references.embeddings is empty"):
        NCA()(some.embeddings, some.labels, ids=some.ids, references=Points(some.embeddings[:0], some.labels[:0], some.ids[:0]))
    assert NCA()(some.embeddings, some.labels).isfinite()


MOVING = [case for case in cases(options=False) if hasattr(made := case.build(), "moves") and made.moves()]


def steps(objective: Any, count: int, update: bool) -> Tensor:
    some = batch(objective.supervision, 12)
    for _ in range(count):
        live = some.embeddings.clone().requires_grad_()
        loss = objective(live, some.labels, ids=some.ids)
        if update:
            objective.update(live.detach(), some.labels, ids=some.ids)
    return loss


@pytest.mark.parametrize("case", MOVING, ids=lambda case: case.name)
def test_a_forgotten_update_is_said_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_checks, "_told", set())
    steps(case.build(), value_checks.UNMOVED + 30, update=True)
    objective = case.build()
    words = rf"was called {value_checks.UNMOVED} times with gradients and its state never moved; add the line `objective.update\(embeddings"
    with pytest.warns(UserWarning, match=f"{case.name} {words}") as told:
        steps(objective, value_checks.UNMOVED + 30, update=False)
    assert len(told) == 1


def test_who_needs_no_update_hears_nothing() -> None:
    assert {"CenterPull", "DeepCluster", "InstanceDiscrimination", "LargeMarginSoftmax", "NeighborhoodDiscovery", "NoiseAsTargets"} <= {
        case.name for case in MOVING
    }
    steps(
        LargeMarginSoftmax(CLASSES, DIMENSION, base=0.0), value_checks.UNMOVED + 10, update=False
    )  # the margin is in full: a warning would be an error
    steps(NCA(), value_checks.UNMOVED + 10, update=False)
    with torch.no_grad():
        steps(InstanceDiscrimination(MEMORY, DIMENSION).eval(), value_checks.UNMOVED + 10, update=False)


@every
def test_autocast_around_update_costs_no_digits(case: Case) -> None:
    objective = case.build()
    other, some = copy.deepcopy(objective), batch(objective.supervision, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective.update(some.embeddings, some.labels, ids=some.ids)
    other.update(some.embeddings, some.labels, ids=some.ids)
    torch.testing.assert_close(objective.state_dict(), other.state_dict())


def test_autocast_around_predict_changes_no_class() -> None:
    x, anchors = torch.randn(200, 8) + 30, torch.randn(50, 8) + 30  # far from the origin: 16 bits of a product tell little
    anchored, head = NearestClassMean(anchors), DirectRegression(8, 2)
    expected = anchored.predict(x), head.predict(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close((anchored.predict(x), head.predict(x)), expected)


@every
def test_an_update_before_backward_changes_no_gradient(case: Case) -> None:
    objective = case.build()
    some = batch(objective.supervision, 12)
    live, found = some.embeddings.requires_grad_(), []
    for early in (False, True):
        torch.manual_seed(3)
        loss = some.loss(objective)
        if early:
            objective.update(some.embeddings, some.labels, ids=some.ids)
        found.append(torch.autograd.grad(loss, leaves(objective, live), allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(found[1], found[0])


@every
def test_tensors_without_values_give_a_loss_without_one(case: Case) -> None:
    objective = case.build().to("meta")
    some = batch(objective.supervision, 12, device="meta")
    assert some.loss(objective).device.type == "meta" and some.loss(objective).shape == ()
