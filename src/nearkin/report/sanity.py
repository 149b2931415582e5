"""Sanity checks of data and embeddings, as pure functions of arrays: duplicates, suspected labels, lengths, centers.

`nearkin.report.inspection` runs them for a report and words their results.
"""

import csv
import hashlib
import io
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nearkin.compose.affinity import SquaredEuclidean, cosine, unit
from nearkin.compose.points import Points
from nearkin.data.cells import inert
from nearkin.search import nearest

THUMBNAIL = 16  # side of the thumbnails in which near-duplicates are searched
IMAGE_DISTANCE = 0.1  # relative distance of two thumbnails below which they are near-duplicates: a correlation of 0.995
VECTOR_DISTANCE = 1e-3  # the same for vectors; short ones come near by chance, so only rounding is allowed
UNEVEN = 0.05  # spread of lengths over their mean above which a cosine model's vectors count as unnormalized
OFF_CENTER = 5.0  # mean over spread above which float32 distances lose digits and all cosines are near 1

Level = Literal["fine", "look", "wrong"]


class Finding(NamedTuple):
    """The result of one check: its name, level, a sentence, and what to do."""

    check: str
    level: Level
    found: str
    fix: str = ""


class Pairs(NamedTuple):
    """Pairs of a query and a reference that are (nearly) the same."""

    queries: np.ndarray  # (p,) rows
    references: np.ndarray  # (p,) rows
    distance: np.ndarray  # (p,) distance over length, 0 for identical ones


class Suspect(NamedTuple):
    """A label that classifiers contradict which did not see it."""

    row: int
    label: int
    neighbors_say: int  # the label that they suggest
    confidence: float  # its probability against the label


def fingerprints(inputs: Tensor) -> Tensor:
    """Rows (n, p) in which near-duplicates are near: images (n, c, h, w) as thumbnails of mean 0 and length 1; vectors (n, d) unchanged.

    The brightness, contrast and size of an image therefore do not matter.
    """
    if inputs.ndim == 2:
        return inputs.float()
    if inputs.ndim != 4:
        raise ValueError(f"inputs have shape {tuple(inputs.shape)}; pass images (n, c, h, w) or vectors (n, d)")
    x = inputs.float()
    if max(x.shape[2:]) > THUMBNAIL:
        x = functional.interpolate(x, (THUMBNAIL, THUMBNAIL), mode="bilinear", antialias=True)
    rows = x.flatten(1)
    return unit(rows - rows.mean(1, keepdim=True))


def near_duplicates(queries: Tensor, references: Tensor, max_distance: float) -> Pairs:
    """Queries (n, p) whose nearest reference (m, p) is nearer than `max_distance` times the longer of the two, nearest pairs first.

    Pass `fingerprints`; if columns of vectors differ in scale, apply `scaled_columns` first.
    """
    return _nearer_than(max_distance, queries, references, nearest(queries, references, 1).positions[:, 0])


def near_duplicates_among(points: Tensor, rows: np.ndarray, max_distance: float) -> Pairs:
    """The same among points (n, p), for these rows as queries; each pair is returned once, with the earlier point as reference."""
    ids, chosen = torch.arange(len(points)), torch.from_numpy(rows)
    if len(points) < 2:
        return Pairs(rows[:0], rows[:0], np.zeros(0))
    found = nearest(Points(points[chosen], ids=ids[chosen]), Points(points, ids=ids), 1, exclude_same_id=True)
    pairs = _nearer_than(max_distance, points[chosen], points, found.positions[:, 0])
    both = np.sort(np.stack([rows[pairs.queries], pairs.references]), axis=0)  # (2, p)
    once = np.sort(np.unique(both, axis=1, return_index=True)[1])
    return Pairs(both[1, once], both[0, once], pairs.distance[once])


def _nearer_than(max_distance: float, queries: Tensor, references: Tensor, at: Tensor) -> Pairs:
    """The queries whose reference, at position `at` (n,), is nearer than `max_distance`."""
    if not max_distance > 0:
        raise ValueError(f"max_distance ({max_distance}) must be above 0; {IMAGE_DISTANCE} is good for images")
    relative = relative_distance(queries, references[at])
    rows = (relative < max_distance).nonzero()[:, 0]
    rows = rows[relative[rows].argsort(stable=True)]
    return Pairs(rows.cpu().numpy(), at[rows].cpu().numpy(), relative[rows].cpu().numpy())


def relative_distance(a: Tensor, b: Tensor) -> Tensor:
    """(n,) the distance of rows (n, p) over the longer of the two; from differences: squared distances of a search may have lost digits."""
    longer = torch.maximum(a.norm(dim=1), b.norm(dim=1))
    return torch.where(longer > 0, (a - b).norm(dim=1) / torch.where(longer > 0, longer, 1.0), 0.0)


def scaled_columns(queries: Tensor, references: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (n, d) and (m, d) with every column centered and scaled by the references; constant columns are dropped.

    Missing numbers (NaN, in rows of a table) are at the mean. Dropping their column instead would make different rows look like copies.
    """
    mean = references.nanmean(0).nan_to_num(nan=0.0)
    queries, references = (torch.where(torch.isnan(rows), mean, rows) for rows in (queries, references))
    spread = references.std(0, correction=0)
    moving = spread > 0
    if not bool(moving.any()):
        return queries - mean, references - mean
    return ((queries - mean) / spread.clamp_min(1e-30))[:, moving], ((references - mean) / spread.clamp_min(1e-30))[:, moving]


def digests(inputs: Tensor) -> list[bytes]:
    """A hash of the bytes of each input (n, ...)."""
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in np.ascontiguousarray(inputs.cpu().numpy())]


def same_content(queries: Sequence[bytes], references: Sequence[bytes]) -> Pairs:
    """Queries whose digest equals that of a reference, each with the first such reference."""
    where: dict[bytes, int] = {}
    for row, content in enumerate(references):
        where.setdefault(content, row)
    pairs = [(row, where[content]) for row, content in enumerate(queries) if content in where]
    at = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Pairs(at[:, 0], at[:, 1], np.zeros(len(at)))


def length_spread(embeddings: Tensor) -> float:
    """The standard deviation of the lengths of embeddings (n, d) over their mean; 0 if all lengths are equal."""
    lengths = embeddings.double().norm(dim=1)
    mean = float(lengths.mean())
    return float(lengths.std(correction=0)) / mean if mean > 0 else 0.0


def changed_by_lengths(queries: Tensor, references: Tensor) -> float:
    """The share of queries whose nearest reference differs between cosine and Euclidean distance."""
    by_angle, by_distance = nearest(queries, references, 1, cosine()), nearest(queries, references, 1, SquaredEuclidean())
    return float((by_angle.positions != by_distance.positions).double().mean())


def off_center(points: Tensor) -> float:
    """The length of the mean of points (n, d) over their spread, the root of the sum of the columns' variances."""
    rows = points.double().flatten(1)
    spread = float(rows.var(0, correction=0).sum().sqrt())
    distance = float(rows.mean(0).norm())
    return distance / spread if spread > 0 else (float("inf") if distance > 0 else 0.0)


def suspects_table(suspects: Sequence[tuple[str, str, Suspect]], classes: Sequence[str]) -> str:
    """A CSV with the columns path, label, neighbors_say, confidence, part; rows are (part, path, suspect)."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(("path", "label", "neighbors_say", "confidence", "part"))
    for part, source, one in suspects:
        cells = (source, classes[one.label], classes[one.neighbors_say], f"{one.confidence:.2f}", part)
        writer.writerow([inert(cell) for cell in cells])
    return file.getvalue()
