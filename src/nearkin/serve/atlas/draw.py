"""Drawing: from a census to an atlas. Neighbors first, then whether they are right, then where to look; the map comes last."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import torch

from nearkin.data.progress import Report, inform
from nearkin.report import projection
from nearkin.report.measure import NEAR
from nearkin.serve.atlas.census import Census
from nearkin.serve.atlas.lists import Lists, look_first

MOST_NEIGHBORS = 30  # kept for each point; the service finds more when asked
FILLED = 0.94  # of the canvas, whose sides run from -1 to 1


@dataclass(frozen=True, eq=False)
class Atlas:
    """A model's map of n points, their neighbors, and lists of points worth a look. Rows are those of the census."""

    method: projection.Method
    points: np.ndarray  # (n, 2) float32, as the projection left them
    positions: np.ndarray  # (n, k) int32 rows of the exact nearest neighbors, nearest first; -1 where there are no more
    affinity: np.ndarray  # (n, k) float32
    right: np.ndarray  # (n, k) int8: 1 right, 0 wrong, -1 nobody can tell
    purity: np.ndarray  # (n,) float32, share of right ones among the nearest 10; NaN unknown
    residual: np.ndarray | None  # (n,) float32, how far the mean of the nearest 10 is from the point's own numbers
    lists: Lists

    @property
    def on_canvas(self) -> np.ndarray:
        """(n, 2) float32 between -1 and 1, the same scale for both axes."""
        return placed_on_canvas(self.points, self.points)


def draw(census: Census, method: projection.Method = "tsne", report: Report | None = None) -> Atlas:
    """The atlas of a census; with "tsne" the map takes minutes for tens of thousands of points, with "pca" seconds."""
    inform(report, f"searching the exact neighbors of {len(census):,} points")
    k = min(MOST_NEIGHBORS, max(1, len(census) - 1))
    found = census.nearest(census.vectors, k, exclude=census.ids)
    positions, affinity = found.positions.numpy().astype(np.int32), found.affinity.float().numpy()
    right = census.right(np.arange(len(census)), positions)
    atlas = Atlas(
        method="pca",
        points=mapped(census, "pca"),
        positions=positions,
        affinity=np.where(positions >= 0, affinity, 0).astype(np.float32),
        right=right,
        purity=purity(right[:, :NEAR]),
        residual=residual(census, positions[:, :NEAR]),
        lists=look_first(census, positions, affinity, right, report),
    )
    return atlas if method == "pca" else redrawn(atlas, census, method, report)


def redrawn(atlas: Atlas, census: Census, method: projection.Method, report: Report | None = None) -> Atlas:
    """The same atlas with another map."""
    inform(report, f"placing {len(census):,} points by {'t-SNE' if method == 'tsne' else 'PCA'}")
    return replace(atlas, method=method, points=mapped(census, method))


def mapped(census: Census, method: projection.Method) -> np.ndarray:
    """(n, 2) float32."""
    return np.asarray(projection.fit(census.vectors, method, _metric(census)).points, dtype=np.float32)


def possible_method(census: Census, wanted: projection.Method) -> projection.Method:
    """PCA where t-SNE cannot be: too few points, or openTSNE is not installed."""
    return wanted if len(census) >= 5 and find_spec("openTSNE") is not None else "pca"


def restored(atlas: Atlas, census: Census) -> projection.Projection:
    """The projection behind an atlas, ready to place new embeddings."""
    return projection.restore(census.vectors, atlas.points, atlas.method, _metric(census))


def placed_on_canvas(points: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Points (m, 2) in the canvas's coordinates, in which the fitted ones (n, 2) fill it."""
    low, high = fitted.min(0), fitted.max(0)
    half = max(float((high - low).max()) / 2, 1e-12)
    return np.asarray((points - (high + low) / 2) / half * FILLED, dtype=np.float32)


def purity(right: np.ndarray) -> np.ndarray:
    """(n,) share of right ones (n, k) among those that can be judged; NaN where none can."""
    judged = (right >= 0).sum(1)
    return np.where(judged > 0, (right == 1).sum(1) / np.maximum(judged, 1), np.nan).astype(np.float32)


def residual(census: Census, positions: np.ndarray) -> np.ndarray | None:
    """(n,) distance of each point's numbers from the mean of its neighbors' (n, k)."""
    if census.targets is None:
        return None
    there = (positions >= 0)[:, :, None]
    theirs = np.where(there, census.targets[np.maximum(positions, 0)], 0).sum(1) / np.maximum(there.sum(1), 1)
    return np.asarray(np.linalg.norm(theirs - census.targets, axis=1), dtype=np.float32)


def neighbors_of(census: Census, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exact neighbors of points of the census, asked live: rows, affinities and whether they are right, (m, k) each."""
    found = census.nearest(census.vectors[rows], k, exclude=census.ids[rows])
    positions = found.positions.numpy()
    return positions, torch.where(found.positions >= 0, found.affinity.float(), 0).numpy(), census.right(rows, positions)


def _metric(census: Census) -> projection.Metric:
    """Bits that differ are squared distances, too."""
    return "cosine" if census.metric == "cosine" else "squared_euclidean"
