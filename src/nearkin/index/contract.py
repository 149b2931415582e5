"""What every index provides, wherever its points are stored: `VectorIndex`, and the types that go in and out of it.

`LocalIndex` keeps the points in a folder, `MilvusIndex` in Milvus. One test suite (test_index_contract.py) runs over all backends.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from nearkin.compose.validation import check_finite, check_whole

if TYPE_CHECKING:
    from nearkin.compose.points import Points

DECIMAL = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True, eq=False)
class Entries:
    """n points to add to an index.

    Parameters
    ----------
    vectors : array of shape (n, d)
        The embeddings. Stored as float32; NaN and infinity are refused.
    labels : sequence of str, int or None, default ()
        The class of each point; None (or NaN) where it is unknown. Whole numbers are stored as text.
    sources : sequence of str, default ()
        Where each point comes from, such as a path. Shown to people, never opened.
    metadata : sequence of mappings, default ()
        Further fields of each point, as values that JSON can hold. You can filter by them (`Where`).
    thumbnails : sequence of bytes, default ()
        A small PNG or JPEG file for each point, b"" where there is none.
    ids : sequence of int, optional
        The id of each point, from 0. By default the index numbers the points itself.

    Raises
    ------
    ValueError
        If a sequence has another length than `vectors`, a vector is not finite, or an id is negative or occurs twice.

    Examples
    --------
    >>> entries = Entries([[0.0, 1.0], [1.0, 0.0]], labels=["cat", None], sources=["a.jpg", "b.jpg"])
    >>> len(entries), entries.labels
    (2, ['cat', None])
    """

    vectors: np.ndarray  # (n, d) float32
    labels: Sequence[str | None] = ()
    sources: Sequence[str] = ()
    metadata: Sequence[Mapping[str, Any]] = ()
    thumbnails: Sequence[bytes] = ()
    ids: Sequence[int] | np.ndarray | None = None  # (n,)

    def __post_init__(self) -> None:
        vectors = np.ascontiguousarray(self.vectors, dtype=np.float32)
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise ValueError(f"vectors have shape {vectors.shape}; pass (n, d) with at least one row")
        check_finite("vectors", vectors)
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "labels", [_label(value) for value in self.labels])
        for name, empty in (("labels", None), ("sources", ""), ("metadata", {}), ("thumbnails", b"")):
            values = getattr(self, name)
            if not len(values):
                object.__setattr__(self, name, [empty] * len(vectors))
            elif len(values) != len(vectors):
                raise ValueError(f"{name} has {len(values)} entries for {len(vectors)} vectors; pass one per vector")
        if self.ids is not None:
            object.__setattr__(self, "ids", _checked_ids(self.ids, len(vectors)))

    def __len__(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True)
class Where:
    """A filter: which points may be neighbors. All given conditions must hold.

    Parameters
    ----------
    labels : tuple of str, default ()
        Allow points with any of these labels. A single label may be passed as it is.
    metadata : mapping, default {}
        Allow points that have each of these values. Values are compared as text, so `3` matches `"3"`.
    ids : tuple of int, optional
        Allow only points with these ids.

    Examples
    --------
    >>> Where(labels="cat", metadata={"split": "test"})
    Where(labels=('cat',), metadata={'split': 'test'}, ids=None)
    """

    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        names = (self.labels,) if isinstance(self.labels, str) else self.labels
        found = [_label(value) for value in names]
        if None in found:
            raise ValueError(f"labels ({self.labels!r}) contain None; name the labels whose points may be neighbors")
        object.__setattr__(self, "labels", tuple(found))

    @property
    def allows_all(self) -> bool:
        """Whether there is no condition.

        Returns
        -------
        bool
        """
        return not self.labels and not self.metadata and self.ids is None


class Entry(NamedTuple):
    """What an index stores about one point, apart from its vector and thumbnail.

    Parameters
    ----------
    id : int
        Its id, unique in the index.
    label : str or None
        Its class, None if unknown.
    source : str
        Where it comes from.
    metadata : dict
        Its further fields.

    Examples
    --------
    >>> Entry(7, "cat", "photos/7.jpg", {"split": "test"}).label
    'cat'
    """

    id: int
    label: str | None
    source: str
    metadata: dict[str, Any]


class Hit(NamedTuple):
    """One neighbor of a query.

    Parameters
    ----------
    id : int
        The id of the neighbor.
    affinity : float
        How near it is; larger is nearer.
    label : str or None
        Its class, None if unknown.
    source : str
        Where it comes from.
    metadata : dict
        Its further fields.
    same_kind : bool or None
        Whether it is near enough to count as the same class as the query, by the threshold the index was calibrated with
        (`VectorIndex.calibration`). None if the index has none.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin.index import LocalIndex
    >>> with TemporaryDirectory() as folder:
    ...     index = LocalIndex.create(folder, model="v1", metric="squared_euclidean", dimension=1)
    ...     ids = index.add(Entries([[0.0], [2.0]], labels=["a", "b"], sources=["x.jpg", "y.jpg"]))
    ...     index.search([[0.5]], k=1)[0].hits[0]
    Hit(id=0, affinity=-0.25, label='a', source='x.jpg', metadata={}, same_kind=None)
    """

    id: int
    affinity: float
    label: str | None
    source: str
    metadata: dict[str, Any]
    same_kind: bool | None


class Answer(NamedTuple):
    """The neighbors of one query.

    Parameters
    ----------
    hits : tuple of Hit
        The neighbors, nearest first. Fewer than k if the index has no more points that the filter allows.
    exact : bool
        True if these are the nearest points. False if an approximate search may have missed a nearer one; the affinities are
        right in either case.
    p_value : float, optional
        If rejection was requested: the share of known points that are no more like the index than the query. Small for a query of no
        known class.
    rejected : bool, optional
        If rejection was requested: whether the query belongs to no known class.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin.index import LocalIndex
    >>> with TemporaryDirectory() as folder:
    ...     index = LocalIndex.create(folder, model="v1", metric="squared_euclidean", dimension=1)
    ...     ids = index.add(Entries([[0.0], [2.0]], labels=["a", "b"], sources=["x.jpg", "y.jpg"]))
    ...     answer = index.search([[0.5]], k=5)[0]
    >>> [hit.id for hit in answer.hits], answer.exact
    ([0, 1], True)
    """

    hits: tuple[Hit, ...]
    exact: bool
    p_value: float | None = None
    rejected: bool | None = None


class Page(NamedTuple):
    """A part of the points of an index.

    Parameters
    ----------
    total : int
        How many points the filter allows.
    entries : list of Entry
        Some of them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin.index import LocalIndex
    >>> with TemporaryDirectory() as folder:
    ...     index = LocalIndex.create(folder, model="v1", metric="squared_euclidean", dimension=1)
    ...     ids = index.add(Entries([[0.0], [2.0]], labels=["a", "b"], sources=["x.jpg", "y.jpg"]))
    ...     index.page(offset=1)
    Page(total=2, entries=[Entry(id=1, label='b', source='y.jpg', metadata={})])
    """

    total: int
    entries: list[Entry]


class StoredPoints(NamedTuple):
    """All points of an index.

    Parameters
    ----------
    ids : array of shape (n,)
        Their ids.
    vectors : array of shape (n, d)
        Their embeddings, float32.
    entries : list of Entry
        What else is stored about them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin.index import LocalIndex
    >>> with TemporaryDirectory() as folder:
    ...     index = LocalIndex.create(folder, model="v1", metric="squared_euclidean", dimension=1)
    ...     ids = index.add(Entries([[0.0], [2.0]], labels=["a", "b"], sources=["x.jpg", "y.jpg"]))
    ...     index.read_all().vectors.tolist()
    [[0.0], [2.0]]
    """

    ids: np.ndarray
    vectors: np.ndarray
    entries: list[Entry]

    def labeled(self, classes: Sequence[str]) -> "Points":
        """Return those of these classes as `Points`, such as to search them for hard negatives.

        Parameters
        ----------
        classes : sequence of str
            Names of classes, in the order of their codes in training. Points of other classes, or of none, are left out.

        Returns
        -------
        Points
            Embeddings, codes and ids.

        Examples
        --------
        >>> names = {4: "cat", 5: None, 6: "dog"}
        >>> stored = StoredPoints(np.array([4, 5, 6]), np.eye(3), [Entry(i, name, "", {}) for i, name in names.items()])
        >>> points = stored.labeled(["dog", "cat"])
        >>> points.labels.tolist(), points.ids.tolist()
        ([1, 0], [4, 6])
        """
        import torch  # late, so that commands which need no tensor start quickly

        from nearkin.compose.points import Points

        codes = {name: code for code, name in enumerate(classes)}
        of = np.array([-1 if entry.label is None else codes.get(entry.label, -1) for entry in self.entries], dtype=np.int64)
        kept = of >= 0
        embeddings, labels, ids = (torch.from_numpy(part[kept]) for part in (self.vectors, of, self.ids.astype(np.int64)))
        return Points(embeddings, labels, ids)


class VectorIndex(Protocol):
    """The contract of an index: points with labels, sources and metadata go in, nearest neighbors come out.

    `LocalIndex` (exact, or with a faiss structure) and `MilvusIndex` implement it. When `add` and `delete` return, the change is durable.
    A search sees all of a change or none of it. An operation that a backend does not support raises ValueError.
    """

    @property
    def count(self) -> int:
        """Number of points.

        Returns
        -------
        int
        """

    @property
    def dimension(self) -> int:
        """Length d of the embeddings.

        Returns
        -------
        int
        """

    @property
    def metric(self) -> str:
        """Name of the affinity: "squared_euclidean", "cosine", "inner_product" or "hamming".

        Returns
        -------
        str
        """

    @property
    def model(self) -> str:
        """Version of the model that made the embeddings.

        Returns
        -------
        str
        """

    @property
    def generation(self) -> int:
        """A number that grows with every change.

        Returns
        -------
        int
        """

    @property
    def identity(self) -> str:
        """A hash of all content: equal if and only if two indexes, or two states of one, hold the same points.

        Unlike `generation`, it also differs where an index was rebuilt or another one was moved into its place.

        Returns
        -------
        str
        """

    @property
    def backend(self) -> str:
        """How the index is searched, such as "exact", "hnsw" or "milvus FLAT".

        Returns
        -------
        str
        """

    @property
    def location(self) -> str:
        """Where the points are stored.

        Returns
        -------
        str
        """

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that points have been added with. Empty if there are none, or if the backend does not list them.

        Returns
        -------
        tuple of str
        """

    @property
    def calibration(self) -> dict[str, Any] | None:
        """The threshold behind `Hit.same_kind` and how accurate it is, as fitted by `calibrate`.

        Returns
        -------
        dict or None
        """

    def add(self, entries: Entries, *, rebuild: bool = True) -> np.ndarray:
        """Add points.

        Parameters
        ----------
        entries : Entries
            The points.
        rebuild : bool, default True
            Bring the search structure up to date. Pass False while you add many batches, then call `rebuild_if_stale` once.

        Returns
        -------
        array of shape (n,)
            Their ids.
        """

    def delete(self, ids: Sequence[int]) -> None:
        """Remove points.

        Parameters
        ----------
        ids : sequence of int
            Their ids.

        Raises
        ------
        KeyError
            If an id is unknown. Nothing is removed then.
        """

    def entries(self, ids: Sequence[int]) -> list[Entry]:
        """Look up points by id.

        Parameters
        ----------
        ids : sequence of int
            Their ids.

        Returns
        -------
        list of Entry

        Raises
        ------
        KeyError
            If an id is unknown.
        """

    def vectors(self, ids: Sequence[int]) -> np.ndarray:
        """Look up embeddings by id.

        Parameters
        ----------
        ids : sequence of int
            The ids of the points.

        Returns
        -------
        array of shape (n, d)
            float32; +1 and -1 where the metric is "hamming", which keeps only signs.

        Raises
        ------
        KeyError
            If an id is unknown.
        """

    def thumbnails(self, ids: Sequence[int]) -> list[bytes]:
        """Look up thumbnails by id.

        Parameters
        ----------
        ids : sequence of int
            The ids of the points.

        Returns
        -------
        list of bytes
            b"" where there is no thumbnail.

        Raises
        ------
        KeyError
            If an id is unknown.
        """

    def has_thumbnails(self, ids: Sequence[int]) -> list[bool]:
        """Say which points have a thumbnail, without reading it.

        Parameters
        ----------
        ids : sequence of int
            The ids of the points.

        Returns
        -------
        list of bool
        """

    def page(self, where: Where | None = None, offset: int = 0, limit: int = 100) -> Page:
        """List points in the order of the index.

        Parameters
        ----------
        where : Where, optional
            Only points that the filter allows.
        offset : int, default 0
            How many of them to skip.
        limit : int, default 100
            How many of them to return at most.

        Returns
        -------
        Page
        """

    def read_all(self) -> StoredPoints:
        """Read all points at once. They must fit in memory.

        Returns
        -------
        StoredPoints
        """

    def sample(self, n: int, seed: int = 0) -> StoredPoints:
        """Read some points, drawn at random.

        Parameters
        ----------
        n : int
            How many, at most.
        seed : int, default 0
            Seed of the draw.

        Returns
        -------
        StoredPoints
            In the order of the index.
        """

    def known_sources(self, sources: Sequence[str]) -> dict[str, int]:
        """Find out which sources are in the index, and where.

        Parameters
        ----------
        sources : sequence of str
            The sources to look for.

        Returns
        -------
        dict of str to int
            Those that some point has, each with the id of the first such point.
        """

    def search(
        self,
        vectors: np.ndarray,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Sequence[int] | None = None,
        rescale: str | None = None,
    ) -> list[Answer]:
        """Search the k nearest points of each query.

        Parameters
        ----------
        vectors : array of shape (n, d)
            The queries.
        k : int, default 10
            Neighbors per query.
        where : Where, optional
            Only points that the filter allows.
        exclude : sequence of int, optional
            For each query, the id of a point to leave out: the query itself, if it is in the index.
        rescale : {"csls", "local_scaling"}, optional
            Rank by affinities that are corrected for hubs (`nearkin.search.rescaled`); the affinities of the hits are the plain ones. The
            first such search compares all points with one another.

        Returns
        -------
        list of Answer
            One per query.
        """

    def rename_class(self, old: str, new: str) -> None:
        """Rename a class; if there is one of the new name already, both become one.

        Parameters
        ----------
        old : str
            Its name.
        new : str
            Its new name.

        Raises
        ------
        KeyError
            If no class has the old name.
        """

    def remove_class(self, name: str, *, keep_points: bool = False) -> int:
        """Remove a class with its points.

        Parameters
        ----------
        name : str
            The class.
        keep_points : bool, default False
            Keep its points, without a label.

        Returns
        -------
        int
            How many points it had.

        Raises
        ------
        KeyError
            If no class has this name.
        """

    def relabel(self, ids: Sequence[int], label: str | None) -> None:
        """Give points another class, which may be a new one.

        Parameters
        ----------
        ids : sequence of int
            Their ids.
        label : str or None
            The class; None for points whose class is unknown.

        Raises
        ------
        KeyError
            If an id is unknown. Nothing is changed then.
        """

    def calibrate(self) -> dict[str, Any] | None:
        """Fit and store the threshold behind `Hit.same_kind`, on labeled points; held-out ones if there are enough.

        Returns
        -------
        dict or None
            The new `calibration`; None if there are too few labeled pairs.
        """

    def rebuild_if_stale(self) -> None:
        """Bring the search structure up to date after many points were added."""

    def build(self, backend: str) -> None:
        """Change how the index is searched.

        Parameters
        ----------
        backend : {"exact", "hnsw", "ivf_pq"}
            Compare every point; a graph; or compressed codes in lists.
        """

    def compact(self) -> None:
        """Free the space of deleted points."""

    def verify(self) -> None:
        """Compare every file with its checksum.

        Raises
        ------
        IndexDamagedError
            If one does not match.
        """

    def refresh(self) -> bool:
        """Look for changes that others have made.

        Returns
        -------
        bool
            Whether there was one.
        """

    def frozen(self) -> "VectorIndex":
        """The index as it is now: later changes do not show in what is returned, if the backend has snapshots.

        Returns
        -------
        VectorIndex
        """


def as_text(value: Any) -> str:
    """A metadata value as the text it is compared by: 1, 1.0 and "1" are the same, and so are True and "true"."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=_plain)
    if text in ("True", "False"):
        return text.lower()
    if DECIMAL.fullmatch(text):
        whole, _, rest = text.partition(".")
        return f"{whole}.{digits}" if (digits := rest.rstrip("0")) else whole
    return text


def _plain(value: Any) -> Any:
    """A number of numpy or torch as a Python number."""
    if not hasattr(value, "item"):
        raise TypeError(f"metadata {value!r} is a {type(value).__name__}; pass text, a number or a truth value")
    return value.item()


def _label(value: Any) -> str | None:
    """A label as text; None for None, and for NaN, which tables have in empty cells."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real) and math.isnan(value):
        return None
    raise ValueError(f"label {value!r} is a {type(value).__name__}; pass names, whole numbers, or None where there is none")


def check_queries(vectors: np.ndarray, dimension: int, k: int, exclude: Sequence[int] | None) -> np.ndarray:
    """The queries (n, d) as float32, if the arguments of a search are valid for an index of this dimension."""
    queries = np.ascontiguousarray(vectors, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != dimension or not len(queries):
        raise ValueError(f"vectors have shape {queries.shape}; this index holds points of {dimension} dimensions: pass (n, {dimension})")
    check_finite("vectors", queries)
    check_whole("k", k)
    if exclude is not None and len(exclude) != len(queries):
        raise ValueError(f"exclude has {len(exclude)} ids for {len(queries)} queries; pass one per query")
    return queries


def check_entries(entries: Entries, dimension: int) -> None:
    """Refuse points of another dimension than the index has."""
    if entries.vectors.shape[1] != dimension:
        raise ValueError(f"vectors have {entries.vectors.shape[1]} dimensions where this index holds {dimension}; encode with its model")


def _checked_ids(ids: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    array = np.asarray(ids)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise ValueError(f"ids are {array.dtype} {array.shape} for {n} vectors; pass one whole number per vector")
    array = array.astype(np.int64)
    if array.min() < 0:
        raise ValueError(f"ids contain {array.min()}; ids start at 0, since -1 stands for no point")
    if len(np.unique(array)) < n:
        raise ValueError("ids contain a number twice; each point needs an id of its own")
    return array
