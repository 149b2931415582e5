"""The points of an index as a table: one array per column."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.data.dataset import SPLITS
from nearkin.index.contract import VectorIndex
from nearkin.search import Neighbors, nearest

MOST = 200_000  # points that a browser draws fast enough
UNKNOWN = "no split"
RANDOM_PAIRS = 20_000
CLOSE = 0.1  # two numbers match if they differ less than this share of random pairs
NOT_COLUMNS = ("data", "split", "set", "group")  # shown in other ways
MOST_COLUMNS = 50  # that points can be colored by
MOST_VALUES = 100  # different texts of such a column
HALF = 0.5  # share of the members of two label sets that must be in both


@dataclass(frozen=True, eq=False)
class MetadataColumn:
    """A field of the metadata as numbers: values (NaN unknown), or positions in `names` (-1 unknown)."""

    name: str
    values: np.ndarray  # (n,) float32, or int32 if there are names
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PointTable:
    """n points; row i of every column is the same point. Unknown values are None, or -1 among the labels."""

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
    columns: Sequence["MetadataColumn"]
    thumbnail: Callable[[int], bytes]  # of a row, b"" if it has none
    metric: str

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def kind(self) -> str:
        """What decides whether a neighbor is right: classes, sets, numbers, or nothing."""
        if bool((self.labels >= 0).any()):
            return "classes"
        return "sets" if self.sets is not None else "nothing" if self.targets is None else "numbers"

    def subset(self, rows: np.ndarray) -> "PointTable":
        """Only these points, in this order."""
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in ("vectors", "ids", "labels", "splits")},
            targets=None if self.targets is None else self.targets[rows],
            sets=None if self.sets is None else self.sets[rows],
            sources=[self.sources[row] for row in rows.tolist()],
            metadata=[self.metadata[row] for row in rows.tolist()],
            columns=[replace(one, values=one.values[rows]) for one in self.columns],
            thumbnail=lambda row: self.thumbnail(int(rows[row])),
        )

    def nearest(self, vectors: np.ndarray, k: int, exclude: np.ndarray | None = None) -> Neighbors:
        """The k exact nearest points to vectors (m, d), as rows, without the points whose ids are in `exclude` (m,)."""
        queries = Points(torch.from_numpy(np.ascontiguousarray(vectors)), ids=None if exclude is None else torch.from_numpy(exclude))
        known = Points(torch.from_numpy(np.ascontiguousarray(self.vectors)), ids=torch.from_numpy(np.ascontiguousarray(self.ids)))
        return nearest(queries, known, k, METRICS[self.metric], exclude_same_id=exclude is not None)

    def right(self, rows: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
        """(m, k) whether the neighbors (m, k) of the points in `rows` (m,) are right: 1, 0, or -1 if unknown.

        A neighbor is right if it has the same class, a label set that shares at least half of all members, or numbers that are closer than
        in nine of ten random pairs.
        """
        there, at = neighbors >= 0, np.maximum(neighbors, 0)
        if self.kind == "classes":
            own, others = self.labels[rows][:, None], self.labels[at]
            good, known = own == others, (own >= 0) & (others >= 0)
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
        first, second = np.random.default_rng(0).integers(0, len(self), (2, RANDOM_PAIRS))
        gap = np.linalg.norm(self.targets[first] - self.targets[second], axis=1)
        return float(np.nanquantile(gap[first != second], CLOSE)) if len(self) > 1 else 0.0


def read_table(index: VectorIndex, targets: Sequence[str] | None = None) -> PointTable:
    """The table of an index, of at most `MOST` points drawn at random; an empty index is refused.

    `targets` names the metadata that neighbors are judged by; by default all that are floats.
    """
    count = index.count
    if not count:
        raise ValueError("the index is empty, so there is no map; add points with `nearkin index DIR --add DATA`")
    stored = index.read_all() if count <= MOST else index.sample(MOST)
    metadata = [entry.metadata for entry in stored.entries]
    classes = index.labels or tuple(sorted({entry.label for entry in stored.entries if entry.label is not None}))
    number = {name: at for at, name in enumerate(classes)}
    splits, split_names = _splits(metadata)
    numbers, target_names = _numbers(metadata, targets)
    ids, pictured = stored.ids, index.has_thumbnails(stored.ids.tolist())
    return PointTable(
        vectors=stored.vectors,
        ids=ids,
        labels=np.array([-1 if entry.label is None else number[entry.label] for entry in stored.entries], dtype=np.int32),
        classes=classes,
        splits=splits,
        split_names=split_names,
        targets=numbers,
        target_names=target_names,
        sets=_sets(metadata),
        sources=[entry.source for entry in stored.entries],
        metadata=metadata,
        columns=metadata_columns(metadata, (*NOT_COLUMNS, *target_names)),
        thumbnail=lambda row: index.thumbnails([int(ids[row])])[0] if pictured[row] else b"",
        metric=index.metric,
    )


def shared_rows(one: PointTable, other: PointTable) -> tuple[np.ndarray, np.ndarray]:
    """The rows in both tables of the points they share, matched by source, in the order of the first."""
    where = {source: row for row, source in enumerate(other.sources)}
    rows = [(row, where[source]) for row, source in enumerate(one.sources) if source in where]
    if not rows:
        raise ValueError("the two indexes share no point (points are matched by their source); index the same data with both models")
    pairs = np.array(rows, dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def with_labels_of(one: PointTable, other: PointTable) -> PointTable:
    """The same points with the labels of another table, so that both models are judged by the same labels."""
    known = ("labels", "classes", "splits", "split_names", "targets", "target_names", "sets", "metadata", "columns")
    return replace(one, **{name: getattr(other, name) for name in known})


def class_numbers(table: PointTable) -> Tensor:
    """(n,) class numbers, -1 unknown."""
    return torch.from_numpy(table.labels.astype(np.int64))


def _splits(metadata: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, tuple[str, ...]]:
    found = [str(row.get("split", UNKNOWN)) for row in metadata]
    order = {name: at for at, name in enumerate((*SPLITS, UNKNOWN))}
    names = tuple(sorted(set(found), key=lambda name: (order.get(name, len(SPLITS)), name)))
    number = {name: at for at, name in enumerate(names)}
    return np.array([number[name] for name in found], dtype=np.int32), names


def metadata_columns(metadata: Sequence[Mapping[str, Any]], without: Sequence[str] = ()) -> list[MetadataColumn]:
    """The fields that points can be colored by: numbers, and texts with few different values. Ids and free text are not."""
    names = dict.fromkeys(name for row in metadata for name in row if name not in without)
    found = (_column(name, [row.get(name) for row in metadata]) for name in islice(names, MOST_COLUMNS))
    return [one for one in found if one is not None]


def _column(name: str, cells: Sequence[Any]) -> MetadataColumn | None:
    known = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known):
        values = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float32)
        return MetadataColumn(name, values) if len(set(known)) > 1 else None
    if not all(isinstance(cell, str | bool | int | float) for cell in known):
        return None
    counts = Counter(map(str, known))
    if not 1 < len(counts) <= min(MOST_VALUES, max(2, len(cells) // 2)):
        return None
    names = tuple(sorted(counts))
    number = {text: at for at, text in enumerate(names)}
    return MetadataColumn(name, np.array([-1 if cell is None else number[str(cell)] for cell in cells], dtype=np.int32), names)


def _numbers(metadata: Sequence[Mapping[str, Any]], targets: Sequence[str] | None) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """(n, t) the metadata fields that are floats in all points, or those of `targets`. Groups are whole numbers, which are not used."""
    names = [name for name, value in metadata[0].items() if isinstance(value, float) and (targets is None or name in targets)]
    names = [name for name in names if all(isinstance(row.get(name), float) for row in metadata)]
    if not names:
        return None, ()
    return np.array([[row[name] for name in names] for row in metadata], dtype=np.float32), tuple(names)


def _sets(metadata: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    if not all("set" in row for row in metadata):
        return None
    members = sorted({name for row in metadata for name in row["set"]})
    return np.array([[name in row["set"] for name in members] for row in metadata], dtype=np.bool_)
