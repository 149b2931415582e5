"""Label errors: leave-one-out predictions equal refits without the point, and planted errors are found on real digits."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

from nearkin.compose import cosine
from nearkin.evaluate import label_errors
from nearkin.evaluate.label_errors import _features, _Labeled, _solved


def digits_with_errors(share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    x, y = x[:900].astype(np.float32), y[:900]
    draw = np.random.default_rng(0)
    wrong = draw.choice(900, round(share * 900), replace=False)
    y = y.copy()
    y[wrong] = (y[wrong] + draw.integers(1, 10, len(wrong))) % 10
    return x, y, np.isin(np.arange(900), wrong)


def test_scores_are_those_of_a_fit_without_the_point() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 3, generator=draw), torch.arange(30) % 3
    weights = torch.ones(30)
    weights[[4, 9]] = 0
    features = _features(x[:12], 0.3)
    turned = _solved(features, _Labeled(x, y, 3), weights)
    penalty = 0.5
    found = turned.scores(turned.turned(features(x)), y, weights, penalty)
    added = penalty * float(turned.values.mean())
    for left in (0, 4, 17):
        kept = [row for row in range(30) if weights[row] > 0 and row != left]
        made = features(x)[kept].double()
        targets = torch.eye(3, dtype=torch.float64)[y[kept]]
        center, prior = made.mean(0), targets.mean(0)
        gram = (made - center).T @ (made - center) + added * torch.eye(made.shape[1])
        plain = (features(x)[left].double() - center) @ torch.linalg.solve(gram, (made - center).T @ (targets - prior)) + prior
        torch.testing.assert_close(found[left].double(), plain, atol=1e-4, rtol=0)


def test_both_judges_have_a_second_round_without_the_doubted_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    module, fitted_on = sys.modules["nearkin.evaluate.label_errors"], []
    plain = module._logistic

    def watched(points: _Labeled, seed: int) -> object:
        fitted_on.append(points.y)
        return plain(points, seed)

    monkeypatch.setattr(module, "_logistic", watched)
    x, y, wrong = digits_with_errors(0.1)
    label_errors(x, y)
    first, second = ((one < 0).numpy() for one in fitted_on)
    assert not first.any() and second[wrong].mean() > 0.9 and second[~wrong].mean() < 0.05


def test_planted_errors_are_ranked_above_those_of_logistic_regression_out_of_fold() -> None:
    x, y, wrong = digits_with_errors(0.1)
    found = label_errors(x, y)
    ours = average_precision_score(wrong, found.margin.numpy())
    probabilities = cross_val_predict(LogisticRegression(max_iter=200), (x - x.mean(0)) / 16, y, cv=5, method="predict_proba")
    theirs = average_precision_score(wrong, -probabilities[np.arange(900), y])
    assert ours > 0.97 and ours > theirs
    assert wrong[found.suspects].mean() > 0.75 and wrong[found.suspects].sum() > 0.95 * wrong.sum()
    assert bool((found.confidence[found.suspects] > 0.9).all())
    right = load_digits(return_X_y=True)[1][:900]
    assert (found.suggested.numpy()[wrong] == right[wrong]).mean() > 0.95


def test_many_points_are_judged_in_chunks_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = digits_with_errors(0.1)
    whole = label_errors(x[:300], y[:300]).margin
    monkeypatch.setattr(sys.modules["nearkin.evaluate.label_errors"], "CHUNK", 64)
    torch.testing.assert_close(label_errors(x[:300], y[:300]).margin, whole, atol=2e-2, rtol=2e-2)


def test_unknown_labels_and_single_points_are_not_judged() -> None:
    x, y, _ = digits_with_errors(0)
    y = y[:200].copy()
    y[:5], y[5] = -1, 77
    found = label_errors(x[:200], y)
    assert found.margin.isnan().nonzero()[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.suggested[:5].tolist() == load_digits(return_X_y=True)[1][:5].tolist()


def test_cosine_does_not_see_lengths() -> None:
    x, y, _ = digits_with_errors(0.1)
    scale = np.linspace(1, 50, 200, dtype=np.float32)[:, None]
    margins = [label_errors(some, y[:200], cosine()).margin for some in (x[:200], x[:200] * scale)]
    torch.testing.assert_close(*margins, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), "fewer than two classes have two points each"),
        (torch.zeros(3, dtype=torch.int64), r"labels have shape \(3,\) for 4 embeddings"),
        (torch.zeros(4), "labels are torch.float32; classes are whole numbers"),
    ],
)
def test_labels_that_cannot_be_judged_raise(labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        label_errors(torch.zeros(4, 2), labels)


def test_rows_that_are_not_finite_raise() -> None:
    with pytest.raises(ValueError, match="embeddings hold NaN or infinity in 1 rows"):
        label_errors(torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 1]))
