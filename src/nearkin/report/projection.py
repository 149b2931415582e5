"""Projections to 2 dimensions, t-SNE or PCA, which can also place new points.

t-SNE is openTSNE's (`pip install 'nearkin[tsne]'`) [policar2024opentsne], which can place new points among the fitted ones. It
shows which points are near each other; distances between far groups and the sizes of groups mean nothing.
"""

from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import unit
from nearkin.compose.validation import check_choice, check_finite
from nearkin.search import nearest

Method = Literal["tsne", "pca"]
Metric = Literal["squared_euclidean", "cosine"]
PERPLEXITY = 30.0
FEW = 1000  # fitted points up to which new ones are placed with a tree (Barnes-Hut), else with FFT


class Projection(Protocol):
    """A fitted projection: the positions of the fitted points, and a method to place others."""

    points: np.ndarray  # (n, 2)

    def place(self, embeddings: Tensor | np.ndarray) -> np.ndarray:
        """Project new embeddings (m, d) to (m, 2); the fitted points do not move."""
        ...


def fit(
    embeddings: Tensor | np.ndarray,
    method: Method = "tsne",
    metric: Metric = "squared_euclidean",
    *,
    perplexity: float = PERPLEXITY,
    seed: int = 0,
) -> Projection:
    """Fit a projection of embeddings (n, d) to 2 dimensions; deterministic for a given seed.

    With `metric="cosine"` the rows are normalized first. The perplexity is lowered to (n - 1) / 3 if there are few points.
    """
    points = _checked(embeddings, metric)
    if method == "pca":
        return PCA(points, metric)
    if method == "tsne":
        return TSNE(points, metric, perplexity, seed)
    raise ValueError(f"method {method!r} is unknown; choose 'tsne' or 'pca'")


def restore(embeddings: Tensor | np.ndarray, points: np.ndarray, method: Method, metric: Metric = "squared_euclidean") -> Projection:
    """The projection that `fit` returned for embeddings (n, d), from its `points` (n, 2), without computing t-SNE again."""
    rows = _checked(embeddings, metric)
    if points.shape != (len(rows), 2):
        raise ValueError(f"points have shape {points.shape} for {len(rows)} embeddings; pass the points (n, 2) of `fit`")
    return PCA(rows, metric) if method == "pca" else TSNE(rows, metric, points=points)


class PCA:
    """The two directions of most variance; embeddings of one or two dimensions are only centered and rotated."""

    def __init__(self, points: np.ndarray, metric: Metric) -> None:
        self.metric = metric
        self.mean = points.mean(0)
        directions = _principal(points - self.mean)
        self.directions = np.zeros((2, points.shape[1]))
        found = directions[:2]
        # The sign of a direction is arbitrary: its largest entry is made positive, so that the result is always the same.
        signs = np.sign(found[np.arange(len(found)), np.abs(found).argmax(1)])
        self.directions[: len(found)] = found * np.where(signs == 0, 1, signs)[:, None]
        self.points = (points - self.mean) @ self.directions.T

    def place(self, embeddings: Tensor | np.ndarray) -> np.ndarray:
        new = _checked(embeddings, self.metric, len(self.mean))
        return np.asarray((new - self.mean) @ self.directions.T)


def _principal(centered: np.ndarray) -> np.ndarray:
    """(min(n, d), d) directions of points (n, d), of most variance first; of many points from their covariance, which is as exact here."""
    if len(centered) <= centered.shape[1]:
        return np.asarray(np.linalg.svd(centered, full_matrices=False)[2])
    return np.asarray(np.linalg.eigh(centered.T @ centered)[1].T[::-1])


class TSNE:
    """openTSNE's embedding, initialized by PCA; new points are placed by their exact nearest neighbors."""

    def __init__(
        self, rows: np.ndarray, metric: Metric, perplexity: float = PERPLEXITY, seed: int = 0, *, points: np.ndarray | None = None
    ) -> None:
        if len(rows) < 5:
            raise ValueError(f"embeddings hold {len(rows)} points; t-SNE needs at least 5, use method='pca'")
        if not perplexity > 0:
            raise ValueError(f"perplexity ({perplexity}) must be above 0")
        self.metric = metric
        self.dimension = rows.shape[1]
        found = _fitted(rows, perplexity, seed) if points is None else np.asarray(points, dtype=np.float64)
        self.points = found - (found.max(0) + found.min(0)) / 2  # openTSNE would center them so when it places others
        method = "fft" if len(rows) > FEW else "bh"  # a tree is rebuilt at every step, in seconds for one point
        options = {"negative_gradient_method": method, "random_state": seed, "n_jobs": 1}
        self._fitted = _opentsne().TSNEEmbedding(self.points, _NeighborAffinities(rows), **options)

    def place(self, embeddings: Tensor | np.ndarray) -> np.ndarray:
        new = _checked(embeddings, self.metric, self.dimension)
        return np.asarray(self._fitted.transform(new, perplexity=min(5, (len(self.points) - 1) / 3)))


class _NeighborAffinities:
    """Affinities of new points to the fitted ones (n, d), in the form that openTSNE needs."""

    def __init__(self, rows: np.ndarray) -> None:
        from scipy.sparse import csr_array

        self._rows = torch.from_numpy(np.ascontiguousarray(rows))
        self.P = csr_array((len(rows), len(rows)))  # among the fitted points: openTSNE only reads its shape

    def to_new(self, data: np.ndarray, perplexity: float, return_distances: bool = True) -> tuple[Any, np.ndarray, np.ndarray]:
        """Affinities (m, n) of new points, their neighbors (m, k) and the distances to them."""
        from openTSNE.affinity import joint_probabilities_nn

        found = nearest(torch.from_numpy(data), self._rows, max(1, int(3 * perplexity)))
        near, distance = found.positions.numpy(), found.affinity.neg().clamp_min(0).sqrt().numpy()
        settings = {"symmetrize": False, "normalization": "point-wise", "n_reference_samples": len(self._rows)}
        return joint_probabilities_nn(near, distance, [perplexity], **settings), near, distance


def _fitted(rows: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    allowed = min(perplexity, (len(rows) - 1) / 3)
    neighbors = "exact" if len(rows) <= 5000 else "auto"
    return np.asarray(_opentsne().TSNE(perplexity=allowed, neighbors=neighbors, random_state=seed, n_jobs=1).fit(rows))


def _opentsne() -> Any:
    try:
        import openTSNE
    except ImportError as error:
        raise ImportError("t-SNE needs openTSNE, which is not installed; pip install 'nearkin[tsne]', or use method='pca'") from error
    return openTSNE


def _checked(embeddings: Tensor | np.ndarray, metric: Metric, dimension: int | None = None) -> np.ndarray:
    rows = torch.as_tensor(embeddings).detach().cpu().double()
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"embeddings have shape {tuple(rows.shape)}; pass (n, d) with at least one point")
    if dimension is not None and rows.shape[1] != dimension:
        raise ValueError(f"embeddings have {rows.shape[1]} dimensions; the projection was fitted on {dimension}")
    check_finite("embeddings", rows)
    check_choice("metric", metric, ("squared_euclidean", "cosine"))
    return (unit(rows) if metric == "cosine" else rows).numpy()
