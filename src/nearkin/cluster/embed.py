"""Embeddings of a data set as a folder of shards, by one machine or by a Ray cluster; interrupted work goes on with the missing shards.

Which points stand in which shard is decided before anything runs, and a shard appears in one rename. A worker or a machine that
dies therefore costs the shards it was at, which another makes again under the same names: every point is there once.
"""

import hashlib
import json
import math
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nearkin.cluster.encoding import Piece, named, pieces, write_piece
from nearkin.cluster.session import check_address, session, workers
from nearkin.data.dataset import Dataset
from nearkin.data.disk import explain_full_disk
from nearkin.data.progress import Report, Ticker, inform, warn
from nearkin.data.shards import KEPT, About, ShardDamagedError, check_record, is_sharded, read_manifest, write_manifest
from nearkin.index.collection import model_version
from nearkin.index.durable import writing
from nearkin.models.folder import Model, load

ROWS = 20_000  # points of a shard
NAMED = 10  # damaged files named one by one; the others are only counted, and listed in the manifest
PAUSE = 1.0  # seconds at least between two manifests: with many thousand shards it is a long page
WAVE = 512  # shards handed to Ray at once, which bounds what it holds
SPARE = 1 << 16, 1 << 10  # bytes kept free for the manifest: at least, and for each shard
ERRORS: dict[str, type[Exception]] = {"OSError": OSError, "ValueError": ValueError}

Engine = Literal["local", "ray"]


class Embedded(NamedTuple):
    """What became of the points."""

    points: int  # in the shards now
    made: int  # shards made by this call
    known: int  # shards that were there already
    damaged: int  # points left out


def embed(
    model_folder: str | Path | None,
    data: Dataset,
    out: str | Path,
    *,
    engine: Engine = "local",
    address: str | None = None,
    rows: int = ROWS,
    device: str | None = None,
    report: Report | None = None,
) -> Embedded:
    """Embed `data` by the model of a folder into shards of `rows` points in `out`; only those that are not there yet.

    Without a model the shards hold the data themselves, vectors or pixels, to be trained on by several ranks.

    The manifest is swapped as shards are finished: whatever ends this early, what was made before can be read, and the same call
    goes on from there.
    """
    if rows < 1:
        raise ValueError(f"rows ({rows}) must be at least 1 point for each shard")
    if engine == "ray" and address is not None:
        check_address(address)  # before anything is made
    model_folder, out = None if model_folder is None else Path(model_folder).resolve(), Path(out).resolve()
    about = _about(model_folder, data, rows)
    out.mkdir(parents=True, exist_ok=True)
    with writing(out):
        records = _there(out, about)
        assert about.planned is not None
        todo = [number for number in range(about.planned) if number not in records]
        if records:
            inform(report, f"{len(records):,} of {about.planned:,} shards are there already")
        write_manifest(out, about, records.values())
        work = pieces(data, rows, todo)
        how = partial(_by_ray, address=address) if engine == "ray" else _here
        made = _gathered(how(model_folder, out, work, device=device), out, about, records, _Watch(data, records, report))
        damaged = sum(len(record["damaged"]) for record in records.values())
    if damaged:
        warn(report, f"{data.name}: {damaged:,} of {len(data):,} points were left out; {out / 'shards.json'} names them")
    return Embedded(sum(record["rows"] for record in records.values()), made, len(records) - made, damaged)


class _Watch:
    """Progress, and the names of damaged files."""

    def __init__(self, data: Dataset, records: dict[int, dict[str, Any]], report: Report | None) -> None:
        self.report, self.named = report, 0
        self.ticker = Ticker(report, f"embedding {data.name}", len(data), "points")
        self.done = sum(_points(record) for record in records.values())

    def add(self, record: dict[str, Any]) -> None:
        named(record, self.report, self.named, NAMED)
        self.named += len(record["damaged"])
        self.done += _points(record)
        self.ticker.update(self.done)


def _points(record: dict[str, Any]) -> int:
    return int(record["rows"]) + len(record["damaged"])


def _gathered(
    finished: Iterable[tuple[int, dict[str, Any]]], out: Path, about: About, records: dict[int, dict[str, Any]], watch: _Watch
) -> int:
    """Enter finished shards in the manifest, as they come and whatever happens; how many there were."""
    made, written, spare = 0, time.monotonic(), _spare(out, about)
    try:
        for number, record in finished:
            records[number] = record
            made += 1
            watch.add(record)
            if time.monotonic() - written > PAUSE:
                write_manifest(out, about, records.values())
                written = time.monotonic()
    finally:
        spare.unlink(missing_ok=True)
        write_manifest(out, about, records.values())
    return made


def _spare(out: Path, about: About) -> Path:
    """Room that is taken now and freed for the last manifest: on a full disk the shards would be there, and nobody would know them."""
    path, (least, each) = out / ".spare", SPARE
    with explain_full_disk(out, KEPT):
        try:
            path.write_bytes(os.urandom(least + each * (about.planned or 0)))  # zeros might take no room
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return path


def _here(model_folder: Path | None, out: Path, work: Iterator[Piece], *, device: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    model = None if model_folder is None else load(model_folder, device=device)
    for piece in work:
        yield piece.number, write_piece(out, model, piece, workers=None)


def _by_ray(
    model_folder: Path | None, out: Path, work: Iterator[Piece], *, device: str | None, address: str | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """A row of a Ray data set is a piece; encoder actors write its shard and answer with its record."""
    first = next(work, None)
    if first is None:
        return
    work = chain([first], work)
    with session(address) as ray:
        count, asks = workers(ray, device)
        while wave := list(islice(work, WAVE)):
            rows = [{"number": piece.number, "piece": pickle.dumps(piece)} for piece in wave]
            actors = min(count, len(wave))
            finished = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                Encoder,
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=actors),
                fn_constructor_args=(model_folder and str(model_folder), str(out), device),
                **asks,
            )
            for row in finished.iter_rows():
                yield int(row["number"]), _record(row)


class Encoder:
    """What a Ray actor is: a model, and where shards go. Errors travel as words, since Ray would wrap them in pages of its own."""

    def __init__(self, model_folder: str | None, out: str, device: str | None) -> None:
        self.model: Model | None = None if model_folder is None else load(model_folder, device=device)
        self.out = Path(out)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        answers = [self._answer(pickle.loads(content)) for content in batch["piece"]]
        return {"number": list(batch["number"]), "record": answers}

    def _answer(self, piece: Piece) -> str:
        try:
            return json.dumps(write_piece(self.out, self.model, piece))
        except (OSError, ValueError) as error:
            kind = "OSError" if isinstance(error, OSError) else "ValueError"
            return json.dumps({"error": error.strerror or str(error) if isinstance(error, OSError) else str(error), "kind": kind})


def _record(row: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(row["record"])
    if "error" in record:
        raise ERRORS[record["kind"]](record["error"])
    return record


def _about(model_folder: Path | None, data: Dataset, rows: int) -> About:
    known: dict[str, Any] = {
        "supervision": data.supervision,
        "classes": data.classes,
        "data": f"{data.name}: {len(data)} points, {rows} a shard, sources {_sources(data)}",
        "planned": -(-len(data) // rows),
    }
    if model_folder is None:
        shape = data.shape if len(data.shape) == 3 else None
        return About(model="", dimension=math.prod(data.shape), metric="squared_euclidean", shape=shape, **known)
    model = load(model_folder, device="cpu").about
    if tuple(data.shape) != tuple(model["shape"]):
        raise ValueError(f"{data.name} has points of shape {tuple(data.shape)}, and this model reads {tuple(model['shape'])}")
    return About(model=model_version(model_folder), dimension=int(model["network"]["dimension"]), metric=str(model["metric"]), **known)


def _sources(data: Dataset) -> str:
    whole = hashlib.sha256()
    for source in data.sources:
        whole.update(f"{source}\n".encode())
    return whole.hexdigest()[:16]


def _there(out: Path, about: About) -> dict[int, dict[str, Any]]:
    """The shards that need not be made again; a folder of other data, or of another model, is refused."""
    if not is_sharded(out):
        return {}
    old, records = read_manifest(out)
    for name, what in (("model", "by other weights"), ("data", "of other data, or shards of another size")):
        if getattr(old, name) != getattr(about, name):
            was = old.data if name == "data" else old.model[:12]
            raise ValueError(f"{out} holds embeddings {what} ({was}); choose another --out, or remove that folder")
    found = {}
    for record in records:
        with suppress(ShardDamagedError):  # missing or truncated: it is made again
            check_record(out, record)
            found[int(record["file"].removeprefix("shard-").removesuffix(".parquet"))] = record
    return found
