"""Shards: embeddings of any number of points as a folder of Parquet files that is never larger than memory at once.

    shard-00000.parquet, ...   id (int64 or string), vector (d float32), label (class name, numbers or null), source (string)
    shards.json                which model made them, d, the metric, and rows, bytes and checksum of every file

A shard is written aside, synced and renamed, and only then named in the manifest: whatever is named is whole, and after a kill
only the shards that are not named are made again. Parquet needs pyarrow (pip install 'nearkin[table]').
"""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearkin.disk import digest, read_page, sync, write_page

MANIFEST = "shards.json"
GROUP = 1 << 23  # numbers of a row group, which is what is read at once: 32 MB
AGAIN = "run the same `nearkin embed` again: it makes only what is missing"


class ShardDamagedError(ValueError):
    """A shard is missing, truncated or not what the manifest says; the message names it."""


class Shard(NamedTuple):
    """Some points: a whole shard, or a part of one."""

    ids: np.ndarray  # (n,) int64, or texts
    vectors: np.ndarray  # (n, d) float32
    labels: np.ndarray | None  # (n,) class names, None where unknown; or (n, t) float32 numbers; None when nobody has any
    sources: np.ndarray | None = None  # (n,) texts, where they were asked for


@dataclass(frozen=True)
class About:
    """What all shards of a folder have in common."""

    model: str  # the version of the weights, as the index has it; "" for vectors that no model made
    dimension: int
    metric: str
    supervision: str = "ids"  # what the labels are: classes, numbers, or ids for none
    classes: tuple[str, ...] = ()  # names by number
    data: str = ""  # what was embedded, in words; work goes on only with the same
    planned: int | None = None  # shards there will be when the work is done


class Shards:
    """A folder of shards, whole and of one model. Iterating yields one `Shard` after the other, empty ones left out."""

    def __init__(self, folder: Path, about: About, records: Sequence[Mapping[str, Any]]) -> None:
        self.folder, self.about, self.records = folder, about, tuple(records)

    def __len__(self) -> int:
        """Points in all shards."""
        return sum(int(record["rows"]) for record in self.records)

    def __iter__(self) -> Iterator[Shard]:
        return (self.read(number) for number, record in enumerate(self.records) if record["rows"])

    @property
    def dimension(self) -> int:
        return self.about.dimension

    def read(self, number: int, *, sources: bool = False) -> Shard:
        """One shard as it stands in the manifest, from 0."""
        return _joined(list(self.parts(number, sources=sources)))

    def parts(self, number: int, *, sources: bool = False) -> Iterator[Shard]:
        """One shard, a row group at a time."""
        yield from _row_groups(self.path(number), self.about, sources)

    def blocks(self) -> Iterator[Shard]:
        """All points in order, a row group at a time: the least memory."""
        for number, record in enumerate(self.records):
            if record["rows"]:
                yield from self.parts(number)

    def ids(self, number: int) -> np.ndarray:
        """The ids of one shard alone."""
        return _ids(self.path(number))

    def labels(self) -> np.ndarray | None:
        """The labels of all points, without reading their vectors."""
        if self.about.supervision == "ids":
            return None
        found = [_labels(_column(self.path(number), "label"), self.about) for number in range(len(self.records))]
        return np.concatenate([labels for labels in found if labels is not None])

    def codes(self) -> np.ndarray:
        """(n,) int32: the class numbers of all points, -1 where unknown, without reading their vectors."""
        return self._numbered("label", self.about.classes)

    def places(self, sources: Sequence[str]) -> np.ndarray:
        """(len(sources),) int64: where the point of each source stands among all, -1 if it is not there."""
        found = np.full(len(sources), -1, np.int64)
        which = self._numbered("source", sources)
        there = np.flatnonzero(which >= 0)
        found[which[there]] = there
        return found

    def _numbered(self, column: str, names: Sequence[str]) -> np.ndarray:
        """(n,) int32: the place in `names` of what stands in a column of every point, -1 if nowhere."""
        pa, compute = arrow()[0], import_module("pyarrow.compute")
        known, found = pa.array(list(names), pa.string()), [np.empty(0, np.int32)]
        for number, record in enumerate(self.records):
            if record["rows"]:
                place = compute.index_in(_column(self.path(number), column), value_set=known)
                found.append(compute.fill_null(place, -1).to_numpy().astype(np.int32))
        return np.concatenate(found)

    def path(self, number: int) -> Path:
        return self.folder / str(self.records[number]["file"])

    def starts(self) -> list[int]:
        """Where each shard begins among all points, and their number at the end."""
        return [0, *np.cumsum([int(record["rows"]) for record in self.records]).tolist()]

    def of(self, numbers: Iterable[int]) -> "Shards":
        """Only some of the shards."""
        return Shards(self.folder, self.about, [self.records[number] for number in numbers])

    def check_model(self, model: str) -> None:
        """Vectors of other weights cannot be compared."""
        if self.about.model != model:
            raise ValueError(
                f"{self.folder} holds vectors of other weights (model {self.about.model[:12] or 'unknown'}, this one is {model[:12]}); "
                "embed the data again with this model, into another folder"
            )


def open_shards(folder: str | Path, *, verify: bool = False, partial: bool = False) -> Shards:
    """The shards of a folder, checked: all there, of the right size, no id twice; with `verify` every byte against its checksum.

    A folder that is still being filled is refused unless `partial`.
    """
    folder = Path(folder)
    about, records = read_manifest(folder)
    if about.planned is not None and len(records) < about.planned and not partial:
        raise ShardDamagedError(f"{folder} is not whole: {len(records):,} of {about.planned:,} shards are there; {AGAIN}")
    for record in records:
        check_record(folder, record, whole=verify)
    found = Shards(folder, about, records)
    if not len(found):
        raise ShardDamagedError(f"{folder} holds no points; {AGAIN}")
    _check_ids(found)
    return found


def is_sharded(folder: str | Path) -> bool:
    """Whether a folder is one of shards."""
    return (Path(folder) / MANIFEST).is_file()


def read_manifest(folder: Path) -> tuple[About, list[dict[str, Any]]]:
    """What shards.json says, shards in order."""
    page = folder / MANIFEST
    if not page.is_file():
        raise FileNotFoundError(f"{folder} holds no shards: it has no {MANIFEST}; `nearkin embed MODEL DATA --out {folder}` makes them")
    body = read_page(page)
    if body is None:
        raise ShardDamagedError(f"{page} is damaged: it does not match its own checksum; remove it and {AGAIN}")
    about = About(**{**body["about"], "classes": tuple(body["about"]["classes"])})
    return about, sorted(body["shards"], key=_order)


def _order(record: Mapping[str, Any]) -> tuple[int, str]:
    return len(record["file"]), str(record["file"])  # 100000 after 99999


def write_manifest(folder: Path, about: About, records: Iterable[Mapping[str, Any]]) -> None:
    """Swap shards.json for one that names these shards."""
    listed = sorted(records, key=_order)
    body = {"format": 1, "about": {**about.__dict__, "classes": list(about.classes)}, "points": sum(r["rows"] for r in listed)}
    with _room(folder):
        write_page(folder / MANIFEST, {**body, "shards": listed})


def write_shard(folder: Path, number: int, shard: Shard) -> dict[str, Any]:
    """One shard, on disk when this returns; its record for the manifest. One of the same number is replaced in one rename."""
    _check(shard)
    pa, parquet = arrow()
    table = pa.table(_columns(pa, shard), schema=_schema(pa, shard))
    path = folder / f"shard-{number:05d}.parquet"
    aside = folder / f".{path.name}-{os.getpid()}"
    with _room(folder):
        try:
            parquet.write_table(
                table, aside, compression="none", use_dictionary=False, row_group_size=max(GROUP // max(shard.vectors.shape[1], 1), 1)
            )
            sync(aside)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)  # half a file on a full disk only makes it fuller
            raise
    ids = np.sort(shard.ids)
    ends = {"first": ids[0].item(), "last": ids[-1].item()} if len(ids) else {}
    return {"file": path.name, "rows": len(shard.ids), "bytes": path.stat().st_size, "sha256": digest(path), **ends}


def check_record(folder: Path, record: Mapping[str, Any], *, whole: bool = False) -> None:
    """The shard is there and of the right size; with `whole` its content is right, too."""
    path = folder / str(record["file"])
    if not path.is_file():
        raise ShardDamagedError(f"{path} is missing; {AGAIN}")
    if path.stat().st_size != record["bytes"]:
        raise ShardDamagedError(f"{path} has {path.stat().st_size:,} bytes where {MANIFEST} says {record['bytes']:,}; {AGAIN}")
    if whole and digest(path) != record["sha256"]:
        raise ShardDamagedError(f"{path} does not match its checksum; remove it and {AGAIN}")


def arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError("shards are Parquet files, which need pyarrow; pip install 'nearkin[table]'") from None


class _room:  # noqa: N801
    """A full disk, said so that it can be mended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(
                error.errno, f"no room is left on the disk of {self.folder}; free some and {AGAIN}. The shards written before are whole"
            ) from error


def _check(shard: Shard) -> None:
    n = len(shard.ids)
    if shard.vectors.ndim != 2 or shard.vectors.dtype != np.float32 or len(shard.vectors) != n:
        raise ValueError(f"vectors are {shard.vectors.dtype} {shard.vectors.shape} for {n} ids; give float32 (n, d)")
    for name in ("labels", "sources"):
        column = getattr(shard, name)
        if column is not None and len(column) != n:
            raise ValueError(f"{name} has {len(column)} entries for {n} ids; give one for each")
    if not np.isfinite(shard.vectors).all():
        raise ValueError("vectors hold NaN or infinity; nothing is near to those: leave them out")
    ids = np.sort(shard.ids)
    if bool((ids[1:] == ids[:-1]).any()):
        raise ValueError("ids hold some twice; an id is one point")


def _schema(pa: Any, shard: Shard) -> Any:
    whole = np.issubdtype(shard.ids.dtype, np.integer)
    numbers = shard.labels is not None and shard.labels.ndim == 2
    fields = [
        pa.field("id", pa.int64() if whole else pa.string(), nullable=False),
        # items that cannot be null are read three times as fast
        pa.field("vector", pa.list_(pa.field("item", pa.float32(), nullable=False), shard.vectors.shape[1]), nullable=False),
        pa.field("label", pa.list_(pa.float32()) if numbers else pa.string()),
        pa.field("source", pa.string()),
    ]
    return pa.schema(fields)


def _columns(pa: Any, shard: Shard) -> dict[str, Any]:
    schema, n = _schema(pa, shard), len(shard.ids)
    flat = pa.array(np.ascontiguousarray(shard.vectors).reshape(-1))
    kind = schema.field("label").type
    return {
        "id": pa.array(shard.ids, schema.field("id").type),
        "vector": pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type),
        "label": pa.nulls(n, kind) if shard.labels is None else pa.array(shard.labels.tolist(), kind),
        "source": pa.nulls(n, pa.string()) if shard.sources is None else pa.array([str(source) for source in shard.sources], pa.string()),
    }


def _row_groups(path: Path, about: About, sources: bool) -> Iterator[Shard]:
    columns = ["id", "vector", "label", *(["source"] if sources else [])]
    with _named(path):
        file = arrow()[1].ParquetFile(path, memory_map=True)
        for group in range(file.num_row_groups):
            yield _shard(file.read_row_group(group, columns, use_threads=False), about, path)


def _shard(table: Any, about: About, path: Path) -> Shard:
    kind = table.schema.field("vector").type
    if kind.list_size != about.dimension:
        raise ShardDamagedError(f"{path} has vectors of {kind.list_size} dimensions where {MANIFEST} says {about.dimension}")
    vectors = table.column("vector").combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, about.dimension)
    sources = np.array(table.column("source").to_pylist(), dtype=object) if "source" in table.column_names else None
    return Shard(_as_ids(table.column("id")), vectors, _labels(table.column("label"), about), sources)


def _labels(column: Any, about: About) -> np.ndarray | None:
    if about.supervision == "ids":
        return None
    if about.supervision == "numbers":
        return np.array(column.to_pylist(), dtype=np.float32)
    return np.array(column.to_pylist(), dtype=object)


def _as_ids(column: Any) -> np.ndarray:
    whole = arrow()[0].types.is_integer(column.type)
    return np.asarray(column.to_numpy(), dtype=np.int64) if whole else np.array(column.to_pylist(), dtype=np.str_)


def _ids(path: Path) -> np.ndarray:
    return _as_ids(_column(path, "id"))


def _column(path: Path, name: str) -> Any:
    with _named(path):
        return arrow()[1].ParquetFile(path, memory_map=True).read([name], use_threads=False).column(name)


class _named:  # noqa: N801
    """Whatever Parquet stumbles over, with the file's name and the mend."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ShardDamagedError | ImportError):
            raise ShardDamagedError(f"{self.path} cannot be read ({error}); remove it and {AGAIN}") from error


def _joined(parts: list[Shard]) -> Shard:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Shard(np.empty(0, np.int64), np.empty((0, 0), np.float32), None)
    columns = zip(*parts, strict=True)
    return Shard(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


def _check_ids(shards: Shards) -> None:
    """No id in two shards. Shards whose ids lie apart, as ours do, are not read for that."""
    ends = [(record["first"], record["last"], number) for number, record in enumerate(shards.records) if record["rows"]]
    kinds = {type(first) for first, _, _ in ends}
    if len(kinds) > 1:
        raise ValueError(f"{shards.folder}: some shards have numbers for ids and some texts; write them all alike")
    ends.sort()
    group: list[int] = []
    last: Any = None
    for first, end, number in ends:
        if group and first > last:
            _check_apart(shards, group)
            group = []
        last = end if not group else max(last, end)
        group.append(number)
    _check_apart(shards, group)


def _check_apart(shards: Shards, numbers: list[int]) -> None:
    if len(numbers) < 2:
        return
    ids = [shards.ids(number) for number in numbers]
    whole, home = np.concatenate(ids), np.repeat(numbers, [len(some) for some in ids])
    order = np.argsort(whole, kind="stable")
    twice = np.flatnonzero(whole[order][1:] == whole[order][:-1])
    if len(twice):
        a, b = (shards.path(int(home[order[twice[0] + side]])).name for side in (0, 1))
        raise ValueError(
            f"{shards.folder}: {a} and {b} both hold the id {whole[order[twice[0]]]}, and {len(twice):,} ids are there twice; "
            "remove one of the two files and its entry by embedding into a fresh folder"
        )
