"""Known answers of NCA (D.1) and NCA regression (D.2): values worked out by hand or in exact arithmetic.

Tolerances are half a unit of the last digit, or float32 rounding where the test is about float32.
D.4, D.5 and D.6 are in test_known_answers_of_classes_and_ranks.py.
"""

import math

import pytest
import torch
from torch import Tensor

from nearkin.compose.affinity import SquaredEuclidean
from nearkin.compose.criterion import expected_cost
from nearkin.compose.points import Points
from nearkin.compose.relation import LabelDistance, Related
from nearkin.objectives import NCA, NCARegression
from tests import gradients
from tests import oracles as o
from tests.batches import drawn, near

LINE, CLASSES = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64), [0, 0, 1]


def chances(z: Tensor) -> Tensor:
    """p_ij by the library: the expected cost where only reference j costs anything."""
    affinity, others = SquaredEuclidean()(z, z), ~torch.eye(len(z), dtype=torch.bool)
    columns = torch.eye(len(z), dtype=z.dtype)
    return torch.stack([expected_cost(affinity, Related(column.expand(len(z), -1), others)).values for column in columns], dim=1)


def test_D_1_1() -> None:
    z = LINE.clone().requires_grad_()
    printed = [[0, 0.99966465, 3.3535013e-4], [0.952574127, 0, 0.0474258732], [6.69285092e-3, 0.993307149, 0]]
    near(chances(z), printed, 5e-9)
    error = NCA("expected")
    loss = error(z, CLASSES, reduction="sum") - len(z)
    near(loss, -1.952238776691967, 1e-15)
    near(error(z, CLASSES), 0.349253741102678, 1e-15)
    gradient = torch.autograd.grad(loss, z)[0]
    near(gradient, [-0.08901237, 0.27173043, -0.18271806], 5e-9)
    near(gradient.sum(), 0.0, 1e-15)
    log = NCA()
    values = log(z, CLASSES, reduction="none")
    near(values[0], 3.3541e-4, 5e-9)
    near(values[1], 0.04858735, 5e-9)
    assert log.last.skipped_mask.tolist() == [False, False, True]
    near(error(z, CLASSES, reduction="none")[2], 1.0, 1e-15)


def test_D_1_2() -> None:
    z, y = drawn(), [i % 3 for i in range(12)]
    leaf = z.clone().requires_grad_()
    loss = NCA("expected")(leaf, y, reduction="sum")
    found = torch.autograd.grad(loss, leaf)[0]
    near(found, gradients.nca_17(z, y), 1e-12)
    near(found, -gradients.nca_18(z, y), 1e-12)
    p = chances(z)
    near(p.sum(1), torch.ones(12), 1e-14)
    assert (p.diagonal() == 0).all()
    near(found.sum(0), torch.zeros(3), 1e-14)
    turn = torch.linalg.qr(drawn(3, 3, 1)).Q
    near(NCA("expected")(z @ turn + 7, y, reduction="sum"), loss.detach(), 1e-12)
    nearest = torch.cdist(z, z).fill_diagonal_(math.inf).argmin(1)
    hard_error = sum(y[i] != y[int(nearest[i])] for i in range(12)) / 12
    near(NCA("expected")(1e4 * z, y), hard_error, 1e-12)


def test_D_1_3() -> None:
    z, y = drawn(), [i % 3 for i in range(12)]
    leaf = z.clone().requires_grad_()
    found = torch.autograd.grad(NCA("expected")(leaf, y), leaf)[0]
    assert gradients.nca_error_5(z, y, printed=True).abs().max() < 1e-15
    assert found.abs().max() > 1e-3


def test_D_1_4() -> None:
    """e_NCA = 1 + L_NCA / N, with L_NCA = -sum of p_ij over the same class, summed here by hand."""
    z, y = drawn(), [i % 3 for i in range(12)]
    p = gradients.chances(z)
    loss = -sum(p[i, j] for i in range(12) for j in range(12) if y[i] == y[j])
    near(NCA("expected")(z, y), 1 + loss / 12, 1e-14)


def test_D_1_5() -> None:
    far = torch.tensor([[0.0], [20.0], [25.0]])
    naive = SquaredEuclidean()(far, far).exp().fill_diagonal_(0)
    assert (naive[0] / naive[0].sum()).isnan().all()
    assert NCA()(far, [0, 0, 1], reduction="none")[0] == 0
    assert NCA()(far, [0, 1, 0], reduction="none")[0] == 225
    z, y = torch.tensor([[0.0], [1.0], [20.0], [21.0]], requires_grad=True), [0, 1, 0, 1]
    loss = NCA()(z, y)
    assert loss == 399
    near(torch.autograd.grad(loss, z)[0], [-19.0, -21.0, 21.0, 19.0], 1e-5)
    flat = NCA("expected")(z, y)
    assert flat == 1
    assert (torch.autograd.grad(flat, z)[0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_D_1_6(dtype: torch.dtype) -> None:
    """Squared distances never dip below zero, and self is masked: subtracting its 1 from the sum would leave nothing."""
    z = (drawn(64, 8) + 100).to(dtype)
    z = torch.cat([z, z[:8]])  # identical pairs
    near_itself = SquaredEuclidean()(z.float(), z.float())
    assert (near_itself <= 0).all()
    labels = torch.arange(72) % 4
    rows = o.scalars(z[-12:].double())
    crowd = o.Crowd(rows, labels[-12:].tolist(), range(12))
    expected = [float(value) for value, _ in o.nca_log(crowd, crowd, o.minus_squared())]
    near(NCA()(z[-12:], labels[-12:], reduction="none"), expected, 1e-5)
    apart = torch.tensor([[0.0], [12.0], [24.0]], dtype=dtype, requires_grad=True)
    loss = NCA()(apart, [0, 0, 1])  # exp(-144) next to self's 1; the middle point is as far from either
    assert loss.dtype == torch.float32
    near(loss, math.log(2) / 2, 1e-5)
    assert torch.autograd.grad(loss, apart)[0].isfinite().all()


def test_D_2_1() -> None:
    z, y = LINE.clone().requires_grad_(), LINE[:, 0]
    loss = NCARegression()(z, y, reduction="sum")
    near(loss, 6.178424675197857, 2e-15)
    near(NCARegression()(z, y, reduction="none"), [1.0026828, 1.14227762, 4.03346425], 5e-8)
    near(torch.autograd.grad(loss, z)[0], [-0.06089065, 0.68558254, -0.62469189], 5e-9)


def test_D_2_2() -> None:
    x, y, a = drawn(12, 4), drawn(12, 2, 1), drawn(3, 4, 2).requires_grad_()
    z = (x @ a.T).detach().requires_grad_()
    found = torch.autograd.grad(NCARegression()(z, y, reduction="sum"), z)[0]
    near(found, gradients.ncar_26(z.detach(), y), 1e-11)
    linear = torch.autograd.grad(NCARegression()(x @ a.T, y, reduction="sum"), a)[0]
    near(linear, sum(torch.outer(found[k], x[k]) for k in range(12)), 1e-11)
    assert (found - gradients.ncar_22(z.detach(), y, printed=True)).abs().max() > 0.1


def test_D_2_3() -> None:
    z, y = drawn(), torch.arange(12) % 3
    graded = NCARegression()(z, math.sqrt(0.5) * torch.nn.functional.one_hot(y).double(), reduction="sum")
    near(graded, 12 * NCA("expected")(z, y), 1e-13)


def test_D_2_4() -> None:
    """A constant c_i on row i of the costs adds sum(c) to the loss and nothing to the gradient."""
    z, y, extra = drawn().requires_grad_(), drawn(12, 2, 4), drawn(12, 1, 3)
    affinity = SquaredEuclidean()(z, z)
    batch = Points(z, y, torch.arange(12))
    cost, candidate = LabelDistance()(batch, batch)
    plain = expected_cost(affinity, Related(cost, candidate)).values.sum()
    shifted = expected_cost(affinity, Related(cost + extra, candidate)).values.sum()
    near(shifted - plain, extra.sum(), 1e-13)
    found, expected = (torch.autograd.grad(loss, z, retain_graph=True)[0] for loss in (shifted, plain))
    near(found, expected, 1e-13)
