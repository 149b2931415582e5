"""The threshold of the same class is the best one, and is tested on points it was not fitted on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearkin.index.calibration import best_threshold, calibrate


def balanced(affinity: np.ndarray, same: np.ndarray, threshold: float) -> float:
    said = affinity >= threshold
    return float((said[same].mean() + (~said[~same]).mean()) / 2)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=4, max_size=40))
def test_no_other_threshold_is_better(pairs: list[tuple[int, bool]]) -> None:
    affinity, same = np.array([float(a) for a, _ in pairs]), np.array([s for _, s in pairs])
    if not (same.any() and (~same).any()):
        return
    chosen = balanced(affinity, same, best_threshold(affinity, same))
    assert chosen >= max(balanced(affinity, same, cut) for cut in np.arange(-5.0, 6.0)) - 1e-12


def test_the_threshold_lies_midway_between_the_classes() -> None:
    assert best_threshold(np.array([-1.0, -2.0, -8.0, -9.0]), np.array([True, True, False, False])) == -5.0


@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine"])
def test_separate_classes_are_separated(metric: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    vectors = (np.eye(4)[labels] * 10 + rng.normal(size=(400, 4))).astype(np.float32)
    rule = calibrate(vectors, labels, np.arange(300), metric)
    assert rule is not None and rule["accuracy"] > 0.95 and rule["queries"] == 300


def test_noise_has_chance_accuracy() -> None:
    rng = np.random.default_rng(0)
    rule = calibrate(rng.normal(size=(400, 4)).astype(np.float32), rng.integers(0, 4, 400), np.arange(400), "squared_euclidean")
    assert rule is not None and abs(rule["accuracy"] - 0.5) < 0.1


@pytest.mark.parametrize("labels", [np.zeros(100, int), np.arange(100)])
def test_a_single_class_fits_nothing(labels: np.ndarray) -> None:
    vectors = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    assert calibrate(vectors, labels, np.arange(100), "cosine") is None
    assert calibrate(vectors[:1], labels[:1], np.arange(1), "cosine") is None
