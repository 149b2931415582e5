"""Numeric and semantic traps of metric-learning code, numbered: underflow, epsilons, leaks of self, state, half precision."""

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nearkin.compose.affinity import Normalized, SquaredEuclidean, cosine, unit
from nearkin.compose.criterion import any_positive
from nearkin.compose.points import Points
from nearkin.compose.references import InBatch, MemoryBank
from nearkin.compose.references.anchors import simplex
from nearkin.compose.relation import SameLabel
from nearkin.objectives import (
    NCA,
    Angular,
    CenterLoss,
    Contrastive,
    Hinge,
    InstanceDiscrimination,
    LargeMarginSoftmax,
    LiftedStructure,
    NCARegression,
    NearestClassMean,
    NeighborhoodDiscovery,
    NeighborhoodObjective,
    NormalizedSoftmax,
    NPair,
    PrecisionAtK,
    ProxyNCA,
    Softmax,
    Triplet,
)
from tests.largest_tensor import Largest

LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
IN_BATCH: dict[str, Callable[[], Any]] = {
    "nca": NCA,
    "nca expected": lambda: NCA("expected"),
    "nca cosine": lambda: NCA(temperature=0.05, metric="cosine"),
    "ncar": NCARegression,
    "contrastive": Contrastive,
    "uniform": lambda: Triplet("uniform"),
    "hard": lambda: Triplet("hard"),
    "semi-hard": Triplet,
    "misplaced": lambda: Triplet("misplaced", k=2),
    "precision@k": lambda: PrecisionAtK(2),
}
HEADS: dict[str, Callable[[], Any]] = {
    "softmax": lambda: Softmax(3, 4),
    "hinge": lambda: Hinge(3, 4),
    "proxy-nca": lambda: ProxyNCA(3, 4),
    "proxy-nca softmax": lambda: ProxyNCA(3, 4, "softmax"),
    "normalized softmax": lambda: NormalizedSoftmax(3, 4),
    "l-softmax": lambda: LargeMarginSoftmax(3, 4, base=10.0),
    "ncm": lambda: NearestClassMean(simplex(3, 4)),
    "ncm cosine": lambda: NearestClassMean(simplex(3, 4), "cosine"),
}
OTHERS: dict[str, Callable[[], Any]] = {"npair": NPair, "lifted": LiftedStructure, "angular": Angular, "center": lambda: CenterLoss(3, 4)}


def points(n: int = 8, d: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def gradient(objective: nn.Module, x: Tensor, *labels: Any, **options: Any) -> Tensor:
    x = x.detach().clone().requires_grad_()
    objective(x, *labels, **options).backward()
    assert x.grad is not None
    return x.grad


def plain_nca(x: Tensor, labels: Tensor) -> Tensor:
    """-log p_i in float64 from differences, the definition."""
    square = (x.double()[:, None] - x.double()[None]).square().sum(2).fill_diagonal_(math.inf)
    same = labels[:, None] == labels[None]
    return torch.logsumexp(-square, 1) - torch.logsumexp(torch.where(same, -square, -math.inf), 1)


# A. soft neighbors


def test_trap_01_underflow_does_not_drop_the_worst_points() -> None:
    # Four of the six have a wrong neighbor at 0 and their right one 100 away.
    x, y = torch.tensor([[0.0], [100.0], [0.0], [100.0], [50.0], [50.0]]), [0, 0, 1, 1, 2, 2]
    objective = NCA()
    assert float(objective(x, y)) == pytest.approx(6666.667, abs=0.01) and objective.last.valid == 6
    grad = gradient(objective, x, y)
    assert torch.isfinite(grad).all() and grad[:4].ne(0).all()


@pytest.mark.parametrize("distance", [20.0, 1e2, 1e4])
def test_trap_01_distance_1e4_is_finite_with_the_right_gradient(distance: float) -> None:
    x, y = distance * points(), LABELS
    torch.testing.assert_close(NCA()(x, y, reduction="none").double(), plain_nca(x, y), rtol=2e-6, atol=1e-6)
    exact = x.double().requires_grad_()
    plain_nca(exact, y).mean().backward()
    torch.testing.assert_close(gradient(NCA(), x, y).double(), exact.grad, rtol=2e-5, atol=1e-5 * distance)


def test_trap_02_the_loss_is_not_capped_by_an_epsilon_and_masks_batch_against_bank() -> None:
    x, y = torch.tensor([[0.0], [11.0], [1.0], [10.0]]), torch.tensor([0, 0, 1, 1])
    assert float(NCA()(x, y)) > 20.8 and float(NCA(temperature=0.01)(x, y)) > 2000
    ids = torch.tensor([4, 5, 6, 7])
    bank = Points(torch.cat([points(4, 1), x]), torch.cat([torch.tensor([2, 2, 2, 2]), y]), torch.arange(8))
    values = NCA()(x, y, ids=ids, references=bank, reduction="none")  # (4, 8), self in columns 4..7
    whole = NCA()(bank.embeddings, bank.labels, reduction="none")
    torch.testing.assert_close(values, whole[4:])


def test_trap_03_the_expected_form_has_a_plateau_and_the_log_form_has_none() -> None:
    x, y = 1000 * torch.tensor([[0.0], [1.0], [20.0], [21.0]]), [0, 1, 0, 1]
    assert float(NCA("expected")(x, y)) == 1 and not gradient(NCA("expected"), x, y).any()
    torch.testing.assert_close(gradient(NCA(), x, y)[:, 0], 1000 * torch.tensor([-19.0, -21.0, 21.0, 19.0]))


def test_trap_04_the_floor_of_unit_vectors_is_the_temperatures_doing() -> None:
    perfect, labels = torch.eye(64).repeat_interleave(4, 0), torch.arange(64).repeat_interleave(4)

    def on_the_sphere(temperature: float) -> float:
        affinity = Normalized(SquaredEuclidean(temperature))
        return float(NeighborhoodObjective(InBatch(), affinity, SameLabel(), any_positive)(perfect, labels))

    assert on_the_sphere(1.0) == pytest.approx(math.log(1 + 84 * math.exp(-2)), abs=1e-5)  # 2.52
    assert on_the_sphere(0.05) < 1e-9 and float(NCA()(10 * perfect, labels)) < 1e-9


@pytest.mark.parametrize("name", [*sorted(IN_BATCH.keys() - {"nca expected", "ncar", "contrastive"}), "npair", "lifted", "angular"])
def test_trap_05_no_positives_anywhere_is_a_zero_with_a_graph(name: str) -> None:
    objective, x = (IN_BATCH | OTHERS)[name](), points().requires_grad_()
    loss = objective(x, torch.arange(8))
    loss.backward()
    assert loss == 0 and x.grad is not None and not x.grad.any()
    assert objective.last.valid == 0 and objective.last.skipped == 8 and objective.last.skipped_mask.all()


def test_trap_05_a_row_without_positives_is_reported_and_float_labels_are_an_error() -> None:
    objective, y = NCA(), torch.tensor([0, 0, 1, 1, 2, 2, 3, 4])
    values = objective(points(), y, reduction="none")
    assert objective.last.skipped_mask.tolist() == [False] * 6 + [True] * 2 and objective.last.valid == 6
    torch.testing.assert_close(objective(points(), y), values[:6].mean())
    with pytest.raises(TypeError, match=r"labels have dtype torch.float32; classes must be integers. For numbers use NCARegression"):
        objective(points(), y.float())


@pytest.mark.parametrize("name", IN_BATCH)
def test_trap_06_a_sample_drawn_twice_is_not_its_own_positive(name: str) -> None:
    x, y, ids = points().double(), LABELS, torch.arange(8)
    doubled, objective = torch.tensor([0, *range(8)]), IN_BATCH[name]()  # sample 0 stands in the batch twice
    values = objective(x[doubled], y[doubled], ids=ids[doubled], reduction="none")
    alone = objective(x, y, reduction="none")
    torch.testing.assert_close(values[:2], alone[[0, 0]])
    if name.startswith("nca"):
        unknown = objective(x[doubled], y[doubled], reduction="none")
        assert (unknown[:2] < 0.99 * alone[0]).all(), "without ids the copy would be the nearest neighbor"


@pytest.mark.parametrize("name", IN_BATCH)
@pytest.mark.parametrize("twin", [torch.clone, lambda x: x.view_as(x), lambda x: x + 0], ids=["clone", "view", "sum"])
def test_trap_07_and_09_references_equal_to_the_batch_change_nothing(name: str, twin: Callable[[Tensor], Tensor]) -> None:
    objective, ids = IN_BATCH[name](), torch.tensor([5, 3, 8, 1, 9, 2, 7, 4])
    first, second = (points().double().requires_grad_() for _ in range(2))
    one = objective(first, LABELS)
    two = objective(second, LABELS, ids=ids, references=Points(twin(second), LABELS, ids))
    torch.testing.assert_close(two, one)
    one.backward(), two.backward()
    torch.testing.assert_close(second.grad, first.grad)


# B. banks


def supervised_bank(x: Tensor) -> NeighborhoodObjective:
    bank = MemoryBank(len(x), x.shape[1], labels=LABELS).to(x.dtype)
    bank.vectors.copy_(unit(x))
    return NeighborhoodObjective(bank, cosine(0.05), SameLabel(), any_positive)


def test_trap_08_a_bank_that_holds_the_batch_equals_the_batch() -> None:
    x, ids = points().double(), torch.arange(8)
    expected = NCA(temperature=0.05, metric="cosine")(x, LABELS, reduction="none")
    assert expected.mean() > 1, "a leak of self would bring this near zero"
    torch.testing.assert_close(supervised_bank(x)(x, LABELS, ids=ids, reduction="none"), expected)
    some = torch.tensor([6, 1, 4])
    torch.testing.assert_close(supervised_bank(x)(x[some], LABELS[some], ids=ids[some], reduction="none"), expected[some])


@pytest.mark.parametrize("make", [lambda: InstanceDiscrimination(8, 4), lambda: NeighborhoodDiscovery(8, 4, k=2)])
def test_trap_10_a_bank_resumes_bit_for_bit(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    before, ids = make(), torch.tensor([7, 0, 3])
    if isinstance(before, NeighborhoodDiscovery):
        before.trust(torch.randint(8, (8, 2)), torch.arange(8) < 5)
    before.update(points(3), ids=ids)
    file = io.BytesIO()
    torch.save(before.state_dict(), file)
    file.seek(0)
    after = make()
    after.load_state_dict(torch.load(file, weights_only=True))
    for step in range(3):  # and continues alike
        x = points(3, seed=step)
        assert torch.equal(before(x, ids=ids), after(x, ids=ids))
        before.update(x, ids=ids), after.update(x, ids=ids)
    assert torch.equal(before.references.vectors, after.references.vectors)


def test_trap_11_forward_backward_accumulation_and_evaluation_leave_the_state_alone() -> None:
    ids = torch.arange(8)
    for objective in (InstanceDiscrimination(8, 4), NeighborhoodDiscovery(8, 4), CenterLoss(3, 4), LargeMarginSoftmax(3, 4)):
        state = copy.deepcopy(objective.state_dict())
        x = points().requires_grad_()
        for half in (slice(0, 4), slice(4, 8)):  # gradient accumulation
            objective(x[half], LABELS[half], ids=ids[half]).backward()
        with torch.no_grad():
            objective(x, LABELS, ids=ids)
        assert all(torch.equal(value, state[name]) for name, value in objective.state_dict().items())


def test_trap_11_an_update_before_backward_does_not_change_the_gradient() -> None:
    for objective in (InstanceDiscrimination(8, 4), CenterLoss(3, 4)):
        twin, ids = copy.deepcopy(objective), torch.arange(8)
        x = points().requires_grad_()
        loss = objective(x, LABELS, ids=ids)
        objective.update(x, LABELS, ids=ids)
        loss.backward()
        torch.testing.assert_close(x.grad, gradient(twin, points(), LABELS, ids=ids))


def test_trap_11_the_bank_starts_at_unit_length_and_sharp_temperatures_stay_finite() -> None:
    torch.manual_seed(0)
    normalized, released = MemoryBank(200, 16).vectors, MemoryBank(200, 16, start="released").vectors
    torch.testing.assert_close(normalized.norm(dim=1), torch.ones(200))
    assert float(released.square().sum(1).mean()) == pytest.approx(1, abs=0.05) and float(released.norm(dim=1).std()) > 0.05
    grad = gradient(InstanceDiscrimination(8, 4, temperature=1e-4), points(), ids=torch.arange(8))
    assert torch.isfinite(grad).all() and grad.any()


def test_trap_12_precision_at_k_needs_no_sorted_batch_and_a_singleton_shifts_no_other() -> None:
    x, y = points().double(), torch.tensor([4, 0, 2, 0, 2, 2, 0, 7])  # 4 and 7 stand alone
    objective = PrecisionAtK(2)
    order = torch.argsort(y)
    torch.testing.assert_close(objective(x[order], y[order], reduction="none"), objective(x, y, reduction="none")[order])
    assert objective.penalty is None and objective.last.skipped_mask.tolist() == [True, *[False] * 6, True]
    hidden = PrecisionAtK(2, covariance=0.1)
    assert float(hidden(x, y) - objective(x, y)) == pytest.approx(float(hidden.penalty(x)), rel=1e-9)


# C. class vectors and the rest


def test_trap_13_both_forms_of_proxy_nca_by_their_equations() -> None:
    torch.manual_seed(0)
    published, softmax = ProxyNCA(3, 4, temperature=1.0), ProxyNCA(3, 4, "softmax", temperature=1.0)
    softmax.load_state_dict(published.state_dict())
    x = points()
    square = torch.cdist(unit(x), unit(published.references.vectors.detach())).square()
    own = torch.nn.functional.one_hot(LABELS, 3).bool()
    right = square[own]
    others = torch.logsumexp(-square.masked_fill(own, math.inf), 1)
    torch.testing.assert_close(published(x, LABELS, reduction="none"), right + others)
    torch.testing.assert_close(softmax(x, LABELS, reduction="none"), right + torch.logsumexp(-square, 1))
    assert published(x, LABELS) < softmax(x, LABELS)


def test_trap_14_an_affinity_is_largest_at_the_own_class() -> None:
    torch.manual_seed(1)
    for objective in (ProxyNCA(5, 8), NormalizedSoftmax(5, 8), NearestClassMean(simplex(5, 8)), NearestClassMean(simplex(5, 8), "cosine")):
        vectors = objective.references.vectors.detach()
        assert objective.affinity(vectors, vectors).argmax(1).tolist() == list(range(5))
    assert objective.predict(vectors).tolist() == list(range(5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [*IN_BATCH, *HEADS, *OTHERS])
def test_trap_15_half_precision_stays_outside(name: str, dtype: torch.dtype) -> None:
    """The inputs' rounding is all that is lost: the result equals that of the rounded inputs in float64, to 2e-5."""
    torch.manual_seed(0)
    objective = (IN_BATCH | HEADS | OTHERS)[name]()
    x = points().to(dtype)
    exact = copy.deepcopy(objective).double()(x.double(), LABELS)
    inside = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective(inside, LABELS)
    loss.backward()
    assert loss.dtype == torch.float32 and torch.equal(loss, objective(x, LABELS))
    torch.testing.assert_close(loss.double(), exact, rtol=2e-5, atol=1e-6)
    assert inside.grad.dtype == dtype and torch.isfinite(inside.grad).all()
    assert all(t.dtype == torch.float32 for t in objective.state_dict().values() if t.is_floating_point())
    assert all(p.grad.dtype == torch.float32 for p in objective.parameters())


@pytest.mark.parametrize("name", [*HEADS, *OTHERS, *IN_BATCH])
def test_trap_16_a_small_step_against_the_gradient_lowers_the_loss(name: str) -> None:
    torch.manual_seed(0)
    objective, x = (IN_BATCH | HEADS | OTHERS)[name]().double(), points().double()
    step = 1e-4 * gradient(objective, x, LABELS)
    assert objective(x - step, LABELS) < objective(x, LABELS) < objective(x + step, LABELS)


@pytest.mark.parametrize("normalize", [True, False])
def test_trap_17_a_collapsed_embedding_pays_the_contrastive_margin(normalize: bool) -> None:
    y = torch.arange(4).repeat(2)
    assert float(Contrastive(1.0, normalize)(torch.ones(8, 4), y)) == pytest.approx(6 / 7)  # 6 of 7 pairs are wrong


def test_trap_18_the_angular_loss_normalizes_negatives_too() -> None:
    values = [float(Angular()(scale * points(), LABELS)) for scale in (0.1, 1.0, 10.0)]
    assert values == pytest.approx([values[1]] * 3, rel=1e-5)


@pytest.mark.parametrize(("classes", "each"), [(3, 4), (2, 6)])
def test_trap_19_shuffled_batches_of_any_shape_have_the_same_value(classes: int, each: int) -> None:
    x, y = points(12), torch.arange(classes).repeat_interleave(each)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    for name, make in IN_BATCH.items():
        objective = make()
        torch.testing.assert_close(objective(x[order], y[order]), objective(x, y), msg=name)


@pytest.mark.parametrize("make", [LiftedStructure, Angular, lambda: Triplet("uniform")], ids=["lifted", "angular", "triplet"])
def test_trap_20_a_batch_of_1024_never_needs_more_than_pairs(make: Callable[[], Any]) -> None:
    x, y = points(1024, 16).requires_grad_(), torch.arange(256).repeat(4)
    with Largest() as largest:
        make()(x, y).backward()
    assert 1024**2 <= largest.numel <= 1.01 * 1024**2 and torch.isfinite(x.grad).all()


def test_trap_21_batch_hard_makes_up_neither_positives_nor_negatives() -> None:
    x, y = points(), torch.tensor([0, 0, 0, 1, 1, 1, 2, 3])
    objective = Triplet("hard")
    values = objective(x, y, reduction="none")
    assert objective.last.skipped_mask.tolist() == [False] * 6 + [True] * 2 and not values[6:].any()
    perfect = torch.eye(4).repeat_interleave(2, 0)
    assert all(float(Triplet(choice)(perfect, [0, 0, 1, 1, 2, 2, 3, 3])) == 0 for choice in ("hard", "semi-hard", "uniform"))


def test_trap_22_the_unit_vector_has_no_radial_gradient_and_zero_is_safe() -> None:
    x = points().double().requires_grad_()
    (unit(x) * points(seed=1).double()).sum().backward()
    torch.testing.assert_close((x.grad * x).sum(1), torch.zeros(8, dtype=torch.float64))
    zero = torch.zeros(2, 4, requires_grad=True)
    unit(zero).sum().backward()
    assert torch.isfinite(zero.grad).all() and zero.grad.abs().max() <= 1 and not unit(zero).any()
    objective = PrecisionAtK(1)
    assert float(objective(points(), torch.arange(8))) == 0 and objective.last.valid == 0, "self is no hit"


def test_trap_23_k_as_large_as_the_class_makes_no_point_its_own_neighbor() -> None:
    x, y = torch.tensor([[1.0, 0], [0, 1], [1, 0.1], [0.1, 1]]), [0, 0, 1, 1]  # every nearest neighbor is wrong
    objective = PrecisionAtK(2, margin=0.1)
    cosines = cosine()(x, x)
    values = objective(x, y, reduction="none")
    # The two wrong ones are inside; the best two are the one right one there is and the nearer wrong one.
    assert float(values[0]) == pytest.approx(float(cosines[0, 3] + 0.1 - cosines[0, 1]), abs=1e-6)
    assert objective.last.active == 4 and (values > 0).all()


# D and E, as far as they concern objectives


@pytest.mark.parametrize("base", [2**24, 2**53, -(2**40)])
def test_trap_27_labels_and_ids_beyond_float_precision_stay_apart(base: int) -> None:
    x, small = points(), LABELS
    for make in (NCA, PrecisionAtK, Triplet, Contrastive, LiftedStructure, NPair, Angular):
        torch.testing.assert_close(make()(x, small + base), make()(x, small))
    ids = torch.arange(8) + base
    clone = Points(x.clone(), small, ids)
    torch.testing.assert_close(NCA()(x, small, ids=ids, references=clone), NCA()(x, small))


@pytest.mark.parametrize("name", ["nca", "nca expected", "ncar", "lifted"])
def test_trap_36_an_offset_of_100_costs_no_digits(name: str) -> None:
    objective, x = (IN_BATCH | OTHERS)[name](), points() + 100
    exact = gradient(objective, x.double(), LABELS)
    error = (gradient(objective, x, LABELS).double() - exact).norm() / exact.norm()
    assert error < 1e-5, "the expansion without a shift is off by 1e-3 here"
