"""Load shards into Milvus in bulk; an interrupted load resumes.

A second collection stores the checksum of every shard and whether it is begun or done. Points are written under the ids they have in
their shard, so that an interrupted shard is overwritten by itself.
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
BATCH = 5000  # points per step
LOOKED_UP = 1000  # shards looked up per request


class Loaded(NamedTuple):
    """The progress of `load_shards`.

    Parameters
    ----------
    shard : str
        The file that is being loaded, "" at the end.
    points : int
        Points that Milvus has acknowledged so far.
    total : int
        Points of all shards.

    Examples
    --------
    >>> step = Loaded("shard-00003.parquet", points=60_000, total=80_000)
    >>> f"{step.points / step.total:.0%}"
    '75%'
    """

    shard: str
    points: int
    total: int


class Progress:
    """Which shards a Milvus index was loaded from."""

    def __init__(self, client: Milvus, name: str) -> None:
        self.client, self.name = client, f"{name}_shards"

    def of(self, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        """file -> (checksum, begun or done), for the files that are known."""
        if not self.client.call("has_collection", self.name):
            self._create()
        self.client.ready(self.name, INDEXED)
        found = {}
        for start in range(0, len(files), LOOKED_UP):
            chosen = f"file in {json.dumps(files[start : start + LOOKED_UP])}"
            for row in self.client.call("query", self.name, filter=chosen, output_fields=["file", "sha256", "state"]):
                found[row["file"]] = row["sha256"], row["state"]
        return found

    def note(self, record: dict[str, Any], state: str) -> None:
        """Store the state of a shard."""
        row = {"file": str(record["file"]), "sha256": str(record["sha256"]), "state": state, "nothing": [0.0, 0.0]}
        self.client.call("upsert", self.name, [row])

    def forget(self) -> None:
        """Remove all states."""
        if self.client.call("has_collection", self.name):
            self.client.call("drop_collection", self.name)

    def _create(self) -> None:
        text = {"max_length": 256}
        fields: Fields = (
            ("file", "VARCHAR", {**text, "is_primary": True}),
            ("sha256", "VARCHAR", text),
            ("state", "VARCHAR", text),
            ("nothing", "FLOAT_VECTOR", {"dim": 2}),  # Milvus requires a vector in every collection
        )
        self.client.create(self.name, fields, INDEXED, {})


def load_shards(index: MilvusIndex, shards: Shards) -> Iterator[Loaded]:
    """Load the shards that are not in an index yet.

    Parameters
    ----------
    index : MilvusIndex
        The index.
    shards : Shards
        Embeddings of the same model, such as `nearkin embed DIR DATA --out SHARDS` writes.

    Yields
    ------
    Loaded
        After every batch that Milvus has acknowledged.

    Raises
    ------
    ValueError
        If the shards are of another model, metric or dimension, or hold ids that are in the index from elsewhere.

    Examples
    --------
    >>> index = MilvusIndex.open("http://host:19530")  # doctest: +SKIP
    >>> for step in load_shards(index, open_shards("shards/")):  # doctest: +SKIP
    ...     print(f"{step.points:,} of {step.total:,} points")
    """
    _check(index, shards)
    progress = Progress(index.client, index.name)
    known, starts = progress.of([str(record["file"]) for record in shards.records]), shards.starts()
    total, done = len(shards), 0
    for number, record in enumerate(shards.records):
        name, rows = str(record["file"]), int(record["rows"])
        checksum, state = known.get(name, ("", ""))
        if checksum and checksum != record["sha256"]:
            raise ValueError(f"{shards.path(number)} is not the shard that was loaded under this name; rebuild the index with --replace")
        if state != DONE and rows:
            first = starts[number]
            if state != BEGUN:
                _check_new(index, shards, number, first)
                progress.note(dict(record), BEGUN)
            for points in _written(index, shards, number, first):
                yield Loaded(name, done + points, total)
            progress.note(dict(record), DONE)
            index.count_change()
        done += rows
    index.rebuild_if_stale()
    yield Loaded("", done, total)


def _written(index: MilvusIndex, shards: Shards, number: int, first: int) -> Iterator[int]:
    """Write one shard; yields how many of its points are acknowledged."""
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
    """The ids, if they are numbers; texts are numbered by their position among all points."""
    return ids if ids.dtype.kind in "iu" else np.arange(first, first + len(ids))


def _check(index: MilvusIndex, shards: Shards) -> None:
    shards.check_model(index.model)
    if shards.dimension != index.dimension:
        raise ValueError(
            f"{shards.folder} holds vectors of {shards.dimension} dimensions, and this index holds {index.dimension}; embed with its model"
        )
    if shards.about.metric != index.metric:
        raise ValueError(f"{shards.folder} uses the metric {shards.about.metric}, and this index {index.metric}; embed with its model")


def _check_new(index: MilvusIndex, shards: Shards, number: int, first: int) -> None:
    """Refuse a shard whose ids are in the index, since they would be overwritten."""
    if not index.count:
        return
    ids = _numbers(shards.ids(number), first)
    if (int(ids.min()), int(ids.max())) == (int(ids[0]), int(ids[0]) + len(ids) - 1):
        clash = index.ids_between(int(ids.min()), int(ids.max()))
    else:
        clash = index.present(ids.tolist())
    if clash:
        raise ValueError(
            f"{shards.path(number)} holds the id {clash[0]}, which is already in the index from elsewhere; "
            "load these shards into a new index (--name, or --replace)"
        )
