"""An index in Milvus (`pip install 'nearkin[milvus]'`): a file of milvus-lite in this process, or a server; the same code.

Milvus proposes, and the hits are scored and ordered here with the index's own affinity in float64, as every other backend does. FLAT is
the default: it compares every point. Others are for servers; they are approximate, and the answers say so.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nearkin.compose.metrics import METRICS
from nearkin.compose.validation import check_choice, check_whole
from nearkin.index.contract import Answer, Entries, Entry, Hit, Where, as_text, check_entries, check_queries
from nearkin.index.milvus_client import Fields, Milvus, expression
from nearkin.index.segment import row_text
from nearkin.search.exact import nearest
from nearkin.search.packing import pack, unpack

FORMAT = 1
KINDS = ("FLAT", "HNSW", "IVF_FLAT")
DISTANCES = {
    "squared_euclidean": "L2",
    "cosine": "COSINE",
    "inner_product": "IP",
    "hamming": "L2",
}  # codes as +-1: a quarter of the squared distance
MOST = 16384  # Milvus returns no more hits than that
SPARE = 8  # hits beyond k, to see where a tie ends
TOGETHER = 64  # queries of one request
TOLD = ["id", "label", "source", "row"]
BYTES = 8 << 20  # of one request to write
LONGEST = 4096  # bytes of a label or a source


class MilvusIndex:
    """A `VectorIndex` in a Milvus collection. `create` and `open` make one.

    Differs from the contract in one thing: an `add` of more than a few thousand points is several requests, and a search in between sees
    the first of them. Thumbnails are not kept.
    """

    calibration: dict[str, Any] | None = None  # no verdict "same kind?" here

    def __init__(self, client: Milvus, name: str, about: dict[str, Any]) -> None:
        self.client, self.name, self._about = client, name, about

    @classmethod
    def create(
        cls, uri: str, *, model: str, metric: str, dimension: int, name: str = "nearkin", kind: str = "FLAT", **connection: Any
    ) -> "MilvusIndex":
        """An empty index; `kind` is one of Milvus's structures, `connection` are token, timeout and tries."""
        check_choice("metric", metric, METRICS)
        check_whole("dimension", dimension)
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is unknown; choose one of {', '.join(KINDS)}")
        client = Milvus(uri, **connection)
        if client.call("has_collection", name):
            raise FileExistsError(f"{uri} holds an index named {name!r} already; add to it, or replace it")
        about = {"format": FORMAT, "model": model, "metric": metric, "dimension": dimension, "kind": kind}
        fields: Fields = (
            ("id", "INT64", {"is_primary": True}),
            ("vector", "FLOAT_VECTOR", {"dim": dimension}),
            ("label", "VARCHAR", {"max_length": LONGEST, "nullable": True}),
            ("source", "VARCHAR", {"max_length": LONGEST}),
            ("row", "JSON", {}),  # metadata, and texts: the metadata as they are compared
        )
        client.create(name, fields, ("vector", kind, DISTANCES[metric]), {"nearkin.about": json.dumps(about)})
        return cls(client, name, about)

    @classmethod
    def open(cls, uri: str, *, model: str | None = None, name: str = "nearkin", **connection: Any) -> "MilvusIndex":
        """The index that is there. With `model`, one made by another version is refused."""
        client = Milvus(uri, **connection)
        if not client.call("has_collection", name):
            raise FileNotFoundError(f"{uri} holds no index named {name!r}; `nearkin index DIR DATA --backend milvus --uri {uri}` makes one")
        about = _about(client.call("describe_collection", name).get("properties", {}).get("nearkin.about", ""), uri, name)
        if model is not None and model != about["model"]:
            raise ValueError(
                f"{uri}, {name} was made by another model (version {about['model'][:12]}, and this is {model[:12]}): their embeddings "
                "cannot be compared; `nearkin index DIR DATA --replace` makes it anew"
            )
        client.ready(name, ("vector", about["kind"], DISTANCES[about["metric"]]))
        return cls(client, name, about)

    @property
    def count(self) -> int:
        return int(self.client.call("query", self.name, filter="", output_fields=["count(*)"])[0]["count(*)"])

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
    def backend(self) -> str:
        """How it is searched."""
        return f"milvus {self._about['kind']}"

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.client.uri}, {self.name}"

    def settle(self) -> None:
        """After many points were written: milvus-lite searches fresh ones ten times as slowly. A server does this by itself."""
        if self.client.local:
            self.client.call("flush", self.name)

    def drop(self) -> None:
        """Remove the index with everything in it."""
        self.client.call("drop_collection", self.name)

    def close(self) -> None:
        """Let go of the connection."""
        self.client.close()

    def add(self, entries: Entries) -> np.ndarray:
        """Add points; acknowledged when it returns."""
        check_entries(entries, self.dimension)
        ids = self._new_ids(entries)
        self.write(entries, ids)
        return ids

    def write(self, entries: Entries, ids: np.ndarray) -> None:
        """Put points under these ids, replacing what is there: doing it twice is doing it once."""
        self._reserve(int(ids.max()) + 1)
        rows = max(1, BYTES // (8 * self.dimension + 512))
        for start in range(0, len(ids), rows):
            part = slice(start, start + rows)
            self.client.call("upsert", self.name, self._rows(entries, ids, range(*part.indices(len(ids)))))

    def delete(self, ids: Sequence[int]) -> None:
        """Remove points. An id that is not there is an error, and nothing is removed."""
        wanted = sorted({int(point) for point in ids})
        self._known(wanted, ["id"])
        for start in range(0, len(wanted), MOST):
            self.client.call("delete", self.name, ids=wanted[start : start + MOST])

    def entries(self, ids: Sequence[int]) -> list[Entry]:
        """What is known of these points."""
        found = self._known(ids, TOLD)
        return [_entry(found[int(point)]) for point in ids]

    def vectors(self, ids: Sequence[int]) -> np.ndarray:
        """(n, d) float32 of these points."""
        found = self._known(ids, ["id", "vector"])
        return np.array([found[int(point)]["vector"] for point in ids], dtype=np.float32).reshape(len(ids), self.dimension)

    def search(self, vectors: np.ndarray, k: int = 10, *, where: Where | None = None, exclude: Sequence[int] | None = None) -> list[Answer]:
        """The contract's search."""
        queries = check_queries(vectors, self.dimension, k, exclude)
        wanted = k + (exclude is not None)
        if wanted > MOST:
            raise ValueError(f"k ({k}) must be below {MOST:,}, the most that Milvus returns; the local backends have no such limit")
        if where is not None and where.ids == ():
            return [Answer((), True) for _ in queries]
        asked = unpack(pack(queries), self.dimension) if self.metric == "hamming" else queries
        chosen = "" if where is None else expression(where)
        answers: list[Answer] = []
        for start in range(0, len(queries), TOGETHER):
            hits = self._hits(asked[start : start + TOGETHER], wanted, chosen)
            for at, some in enumerate(hits, start):
                kept = some if exclude is None else [hit for hit in some if hit.id != exclude[at]]
                answers.append(Answer(tuple(kept[:k]), self._about["kind"] == "FLAT"))
        return answers

    def _hits(self, queries: np.ndarray, k: int, chosen: str) -> list[list[Hit]]:
        """In order; where a tie may go on beyond what came back, more is asked for."""
        found: list[list[Hit]] = [[] for _ in queries]
        left, limit = list(range(len(queries))), min(k + SPARE, MOST)
        while left:
            options = {"limit": limit, "filter": chosen, "output_fields": [*TOLD, "vector"]}
            results = self.client.call("search", self.name, data=[queries[i].tolist() for i in left], **options)
            again = []
            for i, result in zip(left, results, strict=True):
                found[i], settled = self._scored(queries[i], result, k)
                if len(result) == limit < MOST and not settled:
                    again.append(i)
            left, limit = again, min(4 * limit, MOST)
        return found

    def _scored(self, query: np.ndarray, result: Sequence[Any], k: int) -> tuple[list[Hit], bool]:
        """The hits by the affinity itself, ties by id; and whether the k-th is surely nearer than anything that did not come back."""
        if not result:
            return [], True
        ordered = sorted(result, key=lambda hit: int(hit["id"]))
        mine, theirs = torch.tensor(query)[None], torch.tensor([hit["entity"]["vector"] for hit in ordered], dtype=torch.float32)
        near = nearest(mine, theirs, len(ordered), METRICS[self.metric])
        values = near.affinity[0].tolist()
        size = 1.0 if self.metric == "cosine" else float(mine.square().sum() + theirs.square().sum(1).max())
        room = 0.5 if self.metric == "hamming" else 1e-5 * size  # how far Milvus's own distances may be off
        settled = len(values) <= k or values[k - 1] > values[-1] + room
        return [_hit(ordered[at], value) for at, value in zip(near.positions[0].tolist(), values, strict=True)], settled

    def _new_ids(self, entries: Entries) -> np.ndarray:
        if entries.ids is None:
            first = self._next_id()
            return np.arange(first, first + len(entries))
        ids = np.asarray(entries.ids)
        clash = self.present(ids.tolist())
        if clash:
            raise ValueError(f"ids: {clash[0]} is in the index already; let the index number the points")
        return ids

    def _next_id(self) -> int:
        properties = self.client.call("describe_collection", self.name).get("properties", {})
        return int(properties.get("nearkin.next_id", 0))

    def _reserve(self, least: int) -> None:
        """Numbers below are taken from now on, also if what they are for is never written."""
        if least > self._next_id():
            self.client.call("alter_collection_properties", self.name, properties={"nearkin.next_id": str(least)})

    def _rows(self, entries: Entries, ids: np.ndarray, which: range) -> list[dict[str, Any]]:
        vectors = entries.vectors[which.start : which.stop]
        vectors = unpack(pack(vectors), self.dimension) if self.metric == "hamming" else vectors
        found = []
        for at, vector in zip(which, vectors, strict=True):
            label, row = entries.labels[at], json.loads(row_text(entries.sources[at], entries.metadata[at]))
            for name, text in (("labels", label or ""), ("sources", row["source"])):
                if len(text.encode()) > LONGEST:
                    raise ValueError(f"{name}: {text[:40]!r}... has more than {LONGEST:,} bytes; shorten it")
            told = {"metadata": row["metadata"], "texts": {key: as_text(value) for key, value in row["metadata"].items()}}
            found.append({"id": int(ids[at]), "vector": vector, "label": label, "source": row["source"], "row": told})
        return found

    def known_sources(self, sources: Sequence[str]) -> set[str]:
        """Those of the sources that some point has."""
        listed = ", ".join(json.dumps(source, ensure_ascii=False) for source in sources)
        rows = self.client.call("query", self.name, filter=f"source in [{listed}]", output_fields=["source"], limit=MOST)
        return {str(row["source"]) for row in rows}

    def present(self, ids: Sequence[int]) -> list[int]:
        """Those of the ids that are taken, in order."""
        return sorted(self._present(ids, ["id"]))

    def ids_between(self, first: int, last: int) -> list[int]:
        """One id from first to last that is taken, if there is one."""
        rows = self.client.call("query", self.name, filter=f"id >= {first} and id <= {last}", output_fields=["id"], limit=1)
        return [int(row["id"]) for row in rows]

    def _known(self, ids: Sequence[int], fields: list[str]) -> dict[int, dict[str, Any]]:
        """These points by id; an unknown id is an error."""
        found = self._present([int(point) for point in ids], fields)
        missing = [int(point) for point in ids if int(point) not in found]
        if missing:
            raise KeyError(f"no point has the id {', '.join(map(str, missing[:5]))}; the index holds {self.count:,} points")
        return found

    def _present(self, ids: Sequence[int], fields: list[str]) -> dict[int, dict[str, Any]]:
        """Those of the points that are there, by id."""
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(ids), MOST // 4):
            chosen = expression(Where(ids=tuple(ids[start : start + MOST // 4])))
            rows = self.client.call("query", self.name, filter=chosen, output_fields=fields)
            found |= {int(row["id"]): row for row in rows}
        return found


def _entry(row: dict[str, Any]) -> Entry:
    return Entry(int(row["id"]), row["label"], row["source"], row["row"]["metadata"])


def _hit(result: Any, affinity: float) -> Hit:
    one = _entry(result["entity"] | {"id": result["id"]})
    return Hit(one.id, affinity + 0.0, one.label, one.source, one.metadata, None)


def _about(text: str, uri: str, name: str) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads(text)
        known = about["format"] == FORMAT and math.isfinite(about["dimension"])
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(f"{uri}, {name} is a collection that nearkin did not make, or not in this format; choose another name")
    return about
