"""Lists of points to review: worst queries, confused classes, suspected labels, duplicates.

Labels are judged as `nearkin clean` judges them, by classifiers that did not see them. That takes longer than everything else, so it is a
step of its own.
"""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nearkin.compose.affinity import cosine
from nearkin.data.cells import restored
from nearkin.data.pixels import open_image
from nearkin.data.progress import Report, inform
from nearkin.evaluate import label_errors
from nearkin.report.inspection import compared
from nearkin.report.measure import NEAR, worst_queries
from nearkin.report.sanity import (
    IMAGE_DISTANCE,
    THUMBNAIL,
    Suspect,
    fingerprints,
    near_duplicates,
    near_duplicates_among,
    relative_distance,
)
from nearkin.serve.atlas.table import PointTable, class_numbers

WORST, PAIRS, DUPLICATES = 200, 50, 500  # entries at most
OFF = 3.0  # times the median residual from which a number is far from those of the neighbors
DISTANCES = ("squared_euclidean", "cosine")  # metrics whose nearest neighbors include all copies
ROUNDED = 1e-3  # relative distance, or cosine below 1, up to which the affinities of a search leave open whether two vectors are the same
SAME_EMBEDDING = 1e-6  # relative distance of two embeddings of one vector, from rounding


@dataclass(frozen=True, eq=False)
class Lists:
    """Rows of the table, the most suspicious first."""

    worst: np.ndarray  # (w,) points with wrong neighbors
    confused: Sequence[tuple[int, int, np.ndarray]]  # two classes, and the points of each whose nearest is of the other
    suspects: Sequence[Suspect] | None  # None: the labels are not judged yet
    duplicates: Sequence[tuple[int, int, float]]  # a point, its copy (in an earlier split, if any), and their distance
    compared: int  # points that were compared: those of later splits with the earlier ones, or all with each other
    later: int  # how many there are


def review_lists(
    table: PointTable,
    positions: np.ndarray,
    affinity: np.ndarray,
    right: np.ndarray,
    residual: np.ndarray | None,
    report: Report | None = None,
) -> Lists:
    """The lists, from the neighbors (n, k) of every point, their affinities, which of them are right, and the residuals (n,) of numbers."""
    inform(report, "looking for duplicates")
    copies, compared_points, later = duplicates(table, positions, affinity)
    return Lists(
        worst=worst(right, affinity) if residual is None else farthest_off(residual),
        confused=confused_pairs(table, positions[:, 0]),
        suspects=None if table.kind == "classes" else (),
        duplicates=copies,
        compared=compared_points,
        later=later,
    )


def worst(right: np.ndarray, affinity: np.ndarray) -> np.ndarray:
    """(w,) rows with a wrong neighbor among the nearest 10, worst first."""
    near, close = right[:, :NEAR], affinity[:, :NEAR]
    rows = np.flatnonzero((near == 0).any(1))
    if not len(rows):
        return rows
    order = worst_queries(torch.from_numpy(near[rows] == 1), torch.from_numpy(np.where(near[rows] == 0, close[rows], -np.inf)))
    return np.asarray(rows[order.numpy()][:WORST])


def farthest_off(residual: np.ndarray) -> np.ndarray:
    """(w,) rows whose numbers are far from those of their neighbors: residuals (n,) above OFF times the median, largest first."""
    rows = np.flatnonzero(residual > OFF * np.median(residual))
    return np.asarray(rows[np.argsort(-residual[rows], kind="stable")][:WORST])


def confused_pairs(table: PointTable, nearest: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """Classes (a < b) and the rows of each whose nearest point (n,) is of the other, most rows first."""
    if table.kind != "classes":
        return []
    own, others = table.labels, np.where(nearest >= 0, table.labels[np.maximum(nearest, 0)], -1)
    rows = np.flatnonzero((own >= 0) & (others >= 0) & (own != others))
    if not len(rows):
        return []
    pairs = np.sort(np.stack([own[rows], others[rows]], 1), axis=1)
    kinds, which, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:PAIRS]
    return [(int(kinds[at, 0]), int(kinds[at, 1]), rows[which.reshape(-1) == at]) for at in order.tolist()]


def suspects(table: PointTable) -> list[Suspect]:
    """Points whose label is contradicted by classifiers that did not see it, fitted on the vectors, the most contradicted first."""
    if table.kind != "classes":
        return []
    labels = class_numbers(table)
    try:
        vectors = torch.from_numpy(np.asarray(table.vectors, dtype=np.float32))
        found = label_errors(vectors, labels, cosine() if table.metric == "cosine" else None)
    except ValueError:  # too few labels to judge any
        return []
    sure = found.confidence
    return [Suspect(row, int(labels[row]), int(found.suggested[row]), float(sure[row])) for row in found.suspects.tolist()]


def suspects_of(page: Path, table: PointTable) -> list[Suspect]:
    """The suspects that `nearkin evaluate` wrote: it judges labels without the model that was trained on them."""
    numbers = {name: at for at, name in enumerate(table.classes)}
    rows = {source: row for row, source in enumerate(table.sources)}
    found = []
    with page.open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            source, label, suggested = (restored(line[name] or "") for name in ("path", "label", "neighbors_say"))
            row = rows.get(source, rows.get(os.path.abspath(source), -1))
            if row >= 0 and numbers.get(label) == int(table.labels[row]) and suggested in numbers:  # else it was corrected since
                found.append(Suspect(row, int(table.labels[row]), numbers[suggested], float(line["confidence"])))
    return found


def duplicates(table: PointTable, positions: np.ndarray, affinity: np.ndarray) -> tuple[list[tuple[int, int, float]], int, int]:
    """Points whose image (or embedding) is nearly that of a point of an earlier split, or of any point if there is one split.

    Also how many points were compared, and how many there are. Embeddings are compared through the nearest neighbors (n, k) and their
    affinities.
    """
    prints, known, apart = _prints(table)
    if known is None and table.metric in DISTANCES:
        return _copies(table, prints, positions, affinity[:, 0], apart), len(table), len(table)
    return _copied_images(table, prints, np.ones(len(table), np.bool_) if known is None else known, apart)


def _copies(table: PointTable, vectors: Tensor, positions: np.ndarray, nearest: np.ndarray, apart: float) -> list[tuple[int, int, float]]:
    """Pairs of a point and the nearest of its neighbors (n, k) that is the same vector, in an earlier split or before it.

    Only points whose nearest neighbor, of affinity `nearest` (n,), is as near as a copy can have copies.
    """
    lengths = np.linalg.norm(table.vectors, axis=1) if table.metric == "squared_euclidean" else np.ones(len(table))
    gap = np.sqrt(np.maximum(-nearest, 0)) if table.metric == "squared_euclidean" else 1 - nearest
    some = torch.from_numpy(np.flatnonzero((positions[:, 0] >= 0) & (gap <= ROUNDED * lengths)))
    at = torch.from_numpy(positions.astype(np.int64))[some]  # (s, k)
    same = [relative_distance(vectors[some], vectors[column.clamp_min(0)]) for column in at.T] if len(some) else []
    gaps = torch.stack(same, 1) if same else torch.empty(0, 1)
    place = torch.from_numpy(table.splits.astype(np.int64)) if len(table.split_names) > 1 else torch.arange(len(table))
    copy = (gaps < apart) & (at >= 0)
    earlier = copy & (place[at.clamp_min(0)] < place[some, None])
    found = []
    for row, gap_of, near, before, all_same in zip(some.tolist(), gaps, at, earlier, copy.all(1).tolist(), strict=True):
        if bool(before.any()):
            found.append((row, int(near[before][0]), float(gap_of[before][0])))
        elif all_same:  # more copies than neighbors: it is compared with all points
            every = relative_distance(vectors[row].expand_as(vectors), vectors)
            first = ((every < apart) & (place < place[row])).nonzero()[:1, 0].tolist()
            found += [(row, other, float(every[other])) for other in first]
    return sorted(found, key=lambda pair: (pair[2], pair[0]))[:DUPLICATES]


def _copied_images(table: PointTable, prints: Tensor, known: np.ndarray, apart: float) -> tuple[list[tuple[int, int, float]], int, int]:
    found, count, total = list[tuple[int, int, float]](), 0, 0
    if len(table.split_names) < 2:
        every = np.flatnonzero(known)
        rows = compared(len(every), len(every))
        pairs = near_duplicates_among(prints[every], rows, apart)
        found += zip(every[pairs.queries].tolist(), every[pairs.references].tolist(), pairs.distance.tolist(), strict=True)
        return found[:DUPLICATES], len(rows), len(every)
    for split in range(1, len(table.split_names)):
        later = np.flatnonzero((table.splits == split) & known)
        earlier = np.flatnonzero((table.splits < split) & known)
        if not len(later) or not len(earlier):
            continue
        some = later[compared(len(later), len(earlier))]
        pairs = near_duplicates(prints[some], prints[earlier], apart)
        found += zip(some[pairs.queries].tolist(), earlier[pairs.references].tolist(), pairs.distance.tolist(), strict=True)
        count, total = count + len(some), total + len(later)
    return sorted(found, key=lambda pair: pair[2])[:DUPLICATES], count, total


def _prints(table: PointTable) -> tuple[Tensor, np.ndarray | None, float]:
    """(n, p) fingerprints, which of them are known, and the distance up to which two count as the same; without images, the vectors."""
    contents = [table.thumbnail(row) for row in range(len(table))]
    if not any(contents):
        return torch.from_numpy(np.asarray(table.vectors, dtype=np.float32)), None, SAME_EMBEDDING
    small = np.stack([_small(content) for content in contents])
    if (small == small[:, :1]).all():  # gray: all channels are equal
        small = small[:, :1]
    return fingerprints(torch.from_numpy(small)), np.array([bool(content) for content in contents]), IMAGE_DISTANCE


def _small(content: bytes) -> np.ndarray:
    """(3, 16, 16) uint8 of a thumbnail."""
    if not content:
        return np.zeros((3, THUMBNAIL, THUMBNAIL), np.uint8)
    with open_image(content) as stored:
        image = stored.convert("RGB").resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return np.asarray(image).transpose(2, 0, 1).copy()
