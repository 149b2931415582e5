"""Projections to the plane: t-SNE, or PCA, fitted on some embeddings and open to new ones.

t-SNE is openTSNE's (`pip install 'nearkin[tsne]'`) [policar2024opentsne]: unlike others it can place new points among the old
ones. It shows who is near whom; distances between far groups, and the sizes of groups, mean nothing.
"""

from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from nearkin.affinity import unit

Method = Literal["tsne", "pca"]
Metric = Literal["squared_euclidean", "cosine"]
PERPLEXITY = 30.0


class Projection(Protocol):
    """A fitted map to the plane: where the fitted points are, and where others would be."""

    points: np.ndarray  # (n, 2)

    def place(self, embeddings: Tensor | np.ndarray) -> np.ndarray:
        """(m, d) new embeddings to (m, 2); the fitted points stay where they are."""
        ...


def fit(
    embeddings: Tensor | np.ndarray,
    method: Method = "tsne",
    metric: Metric = "squared_euclidean",
    *,
    perplexity: float = PERPLEXITY,
    seed: int = 0,
) -> Projection:
    """Fit a map of embeddings (n, d) to the plane, neighbours being judged by `metric`.

    For "cosine" the rows are set to length 1 first. The perplexity is lowered to what n points allow, (n - 1) / 3. Deterministic.
    """
    points = _checked(embeddings, metric)
    if method == "pca":
        return PCA(points, metric)
    if method == "tsne":
        return TSNE(points, metric, perplexity, seed)
    raise ValueError(f"method {method!r} is unknown; choose 'tsne' or 'pca'")


class PCA:
    """The two directions of most variance; embeddings of one or two dimensions are only centred and turned."""

    def __init__(self, points: np.ndarray, metric: Metric) -> None:
        self.metric = metric
        self.mean = points.mean(0)
        _, _, directions = np.linalg.svd(points - self.mean, full_matrices=False)
        self.directions = np.zeros((2, points.shape[1]))
        found = directions[:2]
        # The sign of a direction is arbitrary: its largest entry is made positive, so that the picture is always the same.
        signs = np.sign(found[np.arange(len(found)), np.abs(found).argmax(1)])
        self.directions[: len(found)] = found * np.where(signs == 0, 1, signs)[:, None]
        self.points = (points - self.mean) @ self.directions.T

    def place(self, embeddings: Tensor | np.ndarray) -> np.ndarray:
        new = _checked(embeddings, self.metric, len(self.mean))
        return np.asarray((new - self.mean) @ self.directions.T)


class TSNE:
    """openTSNE's embedding, started from PCA."""

    def __init__(self, points: np.ndarray, metric: Metric, perplexity: float, seed: int) -> None:
        if len(points) < 5:
            raise ValueError(f"embeddings hold {len(points)} points; t-SNE needs at least 5, use method='pca'")
        if not perplexity > 0:
            raise ValueError(f"perplexity ({perplexity}) must be above 0")
        self.metric = metric
        self.dimension = points.shape[1]
        allowed = min(perplexity, (len(points) - 1) / 3)
        neighbours = "exact" if len(points) <= 5000 else "auto"
        maker = _opentsne().TSNE(perplexity=allowed, neighbors=neighbours, random_state=seed, n_jobs=1)
        self.fitted = maker.fit(points)
        self.points = np.asarray(self.fitted)

    def place(self, embeddings: Tensor | np.ndarray) -> np.ndarray:
        new = _checked(embeddings, self.metric, self.dimension)
        return np.asarray(self.fitted.transform(new, perplexity=min(5, (len(self.points) - 1) / 3)))


def _opentsne() -> Any:
    try:
        import openTSNE
    except ImportError as error:
        raise ImportError("t-SNE needs openTSNE, which is not installed; pip install 'nearkin[tsne]', or use method='pca'") from error
    return openTSNE


def _checked(embeddings: Tensor | np.ndarray, metric: Metric, dimension: int | None = None) -> np.ndarray:
    rows = torch.as_tensor(embeddings).detach().cpu().double()
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"embeddings have shape {tuple(rows.shape)}; give (n, d) with at least one point")
    if dimension is not None and rows.shape[1] != dimension:
        raise ValueError(f"embeddings have {rows.shape[1]} dimensions; the projection was fitted on {dimension}")
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("embeddings hold NaN or infinity; drop these points")
    if metric not in ("squared_euclidean", "cosine"):
        raise ValueError(f"metric {metric!r} is unknown; choose 'squared_euclidean' or 'cosine'")
    return (unit(rows) if metric == "cosine" else rows).numpy()
