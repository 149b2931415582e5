"""DeepCluster and noise as targets: values by literal loops, what happens between epochs, and wrong arguments."""

import itertools
import math

import pytest
import torch

from nearkin.objectives import NCA, DeepCluster, NoiseAsTargets, WeightedSum
from nearkin.objectives.pseudo_labels import clustered, whitened


def blobs(each=20, seed=0):
    """Three far clusters of unit vectors in 4 dimensions."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.eye(4)[:3].repeat_interleave(each, 0)
    return torch.nn.functional.normalize(centers + 0.05 * torch.randn(3 * each, 4, generator=generator), dim=1)


def seen(objective, x):
    objective.update(x, ids=torch.arange(len(x)))
    return objective


def test_clusters_are_found_and_whitening_whitens():
    found = clustered(blobs(), 3, seed=0)
    assert all(len(set(found[i * 20 : (i + 1) * 20].tolist())) == 1 for i in range(3)) and len(set(found.tolist())) == 3
    x = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.tensor([10.0, 1, 0.1, 0]))
    white = whitened(x).double()
    assert torch.isfinite(white).all() and float(white.norm(dim=1).max()) == pytest.approx(1, abs=1e-5)
    assert float(white[:, -1].square().mean() / white[:, 1].square().mean()) == pytest.approx(1, abs=0.3)  # alike, but for unit length


def test_an_empty_cluster_restarts_next_to_the_largest():
    x = torch.cat([torch.zeros(50, 2), torch.ones(1, 2)]) + 0.01 * torch.randn(51, 2, generator=torch.Generator().manual_seed(0))
    assert torch.bincount(clustered(x, 8, seed=1), minlength=8).gt(0).sum() == 8
    assert set(clustered(torch.ones(10, 2), 3, seed=0).tolist()) <= {0, 1, 2}  # identical points are defined


def test_deep_cluster_is_weighted_cross_entropy():
    torch.manual_seed(0)
    objective = seen(DeepCluster(60, 4, clusters=5), blobs()).double()
    objective.refresh(0)
    sizes = torch.bincount(objective.cluster, minlength=5)
    x, ids = blobs(seed=1).double()[::7], torch.arange(0, 60, 7)
    total = scale = 0.0
    for one, own in zip(x, ids.tolist(), strict=True):
        logits = (objective.head.weight.detach() @ one + objective.head.bias.detach()).tolist()
        pseudo = int(objective.cluster[own])
        value = math.log(sum(math.exp(v) for v in logits)) - logits[pseudo]
        total, scale = total + value / float(sizes[pseudo]), scale + 1 / float(sizes[pseudo])
    assert objective(x, ids=ids).item() == pytest.approx(total / scale, rel=1e-6)


def test_refresh_draws_a_new_head_from_the_seed():
    objective = seen(DeepCluster(60, 4, clusters=3), blobs())
    before = objective.head.weight.detach().clone()
    objective.refresh(0)
    first = objective.head.weight.detach().clone()
    objective.refresh(1)
    assert not torch.equal(first, before) and not torch.equal(first, objective.head.weight)
    objective.refresh(0)
    assert torch.equal(first, objective.head.weight)


def test_noise_as_targets_is_the_squared_distance():
    torch.manual_seed(0)
    objective = NoiseAsTargets(6, 3).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    expected = [float((x[i] / x[i].norm() - objective.targets[i]).square().sum()) for i in range(6)]
    torch.testing.assert_close(objective(x, ids=torch.arange(6), reduction="none"), torch.tensor(expected, dtype=torch.float64))


def test_the_exchange_is_the_best_there_is():
    torch.manual_seed(0)
    objective = NoiseAsTargets(6, 3).double()
    x, ids = torch.randn(6, 3, dtype=torch.float64), torch.arange(6)
    before = float(objective(x, ids=ids))
    seen(objective, x).refresh(0)
    after = float(objective(x, ids=ids))
    near = torch.nn.functional.normalize(x, dim=1) @ objective.targets.T
    best = max(sum(float(near[i, j]) for i, j in enumerate(order)) for order in itertools.permutations(range(6)))
    assert after < before and after == pytest.approx(2 - 2 * best / 6) and sorted(objective.owned.tolist()) == list(range(6))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: DeepCluster(5, 2, clusters=1), r"clusters \(1\) must be a whole number of at least 2"),
        (lambda: NoiseAsTargets(0, 2), r"size \(0\) must be a whole number of at least 1"),
        (lambda: NoiseAsTargets(5, 2, every=0), r"every \(0\) must be a whole number of at least 1"),
        (lambda: NoiseAsTargets(5, 2)(torch.ones(1, 2)), "ids are missing: pseudo-labels"),
        (lambda: DeepCluster(5, 2, 2)(torch.ones(1, 2), ids=[5]), "ids run from 5 to 5, but there are slots for 0 to 4"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("build", [DeepCluster, NoiseAsTargets])
def test_an_update_knows_its_slots(build):
    objective = build(8, 4)
    with pytest.raises(ValueError, match=r"ids run from -1 to 6, but there are slots for 0 to 7"):
        objective.update(torch.randn(8, 4), ids=torch.arange(8) - 1)
    with pytest.raises(ValueError, match=r"ids are missing: pseudo-labels are kept for every sample"):
        objective.update(torch.randn(8, 4))


def test_a_sum_refreshes_its_terms():
    terms = {"a": (1.0, DeepCluster(60, 4, clusters=3)), "b": (1.0, NoiseAsTargets(60, 4))}
    both = WeightedSum(terms)
    assert both.refresh_every == 1 and WeightedSum({"b": (1.0, NoiseAsTargets(60, 4, every=3))}).refresh_every == 3
    assert WeightedSum({"c": (1.0, NCA())}).refresh_every == 0
    x = torch.randn(60, 4)
    both.update(x, ids=torch.arange(60))
    alone = DeepCluster(60, 4, clusters=3)
    alone.update(x, ids=torch.arange(60))
    before = both.terms["a"].cluster.clone()
    assert both.refresh(3) == alone.refresh(3) and torch.equal(both.terms["a"].cluster, alone.cluster)
    assert not torch.equal(both.terms["a"].cluster, before)
