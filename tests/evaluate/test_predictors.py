"""Predictions from neighbors: printed examples, literal loops, exclusion, and overflow."""

import math
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nearkin.compose.affinity import Euclidean, InnerProduct, SquaredEuclidean, cosine
from nearkin.compose.points import Points
from nearkin.compose.references.anchors import circle
from nearkin.evaluate import (
    NO_PREDICTION,
    class_means,
    classification,
    knn_predict,
    knn_regress,
    linear_probes,
    nearest_mean_predict,
    predictions,
    soft_mean,
    soft_probabilities,
    weighted_knn_predict,
    weighted_vote,
)
from nearkin.evaluate.probes import SoftmaxRegression, layer_features


def drawn(n: int, seed: int, classes: int = 4, d: int = 3) -> Points:
    g = torch.Generator().manual_seed(seed)
    return Points(torch.randn(n, d, generator=g), torch.randint(classes, (n,), generator=g))


@pytest.mark.parametrize(("temperature", "winner"), [(0.07, 0), (0.1, 0), (1.0, 1)])
def test_the_weighted_vote_of_the_paper(temperature: float, winner: int) -> None:
    similarities, labels = torch.tensor([[0.9, 0.8, 0.8]]), torch.tensor([[0, 1, 1]])
    assert weighted_vote(labels, similarities / temperature).tolist() == [winner]


def test_weighted_votes_equal_the_loop() -> None:
    g = torch.Generator().manual_seed(0)
    for k in (1, 2, 7, 30):
        labels = torch.randint(-3, 4, (100, k), generator=g)
        log_weights = (torch.randint(0, 5, (100, k), generator=g).double()).sort(dim=1, descending=True).values
        expected = []
        for row, weights in zip(labels.tolist(), log_weights.tolist(), strict=True):
            total: dict[int, list[float]] = defaultdict(list)
            for label, weight in zip(row, weights, strict=True):
                total[label].append(math.exp(weight))
            sums = {label: math.fsum(some) for label, some in total.items()}
            best = max(sums.values())
            expected.append(next(label for label in row if math.isclose(sums[label], best, rel_tol=1e-12)))
        assert weighted_vote(labels, log_weights).tolist() == expected


def test_trap_32_no_weight_overflows_and_k_is_clamped() -> None:
    references = Points(torch.tensor([[300.0, 0], [0, 300.0], [1.0, 250.0]]), torch.tensor([5, 9, 9]))
    queries = torch.tensor([[200.0, 1.0], [1.0, 200.0]])
    for affinity in (InnerProduct(0.01), cosine(1e-4), cosine(0.07), SquaredEuclidean(1e-3)):
        assert weighted_knn_predict(queries, references, 200, affinity).tolist() == [5, 9]
    assert weighted_knn_predict(queries, references).tolist() == [5, 9]


def test_weighted_knn_equals_the_loop() -> None:
    queries, references = drawn(25, 0), drawn(60, 1)
    found = weighted_knn_predict(queries, references, 20, cosine(0.1)).tolist()
    for i, q in enumerate(queries.embeddings.double()):
        near = {j: float(q @ r / (q.norm() * r.norm())) for j, r in enumerate(references.embeddings.double())}
        sums: dict[int, float] = defaultdict(float)
        for j in sorted(near, key=lambda j: -near[j])[:20]:
            sums[int(references.labels[j])] += math.exp(near[j] / 0.1)
        assert found[i] == max(sums, key=lambda c: sums[c])


def test_class_means_and_the_nearest_of_them() -> None:
    points = Points(torch.tensor([[0.0, 0], [2.0, 0], [10.0, 10], [9.0, 3]]), torch.tensor([7, 7, -2, 4]))
    means = class_means(points)
    assert means.labels.tolist() == [-2, 4, 7] and means.embeddings.tolist() == [[10, 10], [9, 3], [1, 0]]
    queries = torch.tensor([[1.0, 1.0], [8.0, 4.0], [20.0, 20.0]])
    assert nearest_mean_predict(queries, means).tolist() == [7, 4, -2]
    assert nearest_mean_predict(queries, means, cosine()).tolist() == [-2, 4, -2]


def test_the_printed_example_of_anchors() -> None:
    f = torch.tensor([[0.3, -0.2]])
    assert nearest_mean_predict(f, circle(10), Euclidean()).tolist() == [9] == nearest_mean_predict(f, circle(10), cosine()).tolist()
    assert nearest_mean_predict(torch.tensor([[0.9, 0.1, 0], [0.2, 0.5, 0.4]]), torch.eye(3)).tolist() == [0, 1]


def test_soft_neighbors_equal_the_loop() -> None:
    points = drawn(12, 0)
    shares, classes = soft_probabilities(points, affinity=SquaredEuclidean(0.5))
    assert classes.tolist() == sorted(set(points.labels.tolist()))
    x, y = points.embeddings.double(), points.labels.tolist()
    for i in range(12):
        weight = {j: math.exp(-float((x[i] - x[j]).square().sum()) / 0.5) for j in range(12) if j != i}
        for c, label in enumerate(classes.tolist()):
            assert float(shares[i, c]) == pytest.approx(sum(w for j, w in weight.items() if y[j] == label) / sum(weight.values()), abs=1e-6)


def test_soft_neighbors_of_the_printed_three_points() -> None:
    points = Points(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1]))
    shares, _ = soft_probabilities(points)
    torch.testing.assert_close(shares[:, 0], torch.tensor([0.99966465, 0.952574127, 1.0], dtype=torch.float64), atol=1e-8, rtol=0)
    mean = soft_mean(points._replace(labels=torch.tensor([0.0, 1.0, 3.0])))
    expected = torch.tensor([0.99966465 + 3 * 3.3535013e-4, 3 * 0.0474258732, 0.993307149], dtype=torch.float64)
    torch.testing.assert_close(mean, expected, atol=1e-8, rtol=0)


def test_far_points_have_a_soft_prediction() -> None:
    references = Points(torch.tensor([[0.0], [1000.0]]), torch.tensor([0, 1]))
    shares, _ = soft_probabilities(torch.tensor([[-9000.0], [9000.0]]), references)
    assert shares.tolist() == [[1, 0], [0, 1]]


def test_means_of_neighbors() -> None:
    references = Points(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([[1.0, 10.0], [3.0, 30.0], [100.0, 0.0]]))
    assert knn_regress(torch.tensor([[0.2], [4.0]]), references, 2).tolist() == [[2.0, 20.0], [51.5, 15.0]]
    flat = references._replace(labels=torch.tensor([350.0, 10.0, 90.0]))
    assert knn_regress(torch.tensor([[0.2]]), flat, 2).tolist() == [180.0]
    assert float(knn_regress(torch.tensor([[0.2]]), flat, 2, period=360)) % 360 == pytest.approx(0.0, abs=1e-9)
    weights = torch.tensor([-0.04, -0.64]).softmax(0)
    angle = math.degrees(
        math.atan2(*(float((weights * f(torch.deg2rad(torch.tensor([350.0, 10.0])))).sum()) for f in (torch.sin, torch.cos)))
    )
    near_two = Points(references.embeddings[:2], flat.labels[:2])
    assert float(soft_mean(torch.tensor([[0.2]]), near_two, period=360)) == pytest.approx(angle % 360, abs=1e-5)


def test_all_predictors_and_their_accuracy() -> None:
    queries, references = drawn(60, 0, d=2), drawn(90, 1, d=2)
    named = predictions(queries, references, ks=(1, 7))
    assert list(named) == ["1-nn", "7-nn", "weighted 90-nn", "nearest class mean", "soft neighbors"]
    assert torch.equal(named["7-nn"], knn_predict(queries, references, 7))
    assert torch.equal(named["weighted 90-nn"], weighted_knn_predict(queries, references, 200, SquaredEuclidean()))
    assert torch.equal(named["nearest class mean"], nearest_mean_predict(queries, class_means(references)))
    scores = classification(queries, references, ks=(1, 7), split="validation", draws=50)
    for name, predicted in named.items():
        assert (
            scores[name].value == pytest.approx(float((predicted == queries.labels).double().mean())) and scores[name].split == "validation"
        )
        assert scores[name].chance == pytest.approx(float(torch.bincount(queries.labels).max()) / 60) and scores[name].counted == 60
    cosines = predictions(queries, references, cosine(), ks=(1,))
    assert torch.equal(cosines["weighted 90-nn"], weighted_knn_predict(queries, references))


@pytest.mark.parametrize("affinity", [None, cosine(), InnerProduct(), Euclidean()])
def test_leave_one_out_equals_the_loop(affinity: Any) -> None:
    points = drawn(40, 3, classes=5)
    named = predictions(points, affinity=affinity, ks=(1, 3))
    metric = SquaredEuclidean() if affinity is None else affinity
    for i in range(40):
        others = torch.arange(40) != i
        rest = Points(points.embeddings[others], points.labels[others])
        one = points.embeddings[i : i + 1]
        assert int(named["3-nn"][i]) == int(knn_predict(one, rest, 3, affinity))
        assert int(named["nearest class mean"][i]) == int(nearest_mean_predict(one, class_means(rest), metric))
        assert int(named["soft neighbors"][i]) == int(soft_probabilities(one, rest, affinity)[0].argmax())


def test_a_query_among_the_references_is_left_out_of_its_own_prediction() -> None:
    points = drawn(40, 3, classes=5)._replace(ids=torch.randperm(40, generator=torch.Generator().manual_seed(1)))
    alone, others = predictions(points, ks=(1, 3)), Points(*drawn(9, 4)[:2], torch.arange(100, 109))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    among = predictions(points, Points(points.embeddings[order], points.labels[order], points.ids[order]), ks=(1, 3))
    assert all(torch.equal(a, b) for a, b in zip(alone.values(), among.values(), strict=True)), "weighted 39-nn is here 40-nn"
    both = Points(*(torch.cat([a, b]) for a, b in zip(points, others, strict=True)))
    mixed = predictions(both, points, ks=(1,))["nearest class mean"]
    assert torch.equal(mixed[:40], alone["nearest class mean"])
    assert torch.equal(mixed[40:], nearest_mean_predict(others, class_means(points)))
    twice = Points(points.embeddings.repeat(2, 1), points.labels.repeat(2), points.ids.repeat(2))
    assert "nearest class mean" not in predictions(points, twice)


def test_singletons_and_queries_without_neighbors_are_noted_and_counted() -> None:
    points = Points(torch.tensor([[0.0], [0.1], [5.0]]), torch.tensor([0, 0, 1]))
    scores = classification(points, ks=(1,), draws=0)
    assert scores["1-nn"].value == pytest.approx(2 / 3) and scores["nearest class mean"].value == pytest.approx(2 / 3)
    assert scores["1-nn"].notes == ("1 queries are of a class that no reference has; they count as errors",)
    groups = torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1])
    gallery = Points(points.embeddings + 0.01, points.labels)
    named = predictions(points, gallery, ks=(1, 3), groups=groups)
    assert named["1-nn"].tolist() == [1, 1, 1] == named["3-nn"].tolist() and "nearest class mean" not in named
    excluded = predictions(points, gallery, ks=(1,), groups=(groups[0], groups[0]))
    assert all(set(predicted.tolist()) == {NO_PREDICTION} for predicted in excluded.values())
    alone = classification(points, gallery, ks=(1,), groups=(groups[0], groups[0]), draws=0)["1-nn"]
    assert math.isnan(alone.value) and alone.left_out == {"no neighbor left after exclusion": 3} and alone.chance is None


def test_a_custom_affinity_has_no_leave_one_out_mean() -> None:
    points = drawn(20, 0)

    def manhattan(a: Tensor, b: Tensor) -> Tensor:
        return -torch.cdist(a, b, p=1)

    assert "nearest class mean" not in predictions(points, affinity=manhattan)
    assert "nearest class mean" in predictions(points, drawn(20, 1), manhattan)


def test_linear_probes_are_better_on_informative_layers() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(300, 6)
    labels = (x[:, 0] > 0).long() * 7 + (x[:, 1] > 0)
    train, test = (x[:200], labels[:200]), (x[200:], labels[200:])
    network.train()
    scores = linear_probes(network, ["0", "2"], train, test, draws=20, split="test")
    again = linear_probes(network, ["0", "2"], train, test, draws=20)
    assert network.training and list(scores) == ["0", "2"] and scores["0"].split == "test"
    assert scores["0"].value > 0.9 > scores["2"].value and scores["0"].value == again["0"].value
    with pytest.raises(ValueError, match="layers is empty; name at least one"):
        linear_probes(network, [], train, test)
    with pytest.raises(ValueError, match=r"layer 'conv9' is unknown"):
        linear_probes(network, ["conv9"], train, test)


def test_wide_maps_are_averaged_over_patches() -> None:
    network = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1))
    assert layer_features(network, torch.randn(5, 1, 32, 32), "0").shape == (5, 16 * 16 * 16)
    assert layer_features(network, torch.randn(5, 1, 8, 8), "0").shape == (5, 16 * 8 * 8)


def test_softmax_regression_finds_the_minimum() -> None:
    points = drawn(80, 0, classes=3)
    fitted = SoftmaxRegression(points.embeddings.double(), points.labels, penalty=0.01)
    x = (points.embeddings.double() - fitted.mean) * fitted.scale
    share = (x @ fitted.weight + fitted.bias).softmax(1).detach()
    gap = (share - torch.nn.functional.one_hot(points.labels, 3)) / 80
    assert float((x.T @ gap + 0.01 * fitted.weight.detach()).abs().max()) < 1e-4 and float(gap.sum(0).abs().max()) < 1e-4


def test_errors() -> None:
    p = drawn(6, 0)
    with pytest.raises(ValueError, match=r"references.labels are missing; a vote needs them"):
        weighted_knn_predict(p, p._replace(labels=None))
    with pytest.raises(ValueError, match=r"references.labels hold str, not a tensor of classes; convert them with codes, names ="):
        knn_predict(p, p._replace(labels=["a"] * 6), 1)
    with pytest.raises(ValueError, match=r"references.labels are torch.float32; classes are whole numbers"):
        soft_probabilities(p, p._replace(labels=p.labels.float()))
    with pytest.raises(ValueError, match=r"references.labels have shape \(3,\) for 6 embeddings; give numbers"):
        knn_regress(p, p._replace(labels=torch.zeros(3)), 1)
    with pytest.raises(
        ValueError, match=r"references.labels hold NaN or infinity in .* rows, first in .*; remove the points without a target"
    ):
        soft_mean(p, p._replace(labels=torch.full((6,), math.nan)))
    with pytest.raises(ValueError, match=r"references.labels are missing or not a tensor"):
        soft_mean(p, p._replace(labels=None))
