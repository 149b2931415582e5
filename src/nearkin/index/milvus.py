"""An index in Milvus (`pip install 'nearkin[milvus]'`): a file of milvus-lite in this process, or a server; the same code for both.

Milvus proposes candidates; they are scored and ordered here with the affinity of the index, as in every other backend. FLAT, the default,
compares every point. HNSW and IVF_FLAT are approximate, and results say so.
"""

import hashlib
import json
import math
import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nearkin.compose.metrics import METRICS
from nearkin.compose.validation import check_choice, check_whole
from nearkin.data.disk import body_digest
from nearkin.index import calibration
from nearkin.index.contract import (
    Answer,
    Entries,
    Entry,
    Hit,
    Page,
    StoredPoints,
    VectorIndex,
    Where,
    as_text,
    check_entries,
    check_queries,
)
from nearkin.index.milvus_client import Fields, Milvus, expression, quoted
from nearkin.index.segment import row_text
from nearkin.search.exact import nearest
from nearkin.search.packing import pack, unpack

FORMAT = 1
KINDS = ("FLAT", "HNSW", "IVF_FLAT")
DISTANCES = {
    "squared_euclidean": "L2",
    "cosine": "COSINE",
    "inner_product": "IP",
    "hamming": "L2",  # codes as +-1: a quarter of the squared distance
}
MOST = 16384  # Milvus returns at most so many points per request
SPARE = 8  # hits beyond k, to see where a tie ends
TOGETHER = 64  # queries per request
FIELDS = ["id", "label", "source", "row"]
BYTES = 8 << 20  # of one write request
LONGEST = 4096  # bytes of a label or a source
SOURCES = 1000  # sources looked up per request
SCANNED = 1000  # points per request when all are read
LABELS = 1000  # label names that are listed; with more, none is
CALIBRATED = 200_000  # points above which no threshold is fitted: it would need all of them in memory


class MilvusIndex(VectorIndex):
    """A `VectorIndex` in a Milvus collection. Get one with `MilvusIndex.create` or `MilvusIndex.open`.

    Not available in Milvus:

    - Snapshots: `frozen` returns the index itself, so readers see changes at once. An `add` of more than a few thousand points is several
      requests, and a search in between sees the first of them.
    - Thumbnails: they are not stored. `thumbnails` returns b"" for every point, and the explorer shows points without images.
    - `rename_class`, `remove_class`, `relabel`: labels of stored points cannot be changed. They raise ValueError.
    - `verify`, `compact`, `build`: Milvus maintains its own files, and its structure is chosen at creation (`kind`). They raise ValueError.
    - `calibrate` above 200,000 points: it returns None, and `Hit.same_kind` is None.
    - More than 16,383 neighbors per query, and pages beyond the first 16,384 points: ValueError.
    - `labels` is empty if there are more than 1,000.

    Use one writer at a time: ids and the generation are counted without a lock.

    Parameters
    ----------
    client : Milvus
        The connection.
    name : str
        The name of the collection.
    properties : mapping
        The properties of the collection, in which the index stores its settings.

    Examples
    --------
    >>> index = MilvusIndex.create("points.db", model="v1", metric="cosine", dimension=128)  # doctest: +SKIP
    >>> index.add(Entries(vectors, labels=labels))  # doctest: +SKIP
    """

    def __init__(self, client: Milvus, name: str, properties: dict[str, str]) -> None:
        self.client, self.name = client, name
        self._properties, self._about = properties, _about(properties, client.uri, name)
        self._written = hashlib.sha256()  # of what was written or removed since the last change that was counted

    @classmethod
    def create(
        cls, uri: str, *, model: str, metric: str, dimension: int, name: str = "nearkin", kind: str = "FLAT", **connection: Any
    ) -> "MilvusIndex":
        """Create an empty index.

        Parameters
        ----------
        uri : str
            A path that ends in .db (milvus-lite), or the address of a server, such as http://host:19530.
        model : str
            Version of the model that makes the embeddings; any text that changes with its weights.
        metric : {"squared_euclidean", "cosine", "inner_product", "hamming"}
            How points are compared.
        dimension : int
            Length of the embeddings.
        name : str, default "nearkin"
            Name of the collection in Milvus.
        kind : {"FLAT", "HNSW", "IVF_FLAT"}, default "FLAT"
            Milvus's index type. FLAT is exact; the others are faster for millions of points on a server.
        **connection
            `token` (default ""), `timeout` in seconds per request (default 10) and `tries` (default 4).

        Returns
        -------
        MilvusIndex

        Raises
        ------
        FileExistsError
            If there is a collection of this name.
        IndexUnreachableError
            If no server responds.
        """
        check_choice("metric", metric, METRICS)
        check_whole("dimension", dimension)
        check_choice("kind", kind, KINDS)
        client = Milvus(uri, **connection)
        if client.call("has_collection", name):
            raise FileExistsError(f"{uri} already holds an index named {name!r}; add to it, or replace it")
        about = {"format": FORMAT, "model": model, "metric": metric, "dimension": dimension, "kind": kind}
        # The generation starts at the time, so that an index that is dropped and created again does not repeat one.
        generation = str(time.time_ns() // 1_000_000)
        properties = {"nearkin.about": json.dumps(about), "nearkin.labels": "[]", "nearkin.generation": generation}
        properties["nearkin.identity"] = uuid.uuid4().hex
        fields: Fields = (
            ("id", "INT64", {"is_primary": True}),
            ("vector", "FLOAT_VECTOR", {"dim": dimension}),
            ("label", "VARCHAR", {"max_length": LONGEST, "nullable": True}),
            ("source", "VARCHAR", {"max_length": LONGEST}),
            ("row", "JSON", {}),  # metadata, and texts: the metadata as they are compared
        )
        client.create(name, fields, ("vector", kind, DISTANCES[metric]), properties)
        return cls(client, name, properties)

    @classmethod
    def open(cls, uri: str, *, model: str | None = None, name: str = "nearkin", **connection: Any) -> "MilvusIndex":
        """Open an index.

        Parameters
        ----------
        uri : str
            A path that ends in .db (milvus-lite), or the address of a server.
        model : str, optional
            The version of your model. An index made by another version is refused, since its embeddings cannot be compared with yours.
        name : str, default "nearkin"
            Name of the collection in Milvus.
        **connection
            As in `create`.

        Returns
        -------
        MilvusIndex

        Raises
        ------
        FileNotFoundError
            If there is no collection of this name.
        ValueError
            If another model made it, or it is not a collection of nearkin.
        IndexUnreachableError
            If no server responds.
        """
        client = Milvus(uri, **connection)
        if not client.call("has_collection", name):
            raise FileNotFoundError(
                f"{uri} holds no index named {name!r}; create one with `nearkin index DIR DATA --backend milvus --uri {uri}`"
            )
        index = cls(client, name, client.properties(name))
        if model is not None and model != index.model:
            raise ValueError(
                f"{index.location} was made by another model (version {index.model[:12]}, and this is {model[:12]}), so the embeddings "
                "cannot be compared; rebuild it with `nearkin index DIR DATA --replace`"
            )
        client.ready(name, ("vector", index._about["kind"], DISTANCES[index.metric]))
        return index

    @property
    def count(self) -> int:
        return self._count("")

    @property
    def dimension(self) -> int:
        return int(self._about["dimension"])

    @property
    def metric(self) -> str:
        return str(self._about["metric"])

    @property
    def model(self) -> str:
        return str(self._about["model"])

    @property
    def generation(self) -> int:
        return int(self._properties.get("nearkin.generation", 0))

    @property
    def identity(self) -> str:
        return self._properties.get("nearkin.identity") or body_digest(self._properties)  # an older version stored none

    @property
    def backend(self) -> str:
        return f"milvus {self._about['kind']}"

    @property
    def location(self) -> str:
        return f"{self.client.uri}, {self.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(_names(self._properties) or ())

    @property
    def calibration(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = json.loads(self._properties.get("nearkin.calibration", "null"))
        return found

    def rebuild_if_stale(self) -> None:
        # milvus-lite searches points that were not flushed ten times as slowly; a server flushes by itself
        if self.client.local:
            self.client.call("flush", self.name)

    def drop(self) -> None:
        """Remove the index with all its points."""
        self.client.call("drop_collection", self.name)

    def close(self) -> None:
        """Close the connection. The next call opens it again."""
        self.client.close()

    def refresh(self) -> bool:
        newest = self.client.properties(self.name)
        if _about(newest, self.client.uri, self.name)["model"] != self.model:
            raise ValueError(f"{self.location} was rebuilt by another model; open it again together with that model")
        before, self._properties = self.identity, newest
        return self.identity != before

    def frozen(self) -> "MilvusIndex":
        return self

    def add(self, entries: Entries, *, rebuild: bool = True) -> np.ndarray:
        check_entries(entries, self.dimension)
        ids = self._new_ids(entries)
        self.write(entries, ids)
        self.count_change()
        if rebuild:
            self.rebuild_if_stale()
        return ids

    def write(self, entries: Entries, ids: np.ndarray) -> None:
        """Store points under given ids, replacing those that are there, so that a write may be repeated.

        Parameters
        ----------
        entries : Entries
            The points.
        ids : array of shape (n,)
            Their ids.
        """
        self._reserve(int(ids.max()) + 1, {label for label in entries.labels if label is not None})
        rows = max(1, BYTES // (8 * self.dimension + 512))
        for start in range(0, len(ids), rows):
            part = slice(start, start + rows)
            self.client.call("upsert", self.name, self._rows(entries, ids, range(*part.indices(len(ids)))))
            self._written.update(ids[part].tobytes() + np.ascontiguousarray(entries.vectors[part]).tobytes())
            self._written.update(json.dumps([entries.labels[part], entries.sources[part]]).encode())

    def count_change(self) -> None:
        """Increase the generation and change the identity, after points were written or removed."""
        self._properties = self.client.properties(self.name)
        self._written.update(self.identity.encode())
        self._alter({"nearkin.generation": str(self.generation + 1), "nearkin.identity": self._written.hexdigest()})
        self._written = hashlib.sha256()

    def delete(self, ids: Sequence[int]) -> None:
        removed = sorted({int(point) for point in ids})
        self._known(removed, ["id"])
        for start in range(0, len(removed), MOST):
            self.client.call("delete", self.name, ids=removed[start : start + MOST])
            self._written.update(json.dumps(removed[start : start + MOST]).encode())
        self.count_change()

    def entries(self, ids: Sequence[int]) -> list[Entry]:
        found = self._known(ids, FIELDS)
        return [_entry(found[int(point)]) for point in ids]

    def vectors(self, ids: Sequence[int]) -> np.ndarray:
        found = self._known(ids, ["id", "vector"])
        return np.array([found[int(point)]["vector"] for point in ids], dtype=np.float32).reshape(len(ids), self.dimension)

    def thumbnails(self, ids: Sequence[int]) -> list[bytes]:
        self._known(ids, ["id"])
        return [b""] * len(ids)

    def has_thumbnails(self, ids: Sequence[int]) -> list[bool]:
        return [False] * len(ids)

    def page(self, where: Where | None = None, offset: int = 0, limit: int = 100) -> Page:
        if where is not None and where.ids == ():
            return Page(0, [])
        chosen = "" if where is None else expression(where)
        total = self._count(chosen)
        limit = min(limit, total - offset)
        if limit <= 0:
            return Page(total, [])
        if offset + limit > MOST:
            raise ValueError(f"offset + limit ({offset + limit:,}) must be at most {MOST:,}, which is Milvus's limit; use a filter")
        rows = self.client.call("query", self.name, filter=chosen, output_fields=FIELDS, offset=offset, limit=limit)
        return Page(total, [_entry(row) for row in rows])

    def read_all(self) -> StoredPoints:
        ids, vectors, entries = list[int](), [np.empty((0, self.dimension), np.float32)], list[Entry]()
        for rows in self.client.scan(self.name, [*FIELDS, "vector"], SCANNED):
            ids += [int(row["id"]) for row in rows]
            vectors.append(np.array([row["vector"] for row in rows], dtype=np.float32))
            entries += [_entry(row) for row in rows]
        return StoredPoints(np.array(ids, dtype=np.int64), np.concatenate(vectors), entries)

    def sample(self, n: int, seed: int = 0) -> StoredPoints:
        if self.count > check_whole("n", n):
            raise ValueError(
                f"the index holds {self.count:,} points, and {n:,} of them cannot be drawn from Milvus; index a part of the data"
            )
        return self.read_all()

    def calibrate(self) -> dict[str, Any] | None:
        rule = None
        if _names(self._properties) != [] and self.count <= CALIBRATED:
            stored = self.read_all()
            number = {name: at for at, name in enumerate(sorted({one.label for one in stored.entries if one.label is not None}))}
            classes = np.array([number.get(one.label or "", -1) if one.label is not None else -1 for one in stored.entries], dtype=np.int64)
            splits = np.array([str(one.metadata.get("split")) for one in stored.entries], dtype=object)
            rule = calibration.fit(stored.vectors, classes, splits, self.metric)
        self._alter({"nearkin.calibration": json.dumps(rule)})
        return rule

    def build(self, backend: str) -> None:
        raise ValueError(
            f"backend {backend!r} cannot be built in Milvus ({self.location}): its index type is chosen when the index is created; "
            "use `nearkin index DIR DATA --replace --backend milvus --milvus-index FLAT|HNSW|IVF_FLAT`"
        )

    def compact(self) -> None:
        raise ValueError(f"compact is not available in Milvus ({self.location}), which compacts its own files")

    def rename_class(self, old: str, new: str) -> None:
        raise ValueError(f"classes cannot be renamed in Milvus ({self.location}); load the points again with other labels")

    def remove_class(self, name: str, *, keep_points: bool = False) -> int:
        raise ValueError(f"classes cannot be removed in Milvus ({self.location}); delete their points by id")

    def relabel(self, ids: Sequence[int], label: str | None) -> None:
        raise ValueError(f"labels cannot be changed in Milvus ({self.location}); delete the points and add them again")

    def verify(self) -> None:
        raise ValueError(f"checksums are not available in Milvus ({self.location}), which checks its own files")

    def search(
        self,
        vectors: np.ndarray,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Sequence[int] | None = None,
        rescale: str | None = None,
    ) -> list[Answer]:
        if rescale is not None:
            raise ValueError(
                f"rescale ({rescale}) is not available in Milvus ({self.location}), which ranks by its own metric; leave it out"
            )
        queries = check_queries(vectors, self.dimension, k, exclude)
        needed = k + (exclude is not None)
        if needed > MOST:
            raise ValueError(f"k ({k}) must be below {MOST:,}, which is Milvus's limit; the local backends have none")
        if where is not None and where.ids == ():
            return [Answer((), True) for _ in queries]
        signs = unpack(pack(queries), self.dimension) if self.metric == "hamming" else queries
        chosen = "" if where is None else expression(where)
        answers: list[Answer] = []
        for start in range(0, len(queries), TOGETHER):
            hits = self._hits(signs[start : start + TOGETHER], needed, chosen)
            for at, some in enumerate(hits, start):
                kept = some if exclude is None else [hit for hit in some if hit.id != exclude[at]]
                answers.append(Answer(tuple(kept[:k]), self._about["kind"] == "FLAT"))
        return answers

    def known_sources(self, sources: Sequence[str]) -> dict[str, int]:
        found = dict[str, int]()
        for start in range(0, len(sources), SOURCES):
            listed = ", ".join(quoted(source) for source in sources[start : start + SOURCES])
            rows = self.client.call("query", self.name, filter=f"source in [{listed}]", output_fields=["id", "source"], limit=MOST)
            for row in sorted(rows, key=lambda one: int(one["id"])):
                found.setdefault(str(row["source"]), int(row["id"]))
        return found

    def _hits(self, queries: np.ndarray, k: int, chosen: str) -> list[list[Hit]]:
        """The hits of each query, in order; more are requested where a tie may continue beyond those returned."""
        found: list[list[Hit]] = [[] for _ in queries]
        left, limit = list(range(len(queries))), min(k + SPARE, MOST)
        while left:
            rule = self.calibration
            options = {"limit": limit, "filter": chosen, "output_fields": [*FIELDS, "vector"]}
            results = self.client.call("search", self.name, data=[queries[i].tolist() for i in left], **options)
            again = []
            for i, result in zip(left, results, strict=True):
                found[i], settled = self._scored(queries[i], result, k, None if rule is None else rule["threshold"])
                if len(result) == limit < MOST and not settled:
                    again.append(i)
            left, limit = again, min(4 * limit, MOST)
        return found

    def _scored(self, query: np.ndarray, result: Sequence[Any], k: int, threshold: float | None) -> tuple[list[Hit], bool]:
        """The hits by affinity, ties by id; and whether the k-th is nearer than any point that was not returned."""
        if not result:
            return [], True
        ordered = sorted(result, key=lambda hit: int(hit["id"]))
        own, others = torch.tensor(query)[None], torch.tensor([hit["entity"]["vector"] for hit in ordered], dtype=torch.float32)
        near = nearest(own, others, len(ordered), METRICS[self.metric])
        values = near.affinity[0].tolist()
        size = 1.0 if self.metric == "cosine" else float(own.square().sum() + others.square().sum(1).max())
        margin = 0.5 if self.metric == "hamming" else 1e-5 * size  # the largest error of Milvus's own distances
        settled = len(values) <= k or values[k - 1] > values[-1] + margin
        return [_hit(ordered[at], value, threshold) for at, value in zip(near.positions[0].tolist(), values, strict=True)], settled

    def _new_ids(self, entries: Entries) -> np.ndarray:
        if entries.ids is None:
            first = self._next_id()
            return np.arange(first, first + len(entries))
        ids = np.asarray(entries.ids)
        clash = self.present(ids.tolist())
        if clash:
            raise ValueError(f"ids: {clash[0]} is already in the index; let the index number the points")
        return ids

    def _next_id(self) -> int:
        self._properties = self.client.properties(self.name)
        return int(self._properties.get("nearkin.next_id", 0))

    def _reserve(self, least: int, labels: set[str]) -> None:
        """Mark ids below `least` as used, even if the write that follows fails, and list new labels."""
        changes = {"nearkin.next_id": str(least)} if least > self._next_id() else {}
        names = _names(self._properties)
        if names is not None and labels - set(names):
            names += sorted(labels - set(names))
            changes["nearkin.labels"] = json.dumps(names if len(names) <= LABELS else None)
        if changes:
            self._alter(changes)

    def _alter(self, changes: dict[str, str]) -> None:
        self.client.call("alter_collection_properties", self.name, properties=changes)
        self._properties = {**self._properties, **changes}

    def _count(self, chosen: str) -> int:
        return int(self.client.call("query", self.name, filter=chosen, output_fields=["count(*)"])[0]["count(*)"])

    def _rows(self, entries: Entries, ids: np.ndarray, which: range) -> list[dict[str, Any]]:
        vectors = entries.vectors[which.start : which.stop]
        vectors = unpack(pack(vectors), self.dimension) if self.metric == "hamming" else vectors
        found = []
        for at, vector in zip(which, vectors, strict=True):
            label, row = entries.labels[at], json.loads(row_text(entries.sources[at], entries.metadata[at]))
            for name, text in (("labels", label or ""), ("sources", row["source"])):
                if len(text.encode()) > LONGEST:
                    raise ValueError(f"{name}: {text[:40]!r}... has more than {LONGEST:,} bytes; shorten it")
            stored = {"metadata": row["metadata"], "texts": {key: as_text(value) for key, value in row["metadata"].items()}}
            found.append({"id": int(ids[at]), "vector": vector, "label": label, "source": row["source"], "row": stored})
        return found

    def present(self, ids: Sequence[int]) -> list[int]:
        """Find out which ids are in the index.

        Parameters
        ----------
        ids : sequence of int
            The ids to look for.

        Returns
        -------
        list of int
            Those that are there, in order.
        """
        return sorted(self._present(ids, ["id"]))

    def ids_between(self, first: int, last: int) -> list[int]:
        """Find an id in a range.

        Parameters
        ----------
        first, last : int
            The range, both included.

        Returns
        -------
        list of int
            One id that is there, or none.
        """
        rows = self.client.call("query", self.name, filter=f"id >= {first} and id <= {last}", output_fields=["id"], limit=1)
        return [int(row["id"]) for row in rows]

    def _known(self, ids: Sequence[int], fields: list[str]) -> dict[int, dict[str, Any]]:
        """These points by id; an unknown id raises KeyError."""
        found = self._present([int(point) for point in ids], fields)
        missing = [int(point) for point in ids if int(point) not in found]
        if missing:
            raise KeyError(f"no point has the id {', '.join(map(str, missing[:5]))}; the index holds {self.count:,} points")
        return found

    def _present(self, ids: Sequence[int], fields: list[str]) -> dict[int, dict[str, Any]]:
        """The points that are there, by id."""
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(ids), MOST // 4):
            chosen = expression(Where(ids=tuple(ids[start : start + MOST // 4])))
            rows = self.client.call("query", self.name, filter=chosen, output_fields=fields)
            found |= {int(row["id"]): row for row in rows}
        return found


def _entry(row: dict[str, Any]) -> Entry:
    return Entry(int(row["id"]), row["label"], row["source"], row["row"]["metadata"])


def _hit(result: Any, affinity: float, threshold: float | None) -> Hit:
    one = _entry(result["entity"] | {"id": result["id"]})
    same = None if threshold is None else affinity >= threshold
    return Hit(one.id, affinity + 0.0, one.label, one.source, one.metadata, same)


def _names(properties: dict[str, str]) -> list[str] | None:
    """The labels that are listed; None where there are too many, or an older version made the index."""
    found: list[str] | None = json.loads(properties.get("nearkin.labels", "null"))
    return found


def _about(properties: dict[str, str], uri: str, name: str) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads(properties.get("nearkin.about", ""))
        known = about["format"] == FORMAT and math.isfinite(about["dimension"])
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(f"{uri}, {name} is a collection that nearkin did not make, or of another format; choose another name")
    return about
