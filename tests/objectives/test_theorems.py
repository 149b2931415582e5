"""What the papers prove, and what follows from them, checked against the code: bounds, identities, hand gradients."""

import math
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from nearkin.compose.affinity import InnerProduct
from nearkin.compose.criterion import BestK, any_positive
from nearkin.compose.references import InBatch
from nearkin.compose.relation import ListedNeighbors, Related, SameId
from nearkin.objectives import (
    NCA,
    CenterLoss,
    CenterPull,
    Hinge,
    InstanceDiscrimination,
    LargeMarginSoftmax,
    NCARegression,
    NearestClassMean,
    NeighborhoodDiscovery,
    NeighborhoodObjective,
    PrecisionAtK,
    Softmax,
)
from tests import gradients
from tests.batches import BANK, Batch, batches


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=tolerance, atol=tolerance)


def slope(loss: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(loss, x)[0]


# Rows of quarters are exact in binary, so that ties and margins of 1/4 are what they seem.
rows = st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=2, max_size=9).filter(lambda row: any(right for _, right in row))


def row_of(row: list[tuple[int, bool]]) -> tuple[Tensor, Related, list[float], list[float]]:
    s = torch.tensor([[value / 4 for value, _ in row]], dtype=torch.float64)
    cost = torch.tensor([[float(not right) for _, right in row]], dtype=torch.float64)
    right = sorted((value / 4 for value, is_right in row if is_right), reverse=True)
    wrong = sorted((value / 4 for value, is_right in row if not is_right), reverse=True)
    return s, Related(cost, torch.ones_like(cost, dtype=torch.bool)), right, wrong


def wrong_in_top(right: list[float], wrong: list[float], k: int, unlucky: bool = True) -> int:
    """How many of exactly k nearest are wrong; between tied ones the unlucky order puts the wrong first."""
    order = sorted([(-s, unlucky, False) for s in right] + [(-s, not unlucky, True) for s in wrong])
    return sum(is_wrong for *_, is_wrong in order[:k])


@given(row=rows, k=st.integers(1, 9), margin=st.sampled_from([0.25, 0.1, 1.0]))
def test_theorem_1_of_lu2019(row: list[tuple[int, bool]], k: int, margin: float) -> None:
    """gap >= margin * (wrong ones in the top k) - margin * max(k - n+, 0), however ties fall."""
    s, relation, right, wrong = row_of(row)
    k = min(k, len(row))
    gap = float(BestK(k, margin)(s, relation).values[0])
    for unlucky in (True, False):
        assert gap >= margin * (wrong_in_top(right, wrong, k, unlucky) - max(k - len(right), 0)) - 1e-12


@given(row=rows, k=st.integers(1, 9))
def test_theorem_2_of_lu2019(row: list[tuple[int, bool]], k: int) -> None:
    """When the best k lead by the margin, the gap is zero and only unavoidable wrong ones are in the top k."""
    margin, k = 0.25, min(k, len(row))
    _, _, right, wrong = row_of(row)
    best = min(k, len(right))
    first = k - best  # the nearest wrong one that must stay outside
    lead = right[best - 1] - wrong[first] if first < len(wrong) else math.inf
    shift = round(4 * max(margin - lead, 0.0))  # grants the premise, exactly at its edge when it was not met
    s, relation, right, wrong = row_of([(value + shift * is_right, is_right) for value, is_right in row])
    assert float(BestK(k, margin)(s, relation).values[0]) == 0
    assert wrong_in_top(right, wrong, k) == max(k - len(right), 0)


@given(n=st.integers(2, 12), positives=st.integers(1, 12), k=st.integers(1, 12))
def test_theorem_1_needs_exactly_k(n: int, positives: int, k: int) -> None:
    """All tied: the gap is margin * (right ones that could be inside); counting every tie as top k breaks the bound."""
    positives, k = min(positives, n), min(k, n)
    s, relation, _, _ = row_of([(2, j < positives) for j in range(n)])
    gap = float(BestK(k, 0.25)(s, relation).values[0])
    assert gap == pytest.approx(0.25 * (min(k, n - positives) - max(k - positives, 0)))
    tied = n - positives  # the printed >= puts all of the wrong ones into the top k
    if tied > k:
        assert gap < 0.25 * (tied - max(k - positives, 0))


@given(row=rows, margin=st.sampled_from([0.1, 0.5]))
def test_precision_at_1_is_the_easy_positive_hard_negative_hinge(row: list[tuple[int, bool]], margin: float) -> None:
    s, relation, right, wrong = row_of(row)
    expected = max(wrong[0] + margin - right[0], 0) if wrong else 0.0
    assert float(BestK(1, margin)(s, relation).values[0]) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_where_all_scores_are_equal_weston_watkins_pulls_as_a_softmax_does_and_crammer_singer_does_not(classes: int) -> None:
    """Why a hinge against one class for each query stays there when there are many classes."""
    z, labels = torch.randn(3 * classes, 4, dtype=torch.float64), list(range(classes)) * 3

    def slopes(objective: NeighborhoodObjective) -> Tensor:
        objective.double()
        vectors, bias = objective.parameters()
        torch.nn.init.zeros_(vectors), torch.nn.init.zeros_(bias)
        return slope(objective(z, labels), vectors)

    softmax, hardest = slopes(Softmax(classes, 4)), slopes(Hinge(classes, 4))
    close(slopes(Hinge(classes, 4, "weston-watkins")) * (classes - 1) / classes, softmax)
    assert torch.allclose(hardest / 2, softmax) == (classes == 2)


@given(batches())
def test_weston_watkins_is_torchs_multi_margin_loss_up_to_its_divisor(b: Batch) -> None:
    objective = Hinge(7, b.z.shape[1], "weston-watkins", 0.7).double()
    vectors, bias = objective.parameters()
    labels = torch.as_tensor(b.labels) % 7
    scores = b.z @ vectors.T + bias
    close(objective(b.z, labels), torch.nn.functional.multi_margin_loss(scores, labels, margin=0.7) * 7 / 6)


def test_a_large_margin_is_half_in_after_some_8700_steps() -> None:
    """base (1 + gamma t)^-power = 1 at t = (base^(1 / power) - 1) / gamma; a training that is shorter hardly meets the margin."""
    half = (1000 ** (1 / 35) - 1) / 2.5e-5
    assert 8_700 < half < 8_800
    found = LargeMarginSoftmax(2, 2).annealed(torch.tensor([0.0, half], dtype=torch.float64))
    assert found.tolist() == pytest.approx([1000.0, 1.0])


@given(batches())
def test_nca_gradients_of_taylor2010(b: Batch) -> None:
    """Eq. (17) = eq. (18*) = autograd of sum of 1 - p_i, which is L_NCA + N."""
    z = b.z.clone().requires_grad_()
    found = slope(NCA("expected")(z, b.labels, reduction="sum"), z)
    close(found, gradients.nca_17(b.z, b.labels))
    close(found, -gradients.nca_18(b.z, b.labels))


@given(batches())
def test_nca_gradient_of_ren2014(b: Batch) -> None:
    """Eq. (5*); eq. (5)-(6) as printed are identically zero, and ours are not."""
    z = b.z.clone().requires_grad_()
    found = slope(NCA("expected")(z, b.labels), z)
    close(found, gradients.nca_error_5(b.z, b.labels))
    close(gradients.nca_error_5(b.z, b.labels, printed=True), torch.zeros_like(b.z))


def test_the_printed_zero_of_ren2014_is_not_ours() -> None:
    z = torch.randn(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = [i % 3 for i in range(12)]
    assert gradients.nca_error_5(z.detach(), y, printed=True).abs().max() < 1e-15
    assert slope(NCA("expected")(z, y), z).abs().max() > 0.01


@given(batches())
def test_nca_regression_gradients_of_taylor2010(b: Batch) -> None:
    """Eq. (26), and eq. (22) once its last sum is corrected, equal autograd."""
    z = b.z.clone().requires_grad_()
    found = slope(NCARegression()(z, b.targets, reduction="sum"), z)
    close(found, gradients.ncar_26(b.z, b.targets), 1e-11)
    close(found, gradients.ncar_22(b.z, b.targets, printed=False), 1e-11)


def test_equation_22_as_printed_is_not_ours() -> None:
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(12, 2, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.randn(12, 2, dtype=torch.float64, generator=generator)
    found = slope(NCARegression()(z, y, reduction="sum"), z)
    close(found, gradients.ncar_22(z.detach(), y, printed=False), 1e-11)
    assert (found - gradients.ncar_22(z.detach(), y, printed=True)).abs().max() > 0.1


@given(batches())
def test_a_linear_map_learns_by_equation_27(b: Batch) -> None:
    """dL/dA = sum_k (dL/dz_k) x_k^T for z = A x."""
    a = torch.arange(2.0 * b.d, dtype=torch.float64).sub(2).reshape(2, b.d).div(3).requires_grad_()
    found = slope(NCARegression()(b.z @ a.T, b.targets, reduction="sum"), a)
    by_point = gradients.ncar_26(b.z @ a.detach().T, b.targets)
    close(found, sum(torch.outer(by_point[k], b.z[k]) for k in range(len(b.z))), 1e-10)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_ncm_gradient_of_hao2018(metric: Any) -> None:
    @given(batches())
    def run(b: Batch) -> None:
        f = (b.z + 0.1234).requires_grad_()  # off the anchors and off the origin
        anchors = b.anchors() + 0.01
        close(
            slope(NearestClassMean(anchors, metric, scale=1.0)(f, b.labels), f),
            gradients.ncm_6(f.detach(), b.labels, anchors, metric),
            1e-11,
        )

    run()


@given(b=batches(), i=st.integers(0, BANK - 1), temperature=st.sampled_from([0.1, 0.5, 1.0]))
def test_discovery_gradients_of_huang2019(b: Batch, i: int, temperature: float) -> None:
    """Eq. (9), (10*) and (11): all samples live, so that x_i is both the query and one of the references."""
    x = b.bank.clone().requires_grad_()
    listed = ListedNeighbors(BANK, 2)
    listed.update(b.table, b.trusted)
    for relation, right in ((SameId(), set()), (listed, set(b.table[i].tolist()) if b.trusted[i] else set())):
        objective = NeighborhoodObjective(InBatch(), InnerProduct(temperature), relation, any_positive)
        found = slope(objective(x, ids=range(BANK), reduction="none")[i], x)
        close(found, gradients.discovery_9_10_11(b.bank, i, right - {i}, temperature), 1e-11)


@given(batches())
def test_regression_on_scaled_one_hot_targets_is_the_expected_error(b: Batch) -> None:
    """With targets sqrt(1/2) one-hot, L_NCAR = N e_NCA, in value and gradient."""
    z = b.z.clone().requires_grad_()
    targets = math.sqrt(0.5) * torch.nn.functional.one_hot(torch.tensor(b.labels)).double()
    graded, error = NCARegression()(z, targets, reduction="sum"), len(z) * NCA("expected")(z, b.labels)
    close(graded, error)
    close(slope(graded, z), slope(error, z))


@given(batches())
def test_a_trusted_neighborhood_never_costs_more_than_the_instance_alone(b: Batch) -> None:
    """L_AN <= L_init; none trusted: equal; all neighbors: zero."""
    alone, together = InstanceDiscrimination(BANK, b.d).double(), NeighborhoodDiscovery(BANK, b.d, k=2).double()
    full = NeighborhoodDiscovery(BANK, b.d, k=BANK - 1).double()
    for objective in (alone, together, full):
        objective.references.vectors.copy_(b.bank)
    init = alone(b.z, ids=b.samples, reduction="none")
    close(together(b.z, ids=b.samples, reduction="none"), init)
    together.trust(b.table, b.trusted)
    assert (together(b.z, ids=b.samples, reduction="none") <= init + 1e-12).all()
    full.trust(torch.tensor([[j for j in range(BANK) if j != i] for i in range(BANK)]))
    close(full(b.z, ids=b.samples, reduction="none"), torch.zeros(len(b.z), dtype=torch.float64), 1e-9)


@given(b=batches(), scale=st.sampled_from([1.0, 5.0]))
def test_the_anchor_is_where_e_ncm_is_least(b: Batch, scale: float) -> None:
    """By the triangle inequality, for any anchors: no f costs less than the own class's anchor."""
    anchors = b.anchors()
    loss = NearestClassMean(anchors, scale=scale)
    there = loss(anchors[b.labels], b.labels, reduction="none")
    assert (loss(b.z, b.labels, reduction="none") >= there - 1e-12).all()


def trained(objective: CenterPull | CenterLoss, steps: int = 200) -> tuple[float, float]:
    """Mean squared length of the embeddings of a small linear net, before and after training."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 4
    x = torch.randn(4, 5, generator=generator)[y] + torch.randn(40, 5, generator=generator)
    a = (0.5 * torch.randn(5, 3, generator=generator)).requires_grad_()
    learned = [a, *objective.parameters()]
    before = (x @ a).square().sum(1).mean().item()
    for _ in range(steps):
        slopes = torch.autograd.grad(objective(x @ a, y), learned)
        with torch.no_grad():
            for parameter, gradient in zip(learned, slopes, strict=True):
                parameter.sub_(0.5 * gradient)
        objective.update((x @ a).detach(), y)
    return before, (x @ a).square().sum(1).mean().item()


def test_the_center_pull_alone_collapses_to_the_origin() -> None:
    before, after = trained(CenterPull(4, 3))
    assert after < 1e-3 * before
    torch.manual_seed(0)
    before, after = trained(CenterLoss(4, 3))
    assert after > before


def test_precision_at_k_is_zero_exactly_when_no_wrong_one_is_in_the_way() -> None:
    """The gap's zero set: a separated batch costs nothing, and one intruder costs at least the margin."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], dtype=torch.float64)
    assert PrecisionAtK(1)(z, [0, 0, 1, 1]) == 0
    assert (PrecisionAtK(1)(z, [0, 1, 1, 0], reduction="none") >= 0.1).all()
