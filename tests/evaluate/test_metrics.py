"""Accuracy tables, curves, clustering, regression, collapse and scores, against literal loops and against scikit-learn."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn import metrics as sk

from nearkin.compose.affinity import Euclidean, SquaredEuclidean, cosine
from nearkin.compose.points import Points
from nearkin.evaluate import (
    NO_PREDICTION,
    Score,
    accuracy,
    agreement,
    angular_error,
    best,
    clustering,
    collapse,
    confusion,
    pair_curves,
    per_class,
    pr_curve,
    regression,
    retrieval,
    roc_curve,
)
from nearkin.evaluate import curves as curves_module
from nearkin.evaluate.score import bootstrap_intervals, mean_score


def drawn(n: int, seed: int, classes: int = 4, d: int = 3) -> Points:
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=g)
    return Points(torch.randn(n, d, generator=g) + 0.7 * torch.randn(classes, d, generator=g)[labels], labels)


# accuracy


def test_confusion_and_the_table_of_classes() -> None:
    labels, predicted = torch.tensor([0, 0, 0, 1, 1, 3]), torch.tensor([0, 1, 0, 1, 0, 1])
    assert confusion(predicted, labels).tolist() == sk.confusion_matrix(labels, predicted, labels=range(4)).tolist()
    assert confusion(predicted, labels, 6).shape == (6, 6)
    rows = per_class(predicted, labels)
    precision, recall, f1, support = sk.precision_recall_fscore_support(labels, predicted, labels=range(4), zero_division=np.nan)
    for row, *expected in zip(rows, precision, recall, f1, support, strict=True):
        assert [row.precision, row.recall, row.f1, row.queries] == pytest.approx(expected, nan_ok=True)
    assert [row.label for row in rows] == [0, 1, 2, 3] and [row.predicted for row in rows] == [3, 3, 0, 0]
    score = accuracy(predicted, labels, split="test")
    assert score.value == 0.5 and score.chance == 0.5 and score.per_query.tolist() == [1, 0, 1, 1, 0, 0]


def test_queries_without_prediction_are_left_out_of_tables() -> None:
    labels, predicted = torch.tensor([0, 1, 1]), torch.tensor([0, NO_PREDICTION, 1])
    assert confusion(predicted, labels).tolist() == [[1, 0], [0, 1]] and accuracy(predicted, labels).counted == 2


def test_errors_of_tables() -> None:
    with pytest.raises(ValueError, match=r"class -1 is outside 0\.\.2; nearkin.encode_labels gives classes"):
        confusion(torch.tensor([0, 2]), torch.tensor([-1, 2]))
    with pytest.raises(ValueError, match=r"class 5 is outside 0\.\.2"):
        confusion(torch.tensor([0, 5]), torch.tensor([1, 2]), 3)
    with pytest.raises(ValueError, match=r"labels have shape \(3,\) for 2 embeddings"):
        accuracy(torch.tensor([0, 5]), torch.tensor([1, 2, 3]))


# curves


def pairs(points: Points) -> tuple[list[bool], list[float]]:
    positives, near = [], []
    x, y = points.embeddings.double(), points.labels.tolist()
    for i in range(len(y)):
        for j in range(len(y)):
            if i != j:
                positives.append(y[i] == y[j])
                near.append(-float((x[i] - x[j]).square().sum()))
    return positives, near


@pytest.mark.parametrize("whole", [False, True])
def test_curves_are_those_of_scikit_learn(whole: bool) -> None:
    points = drawn(60, 0)
    points = points._replace(embeddings=points.embeddings.round()) if whole else points  # ties
    positives, near = pairs(points)
    pr, roc = pair_curves(points, draws=40)
    assert pr.area.value == pytest.approx(sk.average_precision_score(positives, near)) and pr.area.chance == pytest.approx(
        sum(positives) / len(positives)
    )
    assert roc.area.value == pytest.approx(sk.roc_auc_score(positives, near)) and roc.area.chance == 0.5
    assert pr.area.counted == 60 * 59 and pr.area.left_out == {"excluded pairs": 60} and pr.area.notes == ()
    assert pr.area.low < pr.area.value < pr.area.high and roc.area.low < roc.area.value < roc.area.high
    for at in (0, 3, len(pr.x) // 2, len(pr.x) - 2):
        chosen = [
            k for k, value in zip(positives, near, strict=True) if value >= float(pr.thresholds[at]) - 1e-6 * abs(float(pr.thresholds[at]))
        ]
        assert float(pr.x[at]) == pytest.approx(sum(chosen) / sum(positives)) and float(pr.y[at]) == pytest.approx(
            sum(chosen) / len(chosen)
        )
    assert [float(v) for v in (roc.x[0], roc.y[0], roc.x[-1], roc.y[-1])] == [0, 0, 1, 1]
    assert bool((roc.x.diff() >= 0).all()) and bool((pr.x.diff() >= 0).all()) and bool((pr.thresholds.diff() < 0).all())


def test_many_pairs_use_quantiles_and_note_the_error_of_the_area(monkeypatch: pytest.MonkeyPatch) -> None:
    points = drawn(120, 0)
    exact = pair_curves(points, draws=0)
    monkeypatch.setattr(curves_module, "FEW", 10)
    monkeypatch.setattr(curves_module, "QUANTILES", 60)
    for mine, true in zip(pair_curves(points, draws=20), exact, strict=True):
        bound = float(mine.area.notes[0].split("off by ")[1].split(" ")[0])
        assert mine.area.notes[0].endswith("at most") and abs(mine.area.value - true.area.value) <= bound * 1.1 < 0.05


def test_too_many_pairs_are_reduced_by_queries_and_noted() -> None:
    points = drawn(90, 0)._replace(ids=torch.arange(90))
    some = torch.linspace(0, 89, 30).long()
    expected = pair_curves(Points(points.embeddings[some], points.labels[some], some), points, draws=0)
    for mine, true in zip(pair_curves(points, pairs=30 * 90 + 5, draws=0), expected, strict=True):
        assert mine.area.value == pytest.approx(true.area.value) and mine.area.notes == ("30 of 90 queries, evenly spaced",)
    groups = torch.arange(90) // 3
    assert pair_curves(points, groups=groups, pairs=90 * 9, draws=0)[0].area.counted == 9 * 87
    assert pair_curves(points, pairs=None, draws=0)[0].area.notes == ()


def test_curve_thresholds_are_affinities() -> None:
    points = drawn(30, 0)
    plain, rooted = roc_curve(points, affinity=SquaredEuclidean(2.0)), roc_curve(points, affinity=Euclidean())
    torch.testing.assert_close(rooted.thresholds[1:-1], -(-plain.thresholds[1:-1] * 2).sqrt())
    assert rooted.area.value == plain.area.value
    gallery = drawn(20, 1)
    assert pr_curve(points, gallery, cosine(), split="test").area.split == "test"
    with pytest.raises(ValueError, match="there are 0 positive and 6 negative pairs; a curve needs both"):
        roc_curve(Points(points.embeddings[:3], torch.arange(3)))


# clustering


def counted_pairs(truth: list[int], found: list[int]) -> tuple[int, int, int]:
    both = one = other = 0
    for i, j in combinations(range(len(truth)), 2):
        same, together = truth[i] == truth[j], found[i] == found[j]
        both, one, other = both + (same and together), one + same, other + together
    return both, one, other


def information(truth: list[int], found: list[int]) -> float:
    """NMI with the arithmetic mean, from probabilities."""
    n = len(truth)

    def entropy(values: list[Any]) -> float:
        return -sum(values.count(v) / n * math.log(values.count(v) / n) for v in set(values))

    together = entropy(list(zip(truth, found, strict=True)))
    return (entropy(truth) + entropy(found) - together) / ((entropy(truth) + entropy(found)) / 2)


@pytest.mark.parametrize("seed", range(4))
def test_agreement_equals_the_loops(seed: int) -> None:
    g = np.random.default_rng(seed)
    truth, found = g.integers(4, size=30), g.integers(5, size=30)
    results = agreement(truth, found)
    both, one, other = counted_pairs(truth.tolist(), found.tolist())
    assert results["pairwise_f1"] == pytest.approx(2 * both / (one + other))
    expected, total = one * other / math.comb(30, 2), (one + other) / 2
    assert results["ari"] == pytest.approx((both - expected) / (total - expected))
    assert results["nmi"] == pytest.approx(information(truth.tolist(), found.tolist()))


def test_clustering_and_super_categories() -> None:
    centers = torch.tensor([[0.0, 0], [0, 1], [20, 0], [20, 1]])
    labels = torch.arange(4).repeat_interleave(25)
    points = Points(centers[labels] + 0.01 * torch.randn(100, 2, generator=torch.Generator().manual_seed(0)), labels)
    fine = clustering(points, restarts=3, split="validation")
    assert list(fine) == ["nmi", "ami", "ari", "pairwise_f1"] and fine["nmi"].split == "validation"
    coarse = clustering(points, labels=labels // 2, restarts=3)
    for score in (*fine.values(), *coarse.values()):
        assert score.value == pytest.approx(1.0) and score.low <= score.value <= score.high and score.counted == 100
    assert fine["ami"].chance == 0.0 and fine["pairwise_f1"].chance == pytest.approx(24 / 99)
    assert fine["nmi"].notes[0] == "4 clusters, best of 3 restarts by inertia; the interval is their range"
    assert clustering(points, clusters=7, restarts=1)["nmi"].notes[0].startswith("7 clusters")


def test_trap_33_noise_has_a_high_nmi_and_as_high_a_chance_level() -> None:
    g = torch.Generator().manual_seed(0)
    noise = Points(torch.randn(400, 8, generator=g), torch.arange(400) % 100)
    found = clustering(noise, restarts=2)
    assert found["nmi"].value > 0.6 and found["nmi"].chance == pytest.approx(found["nmi"].value, abs=0.03)
    assert abs(found["ami"].value) < 0.05 and abs(found["ari"].value) < 0.02
    assert found["pairwise_f1"].value == pytest.approx(found["pairwise_f1"].chance, abs=0.01)


def test_trap_34_a_cosine_model_is_clustered_on_the_sphere() -> None:
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    angle = 2 * math.pi / 3 * labels + 0.1 * torch.randn(90, generator=g)
    length = torch.exp(1.5 * torch.randn(90, generator=g))
    points = Points(length[:, None] * torch.stack([angle.cos(), angle.sin()], 1), labels)
    assert clustering(points, cosine(0.1), restarts=3)["nmi"].value == pytest.approx(1.0)
    assert clustering(points, restarts=3)["nmi"].value < 0.9


def test_errors_of_clustering() -> None:
    points = drawn(10, 0)
    with pytest.raises(ValueError, match=r"clusters \(11\) must be between 1 and the number of points \(10\)"):
        clustering(points, clusters=11)
    with pytest.raises(ValueError, match=r"restarts \(0\) must be a whole number of at least 1"):
        clustering(points, restarts=0)
    with pytest.raises(ValueError, match=r"points.labels are missing; clusters are compared with them"):
        clustering(points._replace(labels=None))
    with pytest.raises(ValueError, match=r"labels hold str, not a tensor of classes"):
        clustering(points, labels=["a"] * 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"points hold NaN or infinity in 10 rows"):
        clustering(points._replace(embeddings=points.embeddings * math.nan))


# regression


def test_regression_is_that_of_scikit_learn_and_scipy() -> None:
    g = torch.Generator().manual_seed(0)
    y = torch.randn(200, 2, generator=g).double()
    p = y + torch.randn(200, 2, generator=g)
    p[:, 1], y[:, 1] = p[:, 1].round(), y[:, 1].round()  # ties
    found = regression(p, y, draws=200, split="validation")
    assert found["mae"].value == pytest.approx(sk.mean_absolute_error(y, p)) and not found["mae"].larger_is_better
    assert found["rmse"].value == pytest.approx(math.sqrt(sk.mean_squared_error(y, p))) and not found["rmse"].larger_is_better
    assert found["r2"].value == pytest.approx(sk.r2_score(y, p)) and found["r2"].chance == 0
    assert found["spearman"].value == pytest.approx(np.mean([spearmanr(y[:, t], p[:, t]).statistic for t in range(2)]))
    for score in found.values():
        assert score.low < score.value < score.high and score.counted == 200 and score.split == "validation"
    constant = regression(y.mean(0).expand(200, 2), y, draws=0)
    assert constant["rmse"].value == pytest.approx(found["rmse"].chance) and constant["r2"].value == pytest.approx(0.0)
    assert regression(y.median(0).values.expand(200, 2), y, draws=0)["mae"].value == pytest.approx(found["mae"].chance)
    assert constant["spearman"].value == 0.0 and math.isnan(constant["rmse"].low)


def test_periodic_targets() -> None:
    found = regression(torch.tensor([359.0, 10.0]), torch.tensor([1.0, 350.0]), period=360, draws=0)
    assert list(found) == ["mae", "rmse"] and found["mae"].value == 11.0 and found["rmse"].value == pytest.approx(math.sqrt(202))
    assert found["mae"].chance is None


def test_angular_error() -> None:
    p = torch.tensor([[1.0, 0], [0, 2.0], [0, 0], [1.0, 1e-9]])
    y = torch.tensor([[3.0, 0], [1.0, 1.0], [1.0, 0], [-1.0, 0]])
    score = angular_error(p, y, draws=10)
    assert score.per_query[:2].tolist() == pytest.approx([0, 45]) and score.per_query[3] == pytest.approx(180)
    assert score.left_out == {"a vector of length zero": 1} and score.counted == 3 and score.chance == 90 and not score.larger_is_better
    tiny = angular_error(torch.tensor([[1.0, 1e-6]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert tiny.value == pytest.approx(math.degrees(1e-6), rel=1e-6)


def test_errors_of_regression() -> None:
    y = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"predicted have shape \(3,\) and targets \(3, 2\); both must be the same"):
        regression(y[:, 0], y)
    with pytest.raises(ValueError, match="predicted hold NaN or infinity"):
        regression(y * math.nan, y)
    with pytest.raises(ValueError, match=r"give directions \(n, t\), t >= 2, for both"):
        angular_error(y[:, :1], y[:, :1])
    assert regression(y, y, draws=0)["r2"].notes == ("2 of 2 targets are constant and are left out of r2 and spearman",)
    assert math.isnan(regression(y, y, draws=0)["r2"].value)


# collapse


def test_the_interval_of_the_effective_rank_contains_the_value_and_has_the_right_width() -> None:
    """With about as many points as dimensions a bootstrap misses the value: points drawn twice add no dimension."""
    g = torch.Generator().manual_seed(3)
    spread = torch.exp(-0.1 * torch.arange(32.0))
    found = [collapse(torch.randn(60, 32, generator=g) * spread)["effective_rank"] for _ in range(40)]
    assert all(score.low < score.value < score.high for score in found)
    values = torch.tensor([score.value for score in found])
    width = sum(score.high - score.low for score in found) / len(found) / (2 * 1.96)
    assert 0.7 < width / float(values.std()) < 2
    full = collapse(torch.eye(9) * 1000)["effective_rank"]
    assert full.low <= full.value <= full.high <= 8 + 1e-9


def test_effective_rank() -> None:
    g = torch.Generator().manual_seed(0)
    round_ball = torch.randn(5000, 6, generator=g)
    assert collapse(round_ball)["effective_rank"].value == pytest.approx(6, abs=0.02)
    x = torch.randn(80, 5, generator=g).double() + 100
    singular = torch.linalg.svdvals(x - x.mean(0))
    share = singular / singular.sum()
    found = collapse(Points(x), draws=100, split="validation")["effective_rank"]
    assert found.value == pytest.approx(math.exp(-float((share * share.log()).sum()))) and found.split == "validation"
    assert found.low < found.value < found.high and found.counted == 80
    assert collapse(torch.randn(500, 1, generator=g) @ torch.randn(1, 9, generator=g) + 5)["effective_rank"].value == pytest.approx(
        1, abs=1e-3
    )
    assert collapse(torch.full((50, 4), 3.3))["effective_rank"].value == 0 and collapse(torch.ones(1, 3))["effective_rank"].value == 0
    with pytest.raises(ValueError, match="points must be a tensor"):
        collapse(torch.zeros(3))


# scores


def test_scores_of_the_test_part_cannot_be_compared() -> None:
    points = drawn(40, 0)
    test = [retrieval(points, split="test", draws=0)["map"] for _ in range(2)]
    for choose in (max, min, sorted):
        with pytest.raises(
            ValueError, match="map was measured on the test part, which must not be used to choose; compare scores of the validation"
        ):
            choose(test)
    with pytest.raises(ValueError, match="must not be used to choose"):
        best({"only": test[0]})
    assert float(test[0]) == test[0].value, "reading it is allowed"


def test_the_best_of_the_validation_part() -> None:
    good, bad, same = (Score("map", value, split="validation") for value in (0.9, 0.2, 0.9))
    assert best({"a": bad, "b": good, "c": same}) == "b" and max([bad, good]) is good and min([bad, good]) is bad
    near, far = Score("mae", 1.0, larger_is_better=False), Score("mae", 2.0, larger_is_better=False)
    assert best({"far": far, "near": near}) == "near" and max(near, far) is near
    with pytest.raises(ValueError, match="mae and map are different metrics; compare scores of one name"):
        max(good, near)
    with pytest.raises(ValueError, match=r"map is compared with 0\.5, which is not a Score; use float\(score\) to compare with a number"):
        max(good, 0.5)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="scores is empty; there is nothing to choose from"):
        best({})


def test_a_score_as_a_dictionary() -> None:
    score = mean_score("map", torch.tensor([0.5, math.nan, 1.0]), chance=0.1, left_out={"a": 1, "b": 0}, draws=0)
    assert score.as_dict() == {
        "name": "map", "value": 0.75, "low": None, "high": None, "chance": 0.1, "counted": 2, "larger_is_better": True, "split": None,
        "left_out": {"a": 1}, "notes": [],
    }  # fmt: skip


def test_bootstrap_intervals() -> None:
    g = torch.Generator().manual_seed(0)
    values = torch.rand(2000, 2, generator=g).double()
    values[::2, 1] = math.nan
    for column, (low, high) in enumerate(bootstrap_intervals(values, 2000)):
        known = values[~values[:, column].isnan(), column]
        half = 1.96 * float(known.std()) / math.sqrt(len(known))
        assert (low, high) == pytest.approx((float(known.mean()) - half, float(known.mean()) + half), abs=half / 8)
    assert bootstrap_intervals(values, 50, 1) == bootstrap_intervals(values, 50, 1) != bootstrap_intervals(values, 50, 2)
    assert all(math.isnan(end) for end in bootstrap_intervals(values[:0])[0] + bootstrap_intervals(values, 0)[0])
    assert all(math.isnan(end) for end in bootstrap_intervals(torch.full((3, 1), math.nan))[0])
