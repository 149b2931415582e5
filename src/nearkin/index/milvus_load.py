"""From shards into Milvus, in bulk, and on from where it stopped.

A second collection remembers of every shard its checksum and whether it is begun or done. Points are written under the ids they have in
their shard, so that a shard that was broken off is written again over itself.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nearkin.data.shards import Shard, Shards
from nearkin.index.contract import Entries
from nearkin.index.milvus import MilvusIndex
from nearkin.index.milvus_client import Fields, Milvus

INDEXED = ("nothing", "FLAT", "L2")
BEGUN, DONE = "begun", "done"
BATCH = 5000  # points that are acknowledged together
ASKED = 1000  # shards asked about at once


class Loaded(NamedTuple):
    """How far a load has come: points of this shard and of all shards that are acknowledged, and how many there are."""

    shard: str
    points: int
    total: int


class Progress:
    """What a Milvus index remembers of the shards it was loaded from."""

    def __init__(self, client: Milvus, name: str) -> None:
        self.client, self.name = client, f"{name}_shards"

    def of(self, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        """file -> (checksum, begun or done), of those that are known; asked for a few at a time, since Milvus returns only so many."""
        if not self.client.call("has_collection", self.name):
            self._create()
        self.client.ready(self.name, INDEXED)
        found = {}
        for start in range(0, len(files), ASKED):
            chosen = f"file in {json.dumps(files[start : start + ASKED])}"
            for row in self.client.call("query", self.name, filter=chosen, output_fields=["file", "sha256", "state"]):
                found[row["file"]] = row["sha256"], row["state"]
        return found

    def note(self, record: dict[str, Any], state: str) -> None:
        """Remember where a shard stands."""
        row = {"file": str(record["file"]), "sha256": str(record["sha256"]), "state": state, "nothing": [0.0, 0.0]}
        self.client.call("upsert", self.name, [row])

    def forget(self) -> None:
        """As if nothing had been loaded."""
        if self.client.call("has_collection", self.name):
            self.client.call("drop_collection", self.name)

    def _create(self) -> None:
        text = {"max_length": 256}
        fields: Fields = (
            ("file", "VARCHAR", {**text, "is_primary": True}),
            ("sha256", "VARCHAR", text),
            ("state", "VARCHAR", text),
            ("nothing", "FLOAT_VECTOR", {"dim": 2}),  # Milvus wants a vector in every collection
        )
        self.client.create(self.name, fields, INDEXED, {})


def load_shards(index: MilvusIndex, shards: Shards) -> Iterator[Loaded]:
    """Load what is not there yet; yields after every acknowledged batch. Shards of another model, metric or dimension are refused."""
    _check(index, shards)
    progress = Progress(index.client, index.name)
    known, starts = progress.of([str(record["file"]) for record in shards.records]), shards.starts()
    total, done = len(shards), 0
    for number, record in enumerate(shards.records):
        name, rows = str(record["file"]), int(record["rows"])
        checksum, state = known.get(name, ("", ""))
        if checksum and checksum != record["sha256"]:
            raise ValueError(f"{shards.path(number)} is not the shard that was loaded under this name; --replace makes the index anew")
        if state != DONE and rows:
            first = starts[number]
            if state != BEGUN:
                _check_new(index, shards, number, first)
                progress.note(dict(record), BEGUN)
            for points in _written(index, shards, number, first):
                yield Loaded(name, done + points, total)
            progress.note(dict(record), DONE)
        done += rows
    index.settle()
    yield Loaded("", done, total)


def _written(index: MilvusIndex, shards: Shards, number: int, first: int) -> Iterator[int]:
    """Write one shard; how many of its points are acknowledged."""
    done = 0
    for part in shards.parts(number, sources=True):
        for start in range(0, len(part.ids), BATCH):
            some = slice(start, start + BATCH)
            ids = _numbers(part.ids[some], first + done)
            index.write(_entries(part, some, index.dimension), ids)
            done += len(ids)
            yield done


def _entries(part: Shard, some: slice, dimension: int) -> Entries:
    n, labels, metadata = len(part.ids[some]), [], []
    for at in range(*some.indices(len(part.ids))):
        label = None if part.labels is None else part.labels[at]
        numbers = isinstance(label, np.ndarray)
        labels.append(None if label is None or numbers else str(label))
        more = {"numbers": [float(value) for value in label]} if isinstance(label, np.ndarray) else {}
        metadata.append(more if part.ids.dtype.kind in "iu" else {**more, "id": str(part.ids[at])})
    sources = [""] * n if part.sources is None else [str(source) for source in part.sources[some]]
    return Entries(part.vectors[some].reshape(n, dimension), labels, sources, metadata)


def _numbers(ids: np.ndarray, first: int) -> np.ndarray:
    """Ids as they are, if they are numbers; texts are numbered by their place among all points."""
    return ids if ids.dtype.kind in "iu" else np.arange(first, first + len(ids))


def _check(index: MilvusIndex, shards: Shards) -> None:
    shards.check_model(index.model)
    if shards.dimension != index.dimension:
        raise ValueError(f"{shards.folder} holds vectors of {shards.dimension} dimensions, and this index holds {index.dimension}")
    if shards.about.metric != index.metric:
        raise ValueError(f"{shards.folder} is to be compared by {shards.about.metric}, and this index by {index.metric}")


def _check_new(index: MilvusIndex, shards: Shards, number: int, first: int) -> None:
    """None of a shard's ids is there: they would be overwritten."""
    if not index.count:
        return
    ids = _numbers(shards.ids(number), first)
    if (int(ids.min()), int(ids.max())) == (int(ids[0]), int(ids[0]) + len(ids) - 1):
        clash = index.ids_between(int(ids.min()), int(ids.max()))
    else:
        clash = index.present(ids.tolist())
    if clash:
        raise ValueError(
            f"{shards.path(number)} holds the id {clash[0]}, which is in the index already, from elsewhere; "
            "load these shards into an index of their own (--replace)"
        )
