"""Every metric on odd inputs: each figure is finite, refused, or NaN with a reason that the score states."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from nearkin import Points
from nearkin.compose.affinity import Affinity, cosine
from nearkin.evaluate import (
    NO_PREDICTION,
    Score,
    accuracy,
    agreement,
    angular_error,
    classification,
    clustering,
    collapse,
    consistency,
    pair_curves,
    per_class,
    regression,
    retrieval,
)

RANDOM = torch.Generator().manual_seed(0)


def some(n: int, labels: list[int] | None = None, d: int = 3, scale: float = 1.0) -> Points:
    x = torch.randn(n, d, generator=RANDOM) * scale
    return Points(x, torch.arange(n) % 2 if labels is None else torch.tensor(labels), torch.arange(n))


ODD = {
    "one point": some(1),
    "two points": some(2),
    "two of one class": some(2, [0, 0]),
    "one class": some(8, [0] * 8),
    "no two alike": some(6, list(range(6))),
    "one pair": some(5, [0, 0, 1, 2, 3]),
    "all equal": Points(torch.ones(8, 3), torch.arange(8) % 2, torch.arange(8)),
    "all zero": Points(torch.zeros(8, 3), torch.arange(8) % 2, torch.arange(8)),
    "no label known": some(6, [-1] * 6),
    "one label known": some(6, [-1] * 5 + [2]),
    "huge": some(8, scale=1e17),
    "tiny": some(8, scale=1e-30),
    "one dimension": some(8, d=1),
}
METRICS: dict[str, Callable[[Points, Affinity | None], Mapping[str, Score]]] = {
    "classification": lambda points, affinity: classification(points, affinity=affinity, draws=50),
    "retrieval": lambda points, affinity: retrieval(points, affinity=affinity, draws=50),
    "clustering": lambda points, affinity: clustering(points, affinity, restarts=2),
    "collapse": lambda points, _: collapse(points, draws=50),
    "consistency": lambda points, affinity: consistency(points, affinity, draws=50),
    "curves": lambda points, affinity: {curve.name: curve.area for curve in pair_curves(points, affinity=affinity, draws=50)},
}


def explained(scores: Mapping[str, Score]) -> None:
    """No infinity; NaN only with a reason; an interval has both ends or none, and holds no NaN of its own."""
    for score in scores.values():
        assert math.isfinite(score.value) or (math.isnan(score.value) and (score.left_out or score.notes)), score
        assert score.chance is None or math.isfinite(score.chance), score
        assert math.isnan(score.low) == math.isnan(score.high) and not math.isinf(score.low), score
        assert score.as_dict()["value"] is None or math.isfinite(float(score))


@pytest.mark.parametrize("affinity", [None, cosine()], ids=["squared", "cosine"])
@pytest.mark.parametrize("case", list(ODD))
def test_figures_of_odd_points_are_finite_refused_or_explained(case: str, affinity: Affinity | None) -> None:
    for name, metric in METRICS.items():
        try:
            explained(metric(ODD[case], affinity))
        except ValueError as error:
            assert name == "curves" and "a curve needs both" in str(error)  # noqa: PT017


@pytest.mark.parametrize("metric", ["classification", "retrieval", "consistency", "curves"])
def test_numbers_whose_distances_overflow_are_refused(metric: str) -> None:
    with pytest.raises(ValueError, match=r"queries reach .*e\+.*, and squared distances overflow above .*; divide them"):
        METRICS[metric](some(8, scale=1e30), None)
    explained(METRICS[metric](some(8, scale=1e30), cosine()))  # of unit vectors


NUMBERS = torch.randn(8, 2, generator=RANDOM)


@pytest.mark.parametrize(
    ("predicted", "targets"),
    [
        (NUMBERS, torch.ones(8, 2)),
        (torch.ones(8, 2), torch.ones(8, 2)),
        (torch.ones(8, 2), NUMBERS),
        (NUMBERS[:1], NUMBERS[:1] + 1),
        (NUMBERS[:2], NUMBERS[:2] + 1),
        (1e30 * NUMBERS, 1e30 * NUMBERS + 1e29),
        (torch.zeros(4, 2), torch.zeros(4, 2)),
    ],
    ids=["constant targets", "both constant", "constant", "one", "two", "huge", "zero"],
)
def test_figures_of_odd_numbers_are_finite_or_explained(predicted: torch.Tensor, targets: torch.Tensor) -> None:
    explained(regression(predicted, targets))
    explained(regression(predicted, targets, period=1.0))
    explained({"angle": angular_error(predicted, targets)})


def test_labels_without_a_prediction_are_explained() -> None:
    explained({"accuracy": accuracy(torch.full((3,), NO_PREDICTION), torch.arange(3))})
    rows = per_class(torch.tensor([0, 0]), torch.tensor([0, 2]))
    assert math.isnan(rows[1].precision) and rows[1].predicted == rows[1].queries == 0  # a ratio without cases, as documented


def test_nothing_to_measure_is_refused() -> None:
    none = torch.empty(0, dtype=torch.long)
    with pytest.raises(ValueError, match="predicted are empty, so that there is nothing to measure"):
        accuracy(none, none)
    for metric in (regression, angular_error):
        with pytest.raises(ValueError, match="targets are empty, so that there is nothing to measure"):
            metric(torch.empty(0, 2), torch.empty(0, 2))
    for truth, found in (([], []), ([-1, 0], [0, 0]), ([0.5, 1], [0, 0])):
        with pytest.raises(ValueError, match=r"truth must be whole numbers .n,. from 0, for at least one point"):
            agreement(np.array(truth), np.array(found))
    with pytest.raises(ValueError, match="truth has 2 entries and found 3"):
        agreement(np.array([0, 1]), np.array([0, 1, 1]))
