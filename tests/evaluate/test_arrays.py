"""numpy arrays are accepted wherever tensors are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nearkin.evaluate as ev
from nearkin.compose.points import Points, as_tensors
from nearkin.search import nearest

DRAWN = np.random.default_rng(0)
X, Y = DRAWN.normal(size=(40, 5)).astype(np.float32), DRAWN.integers(0, 3, 40)
Q, A = DRAWN.normal(size=(20, 5)).astype(np.float32), DRAWN.integers(0, 3, 20)
GROUPS = DRAWN.integers(0, 9, 20), DRAWN.integers(0, 9, 40)
FUNCTIONS: dict[str, Callable[[Callable[[np.ndarray], Any]], Any]] = {
    "accuracy": lambda of: ev.accuracy(of(Y[:20]), of(A)),
    "angular_error": lambda of: ev.angular_error(of(X[:20]), of(Q)),
    "class_means": lambda of: ev.class_means(Points(of(X), of(Y))),
    "classification": lambda of: ev.classification(Points(of(Q), of(A)), Points(of(X), of(Y)), groups=(of(GROUPS[0]), of(GROUPS[1]))),
    "clean": lambda of: ev.clean(of(X), of(Y)),
    "clustering": lambda of: ev.clustering(Points(of(X)), labels=of(Y)),
    "collapse": lambda of: ev.collapse(of(X)),
    "confusion": lambda of: ev.confusion(of(Y[:20]), of(A)),
    "consistency": lambda of: ev.consistency(Points(of(X), of(Y))),
    "expected_calibration_error": lambda of: ev.expected_calibration_error(of(np.abs(Q[:, 0]) / 9), of(A == 0)),
    "hubness": lambda of: ev.hubness(Points(of(Q), of(A)), Points(of(X), of(Y)), k=3),
    "knn_accuracy": lambda of: ev.knn_accuracy(Points(of(Q), of(A)), Points(of(X), of(Y)), 3),
    "knn_predict": lambda of: ev.knn_predict(of(Q), Points(of(X), of(Y)), 3),
    "knn_regress": lambda of: ev.knn_regress(of(Q), Points(of(X), of(X[:, 0])), 3),
    "label_errors": lambda of: ev.label_errors(of(X), of(Y)).margin,
    "nearest": lambda of: nearest(Points(of(X), ids=of(np.arange(40))), Points(of(X), ids=of(np.arange(40))), 3, exclude_same_id=True),
    "nearest_mean_predict": lambda of: ev.nearest_mean_predict(of(Q), of(X[:3])),
    "pair_curves": lambda of: ev.pair_curves(Points(of(X), of(Y))),
    "per_class": lambda of: ev.per_class(of(Y[:20]), of(A)),
    "pick": lambda of: ev.pick(of(X), of(np.where(np.arange(40) < 30, Y, -1)), 5),
    "pr_curve": lambda of: ev.pr_curve(Points(of(X), of(Y))),
    "predictions": lambda of: ev.predictions(Points(of(Q), of(A)), Points(of(X), of(Y))),
    "regression": lambda of: ev.regression(of(X[:20, 0]), of(Q[:, 0])),
    "retrieval": lambda of: ev.retrieval(Points(of(X), of(Y))),
    "roc_curve": lambda of: ev.roc_curve(Points(of(X), of(Y))),
    "silhouette": lambda of: ev.silhouette(Points(of(X), of(Y))),
    "soft_mean": lambda of: ev.soft_mean(of(Q), Points(of(X), of(X[:, 0]))),
    "soft_probabilities": lambda of: ev.soft_probabilities(of(Q), Points(of(X), of(Y))),
    "verification": lambda of: ev.verification(Points(of(X), of(Y))),
    "vote": lambda of: ev.vote(of(Y.reshape(8, 5))),
    "weighted_knn_predict": lambda of: ev.weighted_knn_predict(of(Q), Points(of(X), of(Y)), 3),
    "weighted_vote": lambda of: ev.weighted_vote(of(Y.reshape(8, 5)), of(X[:8])),
}
OTHERS = {
    "NO_PREDICTION",
    "ClassRow",
    "Curve",
    "LabelErrors",
    "Picks",
    "Problem",
    "Problems",
    "Score",
    "agreement",
    "best",
    "linear_probes",
}  # take no points


def test_every_function_of_points_is_here() -> None:
    assert {*FUNCTIONS} - {"nearest"} == {*ev.__all__} - OTHERS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_give_the_results_of_tensors(name: str) -> None:
    assert str(FUNCTIONS[name](lambda array: array)) == str(FUNCTIONS[name](torch.from_numpy))


def test_arrays_are_shared_where_torch_can_and_copied_where_it_cannot(tmp_path: Path) -> None:
    shared = as_tensors(X)
    assert shared.data_ptr() == X.ctypes.data
    locked = X.copy()
    locked.setflags(write=False)
    for odd in (locked, X[::-1], X.T, X.astype(">f4"), X > 0, Y.astype(np.uint8)):
        assert torch.equal(as_tensors(odd), torch.from_numpy(np.array(odd.astype(odd.dtype.newbyteorder("=")))))
    names = np.array(["cat", "dog"])
    assert as_tensors(names) is names and as_tensors(None) is None
    np.save(tmp_path / "x.npy", X)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert as_tensors(Points(on_disk, Y)).embeddings is on_disk  # type: ignore[arg-type]
    assert torch.equal(ev.knn_predict(Q, Points(on_disk, Y), 3), ev.knn_predict(Q, Points(X, Y), 3))  # type: ignore[arg-type]
