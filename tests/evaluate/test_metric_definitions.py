"""Metrics that are not rankings, each compared with its definition written out as a loop over lists."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from nearkin.compose.points import Points
from nearkin.evaluate import agreement, angular_error, collapse, confusion, knn_regress, pair_curves, per_class, regression
from nearkin.evaluate.clustering import _chance


def numbers(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_tables_of_classes(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    labels, predicted = torch.randint(4, (40,), generator=g).tolist(), torch.randint(5, (40,), generator=g).tolist()
    table = [[sum(t == a and p == b for t, p in zip(labels, predicted, strict=True)) for b in range(5)] for a in range(5)]
    assert confusion(torch.tensor(predicted), torch.tensor(labels), 5).tolist() == table
    for row in per_class(torch.tensor(predicted), torch.tensor(labels), 5):
        c = row.label
        hits, true, named = table[c][c], labels.count(c), predicted.count(c)
        expected = (hits / named if named else math.nan, hits / true if true else math.nan, 2 * hits / (true + named))
        assert (row.precision, row.recall, row.f1) == pytest.approx(expected, nan_ok=True)
        assert (row.queries, row.predicted) == (true, named)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("whole", [False, True])
def test_areas_of_curves(seed: int, whole: bool) -> None:
    """Precision at each positive pair, a tie taken whole; and which is nearer, for every positive and every negative pair."""
    x, labels = numbers((14, 2), seed), [i % 3 for i in range(14)]
    x = x.round() if whole else x
    near = {(i, j): -sum((a - b) ** 2 for a, b in zip(x[i].tolist(), x[j].tolist(), strict=True)) for i in range(14) for j in range(14)}
    positives = [value for (i, j), value in near.items() if i != j and labels[i] == labels[j]]
    negatives = [value for (i, j), value in near.items() if labels[i] != labels[j]]
    precisions, wins = [], 0.0
    for value in positives:
        hits, alarms = sum(other >= value for other in positives), sum(other >= value for other in negatives)
        precisions.append(hits / (hits + alarms))
        wins += sum(1.0 if value > other else 0.5 if value == other else 0.0 for other in negatives)
    pr, roc = pair_curves(Points(x, torch.tensor(labels)), draws=0)
    assert pr.area.value == pytest.approx(sum(precisions) / len(precisions))
    assert roc.area.value == pytest.approx(wins / (len(positives) * len(negatives)))


def mean_rank(value: float, among: list[float]) -> float:
    return sum(other < value for other in among) + (sum(other == value for other in among) + 1) / 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("whole", [False, True])
def test_errors_of_numbers(seed: int, whole: bool) -> None:
    targets, predicted = numbers((25,), seed), numbers((25,), seed + 10)
    targets, predicted = (targets.round(), predicted.round()) if whole else (targets, predicted)  # ties
    y, p, n = targets.tolist(), predicted.tolist(), 25
    found = regression(predicted, targets, draws=0)
    squares, mean = [(a - b) ** 2 for a, b in zip(p, y, strict=True)], sum(y) / n
    assert found["mae"].value == pytest.approx(sum(abs(a - b) for a, b in zip(p, y, strict=True)) / n)
    assert found["rmse"].value == pytest.approx(math.sqrt(sum(squares) / n))
    assert found["r2"].value == pytest.approx(1 - sum(squares) / sum((b - mean) ** 2 for b in y))
    ranks = [[mean_rank(value, row) - (n + 1) / 2 for value in row] for row in (p, y)]
    together = sum(a * b for a, b in zip(*ranks, strict=True))
    assert found["spearman"].value == pytest.approx(together / math.sqrt(math.prod(sum(a * a for a in row) for row in ranks)))


def test_angles() -> None:
    predicted, targets = numbers((12, 3), 0), numbers((12, 3), 1)
    angles = []
    for a, b in zip(predicted.tolist(), targets.tolist(), strict=True):
        angles.append(math.degrees(math.acos(sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b)))))
    score = angular_error(predicted, targets, draws=0)
    assert score.per_query.tolist() == pytest.approx(angles) and score.value == pytest.approx(sum(angles) / 12)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_the_mean_target_of_the_nearest(k: int) -> None:
    queries, references, targets = numbers((8, 3), 0), numbers((20, 3), 1), numbers((20,), 2)
    expected = []
    for q in queries.tolist():
        by_distance = sorted(range(20), key=lambda j: sum((a - b) ** 2 for a, b in zip(q, references[j].tolist(), strict=True)))
        expected.append(sum(float(targets[j]) for j in by_distance[:k]) / k)
    assert knn_regress(queries, Points(references, targets), k).tolist() == pytest.approx(expected)


def information(truth: tuple[int, ...], found: tuple[int, ...]) -> float:
    n, total = len(truth), 0.0
    for a in set(truth):
        for b in set(found):
            both = sum(t == a and f == b for t, f in zip(truth, found, strict=True))
            total += both / n * math.log(n * both / (truth.count(a) * found.count(b))) if both else 0.0
    return total


@pytest.mark.parametrize("found", [(0, 0, 1, 1, 2, 2), (0, 1, 1, 1, 0, 0), (2, 0, 1, 0, 1, 2)])
def test_information_corrected_by_every_assignment_of_the_points(found: tuple[int, ...]) -> None:
    """AMI, and the chance level of NMI: chance is the mean over all 720 ways to assign six points to these clusters."""
    truth = (0, 0, 0, 1, 1, 2)
    chance = sum(information(truth, assigned) for assigned in permutations(found)) / math.factorial(6)
    middle = sum(-sum(part.count(c) / 6 * math.log(part.count(c) / 6) for c in set(part)) for part in (truth, found)) / 2
    results = agreement(np.array(truth), np.array(found))
    assert results["ami"] == pytest.approx((information(truth, found) - chance) / (middle - chance))
    assert results["nmi"] == pytest.approx(information(truth, found) / middle)
    assert _chance(np.array(truth), np.array(found))["nmi"] == pytest.approx(chance / middle)


def test_the_effective_rank_of_a_plane() -> None:
    """Two singular values are the roots of a quadratic."""
    x = numbers((30, 2), 0) @ torch.tensor([[3.0, 1.0], [0.0, 0.5]], dtype=torch.float64) + 7
    rows = x.tolist()
    means = [sum(row[c] for row in rows) / 30 for c in range(2)]
    a, b, c = (sum((row[i] - means[i]) * (row[j] - means[j]) for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    root = math.sqrt((a - c) ** 2 / 4 + b * b)
    singular = [math.sqrt((a + c) / 2 + root), math.sqrt((a + c) / 2 - root)]
    shares = [value / sum(singular) for value in singular]
    assert collapse(x, draws=0)["effective_rank"].value == pytest.approx(math.exp(-sum(s * math.log(s) for s in shares)))
