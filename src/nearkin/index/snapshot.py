"""A snapshot: one generation of a local index. It does not change while others write."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import torch

from nearkin.compose.affinity import InnerProduct
from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.compose.validation import check_choice
from nearkin.index import segment as segments_
from nearkin.index.contract import Answer, Entry, Hit, Where, as_text, check_queries
from nearkin.index.shortlist import Shortlist
from nearkin.index.store import StoredRows, store_of
from nearkin.index.structure import Structure
from nearkin.search.exact import nearest
from nearkin.search.hamming import nearest_codes
from nearkin.search.packing import UnpackedRows, pack
from nearkin.search.rescaled import METHODS, rescaled

SELECTIVE = 0.5  # share of allowed points below which they are searched exactly: a graph would return too few of them
SHORTLIST_FROM = 2000  # points; fewer are all compared
CANDIDATES, CANDIDATES_PER_NEIGHBOR = 200, 20  # points that are scored again after a search by bits
DECODED = 65_536  # vectors decoded at a time
UNCOVERED = 0.2  # share of points missing from the structure above which exact search is faster


class Snapshot:
    """The live points of some segments, and how to search them."""

    def __init__(
        self,
        manifest: Mapping[str, Any],
        segments: Sequence[Mapping[str, np.ndarray]],
        deleted: np.ndarray,
        structure: Structure | None = None,
    ) -> None:
        self.manifest, self.segments, self.structure = manifest, segments, structure
        self.affinity = METRICS[manifest["metric"]]
        self.dimension: int = manifest["dimension"]
        self.binary = manifest["metric"] == "hamming"
        keep = [~np.isin(part["ids"], deleted) for part in segments]
        self._store = store_of(manifest)
        if len(segments) == 1 and keep[0].all():  # after compaction, the common case, nothing is copied
            self.ids, self._kept, self.codes = (segments[0][name] for name in ("ids", "vectors", "labels"))
        else:
            self.ids = _live(segments, "ids", keep, np.empty(0, np.int64))
            none = np.empty((0, (self.dimension + 7) // 8), np.uint8) if self.binary else np.empty((0, self.dimension), np.float32)
            self._kept = _live(segments, "vectors", keep, none if self._store is None else self._store.empty())
            self.codes = _live(segments, "labels", keep, np.empty(0, np.int32))
        self.codes = _merged(self.codes, manifest["labels"])
        self._part = np.repeat(np.arange(len(segments)), [int(mask.sum()) for mask in keep])  # of each row, its segment
        self._place = np.concatenate([np.flatnonzero(mask) for mask in keep]) if segments else self.ids  # and where in it
        self._order = np.argsort(self.ids, kind="stable")
        self.vectors: np.ndarray | UnpackedRows | StoredRows = self._kept
        if self.binary:
            self.vectors = UnpackedRows(self._kept, self.dimension)
        elif self._store is not None:
            self.vectors = StoredRows(self._store, self._kept, _live(segments, "scales", keep, np.empty(0, np.float32)))
        numbers = len(self.ids) and not self.binary and self._store is None
        self._corrected: dict[str, torch.Tensor] = {}  # by method, the points in the dimensions of `rescaled`
        self._tensors = (torch.from_numpy(self._kept), torch.from_numpy(self.ids)) if numbers else None

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of the points with these ids, in their shape; -1 where there is no such point."""
        points = np.asarray(ids, dtype=np.int64)
        if not len(self):
            return np.full(points.shape, -1)
        at = self._order[np.searchsorted(self.ids, points, sorter=self._order).clip(max=len(self) - 1)]
        return np.where(self.ids[at] == points, at, -1)

    def known_rows(self, ids: Sequence[int]) -> np.ndarray:
        """The same; an unknown id raises KeyError."""
        rows = self.rows(ids)
        if (rows < 0).any():
            missing = np.asarray(ids)[rows < 0][:5].tolist()
            raise KeyError(f"no point has the id {', '.join(map(str, missing))}; the index holds {len(self):,} points")
        return rows

    def entry(self, row: int) -> Entry:
        """What is stored about the point in this row."""
        fields = segments_.row_of(self.segments[self._part[row]], int(self._place[row]))
        code = int(self.codes[row])
        return Entry(int(self.ids[row]), None if code < 0 else self.manifest["labels"][code], fields["source"], fields["metadata"])

    def thumbnail(self, row: int) -> bytes:
        """The thumbnail of the point in this row, b"" if it has none."""
        return segments_.thumbnail_of(self.segments[self._part[row]], int(self._place[row]))

    def has_thumbnail(self, row: int) -> bool:
        """Whether the point in this row has a thumbnail."""
        ends, at = self.segments[self._part[row]]["picture_ends"], int(self._place[row])
        return bool(ends[at] > (ends[at - 1] if at else 0))

    def sources(self) -> list[str]:
        """The source of every point, row by row."""
        return [row["source"] for row in self._fields()]

    def column(self, key: str) -> np.ndarray:
        """(n,) a metadata value of every point, as text; None where it has none."""
        return self._columns[key] if key in self._columns else np.full(len(self), None)

    def allowed(self, where: Where) -> np.ndarray:
        """The rows (m,) that `where` allows, in order."""
        mask = np.ones(len(self), dtype=np.bool_)
        if where.labels:
            mask &= np.isin(self.codes, [code for code, name in enumerate(self.manifest["labels"]) if name in where.labels])
        for key, value in where.metadata.items():
            mask &= self.column(key) == as_text(value)
        if where.ids is not None:
            mask &= np.isin(self.ids, np.asarray(where.ids, dtype=np.int64))
        return np.flatnonzero(mask)

    def search(
        self,
        vectors: np.ndarray,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Sequence[int] | None = None,
        rescale: str | None = None,
    ) -> list[Answer]:
        """The neighbors of each query, as the contract describes."""
        if rescale is not None:
            found = self._rescaled(vectors, k, where, exclude, rescale)
        else:
            found = self.neighbors(vectors, k, where=where, exclude=exclude)
        return [Answer(self._hits(*one), bool(sure)) for *one, sure in zip(*found, strict=True)]

    def neighbors(
        self, vectors: np.ndarray, k: int = 10, *, where: Where | None = None, exclude: Sequence[int] | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same as arrays: rows (n, k), -1 where there are no more, affinities (n, k), and whether each result is exact (n,)."""
        queries = check_queries(vectors, self.dimension, k, exclude)
        rows = None if where is None or where.allows_all else self.allowed(where)
        if self._store is not None and self._store.kind == "binary" and len(self):
            return self._by_stored_bits(queries, k, rows, exclude)
        if self._structure_serves(rows):
            return self._approximate(queries, k, rows, None if exclude is None else self.rows(exclude))
        return *self._exact(queries, k, rows, exclude), np.ones(len(queries), dtype=np.bool_)

    def _rescaled(
        self, vectors: np.ndarray, k: int, where: Where | None, exclude: Sequence[int] | None, method: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `neighbors`, ranked by affinities that are corrected for hubs; always exact."""
        queries = check_queries(vectors, self.dimension, k, exclude)
        check_choice("rescale", method, METHODS)
        if self._tensors is None:
            raise ValueError(f"rescale ({method}) needs an index that stores float32 vectors, at least one; leave it out")
        if method not in self._corrected:
            self._corrected[method] = rescaled(self._tensors[0][:1], self._tensors[0], self.affinity, method).references.embeddings  # type: ignore[arg-type]
        rows = np.arange(len(self)) if where is None or where.allows_all else self.allowed(where)
        if not len(rows):
            return np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32), np.ones(len(queries), np.bool_)
        mine = torch.from_numpy(queries)
        lifted = rescaled(mine, self._tensors[0][:1], self.affinity, method).queries.embeddings  # type: ignore[arg-type]
        points, known = Points(lifted), Points(self._corrected[method][torch.from_numpy(rows)])
        if exclude is not None:
            points, known = points._replace(ids=torch.as_tensor(list(exclude))), known._replace(ids=torch.from_numpy(self.ids[rows]))
        at = nearest(points, known, min(k, len(rows)), InnerProduct(), exclude_same_id=exclude is not None).positions.numpy()
        found = np.where(at < 0, -1, rows[at.clip(0)])
        plain = [
            self.affinity(one[None], self._tensors[0][torch.from_numpy(some.clip(0))])[0] for one, some in zip(mine, found, strict=True)
        ]
        return found, torch.stack(plain).numpy(), np.ones(len(queries), dtype=np.bool_)

    def _exact(self, queries: np.ndarray, k: int, rows: np.ndarray | None, exclude: Sequence[int] | None) -> tuple[np.ndarray, np.ndarray]:
        """Rows (n, k) and affinities by exact search; -1 where there are no more."""
        if self.binary:
            return self._by_bits(queries, k, rows, exclude)
        if self._store is not None and len(self) and (rows is None or len(rows)):
            return self._by_decoding(queries, k, rows, exclude)
        if self._tensors is None or (rows is not None and not len(rows)):
            return np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32)
        if len(queries) == 1 and len(self) > SHORTLIST_FROM and (rows is None or len(rows) > SHORTLIST_FROM):
            count = k + (exclude is not None)
            few = self._shortlist.candidates(torch.from_numpy(queries[0]), count, None if rows is None else torch.from_numpy(rows))
            rows = rows if few is None else few.numpy()
        vectors, ids = self._tensors if rows is None else (part[torch.from_numpy(rows)] for part in self._tensors)
        points, known = Points(torch.from_numpy(queries)), Points(vectors)
        if exclude is not None:
            points, known = points._replace(ids=torch.as_tensor(list(exclude))), known._replace(ids=ids)
        near = nearest(points, known, min(k, len(vectors)), self.affinity, exclude_same_id=exclude is not None)
        found = near.positions.numpy()
        return found if rows is None else np.where(found < 0, -1, rows[found.clip(0)]), near.affinity.numpy()

    def _by_decoding(
        self, queries: np.ndarray, k: int, rows: np.ndarray | None, exclude: Sequence[int] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for vectors that are stored smaller, which are decoded some at a time."""
        chosen = np.arange(len(self)) if rows is None else rows
        points = Points(torch.from_numpy(queries), ids=None if exclude is None else torch.as_tensor(list(exclude)))
        parts = (chosen[start : start + DECODED] for start in range(0, len(chosen), DECODED))
        known = (Points(torch.from_numpy(self.vectors[some]), ids=torch.from_numpy(self.ids[some])) for some in parts)
        near = nearest(points, known, min(k, len(chosen)), self.affinity, exclude_same_id=exclude is not None)
        found = near.positions.numpy()
        return np.where(found < 0, -1, chosen[found.clip(0)]), near.affinity.numpy()

    def _by_stored_bits(
        self, queries: np.ndarray, k: int, rows: np.ndarray | None, exclude: Sequence[int] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Candidates by differing bits, scored again with the query's own numbers; exact if all points are candidates."""
        assert self._store is not None
        chosen = np.arange(len(self)) if rows is None else rows
        count = max(CANDIDATES, CANDIDATES_PER_NEIGHBOR * k)
        if len(chosen) <= count:
            return *self._exact(queries, k, chosen, exclude), np.ones(len(queries), dtype=np.bool_)
        places = nearest_codes(pack(queries - self._store.center), self._kept[chosen], count, None)[0]
        found, affinity = np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf, np.float32)
        for at, some in enumerate(places):
            own = None if exclude is None else [exclude[at]]
            few, scores = self._by_decoding(queries[at : at + 1], k, np.sort(chosen[some]), own)
            found[at, : few.shape[1]], affinity[at, : few.shape[1]] = few[0], scores[0]
        return found, affinity, np.zeros(len(queries), dtype=np.bool_)

    def _by_bits(
        self, queries: np.ndarray, k: int, rows: np.ndarray | None, exclude: Sequence[int] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for binary codes."""
        skip = None if exclude is None else self.rows(exclude)
        if rows is not None and skip is not None:
            at = np.searchsorted(rows, skip).clip(max=max(len(rows) - 1, 0))
            skip = np.where(rows[at] == skip, at, -1) if len(rows) else None
        found, far = nearest_codes(pack(queries), self._kept if rows is None else self._kept[rows], k, skip)
        affinity = np.where(found < 0, -np.inf, -far).astype(np.float32)
        return found if rows is None else np.where(found < 0, -1, rows[found.clip(0)] if len(rows) else -1), affinity

    def _structure_serves(self, rows: np.ndarray | None) -> bool:
        if self.structure is None or not len(self):
            return False
        return len(self._uncovered) <= UNCOVERED * len(self) and (rows is None or len(rows) > SELECTIVE * len(self))

    def _approximate(
        self, queries: np.ndarray, k: int, rows: np.ndarray | None, own: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Score the structure's candidates and all points missing from it; queries with too few results are searched exactly.

        `own` (n,) are the rows to leave out.
        """
        assert self.structure is not None
        among = len(self) if rows is None else len(rows)
        covered = max(1, among - len(self._uncovered))
        count = math.ceil((k + (own is not None)) * max(1.0, len(self.structure) / covered))
        proposed = self.rows(self.structure.candidates(queries, count, self._unit))  # (n, c)
        if len(self._uncovered):
            fresh = np.broadcast_to(self._uncovered, (len(queries), len(self._uncovered)))
            proposed = np.concatenate([proposed, fresh], axis=1)
        valid = proposed >= 0
        if rows is not None:
            valid &= np.isin(proposed, rows)
        available = np.full(len(queries), among)
        if own is not None:
            valid &= proposed != own[:, None]
            available -= (own >= 0) if rows is None else np.isin(own, rows)
        affinity = np.where(valid, self._scored(queries, proposed.clip(0)), -np.inf)
        order = np.lexsort((proposed, -affinity), axis=1)[:, :k]
        found, affinity = np.take_along_axis(proposed, order, 1), np.take_along_axis(affinity, order, 1)
        found = np.where(affinity > -np.inf, found, -1)
        exact = (found >= 0).sum(1) < np.minimum(k, available)
        if exact.any():
            exclude = None if own is None else np.where(own[exact] < 0, -1, self.ids[own[exact].clip(0)]).tolist()
            again, scores = self._exact(queries[exact], k, rows, exclude)
            found, affinity = _wide(found, k, -1), _wide(affinity, k, -np.inf)
            found[exact], affinity[exact] = _wide(again, k, -1), _wide(scores, k, -np.inf)
        return found, affinity, exact

    def _scored(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(n, c) affinities of each query with its own candidates, from differences."""
        candidates = self.vectors[rows]  # (n, c, d)
        if self._unit:
            return np.asarray(np.einsum("nd,ncd->nc", _unit(queries), _unit(candidates)))
        difference = candidates - queries[:, None]
        return -np.asarray(np.einsum("ncd,ncd->nc", difference, difference))

    def _hits(self, rows: np.ndarray, affinity: np.ndarray) -> tuple[Hit, ...]:
        rule = self.manifest["calibration"]
        hits = []
        for row, near in zip(rows.tolist(), affinity.tolist(), strict=True):
            if row >= 0:
                one = self.entry(row)  # the sum below replaces -0.0 by 0.0
                same = None if rule is None else near >= rule["threshold"]
                hits.append(Hit(one.id, near + 0.0, one.label, one.source, one.metadata, same))
        return tuple(hits)

    @property
    def _unit(self) -> bool:
        return bool(self.manifest["metric"] == "cosine")

    @cached_property
    def _shortlist(self) -> Shortlist:
        assert self._tensors is not None
        return Shortlist(self._tensors[0], self.manifest["metric"])

    @cached_property
    def _uncovered(self) -> np.ndarray:
        """(u,) rows of the points missing from the structure."""
        assert self.structure is not None
        return np.flatnonzero(~np.isin(self.ids, self.structure.ids))

    @cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        """All metadata by key, read on first use; equal texts are stored once."""
        columns: dict[str, np.ndarray] = {}
        texts: dict[str, str] = {}
        for at, row in enumerate(self._fields()):
            for key, value in row["metadata"].items():
                if key not in columns:
                    columns[key] = np.full(len(self), None)
                text = as_text(value)
                columns[key][at] = texts.setdefault(text, text)
        return columns

    def _fields(self) -> Iterator[dict[str, Any]]:
        """Source and metadata of every live point, row by row."""
        for number, part in enumerate(self.segments):
            live = np.zeros(len(part["ids"]), dtype=np.bool_)
            live[self._place[self._part == number]] = True
            yield from compress(segments_.rows_of(part), live)


def _merged(codes: np.ndarray, names: Sequence[str | None]) -> np.ndarray:
    """The class numbers (n,) where two names are the same, after a renaming, as the first of them; -1 for removed classes."""
    if None not in names and len(set(names)) == len(names):
        return codes
    first = [-1 if name is None else names.index(name) for name in names]
    return np.where(codes < 0, -1, np.array([*first, -1])[codes]).astype(np.int32)


def _live(segments: Sequence[Mapping[str, np.ndarray]], name: str, keep: Sequence[np.ndarray], none: np.ndarray) -> np.ndarray:
    parts = [part[name] if mask.all() else part[name][mask] for part, mask in zip(segments, keep, strict=True)]
    return np.concatenate([none, *parts])


def _unit(x: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(x / np.where(length > 0, length, 1))


def _wide(x: np.ndarray, k: int, fill: float) -> np.ndarray:
    """Cut or pad to (n, k) on the right."""
    return np.pad(x[:, :k], ((0, 0), (0, max(0, k - x.shape[1]))), constant_values=fill)
