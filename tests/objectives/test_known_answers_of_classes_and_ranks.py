"""Known answers, continued: Prec@k (D.4), nearest class mean (D.5) and neighborhood discovery (D.6)."""

import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nearkin.compose.affinity import InnerProduct
from nearkin.compose.criterion import BestK, any_positive, expected_cost
from nearkin.compose.margins import MarginSoftmax
from nearkin.compose.points import Points
from nearkin.compose.references import InBatch, MemoryBank
from nearkin.compose.references.anchors import circle, orthonormal, packed, simplex, smallest_angle
from nearkin.compose.relation import ListedNeighbors, Related, SameId
from nearkin.objectives import InstanceDiscrimination, NearestClassMean, NeighborhoodDiscovery, NeighborhoodObjective, PrecisionAtK
from nearkin.search import nearest
from tests import gradients
from tests import oracles as o
from tests.batches import drawn, near
from tests.compose.polar_grid import polar_grid

RANKED = [0.99, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.53, 0.5, 0.4]
FIGURE_2, FIGURE_3 = {0.99, 0.9, 0.55, 0.4}, {0.99, 0.9, 0.7, 0.55, 0.53, 0.4}


def gap(scores: list[float], right: set[float], k: int, margin: float = 0.0) -> tuple[Tensor, Tensor]:
    """The best-k gap of one row and its gradient; `right` names the right ones by their place in RANKED."""
    s = torch.tensor([scores], dtype=torch.float64, requires_grad=True)
    cost = torch.tensor([[float(value not in right) for value in RANKED]], dtype=torch.float64)
    value = BestK(k, margin)(s, Related(cost, torch.ones_like(cost, dtype=torch.bool))).values[0]
    return value, torch.autograd.grad(value, s)[0][0]


def row_gap(s: Tensor, right: Tensor, k: int, margin: float) -> Tensor:
    relation = Related((~right).to(s.dtype)[None], torch.ones_like(right)[None])
    return BestK(k, margin)(s[None], relation).values[0]


def test_D_4_1() -> None:
    value, gradient = gap(RANKED, FIGURE_2, 6)
    near(value, 0.30, 1e-12)
    assert gradient.tolist() == [0, 0, 0, 0, 1, 1, -1, 0, 0, -1]


def test_D_4_2() -> None:
    value, gradient = gap(RANKED, FIGURE_3, 5)
    near(value, 0.37, 1e-12)
    assert gradient.tolist() == [0, 0, 1, 0, 1, 0, -1, -1, 0, 0]


def test_D_4_3() -> None:
    scores = [0.99, 0.9, 0.78, 0.68, 0.63, 0.58, 0.55, 0.51, 0.48, 0.4]
    value, _ = gap(scores, FIGURE_2, 6, margin=0.02)
    near(value, 0.30, 1e-12)
    wrong_in_top_6 = sum(value not in FIGURE_2 for value in RANKED[:6])
    assert wrong_in_top_6 == 4
    assert value >= 0.02 * wrong_in_top_6 - 0.02 * 2


def test_D_4_4() -> None:
    """The closed form equals the sets, with ties, for every k and every number of right ones."""
    generator = torch.Generator().manual_seed(0)
    for n in (1, 2, 5, 8):
        for positives in range(n + 1):
            for k in range(1, n + 3):
                s = torch.randint(0, 5, (n,), generator=generator).double() / 7
                right = torch.randperm(n, generator=generator) < positives
                found = row_gap(s, right, k, 0.1)
                members = [j for j in range(n) if right[j]]
                sets = o.precision_gap(dict(enumerate(s)), members, k, 0.1) if members else 0.0
                assert found == pytest.approx(float(sets), abs=1e-12)
                assert found >= -1e-15
                if positives in (0, n) or k >= n:
                    assert abs(found) < 1e-15


def test_D_4_5() -> None:
    s, right = torch.full((10,), 0.5, dtype=torch.float64), torch.arange(10) == 0
    value = row_gap(s, right, 2, 0.1)
    near(value, 0.1, 1e-15)
    tie_inclusive = int(((s >= s.topk(2).values[-1]) & ~right).sum())
    assert tie_inclusive == 9
    assert value < 0.1 * tie_inclusive - 0.1 * (2 - 1) == pytest.approx(0.8)


def test_D_4_6() -> None:
    z = torch.ones(64, 8, dtype=torch.float64, requires_grad=True)
    values = PrecisionAtK(5, 0.1)(z, torch.arange(64) // 11, reduction="none")
    near(values, torch.full((64,), 0.5), 1e-12)
    assert torch.autograd.grad(values.sum(), z)[0].abs().max() < 1e-12


def test_D_4_7() -> None:
    z, y = drawn(30, 4), torch.arange(30) % 4
    objective = PrecisionAtK(5, 0.1)
    values = objective(z, y, reduction="none")
    rows = o.precision_at_k(o.Crowd(o.scalars(z), y.tolist(), range(30)), 5, 0.1)
    near(values, [float(value) for value, _ in rows], 1e-12)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    near(objective(z[order], y[order], reduction="none"), values[order], 1e-12)
    near(objective(z * torch.linspace(0.1, 9, 30)[:, None], y, reduction="none"), values, 1e-12)


def test_D_4_8() -> None:
    z, y = drawn(30, 4), torch.arange(30) % 4
    s = torch.nn.functional.normalize(z) @ torch.nn.functional.normalize(z).T
    same, own = y[:, None] == y, torch.eye(30, dtype=torch.bool)
    easy = s.masked_fill(~same | own, -math.inf).amax(1)
    hard = s.masked_fill(same, -math.inf).amax(1)
    near(PrecisionAtK(1, 0.1)(z, y, reduction="none"), (hard + 0.1 - easy).clamp_min(0), 1e-15)


def test_D_4_9() -> None:
    """k >= n: zero. k = n+: both cases are the same sum, which the closed form does not distinguish."""
    s = drawn(1, 9)[0]
    for positives in range(1, 10):
        right = torch.arange(9) < positives
        assert abs(row_gap(s, right, 9, 0.1)) < 1e-15
        assert abs(row_gap(s, right, 20, 0.1)) < 1e-15
        helped = s + 0.1 * (~right).double()
        inside = set(helped.topk(positives).indices.tolist())
        outside = [j for j in range(positives) if j not in inside]
        wrong = [j for j in inside if j >= positives]
        near(row_gap(s, right, positives, 0.1), helped[wrong].sum() - helped[outside].sum(), 1e-14)


CIRCLE = torch.tensor([[math.cos(math.radians(36 * c)), math.sin(math.radians(36 * c))] for c in range(10)], dtype=torch.float64)


def test_D_5_1() -> None:
    near(circle(10), CIRCLE, 1e-7)
    near(circle(10)[1], [0.809017, 0.587785], 5e-7)
    near(CIRCLE[0] @ CIRCLE[1], 0.809017, 5e-7)
    near((CIRCLE[0] - CIRCLE[1]).norm(), 0.618034, 5e-7)
    e, c = NearestClassMean(CIRCLE, scale=1.0), NearestClassMean(CIRCLE, "cosine", scale=1.0)
    near(e(CIRCLE[:1], [0]), 1.2600816268, 5e-11)
    near((-e(CIRCLE[:1], [0])).exp(), 0.2836309, 5e-8)
    near(c(CIRCLE[:1], [0]), 1.5384994519, 5e-11)
    near((-c(CIRCLE[:1], [0])).exp(), 0.2147030, 5e-8)
    zero = torch.zeros(1, 2, dtype=torch.float64)
    near(e(zero, [0]), 2.302585093, 5e-10)
    near(c(zero, [0]), math.log(10), 1e-15)


def test_D_5_2() -> None:
    f = torch.tensor([[0.3, -0.2]], dtype=torch.float64).repeat(10, 1)
    e = [2.029776, 2.23969, 2.452857, 2.604007, 2.662105, 2.61706, 2.476625, 2.268713, 2.052876, 1.941668]
    c = [1.706449, 2.191401, 2.808933, 3.323168, 3.537687, 3.37055, 2.885598, 2.268066, 1.753831, 1.539312]
    for metric, printed in (("euclidean", e), ("cosine", c)):
        objective = NearestClassMean(CIRCLE, metric, scale=1.0)
        near(objective(f, range(10), reduction="none"), printed, 5e-7)
        assert objective.predict(f[:1]).tolist() == [9]


def test_D_5_3() -> None:
    f = torch.tensor([[0.9, 0.1, 0], [0, 0, 0], [0.2, 0.5, 0.4]], dtype=torch.float64)
    anchors = torch.eye(3, dtype=torch.float64)
    e, c = NearestClassMean(anchors, scale=1.0), NearestClassMean(anchors, "cosine", scale=1.0)
    distances = [[0.14142136, 1.27279221, 1.34907376], [1, 1, 1], [1.02469508, 0.67082039, 0.80622577]]
    near(-e.affinity(f, anchors), distances, 5e-9)
    near(e(f, [0, 1, 2], reduction="none"), [0.48334479, 1.09861229, 1.08138101], 5e-9)
    near(e(f, [0, 1, 2]), 0.8877793639, 5e-11)
    near(c(f, [0, 1, 2], reduction="none"), [0.57857203, 1.09861229, 1.0657279], 5e-8)
    near(c(f, [0, 1, 2]), 0.9143040744, 5e-11)


def exact_simplex(count: int) -> Tensor:
    corners = torch.eye(count, dtype=torch.float64) - 1 / count
    return corners / corners.norm(dim=1, keepdim=True)


def test_D_5_4() -> None:
    def floor(anchors: Tensor, metric: Any, f: Tensor | None = None) -> Tensor:
        return NearestClassMean(anchors, metric, scale=1.0)(anchors[:1] if f is None else f, [0])

    for count, axes, corners in ((10, 1.15940964, 1.10754238), (100, 3.22161434, 3.21477497)):
        near(floor(torch.eye(count, dtype=torch.float64), "euclidean"), axes, 5e-9)
        near(floor(exact_simplex(count), "euclidean"), corners, 5e-9)
    anchors = torch.eye(10, dtype=torch.float64)
    best = (anchors[:1] - anchors.mean(0)).requires_grad_()
    near(floor(anchors, "cosine", best), 1.41986859, 5e-9)
    assert torch.autograd.grad(floor(anchors, "cosine", best), best)[0].abs().max() < 1e-15
    cos = torch.nn.functional.cosine_similarity(best.detach(), anchors[:1]).item()
    assert math.degrees(math.acos(cos)) == pytest.approx(18.435, abs=5e-4)
    near(floor(anchors, "cosine"), 1.46115017, 5e-9)
    near(floor(exact_simplex(10), "cosine"), 1.37693492, 5e-9)


def test_D_5_4_descent_ends_at_the_anchor() -> None:
    """A decaying step ends at a_y; a fixed one oscillates, because the slope does not shrink there."""
    anchors, f = torch.eye(4, dtype=torch.float64), torch.tensor([[0.3, -0.5, 0.8, 0.1]], dtype=torch.float64)
    objective, fixed = NearestClassMean(anchors, scale=1.0), f.clone()
    for step in range(300):
        f = f - 0.5 * 0.96**step * slope(objective, f)
        fixed = fixed - 0.5 * slope(objective, fixed)
    assert (f - anchors[:1]).norm() < 1e-4
    assert (fixed - anchors[:1]).norm() > 0.01


def slope(objective: NearestClassMean, f: Tensor) -> Tensor:
    f = f.detach().requires_grad_()
    return torch.autograd.grad(objective(f, [0]), f)[0]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_D_5_5(metric: Any) -> None:
    objective, f, y = NearestClassMean(CIRCLE, metric, scale=1.0), drawn(8, 2).requires_grad_(), [0, 3, 9, 1, 1, 5, 7, 2]
    near(torch.autograd.grad(objective(f, y), f)[0], gradients.ncm_6(f.detach(), y, CIRCLE, metric), 1e-15)
    for place in (CIRCLE[:1], torch.zeros(1, 2, dtype=torch.float64)):
        assert slope(objective, place).abs().max() < 10


def _scale(objective: NearestClassMean) -> float:
    """Of cosines and distances: temperature divides."""
    affinity = cast(Any, objective.affinity)
    return 1 / affinity.temperature


@pytest.mark.parametrize(("metric", "apart"), [("euclidean", math.sqrt(2)), ("cosine", 1.0)])
@pytest.mark.parametrize("length", [1.0, 10.0])
@pytest.mark.parametrize("count", [2, 10, 100, 200])
def test_the_default_scale_makes_a_point_at_its_anchor_99_percent_sure(metric: Any, apart: float, length: float, count: int) -> None:
    """log(99 (C - 1)) over the distance of the anchors, however long these are."""
    anchors = length * torch.eye(count, dtype=torch.float64)
    objective = NearestClassMean(anchors, metric)
    far = apart * (length if metric == "euclidean" else 1.0)
    assert _scale(objective) == pytest.approx(math.log(99 * (count - 1)) / far, rel=1e-6)
    near(objective(anchors, range(count)), -math.log(0.99), 1e-6)
    printed = NearestClassMean(anchors, metric, scale=math.log(99 * (count - 1)) / far)
    f, y = drawn(6, count), [0, 1, 0, 1, 1, 0]
    near(objective(f, y), printed(f, y), 1e-5)
    near(slope(objective, f[:1]), slope(printed, f[:1]), 1e-5)


def test_the_default_scale_of_anchors_that_are_not_evenly_spread() -> None:
    """It is that of the median anchor, so that two close ones do not decide."""
    near(NearestClassMean(CIRCLE)(CIRCLE, range(10), reduction="none"), torch.full((10,), -math.log(0.99)), 1e-6)
    anchors = torch.eye(20, dtype=torch.float64)
    anchors[1] = anchors[0] + 1e-6
    losses = NearestClassMean(anchors)(anchors, range(20), reduction="none")
    assert (losses[2:] < 0.0105).all() and (losses[:2] > 0.6).all()
    many = torch.eye(600, dtype=torch.float64)  # a sample of them decides
    assert _scale(NearestClassMean(many)) == pytest.approx(math.log(99 * 599) / math.sqrt(2), rel=1e-6)
    with pytest.raises(ValueError, match="more than half of the anchors coincide with others"):
        NearestClassMean(torch.ones(4, 3))
    assert cast(Any, NearestClassMean(many, lambda f, a: torch.cdist(f, a)).affinity).scale == 1.0  # a distance of your own


def test_D_5_6() -> None:
    for vectors in (circle(7), orthonormal(5, 8), simplex(5, 4), simplex(10, 32), packed(6, 3, restarts=2, steps=300), polar_grid(12, 3)):
        near(vectors.norm(dim=1), torch.ones(len(vectors)), 1e-6)
    assert smallest_angle(circle(10)) == pytest.approx(36, abs=1e-5)
    with pytest.raises(ValueError, match="6 orthonormal anchors do not fit into 5 dimensions"):
        orthonormal(6, 5)
    with pytest.raises(ValueError, match="a simplex of 7 anchors does not fit into 5 dimensions"):
        simplex(7, 5)
    corners = simplex(6, 5)
    near(corners @ corners.T, torch.full((6, 6), -1 / 5).fill_diagonal_(1), 1e-6)


@pytest.mark.parametrize(
    ("count", "dimension", "angle", "restarts", "steps"),
    [(4, 3, 109.471, 1, 1), (6, 3, 90 - 1e-4, 2, 300), (12, 3, 63.4349, 2, 300), (10, 3, 66.0, 3, 300), (24, 3, 43.6, 3, 500)],
)
def test_D_5_6_packed(count: int, dimension: int, angle: float, restarts: int, steps: int) -> None:
    """Fewer restarts than by default, which only makes it harder."""
    found = smallest_angle(packed(count, dimension, restarts=restarts, steps=steps))
    assert found >= angle
    assert found >= smallest_angle(polar_grid(count, dimension))


def test_D_5_6_packed_in_ten_dimensions() -> None:
    assert smallest_angle(packed(100, 10, restarts=1)) >= 70


BANK = torch.tensor([[1, 0], [0.8, 0.6], [0, 1], [-1, 0]], dtype=torch.float64)


def with_bank(objective: Any) -> Any:
    objective = objective.double()
    objective.references.vectors.copy_(BANK)
    return objective


def test_D_6_1() -> None:
    x, candidates = BANK[:1], torch.ones(4, 4, dtype=torch.bool)
    near_each_other = InnerProduct(0.1)(BANK, BANK)
    p = torch.stack([expected_cost(near_each_other[:1], Related(column[None], candidates[:1])).values[0] for column in torch.eye(4)])
    near(p[:2], [0.880761856, 0.119198155], 5e-10)
    near(p[2], 3.99865e-5, 5e-11)
    near(p[3], 1.8154e-9, 5e-14)
    near(with_bank(InstanceDiscrimination(4, 2))(x, ids=[0]), 0.1269680002, 5e-11)
    discovery = with_bank(NeighborhoodDiscovery(4, 2))
    discovery.trust(torch.tensor([[1], [0], [1], [2]]))
    near(discovery(x, ids=[0]), 3.9989141e-5, 5e-13)
    surprise = -near_each_other.log_softmax(1)
    entropy = expected_cost(near_each_other, Related(surprise, candidates)).values
    near(entropy, [0.36576421, 0.44105769, 0.0910691, 0.00049971], 5e-8)
    assert entropy.argsort().tolist() == [3, 2, 0, 1]
    points = Points(BANK, ids=torch.arange(4))
    found = nearest(points, points, 1, InnerProduct(), exclude_same_id=True)
    assert found.positions[:, 0].tolist() == [1, 0, 1, 2]


def test_D_6_2() -> None:
    bank = MemoryBank(4, 2, momentum=0.5).double()
    bank.vectors.copy_(BANK)
    bank.update(Points(torch.tensor([[0.6, 0.8]], dtype=torch.float64), ids=torch.tensor([0])))
    near(bank.vectors[0], [0.89442719, 0.4472136], 5e-8)
    assert (bank.vectors[1:] == BANK[1:]).all()


def test_D_6_3() -> None:
    listed = ListedNeighbors(4)
    listed.update(torch.tensor([[1], [0], [1], [2]]))
    memory = Points(BANK, None, torch.arange(4))
    printed = {"instances": [-0.23879621, 0.7155888], "neighbors": [-0.00039037, 0.00037126]}
    alive = {"instances": [-1.43117765, 0.7155888], "neighbors": [-0.00074258, 0.00037126]}
    for name, relation in (("instances", SameId()), ("neighbors", listed)):
        objective = NeighborhoodObjective(InBatch(), InnerProduct(0.1), relation, any_positive)
        x = BANK[:1].clone().requires_grad_()
        near(torch.autograd.grad(objective(x, ids=[0], references=memory), x)[0][0], printed[name], 5e-9)
        x = BANK.clone().requires_grad_()
        gradient = torch.autograd.grad(objective(x, ids=range(4), reduction="none")[0], x)[0]
        near(gradient[0], alive[name], 5e-9)
        if name == "instances":
            near(gradient[1], [1.19198155, 0], 5e-9)
    # The named objective puts x on the sphere first, so that only the part along the sphere is left.
    x = BANK[:1].clone().requires_grad_()
    near(torch.autograd.grad(with_bank(InstanceDiscrimination(4, 2))(x, ids=[0]), x)[0][0], [0, 0.7155888], 5e-9)


def test_D_6_5() -> None:
    """Round 0 starts at log N + 1 / (2 d temperature^2); a query's own affinity is 0 on average."""
    torch.manual_seed(0)
    objective = InstanceDiscrimination(50_000, 128)
    x = torch.nn.functional.normalize(torch.randn(32, 128))
    values = objective(x, ids=torch.arange(32), reduction="none")
    own = (x * objective.references.vectors[:32]).sum(1) / 0.1
    near((values + own).mean(), math.log(50_000) + 1 / (2 * 128 * 0.1**2), 0.01)
    near(values.mean(), 11.2, 0.5)


def test_D_6_6() -> None:
    x, ids = drawn(6, 2), [0, 1, 2, 3, 0, 2]
    init = with_bank(InstanceDiscrimination(4, 2))(x, ids=ids, reduction="none")
    one, all_of_them = with_bank(NeighborhoodDiscovery(4, 2)), with_bank(NeighborhoodDiscovery(4, 2, k=3))
    near(one(x, ids=ids, reduction="none"), init, 1e-15)  # none trusted: k = 0
    one.trust(torch.tensor([[1], [0], [1], [2]]))
    assert (one(x, ids=ids, reduction="none") < init).all()
    all_of_them.trust(torch.tensor([[j for j in range(4) if j != i] for i in range(4)]))
    near(all_of_them(x, ids=ids, reduction="none"), torch.zeros(6), 1e-14)


def test_an_angular_margin_never_costs_less_at_a_larger_angle() -> None:
    """cos(theta + margin) alone rises again beyond pi - margin: pytorch-metric-learning's loss falls there."""
    cosines = torch.linspace(0, torch.pi, 50, dtype=torch.float64).cos()
    related = Related(torch.tensor([[0.0, 1.0]]).double().expand(50, 2), torch.ones(50, 2, dtype=torch.bool))
    values = MarginSoftmax(0.5, "angle", 1.0)(torch.stack([cosines, torch.zeros_like(cosines)], 1), related).values
    assert (values.diff() > 0).all()
