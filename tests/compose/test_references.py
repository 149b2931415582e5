"""Who may be chosen: where anchors stand, and how each set of references moves."""

import math

import pytest
import torch
from torch import Tensor

from nearkin.compose.affinity import cosine, unit
from nearkin.compose.criterion import any_positive
from nearkin.compose.points import EMPTY, Points, filled
from nearkin.compose.references import Anchors, Centers, CrossBatchMemory, InBatch, MemoryBank, OnePerClass, Proxies, References
from nearkin.compose.references.anchors import _effort, assign, circle, orthonormal, packed, simplex, smallest_angle
from nearkin.compose.relation import SameLabel
from nearkin.objectives import NeighborhoodObjective, PrecisionAtK
from tests.compose.polar_grid import polar_grid

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
BATCH = Points(X, torch.tensor([0, 2, 2, 0, 2]), torch.tensor([4, 0, 2, 7, 5]))


def cosines(v: Tensor) -> Tensor:
    """Between all pairs of different rows."""
    v = v.double()
    return (v @ v.T)[~torch.eye(len(v), dtype=torch.bool)]


@pytest.mark.parametrize("maker", [lambda: orthonormal(4, 6), lambda: circle(7), lambda: simplex(6, 5), lambda: packed(7, 3, steps=20)])
def test_anchors_have_unit_length_and_float32(maker: object) -> None:
    v = maker()
    assert v.dtype == torch.float32 and not v.requires_grad
    torch.testing.assert_close(v.double().norm(dim=1), torch.ones(len(v), dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("count", [2, 3, 10, 17])
def test_the_circle_is_even(count: int) -> None:
    assert smallest_angle(circle(count)) == pytest.approx(360 / count, abs=1e-4)
    torch.testing.assert_close(circle(10)[1], torch.tensor([0.809017, 0.587785]), atol=1e-6, rtol=0)


def test_orthonormal_anchors_are_axes() -> None:
    assert torch.equal(orthonormal(3, 5), torch.eye(5)[:3]) and smallest_angle(orthonormal(5, 5)) == 90


@pytest.mark.parametrize(("count", "dimension"), [(2, 1), (3, 2), (4, 3), (6, 9), (30, 29)])
def test_the_simplex_is_as_wide_as_can_be(count: int, dimension: int) -> None:
    v = simplex(count, dimension)
    assert v.shape == (count, dimension)
    torch.testing.assert_close(cosines(v), torch.full((count * (count - 1),), -1 / (count - 1), dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("count", "least"), [(4, 109.471), (6, 89.99), (12, 63.43), (10, 66.0), (24, 43.6)])
def test_packed_anchors_reach_the_best_known_angles_in_space(count: int, least: float) -> None:
    wide = smallest_angle(packed(count, 3, steps=300))
    assert wide >= least and wide > smallest_angle(polar_grid(count, 3)) + 14


@pytest.mark.soak
def test_packed_anchors_in_ten_dimensions() -> None:
    assert smallest_angle(packed(100, 10)) >= 70 > smallest_angle(polar_grid(100, 10))


def test_packing_is_deterministic_for_a_seed_and_the_simplex_where_that_fits() -> None:
    a, b, other = (packed(7, 3, seed=seed, restarts=2, steps=30) for seed in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, other)
    assert torch.equal(packed(4, 3), simplex(4, 3)) and torch.equal(packed(5, 9), simplex(5, 9))


@pytest.mark.parametrize(("count", "dimension"), [(5, 3), (6, 3), (10, 8), (16, 8), (300, 200), (2000, 1000)])
def test_packed_anchors_are_axes_and_their_opposites_up_to_twice_the_dimension(count: int, dimension: int) -> None:
    v = packed(count, dimension)
    assert v.shape == (count, dimension) and v.dtype == torch.float32 and smallest_angle(v) == 90
    assert len(v.unique(dim=0)) == count and (v.abs().sum(1) == 1).all()


def test_packed_anchors_in_the_plane_are_the_circle() -> None:
    for count in (4, 5, 17, 1000):
        assert torch.equal(packed(count, 2), circle(count))
    assert smallest_angle(packed(3, 2)) == pytest.approx(120, abs=1e-4)


def test_packing_takes_fewer_starts_and_then_fewer_steps_for_many_classes() -> None:
    assert _effort(7, None, None) == _effort(170, None, None) == (12, 1500)
    sizes = (172, 300, 600, 1000, 2000)
    for count, (restarts, steps) in zip(sizes, (_effort(c, None, None) for c in sizes), strict=True):
        assert restarts * steps * count**2 <= 2**29 and (steps == 1500 or restarts == 1)
    assert _effort(10**5, None, None) == (1, 100)
    assert _effort(10**5, 3, 7) == (3, 7) and _effort(7, 2, None) == (2, 1500), "as told"


def test_more_restarts_are_never_worse() -> None:
    few, many = (smallest_angle(packed(10, 3, restarts=r, steps=150)) for r in (1, 8))
    assert many >= few - 1e-9


def test_the_polar_grid_is_the_circle_in_the_plane_and_bunches_in_space() -> None:
    torch.testing.assert_close(polar_grid(9, 2), circle(9))
    for count, dimension in ((10, 3), (8, 4), (6, 6)):
        grid = polar_grid(count, dimension)
        assert grid.shape == (count, dimension) and grid.dtype == torch.float32
        torch.testing.assert_close(grid.norm(dim=1), torch.ones(count))
        assert 0 < smallest_angle(grid) <= smallest_angle(packed(count, dimension, restarts=2, steps=100)) + 1e-4


def test_filled_slots_are_those_that_answer() -> None:
    answers = filled(OnePerClass()(BATCH))
    assert answers.labels.tolist() == [2, 0] and answers.ids.tolist() == [2, 7] and torch.equal(answers.embeddings, X[2:4])
    assert filled(OnePerClass()(BATCH._replace(labels=torch.arange(5), ids=None))).embeddings.shape == (0, 3)


def test_small_angles_keep_their_digits() -> None:
    tiny = torch.tensor([[1.0, 0.0], [math.cos(1e-6), math.sin(1e-6)]], dtype=torch.float64)
    assert smallest_angle(tiny) == pytest.approx(math.degrees(1e-6), rel=1e-6)
    assert smallest_angle(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])) == 180


def test_assign_deals_the_same_anchors_in_a_seeded_order() -> None:
    v = circle(20)
    dealt = assign(v, seed=3)
    assert torch.equal(dealt, assign(v, 3)) and not torch.equal(dealt, assign(v, 4)) and not torch.equal(dealt, v)
    assert sorted(dealt.tolist()) == sorted(v.tolist())


def test_anchors_stand_still_and_belong_to_nobody() -> None:
    given = circle(3)
    anchors = Anchors(given)
    given.zero_()
    before = anchors.vectors.clone()
    anchors.update(BATCH)
    assert before.any() and torch.equal(anchors.vectors, before) and not list(anchors.parameters())
    points = anchors(Points(X.double()))
    assert points.embeddings.dtype == torch.float64 and points.labels.tolist() == [0, 1, 2] and points.ids is None


def test_who_knows_how_many_classes_and_dimensions() -> None:
    known = {
        Anchors(circle(3)): (3, 2),
        Proxies(4, 3): (4, 3),
        Centers(5, 2): (5, 2),
        MemoryBank(6, 3): (None, 3),
        InBatch(): (None, None),
        OnePerClass(): (None, None),
    }
    for references, (classes, dimension) in known.items():
        assert (references.known_classes(), references.known_dimension()) == (classes, dimension), references


def test_proxies_follow_the_gradient_and_nothing_else() -> None:
    torch.manual_seed(0)
    proxies = Proxies(4, 9)
    assert proxies.vectors.shape == (4, 9) and proxies.vectors.abs().max() <= 1 / 3 and proxies.vectors.std() > 0.1
    before = proxies.vectors.clone()
    proxies.update(BATCH)
    assert torch.equal(proxies.vectors, before)
    proxies(Points(torch.zeros(1, 9))).embeddings.sum().backward()
    assert torch.equal(proxies.vectors.grad, torch.ones(4, 9))
    assert list(proxies.state_dict()) == ["vectors"]


def test_centers_move_by_the_papers_rule() -> None:
    centers = Centers(3, 3, rate=0.5)
    assert not centers.vectors.any()
    centers.vectors.copy_(torch.arange(9.0).reshape(3, 3))
    before = centers.vectors.clone()
    centers.update(BATCH)
    for c, members in ((0, [0, 3]), (1, []), (2, [1, 2, 4])):
        step = sum((before[c] - X[i] for i in members), torch.zeros(3)) / (1 + len(members))
        torch.testing.assert_close(centers.vectors[c], before[c] - 0.5 * step)
    seen = centers(BATCH).embeddings
    centers.update(BATCH)
    assert not torch.equal(seen, centers.vectors), "what a step has seen stays as it was"


def test_the_bank_moves_by_momentum_at_unit_length() -> None:
    bank = MemoryBank(4, 2, momentum=0.5)
    bank.vectors.copy_(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-1.0, 0.0]]))
    bank.update(Points(torch.tensor([[0.6, 0.8], [0.0, -3.0]]), None, torch.tensor([0, 3])))
    torch.testing.assert_close(bank.vectors[0], torch.tensor([0.89442719, 0.4472136]))
    torch.testing.assert_close(bank.vectors[3], torch.tensor([-1.0, -1.0]) / math.sqrt(2))
    assert bank.vectors[1:3].tolist() == torch.tensor([[0.8, 0.6], [0.0, 1.0]]).tolist()
    quick = MemoryBank(8, 3, momentum=0.25)
    before = quick.vectors.clone()
    quick.update(BATCH)
    torch.testing.assert_close(quick.vectors[BATCH.ids], unit(0.75 * before[BATCH.ids] + 0.25 * unit(X)))
    whole = MemoryBank(8, 3, momentum=1.0)
    whole.update(BATCH)
    torch.testing.assert_close(whole.vectors[BATCH.ids], unit(X))


def test_a_sample_drawn_twice_moves_the_bank_by_the_mean_of_its_copies() -> None:
    ids = torch.tensor([1, 1, 0, 1, 2])
    torch.manual_seed(0)
    bank = MemoryBank(3, 3)
    expected = bank.vectors.clone()
    for i in range(3):
        expected[i] = unit(0.5 * expected[i] + 0.5 * unit(X)[ids == i].mean(0))
    for order in (torch.arange(5), torch.tensor([3, 4, 1, 2, 0])):
        torch.manual_seed(0)
        bank = MemoryBank(3, 3)
        bank.update(Points(X[order], None, ids[order]))
        torch.testing.assert_close(bank.vectors, expected)


def test_the_bank_hands_out_a_copy_with_labels_and_ids() -> None:
    labels = torch.tensor([5, 6, 7, 5, 6, 7, 5, 6])
    bank = MemoryBank(8, 3, labels=labels)
    points = bank(BATCH._replace(embeddings=X.double()))
    assert points.embeddings.dtype == torch.float64 and not points.embeddings.requires_grad
    assert torch.equal(points.labels, labels) and points.ids.tolist() == list(range(8))
    before = points.embeddings.clone()
    seen = bank(BATCH).embeddings
    bank.update(BATCH)
    assert torch.equal(seen, before.float()) and not torch.equal(bank.vectors, seen)
    assert set(bank.state_dict()) == {"vectors", "labels"} and set(MemoryBank(2, 2).state_dict()) == {"vectors"}


def test_the_batch_itself() -> None:
    batch = InBatch()
    assert batch(BATCH) is BATCH and batch.update(BATCH) is None


def test_one_per_class_takes_the_second_of_every_class(monkeypatch) -> None:
    assert OnePerClass()(BATCH).labels.tolist() == [2, 0]  # where values may be read, the filled slots alone
    monkeypatch.setattr("nearkin.compose.references.in_batch.may_read", lambda _: False)
    chosen = OnePerClass()(BATCH)
    filled = chosen.labels != EMPTY
    assert len(chosen.labels) == len(X)  # a fixed number, so that the step can be recorded
    assert sorted(chosen.labels[filled].tolist()) == [0, 2] and sorted(chosen.ids[filled].tolist()) == [2, 7]
    assert torch.equal(chosen.embeddings, X) and filled.nonzero()[:, 0].tolist() == [2, 3] and OnePerClass().update(BATCH) is None
    nobody = OnePerClass()(Points(X, torch.arange(5)))
    assert (nobody.labels == EMPTY).all() and nobody.ids is None
    single = OnePerClass()(Points(X, torch.tensor([1, 0, 2, 3, 1])))
    assert (single.labels != EMPTY).tolist() == [False] * 4 + [True]


def test_a_cross_batch_memory_holds_the_batch_and_the_last_few() -> None:
    memory = CrossBatchMemory(3, 2)
    first = Points(torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True), torch.tensor([4, 5]), torch.tensor([10, 11]))
    seen = memory(first)
    assert seen.embeddings.shape == (5, 2) and seen.labels.tolist() == [4, 5, EMPTY, EMPTY, EMPTY]
    memory.update(first)
    second = Points(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([6, 7]), torch.tensor([12, 13]))
    assert memory(second).labels.tolist() == [6, 7, 4, 5, EMPTY]
    memory.update(second)  # the oldest leaves
    found = memory(first)
    assert found.labels.tolist() == [4, 5, 7, 5, 6] and found.ids.tolist() == [10, 11, 13, 11, 12]
    found.embeddings.sum().backward()  # only the batch has a gradient
    assert torch.equal(first.embeddings.grad, torch.ones(2, 2)) and memory.known_dimension() == 2
    restored = CrossBatchMemory(3, 2)
    restored.load_state_dict(memory.state_dict())
    assert restored(first).labels.tolist() == found.labels.tolist()


def test_empty_slots_are_nobodys_candidates() -> None:
    queries = Points(torch.eye(2), torch.tensor([0, 1]), torch.tensor([0, 1]))
    cost, candidate = SameLabel()(queries, CrossBatchMemory(2, 2)(queries))
    assert candidate.tolist() == [[False, True, False, False], [True, False, False, False]] and cost[:, 2:].eq(1).all()


def test_a_memory_needs_ids() -> None:
    with pytest.raises(ValueError, match="ids are missing: a query must be known again among earlier embeddings"):
        CrossBatchMemory(2, 2)(Points(X, torch.zeros(5, dtype=torch.int64)))
    with pytest.raises(ValueError, match=r"dimension \(0\) must be the embedding's size, at least 1, for a memory of 8"):
        PrecisionAtK(memory=8)


def test_references_must_say_what_they_give_and_how_they_move() -> None:
    with pytest.raises(TypeError, match="abstract"):
        References()


def test_class_vectors_of_your_own_need_not_say_how_many_there_are() -> None:
    class Mine(References):
        columns = "classes"

        def forward(self, batch: Points) -> Points:
            return Points(torch.eye(3), torch.arange(3))

        def update(self, batch: Points) -> None:
            return None

    objective = NeighborhoodObjective(Mine(), cosine(0.1), SameLabel(), any_positive)
    assert float(objective(torch.eye(3), torch.arange(3))) == pytest.approx(math.log(1 + 2 * math.exp(-10)), rel=1e-3)
    for wrong in (3, -1):
        with pytest.raises(ValueError, match=r"labels run from .*, but this objective was built for the classes 0 to 2"):
            objective(torch.eye(3), torch.tensor([0, 1, wrong]))
