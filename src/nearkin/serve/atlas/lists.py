"""Where to look first: worst queries, confused pairs, suspected labels, duplicates across splits or in the only one."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nearkin.data.progress import Report, inform
from nearkin.report.inspection import compared
from nearkin.report.measure import NEAR, worst_queries
from nearkin.report.sanity import IMAGE_DISTANCE, THUMBNAIL, Suspect, fingerprints, near_duplicates, near_duplicates_among, suspected_labels
from nearkin.serve.atlas.census import Census, known_labels

WORST, PAIRS, DUPLICATES = 200, 50, 500  # entries at most
SAME_EMBEDDING = 1e-6  # of its length: how far apart two embeddings of one vector may be by rounding


@dataclass(frozen=True, eq=False)
class Lists:
    """Rows of the census, the most worth a look first."""

    worst: np.ndarray  # (w,) points with wrong ones among their nearest
    confused: Sequence[tuple[int, int, np.ndarray]]  # two classes, and the points of either whose nearest is of the other
    suspects: Sequence[Suspect]
    duplicates: Sequence[tuple[int, int, float]]  # a point, the one it copies (in an earlier split, if any), and how far apart they are
    compared: int  # points of later splits that were compared with the earlier ones, or points of the only split with one another
    later: int  # and how many there are


def look_first(census: Census, positions: np.ndarray, affinity: np.ndarray, right: np.ndarray, report: Report | None = None) -> Lists:
    """The lists, from the neighbors (n, k) of every point, their affinities, and which of them are right."""
    inform(report, "looking for duplicates")
    twins, asked, later = duplicates(census)
    return Lists(
        worst=worst(right, affinity),
        confused=confused_pairs(census, positions[:, 0]),
        suspects=suspects(census, positions[:, :NEAR]),
        duplicates=twins,
        compared=asked,
        later=later,
    )


def worst(right: np.ndarray, affinity: np.ndarray) -> np.ndarray:
    """(w,) rows with a wrong one among their nearest 10, worst first."""
    near, close = right[:, :NEAR], affinity[:, :NEAR]
    rows = np.flatnonzero((near == 0).any(1))
    if not len(rows):
        return rows
    order = worst_queries(torch.from_numpy(near[rows] == 1), torch.from_numpy(np.where(near[rows] == 0, close[rows], -np.inf)))
    return np.asarray(rows[order.numpy()][:WORST])


def confused_pairs(census: Census, nearest: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """Classes (a < b) and the rows of either whose nearest point (n,) is of the other, most rows first."""
    if census.kind != "classes":
        return []
    mine, theirs = census.labels, np.where(nearest >= 0, census.labels[np.maximum(nearest, 0)], -1)
    rows = np.flatnonzero((mine >= 0) & (theirs >= 0) & (mine != theirs))
    if not len(rows):
        return []
    pairs = np.sort(np.stack([mine[rows], theirs[rows]], 1), axis=1)
    kinds, which, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:PAIRS]
    return [(int(kinds[at, 0]), int(kinds[at, 1]), rows[which.reshape(-1) == at]) for at in order.tolist()]


def suspects(census: Census, positions: np.ndarray) -> list[Suspect]:
    """Points whose label most of their neighbors (n, k) contradict, the surest first; one of unknown class counts, and says nothing."""
    if census.kind != "classes":
        return []
    labels, unknown = known_labels(census), len(census.classes)  # a class of its own: one labeled neighbor of ten is no majority
    labels = torch.where(labels < 0, unknown, labels)
    rows = torch.from_numpy(positions.astype(np.int64))
    near = torch.where(rows >= 0, labels[rows.clamp_min(0)], -1)
    return [one for one in suspected_labels(labels, near) if unknown not in (one.label, one.neighbors_say)]


def duplicates(census: Census) -> tuple[list[tuple[int, int, float]], int, int]:
    """Points whose picture (or embedding, where there are no pictures) is nearly that of a point of an earlier split, or of the only one.

    Also how many points of later splits, or of the only one, were compared, and how many there are.
    """
    prints, known, apart = _prints(census)
    found, asked, total = list[tuple[int, int, float]](), 0, 0
    if len(census.split_names) < 2:
        mine = np.flatnonzero(known)
        rows = compared(len(mine), len(mine))
        pairs = near_duplicates_among(prints[mine], rows, apart)
        found += zip(mine[pairs.queries].tolist(), mine[pairs.references].tolist(), pairs.distance.tolist(), strict=True)
        return found[:DUPLICATES], len(rows), len(mine)
    for split in range(1, len(census.split_names)):
        mine = np.flatnonzero((census.splits == split) & known)
        earlier = np.flatnonzero((census.splits < split) & known)
        if not len(mine) or not len(earlier):
            continue
        some = mine[compared(len(mine), len(earlier))]
        pairs = near_duplicates(prints[some], prints[earlier], apart)
        found += zip(some[pairs.queries].tolist(), earlier[pairs.references].tolist(), pairs.distance.tolist(), strict=True)
        asked, total = asked + len(some), total + len(mine)
    return sorted(found, key=lambda pair: pair[2])[:DUPLICATES], asked, total


def _prints(census: Census) -> tuple[Tensor, np.ndarray, float]:
    """(n, p) fingerprints, which of them are known, and how far apart two may be to count as one."""
    contents = [census.picture(row) for row in range(len(census))]
    if not any(contents):
        return torch.from_numpy(np.array(census.vectors)), np.ones(len(census), np.bool_), SAME_EMBEDDING
    small = np.stack([_small(content) for content in contents])
    if (small == small[:, :1]).all():  # gray: a third of the numbers says the same
        small = small[:, :1]
    return fingerprints(torch.from_numpy(small)), np.array([bool(content) for content in contents]), IMAGE_DISTANCE


def _small(content: bytes) -> np.ndarray:
    """(3, 16, 16) uint8 of a thumbnail."""
    if not content:
        return np.zeros((3, THUMBNAIL, THUMBNAIL), np.uint8)
    with Image.open(io.BytesIO(content)) as stored:
        image = stored.convert("RGB").resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return np.asarray(image).transpose(2, 0, 1).copy()
