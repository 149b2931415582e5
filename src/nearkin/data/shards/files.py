"""One shard: a Parquet file, written in one rename and read a row group at a time through a memory map."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearkin.data.disk import digest, room, sync

MANIFEST = "shards.json"
GROUP = 1 << 23  # numbers of a row group, which is what is read at once: 32 MB
AGAIN = "run the same `nearkin embed` again: it makes only what is missing"
KEPT = f"{AGAIN}. The shards written before are whole"


class ShardDamagedError(ValueError):
    """A shard is missing, truncated or not what the manifest says; the message names it."""


class Shard(NamedTuple):
    """Some points: a whole shard, or a part of one."""

    ids: np.ndarray  # (n,) int64, or texts
    vectors: np.ndarray  # (n, d) float32, or uint8 pixels in a folder of images
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
    shape: tuple[int, int, int] | None = None  # of images, whose vectors are their pixels as bytes


def write_shard(folder: Path, number: int, shard: Shard) -> dict[str, Any]:
    """One shard, on disk when this returns; its record for the manifest. One of the same number is replaced in one rename."""
    _check(shard)
    pa, parquet = arrow()
    table = pa.table(_columns(pa, shard), schema=_schema(pa, shard))
    path = folder / f"shard-{number:05d}.parquet"
    aside = folder / f".{path.name}-{os.getpid()}"
    with room(folder, KEPT):
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


def _check(shard: Shard) -> None:
    n = len(shard.ids)
    if shard.vectors.ndim != 2 or shard.vectors.dtype not in (np.float32, np.uint8) or len(shard.vectors) != n:
        raise ValueError(f"vectors are {shard.vectors.dtype} {shard.vectors.shape} for {n} ids; give float32 (n, d)")
    for name in ("labels", "sources"):
        column = getattr(shard, name)
        if column is not None and len(column) != n:
            raise ValueError(f"{name} has {len(column)} entries for {n} ids; give one for each")
    if shard.vectors.dtype == np.float32 and not np.isfinite(shard.vectors).all():
        raise ValueError("vectors hold NaN or infinity; nothing is near to those: leave them out")
    ids = np.sort(shard.ids)
    if bool((ids[1:] == ids[:-1]).any()):
        raise ValueError("ids hold some twice; an id is one point")


def _schema(pa: Any, shard: Shard) -> Any:
    whole = np.issubdtype(shard.ids.dtype, np.integer)
    numbers = shard.labels is not None and shard.labels.ndim == 2
    item = pa.uint8() if shard.vectors.dtype == np.uint8 else pa.float32()
    fields = [
        pa.field("id", pa.int64() if whole else pa.string(), nullable=False),
        # items that cannot be null are read three times as fast
        pa.field("vector", pa.list_(pa.field("item", item, nullable=False), shard.vectors.shape[1]), nullable=False),
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


def row_groups(path: Path, about: About, sources: bool) -> Iterator[Shard]:
    """A file's points, a row group at a time."""
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
    return Shard(_as_ids(table.column("id")), vectors, labels_of(table.column("label"), about), sources)


def labels_of(column: Any, about: About) -> np.ndarray | None:
    """A column of labels: numbers (n, t), names (n,), or nothing."""
    if about.supervision == "ids":
        return None
    if about.supervision == "numbers":
        return np.array(column.to_pylist(), dtype=np.float32)
    return np.array(column.to_pylist(), dtype=object)


def _as_ids(column: Any) -> np.ndarray:
    whole = arrow()[0].types.is_integer(column.type)
    return np.asarray(column.to_numpy(), dtype=np.int64) if whole else np.array(column.to_pylist(), dtype=np.str_)


def ids_of(path: Path) -> np.ndarray:
    """A file's ids alone."""
    return _as_ids(column(path, "id"))


def column(path: Path, name: str) -> Any:
    """One column of a file, as Arrow has it."""
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


def joined(parts: list[Shard]) -> Shard:
    """Parts of one shard as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Shard(np.empty(0, np.int64), np.empty((0, 0), np.float32), None)
    columns = zip(*parts, strict=True)
    return Shard(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]
