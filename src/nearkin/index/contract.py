"""What an index is, whoever keeps it: points go in with all that is known of them, neighbors come out with affinities.

`VectorIndex` is the contract. `LocalIndex` keeps a folder on this machine; another engine that fulfills the contract may
stand in its place, and one suite of tests (tests/index/test_index_contract.py) runs over them all.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

import numpy as np

from nearkin.compose.validation import check_whole


@dataclass(frozen=True, eq=False)
class Entries:
    """n points to be added; whatever is left out is unknown of all of them."""

    vectors: np.ndarray  # (n, d) float32
    labels: Sequence[str | None] = ()
    sources: Sequence[str] = ()  # paths or rows, for people; never opened
    metadata: Sequence[Mapping[str, Any]] = ()  # plain values, ready for JSON
    thumbnails: Sequence[bytes] = ()  # small PNG or JPEG files; b"" where there is none
    ids: Sequence[int] | np.ndarray | None = None  # (n,) from 0; the index numbers the points itself if not given

    def __post_init__(self) -> None:
        vectors = np.ascontiguousarray(self.vectors, dtype=np.float32)
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise ValueError(f"vectors have shape {vectors.shape}; give (n, d) with at least one row")
        wrong = np.flatnonzero(~np.isfinite(vectors).all(1))
        if len(wrong):
            raise ValueError(f"vectors hold NaN or infinity, first in row {wrong[0]}; nothing is near to those: drop them")
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "labels", [_label(value) for value in self.labels])
        for name, empty in (("labels", None), ("sources", ""), ("metadata", {}), ("thumbnails", b"")):
            values = getattr(self, name)
            if not len(values):
                object.__setattr__(self, name, [empty] * len(vectors))
            elif len(values) != len(vectors):
                raise ValueError(f"{name} has {len(values)} entries for {len(vectors)} vectors; give one for each")
        if self.ids is not None:
            object.__setattr__(self, "ids", _checked_ids(self.ids, len(vectors)))

    def __len__(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True)
class Where:
    """Which points may be neighbors: all that is given must hold. Metadata are compared as text, `3` with `"3"`."""

    labels: tuple[str, ...] = ()  # any of these
    metadata: Mapping[str, Any] = field(default_factory=dict)  # each of these
    ids: tuple[int, ...] | None = None  # any of these

    def __post_init__(self) -> None:
        names = (self.labels,) if isinstance(self.labels, str) else self.labels
        found = [_label(value) for value in names]
        if None in found:
            raise ValueError(f"labels ({self.labels!r}) hold one that is none; name those whose points may be neighbors")
        object.__setattr__(self, "labels", tuple(found))

    @property
    def everything(self) -> bool:
        """Whether nothing is asked."""
        return not self.labels and not self.metadata and self.ids is None


class Entry(NamedTuple):
    """What the index knows of one point."""

    id: int
    label: str | None
    source: str
    metadata: dict[str, Any]


class Hit(NamedTuple):
    """A neighbor. `same_kind` is the verdict of the index's calibration, None where it has none."""

    id: int
    affinity: float  # larger is nearer
    label: str | None
    source: str
    metadata: dict[str, Any]
    same_kind: bool | None


class Answer(NamedTuple):
    """The neighbors of one query, nearest first: fewer than asked when there are no more.

    `exact` says whether these are the nearest; otherwise a nearer one may have been missed, though every affinity is right.
    """

    hits: tuple[Hit, ...]
    exact: bool


class VectorIndex(Protocol):
    """The contract. What `add` and `delete` have returned from is durable; a search sees all of a change or nothing of it."""

    @property
    def count(self) -> int:
        """How many points there are."""

    @property
    def dimension(self) -> int:
        """d."""

    @property
    def metric(self) -> str:
        """A name of `METRICS`."""

    @property
    def model(self) -> str:
        """The version of the model whose embeddings these are."""

    def add(self, entries: Entries) -> np.ndarray:
        """Add points; their ids (n,)."""

    def delete(self, ids: Sequence[int]) -> None:
        """Remove points. An id that is not there is an error, and nothing is removed."""

    def entries(self, ids: Sequence[int]) -> list[Entry]:
        """What is known of these points."""

    def vectors(self, ids: Sequence[int]) -> np.ndarray:
        """(n, d) float32 of these points; +-1 where only signs are kept."""

    def search(self, vectors: np.ndarray, k: int = 10, *, where: Where | None = None, exclude: Sequence[int] | None = None) -> list[Answer]:
        """The k nearest of each query (n, d) among the points `where` allows, but not the point with the id in `exclude` (n,)."""


def as_text(value: Any) -> str:
    """How a metadata value is compared."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """A number of numpy or torch as one of Python's."""
    if not hasattr(value, "item"):
        raise TypeError(f"metadata {value!r} is a {type(value).__name__}; give text, a number or a truth value")
    return value.item()


def _label(value: Any) -> str | None:
    """A label as text; None, and NaN, which tables have in empty cells, where there is none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real) and math.isnan(value):
        return None
    raise ValueError(f"label {value!r} is a {type(value).__name__}; give names, whole numbers, or None where there is none")


def check_queries(vectors: np.ndarray, dimension: int, k: int, exclude: Sequence[int] | None) -> np.ndarray:
    """Queries (n, d) as float32, if what is asked of an index of this dimension can be answered."""
    queries = np.ascontiguousarray(vectors, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != dimension or not len(queries):
        raise ValueError(f"vectors have shape {queries.shape}; this index holds points of {dimension} dimensions: give (n, {dimension})")
    if not np.isfinite(queries).all():
        raise ValueError("vectors hold NaN or infinity; nothing is near to those")
    check_whole("k", k)
    if exclude is not None and len(exclude) != len(queries):
        raise ValueError(f"exclude has {len(exclude)} ids for {len(queries)} queries; give one for each")
    return queries


def check_entries(entries: Entries, dimension: int) -> None:
    """Points of another dimension are of another model."""
    if entries.vectors.shape[1] != dimension:
        raise ValueError(f"vectors have {entries.vectors.shape[1]} dimensions where this index holds {dimension}; encode with its model")


def _checked_ids(ids: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    array = np.asarray(ids)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise ValueError(f"ids are {array.dtype} {array.shape} for {n} vectors; give one whole number for each")
    array = array.astype(np.int64)
    if array.min() < 0:
        raise ValueError(f"ids hold {array.min()}; ids run from 0, so that -1 can never be taken for a point")
    if len(np.unique(array)) < n:
        raise ValueError("ids hold a number twice; every point has an id of its own")
    return array
