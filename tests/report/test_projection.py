"""Projections: PCA equals scikit-learn's, t-SNE keeps neighbors, and new points land among their own."""

import sys

import numpy as np
import pytest
import torch
from sklearn import decomposition

from nearkin.report.projection import fit, restore


def groups(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return random.normal(size=(3, 8))[labels] * 6 + random.normal(size=(n, 8)), labels


def test_pca_equals_scikit_learn_and_places_new_points_as_it_would_the_old() -> None:
    points, _ = groups()
    projection = fit(points, "pca")
    theirs = decomposition.PCA(2, svd_solver="full").fit_transform(points)
    assert np.allclose(np.abs(projection.points), np.abs(theirs))
    assert np.allclose(projection.place(points[:7]), projection.points[:7])


@pytest.mark.parametrize("dimension", [1, 2])
def test_pca_of_few_dimensions_keeps_all_distances(dimension: int) -> None:
    points = np.random.default_rng(0).normal(size=(9, dimension))
    found = fit(points, "pca").points
    before, after = (np.linalg.norm(x[:, None] - x[None], axis=2) for x in (points, found))
    assert found.shape == (9, 2) and np.allclose(before, after)


def test_cosine_does_not_see_lengths() -> None:
    points, _ = groups()
    longer = points * np.linspace(1, 5, len(points))[:, None]
    assert np.allclose(fit(points, "pca", "cosine").points, fit(longer, "pca", "cosine").points)


def test_tsne_is_deterministic_keeps_neighbors_and_places_new_points_among_their_own() -> None:
    points, labels = groups()
    some, others = points[:90], points[90:]
    projection = fit(torch.from_numpy(some))
    old, old_labels, new_labels = projection.points, labels[:90], labels[90:]
    assert old.shape == (90, 2) and np.array_equal(fit(some).points, old)
    gap = np.linalg.norm(old[:, None] - old[None], axis=2) + np.eye(90) * 1e9
    assert (old_labels[gap.argmin(1)] == old_labels).all()
    placed = projection.place(others)
    assert placed.shape == (30, 2) and np.array_equal(projection.points, old)
    gap = np.linalg.norm(placed[:, None] - old[None], axis=2)
    assert (old_labels[gap.argmin(1)] == new_labels).mean() > 0.95


def test_errors_of_projections(monkeypatch: pytest.MonkeyPatch) -> None:
    points, _ = groups()
    with pytest.raises(ValueError, match="method 'umap' is unknown; choose 'tsne' or 'pca'"):
        fit(points, "umap")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="metric 'manhattan' is unknown"):
        fit(points, "pca", "manhattan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"embeddings have shape \(8,\)"):
        fit(points[0], "pca")
    with pytest.raises(ValueError, match="embeddings hold NaN"):
        fit(points * np.nan, "pca")
    with pytest.raises(ValueError, match="embeddings have 3 dimensions; the projection was fitted on 8"):
        fit(points, "pca").place(points[:, :3])
    with pytest.raises(ValueError, match="embeddings hold 4 points; t-SNE needs at least 5"):
        fit(points[:4])
    with pytest.raises(ValueError, match=r"perplexity \(0\) must be above 0"):
        fit(points, perplexity=0)
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(ImportError, match=r"t-SNE needs openTSNE, which is not installed; pip install 'nearkin\[tsne\]'"):
        fit(points)


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_a_restored_projection_places_as_the_fitted_one_did(method: str) -> None:
    points, _ = groups()
    fitted = fit(points[:90], method)  # type: ignore[arg-type]
    placed = fitted.place(points[90:])
    again = restore(points[:90], fitted.points.astype(np.float32), method)  # type: ignore[arg-type]
    assert np.allclose(again.points, fitted.points, atol=1e-5)
    assert np.allclose(again.place(points[90:]), placed, atol=1e-2)
    with pytest.raises(ValueError, match=r"points have shape \(3, 2\) for 90 embeddings"):
        restore(points[:90], fitted.points[:3], method)  # type: ignore[arg-type]
