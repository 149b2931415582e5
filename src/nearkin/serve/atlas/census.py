"""The census: what an index knows of its points, column by column."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.data.dataset import SPLITS
from nearkin.index.snapshot import Snapshot
from nearkin.search import Neighbors, nearest

MOST = 200_000  # points that a browser draws with ease
UNKNOWN = "no split"
RANDOM_PAIRS = 20_000
CLOSE = 0.1  # numbers count as alike when they differ less than in this share of random pairs
HALF = 0.5  # of two label sets' members that must be in both


@dataclass(frozen=True, eq=False)
class Census:
    """n points. Rows agree everywhere; what is not known is None, or -1 among the labels."""

    vectors: np.ndarray  # (n, d) float32
    ids: np.ndarray  # (n,)
    labels: np.ndarray  # (n,) numbers of `classes`, -1 unknown
    classes: tuple[str, ...]
    splits: np.ndarray  # (n,) numbers of `split_names`
    split_names: tuple[str, ...]
    targets: np.ndarray | None  # (n, t) float32
    target_names: tuple[str, ...]
    sets: np.ndarray | None  # (n, C) bool
    sources: Sequence[str]
    metadata: Sequence[Mapping[str, Any]]
    picture: Callable[[int], bytes]  # the thumbnail of a row, b"" if it has none
    metric: str

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def kind(self) -> str:
        """What tells right neighbors from wrong ones: classes, sets, numbers, or nothing."""
        if bool((self.labels >= 0).any()):
            return "classes"
        return "sets" if self.sets is not None else "nothing" if self.targets is None else "numbers"

    def subset(self, rows: np.ndarray) -> "Census":
        """Only these points, in this order."""
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in ("vectors", "ids", "labels", "splits")},
            targets=None if self.targets is None else self.targets[rows],
            sets=None if self.sets is None else self.sets[rows],
            sources=[self.sources[row] for row in rows.tolist()],
            metadata=[self.metadata[row] for row in rows.tolist()],
            picture=lambda row: self.picture(int(rows[row])),
        )

    def nearest(self, vectors: np.ndarray, k: int, exclude: np.ndarray | None = None) -> Neighbors:
        """The k exact nearest points to vectors (m, d), as rows; never the points with the ids `exclude` (m,)."""
        asked = Points(torch.from_numpy(np.ascontiguousarray(vectors)), ids=None if exclude is None else torch.from_numpy(exclude))
        known = Points(torch.from_numpy(np.ascontiguousarray(self.vectors)), ids=torch.from_numpy(np.ascontiguousarray(self.ids)))
        return nearest(asked, known, k, METRICS[self.metric], exclude_same_id=exclude is not None)

    def right(self, rows: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
        """(m, k) whether the neighbors (m, k) of the points in `rows` (m,) are right: 1, 0, or -1 where nobody can tell.

        Right are the same class; label sets of which half is common; numbers nearer than in nine of ten random pairs.
        """
        there, at = neighbors >= 0, np.maximum(neighbors, 0)
        if self.kind == "classes":
            mine, theirs = self.labels[rows][:, None], self.labels[at]
            good, known = mine == theirs, (mine >= 0) & (theirs >= 0)
        elif self.kind == "sets":
            assert self.sets is not None
            own, others = self.sets[rows][:, None], self.sets[at]
            either = (own | others).sum(2)
            good, known = (own & others).sum(2) >= HALF * either, either > 0
        elif self.kind == "numbers":
            assert self.targets is not None
            gap = np.linalg.norm(self.targets[rows][:, None] - self.targets[at], axis=2)
            good, known = gap <= self._close(), np.isfinite(gap)
        else:
            good, known = np.zeros(at.shape, np.bool_), np.zeros(at.shape, np.bool_)
        return np.where(there & known, good, -1).astype(np.int8)

    def _close(self) -> float:
        assert self.targets is not None
        draw = np.random.default_rng(0).integers(0, len(self), (2, RANDOM_PAIRS))
        gap = np.linalg.norm(self.targets[draw[0]] - self.targets[draw[1]], axis=1)
        return float(np.nanquantile(gap[draw[0] != draw[1]], CLOSE)) if len(self) > 1 else 0.0


def take(snapshot: Snapshot) -> Census:
    """The census of an index; more points than can be drawn, or none, are refused."""
    if not len(snapshot):
        raise ValueError("the index is empty, so there is nothing to draw; `nearkin index DIR --add DATA` fills it")
    if len(snapshot) > MOST:
        raise ValueError(f"the index holds {len(snapshot):,} points, and the explorer draws {MOST:,} at most; index a part of the data")
    told = [snapshot.entry(row) for row in range(len(snapshot))]
    metadata = [entry.metadata for entry in told]
    splits, split_names = _splits(metadata)
    targets, target_names = _numbers(metadata)
    return Census(
        vectors=np.asarray(snapshot.vectors[:], dtype=np.float32),
        ids=np.asarray(snapshot.ids),
        labels=np.asarray(snapshot.codes, dtype=np.int32),
        classes=tuple(snapshot.manifest["labels"]),
        splits=splits,
        split_names=split_names,
        targets=targets,
        target_names=target_names,
        sets=_sets(metadata),
        sources=[entry.source for entry in told],
        metadata=metadata,
        picture=snapshot.picture,
        metric=snapshot.manifest["metric"],
    )


def shared(one: Census, other: Census) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both for the points they share, by source, in the order of the first."""
    where = {source: row for row, source in enumerate(other.sources)}
    rows = [(row, where[source]) for row, source in enumerate(one.sources) if source in where]
    if not rows:
        raise ValueError("the two indexes share no point (by its source); index the same data with both models")
    pairs = np.array(rows, dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def in_terms_of(one: Census, other: Census) -> Census:
    """The census of the same points with the labels of another: what is right must not depend on which model is asked."""
    known = ("labels", "classes", "splits", "split_names", "targets", "target_names", "sets", "metadata")
    return replace(one, **{name: getattr(other, name) for name in known})


def known_labels(census: Census) -> Tensor:
    """(n,) class numbers, -1 unknown."""
    return torch.from_numpy(census.labels.astype(np.int64))


def _splits(metadata: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, tuple[str, ...]]:
    found = [str(row.get("split", UNKNOWN)) for row in metadata]
    order = {name: at for at, name in enumerate((*SPLITS, UNKNOWN))}
    names = tuple(sorted(set(found), key=lambda name: (order.get(name, len(SPLITS)), name)))
    number = {name: at for at, name in enumerate(names)}
    return np.array([number[name] for name in found], dtype=np.int32), names


def _numbers(metadata: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """(n, t) whatever is a real number in the metadata of all points; groups are whole numbers, and names rather than numbers."""
    names = [name for name, value in metadata[0].items() if isinstance(value, float)]
    names = [name for name in names if all(isinstance(row.get(name), float) for row in metadata)]
    if not names:
        return None, ()
    return np.array([[row[name] for name in names] for row in metadata], dtype=np.float32), tuple(names)


def _sets(metadata: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    if not all("set" in row for row in metadata):
        return None
    members = sorted({name for row in metadata for name in row["set"]})
    return np.array([[name in row["set"] for name in members] for row in metadata], dtype=np.bool_)
