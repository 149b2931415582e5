"""Embed a data set into a folder of shards, on one machine or on a Ray cluster; interrupted work resumes with the missing shards.

The points of each shard are decided before the work starts, and a shard appears in one rename. If a worker or a machine dies, only the
shards it was working on are lost; another worker writes them again under the same names, so that every point is there once.
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

from nearkin.cluster.encoding import Piece, pieces, report_damaged, write_piece
from nearkin.cluster.session import check_address, session, workers
from nearkin.compose.validation import check_whole
from nearkin.data.dataset import Dataset
from nearkin.data.disk import created, explain_full_disk
from nearkin.data.lock import locked
from nearkin.data.progress import Report, Ticker, inform, warn
from nearkin.data.shards import KEPT, About, ShardDamagedError, check_record, is_sharded, read_manifest, write_manifest
from nearkin.index.collection import model_version
from nearkin.models.folder import Model, load

ROWS = 20_000  # points per shard
NAMED = 10  # damaged files that are reported one by one; the others are counted, and listed in the manifest
PAUSE = 1.0  # least seconds between two writes of the manifest, which is long if there are many shards
WAVE = 512  # shards passed to Ray at once, which bounds its memory
SPARE = 1 << 16, 1 << 10  # bytes reserved for the manifest: at least, and per shard
ERRORS: dict[str, type[Exception]] = {"OSError": OSError, "ValueError": ValueError}

Engine = Literal["local", "ray"]


class Embedded(NamedTuple):
    """The result of `embed`.

    Parameters
    ----------
    points : int
        Points in all shards.
    made : int
        Shards that this call has written.
    known : int
        Shards that were already there.
    damaged : int
        Points that were skipped, since they could not be read or have no finite embedding.

    Examples
    --------
    >>> Embedded(points=50_000, made=3, known=0, damaged=2).made
    3
    """

    points: int
    made: int
    known: int
    damaged: int


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
    verify: bool = True,
) -> Embedded:
    """Encode a data set with the model of a folder and write the embeddings as shards.

    Shards that are already there are kept. The manifest is updated as shards are finished, so that an interrupted call leaves a readable
    folder, and the same call resumes.

    Parameters
    ----------
    model_folder : str, Path or None
        The model. With None the shards hold the data themselves, vectors or pixels, so that several training ranks can read them.
    data : Dataset
        The points, as `nearkin.data.open` returns them.
    out : str or Path
        The folder of the shards. With Ray, all machines must share it.
    engine : {"local", "ray"}, default "local"
        Work in this process, or on a Ray cluster.
    address : str, optional
        The Ray cluster, as host:port or "auto". By default Ray starts on this machine.
    rows : int, default 20,000
        Points per shard.
    device : str, optional
        Where the model runs, such as "cpu" or "cuda".
    report : callable, optional
        Receives progress messages.
    verify : bool, default True
        Compare the files of the model with their checksums.

    Returns
    -------
    Embedded

    Raises
    ------
    ValueError
        If `out` holds shards of another model or of other data, or the data have another shape than the model reads.
    ConnectionError
        If there is no Ray cluster at `address`.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin import data
    >>> points = np.array([[0, 1], [0.1, 1], [1, 0], [1, 0.1]], np.float32)
    >>> labeled = data.open({"x": points, "y": np.array(["a", "a", "b", "b"])})
    >>> with TemporaryDirectory() as folder:
    ...     embed(None, labeled, folder, rows=2)  # the data themselves; pass a model folder for embeddings
    Embedded(points=4, made=2, known=0, damaged=0)
    """
    check_whole("rows", rows)
    if engine == "ray" and address is not None:
        check_address(address)  # before any work
    model_folder, out = None if model_folder is None else Path(model_folder).resolve(), Path(out).resolve()
    about = _about(model_folder, data, rows, verify)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        records = _there(out, about)
        assert about.planned is not None
        todo = [number for number in range(about.planned) if number not in records]
        if records:
            inform(report, f"{len(records):,} of {about.planned:,} shards are already there")
        write_manifest(out, about, records.values())
        work = pieces(data, rows, todo)
        how = partial(_by_ray, address=address) if engine == "ray" else _here
        made = _gathered(how(model_folder, out, work, device=device), out, about, records, _Progress(data, records, report))
        damaged = sum(len(record["damaged"]) for record in records.values())
    if damaged:
        warn(report, f"{data.name}: {damaged:,} of {len(data):,} points were skipped; {out / 'shards.json'} lists them")
    return Embedded(sum(record["rows"] for record in records.values()), made, len(records) - made, damaged)


class _Progress:
    """Reports progress and damaged files."""

    def __init__(self, data: Dataset, records: dict[int, dict[str, Any]], report: Report | None) -> None:
        self.report, self.reported = report, 0
        self.ticker = Ticker(report, f"embedding {data.name}", len(data), "points")
        self.done = sum(_points(record) for record in records.values())

    def add(self, record: dict[str, Any]) -> None:
        report_damaged(record, self.report, self.reported, NAMED)
        self.reported += len(record["damaged"])
        self.done += _points(record)
        self.ticker.update(self.done)


def _points(record: dict[str, Any]) -> int:
    return int(record["rows"]) + len(record["damaged"])


def _gathered(
    finished: Iterable[tuple[int, dict[str, Any]]], out: Path, about: About, records: dict[int, dict[str, Any]], progress: _Progress
) -> int:
    """Enter finished shards in the manifest, even after an error; returns their number."""
    made, written, spare = 0, time.monotonic(), _spare(out, about)
    try:
        for number, record in finished:
            records[number] = record
            made += 1
            progress.add(record)
            if time.monotonic() - written > PAUSE:
                write_manifest(out, about, records.values())
                written = time.monotonic()
    finally:
        spare.unlink(missing_ok=True)
        write_manifest(out, about, records.values())
    return made


def _spare(out: Path, about: About) -> Path:
    """Disk space that is reserved now and freed for the last manifest, so that it can be written to a full disk."""
    path, (least, each) = out / ".spare", SPARE
    with explain_full_disk(out, KEPT), created(path) as file:
        file.write(os.urandom(least + each * (about.planned or 0)))  # zeros might be stored sparsely
    return path


def _here(model_folder: Path | None, out: Path, work: Iterator[Piece], *, device: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    model = None if model_folder is None else load(model_folder, device=device, verify=False)  # `_about` did
    for piece in work:
        yield piece.number, write_piece(out, model, piece, workers=None)


def _by_ray(
    model_folder: Path | None, out: Path, work: Iterator[Piece], *, device: str | None, address: str | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row of a Ray data set is a piece; encoder actors write its shard and return its record."""
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
    """A Ray actor: a model and the folder of the shards. Errors are returned as text, since Ray would wrap them in long messages."""

    def __init__(self, model_folder: str | None, out: str, device: str | None) -> None:
        self.model: Model | None = None if model_folder is None else load(model_folder, device=device, verify=False)
        self.out = Path(out)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        records = [self._record(pickle.loads(content)) for content in batch["piece"]]
        return {"number": list(batch["number"]), "record": records}

    def _record(self, piece: Piece) -> str:
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


def _about(model_folder: Path | None, data: Dataset, rows: int, verify: bool) -> About:
    known: dict[str, Any] = {
        "supervision": data.supervision,
        "classes": data.classes,
        "data": f"{data.name}: {len(data)} points, {rows} a shard, sources {_sources(data)}",
        "planned": -(-len(data) // rows),
    }
    if model_folder is None:
        shape = data.shape if len(data.shape) == 3 else None
        return About(model="", dimension=math.prod(data.shape), metric="squared_euclidean", shape=shape, **known)
    model = load(model_folder, device="cpu", verify=verify).about
    if tuple(data.shape) != tuple(model["shape"]):
        raise ValueError(f"{data.name} has points of shape {tuple(data.shape)}, and this model reads {tuple(model['shape'])}")
    return About(
        model=model_version(model_folder, verified=verify),
        dimension=int(model["network"]["dimension"]),
        metric=str(model["metric"]),
        **known,
    )


def _sources(data: Dataset) -> str:
    whole = hashlib.sha256()
    for source in data.sources:
        whole.update(f"{source}\n".encode())
    return whole.hexdigest()[:16]


def _there(out: Path, about: About) -> dict[int, dict[str, Any]]:
    """The shards that are already there; a folder of other data, or of another model, is refused."""
    if not is_sharded(out):
        return {}
    old, records = read_manifest(out)
    for name, what in (("model", "by other weights"), ("data", "of other data, or shards of another size")):
        if getattr(old, name) != getattr(about, name):
            was = old.data if name == "data" else old.model[:12]
            raise ValueError(f"{out} holds embeddings {what} ({was}); choose another --out, or remove that folder")
    found = {}
    for record in records:
        with suppress(ShardDamagedError):  # missing or truncated: it is written again
            check_record(out, record)
            found[int(record["file"].removeprefix("shard-").removesuffix(".parquet"))] = record
    return found
