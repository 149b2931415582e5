"""Neighborhood discovery against its printed equations (as corrected) and against literal loops, in float64."""

import math

import pytest
import torch

from nearkin.compose.affinity import InnerProduct, cosine
from nearkin.compose.criterion import any_positive
from nearkin.compose.points import Points
from nearkin.compose.references import InBatch, MemoryBank
from nearkin.compose.relation import ListedNeighbors, SameId
from nearkin.evaluate import weighted_knn_predict
from nearkin.objectives import InstanceDiscrimination, NeighborhoodDiscovery, NeighborhoodObjective
from nearkin.train.discovery import weights

N, D, K, HEAT = 12, 5, 3, 0.3


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def neighbors(seed=1):
    """(N, K) ids of others."""
    order = torch.rand(N, N, generator=torch.Generator().manual_seed(seed)).fill_diagonal_(2).argsort(1)
    return order[:, :K]


def gradients(relation, x, i):
    """All points alive: the gradient of point i's loss."""
    objective = NeighborhoodObjective(InBatch(), InnerProduct(HEAT), relation, any_positive)
    x = x.clone().requires_grad_()
    return torch.autograd.grad(objective(x, ids=torch.arange(N), reduction="none")[i], x)[0]


@pytest.mark.parametrize("i", [0, 7])
def test_equation_9(i):
    x = drawn(N, D)
    p = (x[i] @ x.T / HEAT).softmax(0)
    found = gradients(SameId(), x, i)
    expected = torch.stack([p[j] * x[i] / HEAT for j in range(N)])
    expected[i] = (sum(p[k] * x[k] for k in range(N)) + (p[i] - 2) * x[i]) / HEAT
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("i", [0, 7])
def test_equations_10_as_corrected_and_11(i):
    x, relation = drawn(N, D), ListedNeighbors(N, K)
    relation.update(neighbors())
    p = (x[i] @ x.T / HEAT).softmax(0)
    own = {i, *neighbors()[i].tolist()}
    share = {j: p[j] / sum(p[k] for k in own) for j in own}
    expected = torch.stack([(p[j] - share.get(j, 0)) * x[i] / HEAT for j in range(N)])
    pulled = sum(p[k] * x[k] for k in range(N)) - sum(share[k] * x[k] for k in own)
    expected[i] = (pulled + (p[i] - share[i]) * x[i]) / HEAT
    torch.testing.assert_close(gradients(relation, x, i), expected, atol=1e-12, rtol=1e-12)


def literal(objective, x, ids, trusted, weight, labels):
    """-log of the probability of the positives, one sum at a time."""
    bank, found = objective.references.vectors, []
    for one, own in zip(x, ids.tolist(), strict=True):
        p = [math.exp(float(one @ v) / one.norm().item() / HEAT) for v in bank]
        right = p[own]
        if labels is not None and labels[own] >= 0:
            right = sum(p[j] for j in range(N) if labels[j] == labels[own])
        elif trusted[own]:
            right += (1.0 if weight is None else float(weight[own])) * sum(p[j] for j in neighbors()[own].tolist())
        found.append(-math.log(right / sum(p)))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:.*its state never moved")  # nothing is trained here
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("labeled", [False, True])
def test_weights_and_labels_are_the_literal_loop(weighted, labeled):
    labels = torch.tensor([-1, 0, 1, 1, -1, 0, -1, -1, 1, -1, 2, -1]) if labeled else None
    objective = NeighborhoodDiscovery(N, D, K, HEAT, weighted=weighted, labels=labels).double()
    trusted, weight = torch.arange(N) % 3 > 0, torch.linspace(0, 1, N, dtype=torch.float64) if weighted else None
    objective.trust(neighbors(), trusted, weight)
    x, ids = drawn(N, D, seed=3), torch.arange(N).flip(0)
    expected = literal(objective, x, ids, trusted, objective.relation.weight, labels)
    torch.testing.assert_close(objective(x, ids=ids, reduction="none"), expected, atol=1e-9, rtol=1e-9)
    assert torch.autograd.gradcheck(lambda z: objective(z, ids=ids), x.clone().requires_grad_())


@pytest.mark.parametrize("labeled", [False, True])
def test_each_of_the_neighbors_is_the_literal_loop(labeled):
    """Every positive against all negatives; positives do not compete with each other."""
    labels = torch.tensor([-1, 0, 1, 1, -1, 0, -1, -1, 1, -1, 2, -1]) if labeled else None
    objective = NeighborhoodDiscovery(N, D, K, HEAT, quantifier="each", labels=labels).double()
    objective.trust(neighbors(), torch.arange(N) % 3 > 0)
    x, ids, expected = drawn(N, D, seed=3), torch.arange(N).flip(0), []
    for one, own in zip(x, ids.tolist(), strict=True):
        near = [float(one @ v) / one.norm().item() / HEAT for v in objective.references.vectors]
        right = {own, *(neighbors()[own].tolist() if own % 3 else ())}
        if labels is not None and labels[own] >= 0:
            right = {j for j in range(N) if labels[j] == labels[own]}
        opposed = [near[j] for j in range(N) if j not in right]
        expected.append(sum(math.log(1 + sum(math.exp(other - near[j]) for other in opposed)) for j in right) / len(right))
    torch.testing.assert_close(objective(x, ids=ids, reduction="none"), torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=1e-9)
    assert torch.autograd.gradcheck(lambda z: objective(z, ids=ids), x.clone().requires_grad_())


def test_each_pulls_at_a_neighbor_that_any_leaves_alone():
    """A sample at its own slot and far from its neighbor: "any" is satisfied, "each" is not; without neighbors both are equal."""
    pulls, losses = {}, {}
    for quantifier in ("any", "each"):
        objective = NeighborhoodDiscovery(3, 2, quantifier=quantifier).double()
        objective.references.vectors.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        x, ids = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True), torch.tensor([0])
        losses[quantifier] = float(objective(x, ids=ids).detach())
        objective.trust(torch.tensor([[1], [0], [0]]))
        pulls[quantifier] = -float(torch.autograd.grad(objective(x, ids=ids), x)[0][0, 1])  # toward its neighbor
    assert losses["any"] == pytest.approx(losses["each"], rel=1e-12)
    assert 0 <= pulls["any"] < 1e-2 and pulls["each"] > 1


def test_a_weight_of_one_or_none_is_trust_or_none():
    plain, soft = NeighborhoodDiscovery(N, D, K).double(), NeighborhoodDiscovery(N, D, K, weighted=True).double()
    soft.references.vectors.copy_(plain.references.vectors)
    x, ids, some = drawn(N, D, seed=3), torch.arange(N), torch.arange(N) < 5
    plain.trust(neighbors(), some)
    soft.trust(neighbors(), None, some.double())
    torch.testing.assert_close(soft(x, ids=ids), plain(x, ids=ids))


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_weights_fall_with_entropy_and_average_to_the_share(share):
    entropy = torch.rand(4001, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = weights(entropy, share)
    assert float(found.mean()) == pytest.approx(share, abs=2e-3) and float(found.min()) > 0 and float(found.max()) <= 1
    assert bool((found[entropy.argsort()].diff() <= 0).all())


def test_equal_entropies_have_equal_weights_and_a_share_of_0_has_none():
    assert weights(torch.ones(5), 0.5).unique().numel() == 1
    assert weights(torch.rand(5), 0.0).tolist() == [0.0] * 5
    with pytest.raises(ValueError, match=r"share \(1.2\) must be between 0 and 1"):
        weights(torch.ones(3), 1.2)


def test_D_6_7():
    """Similarities .9, .8, .8 of the classes 0, 1, 1: the temperature decides which class wins; k above N is lowered."""
    angles = torch.tensor([0.9, 0.8, 0.8], dtype=torch.float64).acos()
    known = Points(torch.stack([angles.cos(), angles.sin()], 1), torch.tensor([0, 1, 1]))
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    for heat, scores in ((0.07, (383518.4, 183821.2)), (0.1, (8103.1, 5961.9)), (1.0, (2.4596, 4.4511))):
        near = (cosine(heat)(query, known.embeddings)).exp()[0]
        assert float(near[0]) == pytest.approx(scores[0], rel=1e-4) and float(near[1:].sum()) == pytest.approx(scores[1], rel=1e-4)
        assert weighted_knn_predict(query, known, 200, cosine(heat)).tolist() == [int(scores[1] > scores[0])]


def test_the_bank_moves_after_and_never_during_backward():
    """So a gradient accumulated over two halves is that of the whole batch, and the bank ends the same."""
    objective, x = InstanceDiscrimination(N, D).double(), drawn(N, D)
    before, ids = objective.references.vectors.clone(), torch.arange(N)
    moved = []
    for size in (N, N // 2):
        objective.references.vectors.copy_(before)
        leaf = x.clone().requires_grad_()
        for part in torch.split(ids, size):
            (objective(leaf[part], ids=part) * len(part) / N).backward()
        assert torch.equal(objective.references.vectors, before)
        objective.update(x, ids=ids)
        moved.append((leaf.grad, objective.references.vectors.clone()))
    torch.testing.assert_close(moved[0][0], moved[1][0], atol=1e-14, rtol=1e-12)
    assert torch.equal(moved[0][1], moved[1][1]) and not torch.equal(moved[0][1], before)


@pytest.mark.parametrize("start", ["normalized", "released"])
def test_the_bank_starts_either_way(start):
    lengths = NeighborhoodDiscovery(2000, 128, start=start).references.vectors.norm(dim=1)
    assert bool((lengths - 1).abs().max() < 1e-5) == (start == "normalized") and float(lengths.mean()) == pytest.approx(1, abs=0.01)


def test_arrays_are_trusted_like_tensors():
    table, chosen, weight = torch.tensor([[1], [2], [0]]), torch.tensor([True, False, True]), torch.tensor([0.5, 1, 0])
    labels = torch.tensor([-1, -1, 2])
    soft = [NeighborhoodDiscovery(3, 2, weighted=True, labels=given).relation for given in (labels, labels.numpy())]
    soft[0].update(table, chosen, weight)
    soft[1].update(table.int().numpy(), chosen.numpy(), weight.numpy())
    for one, other in zip(soft[0].buffers(), soft[1].buffers(), strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype
    assert soft[1].table.tolist() == [[1], [2], [0]] and soft[1].weight.tolist() == [0.5, 1, 0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: NeighborhoodDiscovery(5, 2, k=5), r"k \(5\) must be below the number of samples \(5\): .*; lower k, or train on more"),
        (
            lambda: NeighborhoodDiscovery(1, 2),
            r"k \(1\) must be below the number of samples \(1\): .* at most 0 neighbors; train on more",
        ),
        (
            lambda: NeighborhoodDiscovery(5, 2, labels=torch.zeros(4)),
            r"labels have shape \(4,\) for 5 points; give one class",
        ),
        (lambda: NeighborhoodDiscovery(5, 2).trust(torch.zeros(5, 1).long(), None, torch.ones(5)), "build it with weighted=True"),
        (lambda: NeighborhoodDiscovery(5, 2, weighted=True).trust(torch.zeros(5, 1).long(), None, 2 * torch.ones(5)), "between 0 and 1"),
        (
            lambda: NeighborhoodDiscovery(5, 2, weighted=True).trust(torch.zeros(5, 1).long(), None, torch.full((5,), torch.nan)),
            "weight holds numbers below 0 or above 1, or NaN; give a number between 0 and 1 for each of the 5",
        ),
        (lambda: ListedNeighbors(5.0), r"size \(5.0\) must be a whole number of at least 1: the table has one row for each point"),
        (lambda: ListedNeighbors(5, "2"), r"k \('2'\) must be a whole number of at least 1: it is the number of neighbors in a row"),
        (lambda: NeighborhoodDiscovery(5, 2, quantifier="all"), "quantifier 'all' is unknown; choose one of any, each"),
        (
            lambda: NeighborhoodDiscovery(5, 2, quantifier="each", weighted=True),
            "quantifier='each' has only positives and negatives; drop one",
        ),
        (
            lambda: NeighborhoodDiscovery(5, 2, quantifier="each", labels=torch.zeros(5), engine="torch"),
            "engine 'torch' does not know this composition",
        ),
        (
            lambda: MemoryBank(5, 2)(Points(torch.ones(1, 2), ids=torch.tensor([5]))),
            "ids run from 5 to 5, but the bank has the slots 0 to 4; build it for as many samples as there are",
        ),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()
