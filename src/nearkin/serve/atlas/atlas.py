"""The atlas of an index: exact neighbors, which of them are right, lists of points to review, and a 2D map."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from nearkin.data.progress import Report, inform
from nearkin.index.rejection import HELD_OUT
from nearkin.report import projection
from nearkin.report.measure import NEAR
from nearkin.search.rejection import FEWEST, Rejection, mean_of_finite, neighbors_for, rejection_of
from nearkin.serve.atlas.lists import Lists, review_lists, suspects, suspects_of
from nearkin.serve.atlas.table import PointTable

MOST_NEIGHBORS = 30  # stored per point; the service finds more on request
FILLED = 0.94  # of the canvas, whose sides run from -1 to 1


@dataclass(frozen=True, eq=False)
class Atlas:
    """The map of n points, their neighbors, and lists of points to review. Rows are those of the table."""

    method: projection.Method
    points: np.ndarray  # (n, 2) float32, as the projection returned them
    positions: np.ndarray  # (n, k) int32 rows of the exact nearest neighbors, nearest first; -1 where there are no more
    affinity: np.ndarray  # (n, k) float32
    right: np.ndarray  # (n, k) int8: 1 right, 0 wrong, -1 unknown
    purity: np.ndarray  # (n,) float32, share of right neighbors among the nearest 10; NaN unknown
    residual: np.ndarray | None  # (n,) float32, distance of the mean of the nearest 10 from the point's own numbers
    lists: Lists

    @property
    def on_canvas(self) -> np.ndarray:
        """(n, 2) float32 between -1 and 1, the same scale for both axes."""
        return to_canvas(self.points, self.points)


def build_atlas(table: PointTable, method: projection.Method = "tsne", report: Report | None = None) -> Atlas:
    """The atlas of a table, whose labels `judged` judges. With "tsne" the map takes minutes for tens of thousands of points."""
    inform(report, f"searching the exact neighbors of {len(table):,} points")
    k = min(MOST_NEIGHBORS, max(1, len(table) - 1))
    found = table.nearest(table.vectors, k, exclude=table.ids)
    positions, affinity = found.positions.numpy().astype(np.int32), found.affinity.float().numpy()
    right = table.right(np.arange(len(table)), positions)
    off = residual(table, positions[:, :NEAR])
    atlas = Atlas(
        method="pca",
        points=map_points(table, "pca"),
        positions=positions,
        affinity=np.where(positions >= 0, affinity, 0).astype(np.float32),
        right=right,
        purity=purity(right[:, :NEAR]),
        residual=off,
        lists=review_lists(table, positions, affinity, right, off, report),
    )
    return atlas if method == "pca" else with_map(atlas, table, method, report)


def judged(atlas: Atlas, table: PointTable, written: Path | None = None, report: Report | None = None) -> Atlas:
    """The same atlas with the suspected labels: those of the file that `nearkin evaluate` wrote, or those that are found in the vectors."""
    if atlas.lists.suspects is not None:
        return atlas
    inform(report, f"judging the labels of {len(table):,} points")
    found = suspects(table) if written is None else suspects_of(written, table)
    return replace(atlas, lists=replace(atlas.lists, suspects=found))


def familiar_points(atlas: Atlas, table: PointTable) -> Rejection | None:
    """The rule that says "none of these", from how near the points are to each other: those that were held out, if there are enough.

    None for too few points.
    """
    k = neighbors_for(len(table), len(table.classes))
    near = mean_of_finite(np.where(atlas.positions >= 0, atlas.affinity, -np.inf)[:, :k].astype(np.float64))
    parts = [table.splits == at for at, name in enumerate(table.split_names) if name in ("validation", "test")]
    chosen = next((part for part in parts if part.sum() >= HELD_OUT), np.ones(len(table), np.bool_))
    return rejection_of(near[chosen], k) if int(chosen.sum()) >= FEWEST else None


def with_map(atlas: Atlas, table: PointTable, method: projection.Method, report: Report | None = None) -> Atlas:
    """The same atlas with another map."""
    inform(report, f"placing {len(table):,} points by {'t-SNE' if method == 'tsne' else 'PCA'}")
    return replace(atlas, method=method, points=map_points(table, method))


def map_points(table: PointTable, method: projection.Method) -> np.ndarray:
    """The positions (n, 2) float32 of the points on a map."""
    return np.asarray(projection.fit(table.vectors, method, _metric(table)).points, dtype=np.float32)


def possible_method(table: PointTable, method: projection.Method) -> projection.Method:
    """The method, or PCA where t-SNE is not possible: too few points, or openTSNE is not installed."""
    return method if len(table) >= 5 and find_spec("openTSNE") is not None else "pca"


def restored(atlas: Atlas, table: PointTable) -> projection.Projection:
    """The projection of an atlas, to place new embeddings."""
    return projection.restore(table.vectors, atlas.points, atlas.method, _metric(table))


def to_canvas(points: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Points (m, 2) in canvas coordinates, where the fitted points (n, 2) fill the canvas."""
    low, high = fitted.min(0), fitted.max(0)
    half = max(float((high - low).max()) / 2, 1e-12)
    return np.asarray((points - (high + low) / 2) / half * FILLED, dtype=np.float32)


def purity(right: np.ndarray) -> np.ndarray:
    """(n,) share of right neighbors (n, k) among those that can be judged; NaN where there are none."""
    judged = (right >= 0).sum(1)
    return np.where(judged > 0, (right == 1).sum(1) / np.maximum(judged, 1), np.nan).astype(np.float32)


def residual(table: PointTable, positions: np.ndarray) -> np.ndarray | None:
    """(n,) distance of each point's numbers from the mean of its neighbors' (n, k)."""
    if table.targets is None:
        return None
    there = (positions >= 0)[:, :, None]
    mean = np.where(there, table.targets[np.maximum(positions, 0)], 0).sum(1) / np.maximum(there.sum(1), 1)
    return np.asarray(np.linalg.norm(mean - table.targets, axis=1), dtype=np.float32)


def neighbors_of(table: PointTable, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The exact neighbors of some points: rows, affinities and whether they are right, (m, k) each."""
    found = table.nearest(table.vectors[rows], k, exclude=table.ids[rows])
    positions = found.positions.numpy()
    return positions, torch.where(found.positions >= 0, found.affinity.float(), 0).numpy(), table.right(rows, positions)


def _metric(table: PointTable) -> projection.Metric:
    """The metric of the map; differing bits count as squared distances."""
    return "cosine" if table.metric == "cosine" else "squared_euclidean"
