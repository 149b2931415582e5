"""Triplets by distance: whom they draw, how often, and from how far. Their prices meet the loops beside the other criteria's."""

import pytest
import torch

from nearkin.compose import triplets
from nearkin.compose.relation import Related
from nearkin.compose.triplets import Triplets, drawn_by


@pytest.mark.parametrize(("near_one", "far_one", "dimension"), [(0.2, 1.1, 4), (1.0, 1.3, 20)])
def test_distance_weighted_draws_come_from_the_inverse_density(near_one: float, far_one: float, dimension: int) -> None:
    """One right and three wrong ones, the last beyond reach: frequencies follow 1/q(d), with d held above 0.5."""
    distances = torch.tensor([0.9, near_one, far_one, 1.5]).double()
    near = (1 - distances.square() / 2).expand(6000, 4).contiguous()
    relation = Related(torch.tensor([0.0, 1, 1, 1]).double().expand(6000, 4), torch.ones(6000, 4, dtype=torch.bool))
    torch.manual_seed(0)
    values = Triplets("distance-weighted", 1.0, dimension=dimension)(near, relation).values
    density = [max(d, 0.5) ** (dimension - 2) * (1 - max(d, 0.5) ** 2 / 4) ** ((dimension - 3) / 2) for d in (near_one, far_one)]
    share = (1 / density[0]) / sum(1 / q for q in density)
    hinge = [float(near[0, j] - near[0, 0] + 1) for j in (1, 2)]
    assert set(values.round(decimals=9).tolist()) == {round(h, 9) for h in hinge}, "nothing beyond 1.4 is drawn"
    assert float((values > sum(hinge) / 2).double().mean()) == pytest.approx(share, abs=0.015)


def test_distance_weighted_draws_with_replacement_up_to_the_very_reach() -> None:
    near = torch.tensor([[0.75, 0.25, 0.5, 0.0]])  # two right ones; a wrong one at distance 1, and one beyond
    relation = Related(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1, 4, dtype=torch.bool))
    outcome = Triplets("distance-weighted", 1.0, dimension=4, farthest=1.0)(near, relation)
    assert outcome.values.tolist() == [1.0] and int(outcome.active) == 2  # 0.75 and 1.25, both with the same wrong one


def test_distance_weighted_has_nothing_to_draw_beyond_reach() -> None:
    relation = Related(torch.tensor([[0.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool))
    outcome = Triplets("distance-weighted", 1.0, dimension=4)(torch.tensor([[0.5, -0.5]]), relation)
    assert outcome.values.tolist() == outcome.weight.tolist() == [0]


@pytest.mark.parametrize("chance", [0.0, 1 - 2**-53])
def test_the_least_and_the_largest_random_number_draw_a_column_with_weight(chance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand_like", lambda like: torch.full_like(like, chance))
    weight = torch.tensor([[0.0, 0.3, 0.7, 0.0], [1e-30, 0.0, 1.0, 0.0]])
    assert drawn_by(weight).tolist() == ([[1] * 4, [0] * 4] if chance == 0 else [[2] * 4] * 2)


def test_a_row_of_nan_draws_some_column_and_spoils_no_other() -> None:
    """On CUDA an index outside, or torch.multinomial's own check, would end the process instead of one diverged training."""
    drawn = drawn_by(torch.tensor([[torch.nan] * 3, [0.0, 1.0, 0.0]]))
    assert int(drawn.min()) >= 0 and int(drawn.max()) <= 2 and drawn[1].tolist() == [1] * 3


def test_distance_weighted_draws_in_many_dimensions_stay_in_range() -> None:
    near = torch.tensor([0.9, 0.875, 0.8749, 0.2]).double().expand(400, 4)  # log weights of hundreds, the first two nearly the same
    relation = Related(torch.tensor([0.0, 1.0, 1.0, 1.0]).double().expand(400, 4), torch.ones(400, 4, dtype=torch.bool))
    torch.manual_seed(0)
    values = Triplets("distance-weighted", 0.1, dimension=512)(near, relation).values
    assert set(values.round(decimals=5).tolist()) == {0.075, 0.0749} and 0.4 < float((values > 0.07495).double().mean()) < 0.7


@pytest.mark.parametrize("at_once", [7, 2**20], ids=["blocks", "at once"])
@pytest.mark.parametrize("share", [0.1, 0.6], ids=["few right", "many right"])
def test_all_triplets_are_the_same_by_rank_and_beside_the_row(share: float, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triplets, "AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    near = torch.randint(-8, 8, (12, 20), generator=generator).double() / 4  # ties, and gaps of just the margin
    right = torch.rand(12, 20, generator=generator) < share
    wrong = ~right & (torch.rand(12, 20, generator=generator) < 0.7)
    right[0], wrong[1] = False, False
    ranked, beside = (way(near, right, wrong, near - 0.5) for way in (triplets._by_rank, triplets._of_few))
    torch.testing.assert_close(ranked, beside, rtol=0, atol=0)
    gap = (near[:, None, :] - near[:, :, None] + 0.5).clamp_min(0) * right[:, :, None] * wrong[:, None, :]  # query, right, wrong
    assert torch.equal(ranked.total, gap.sum((1, 2))) and torch.equal(ranked.inside, (gap > 0).sum((1, 2))) and ranked.inside.sum() > 50
    assert torch.equal(ranked.slope, (gap > 0).sum(1).double() - (gap > 0).sum(2).double())


def test_which_way_all_triplets_take_is_told_by_their_number_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []
    for way in (triplets._by_rank, triplets._of_few):
        monkeypatch.setattr(triplets, way.__name__, lambda *given, way=way: (ways.append(way.__name__), way(*given))[1])
    for positives in (33, 34):  # 32 right ones each, and 33
        labels = torch.arange(2 * positives) % 2
        cost = (labels[:, None] != labels).float()
        relation = Related(cost, ~torch.eye(2 * positives, dtype=torch.bool))
        Triplets("uniform", 0.2)(torch.randn(2 * positives, 2 * positives), relation)
    monkeypatch.setattr(triplets, "may_read", lambda _: False)  # as on CUDA
    near = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    relation = Related((torch.arange(6)[:, None] % 2 != torch.arange(6) % 2).double(), ~torch.eye(6, dtype=torch.bool))
    assert torch.autograd.gradcheck(lambda near: Triplets("uniform", 0.2)(near, relation).values, near)
    assert ways[:3] == ["_of_few", "_by_rank", "_by_rank"] and "_of_few" not in ways[1:]
