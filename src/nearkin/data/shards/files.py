"""One shard: a Parquet file, written in one rename and read one row group at a time through a memory map."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearkin.compose.validation import check_finite
from nearkin.data.disk import checksums, damage, explain_full_disk, replacing

MANIFEST = "shards.json"
GROUP = 1 << 23  # numbers in a row group, which is read at once: 32 MB
AGAIN = "run the same `nearkin embed` again: it makes only what is missing"
KEPT = f"{AGAIN}. The shards written before are complete"


class ShardDamagedError(ValueError):
    """A shard is missing, truncated or does not match the manifest; the message names it."""


class Shard(NamedTuple):
    """Points of a shard, or of a part of one.

    Parameters
    ----------
    ids : ndarray
        (n,) int64, or texts.
    vectors : ndarray
        (n, d) float32, or uint8 pixels of images.
    labels : ndarray or None
        (n,) class names, None for unknown ones; or (n, t) float32 numbers; None if no point has a label.
    sources : ndarray, optional
        (n,) texts, if they were requested.
    """

    ids: np.ndarray
    vectors: np.ndarray
    labels: np.ndarray | None
    sources: np.ndarray | None = None


@dataclass(frozen=True)
class About:
    """What all shards of a folder have in common.

    Parameters
    ----------
    model : str
        Version of the weights that made the vectors, as in an index; "" if no model did.
    dimension : int
        Length d of the vectors.
    metric : str
        Metric of the vectors, as in an index.
    supervision : {"ids", "classes", "numbers", "sets"}, default="ids"
        What the labels are; "ids" for none.
    classes : tuple of str, default=()
        Class names in the order of their numbers.
    data : str, default=""
        Description of the data; interrupted work resumes only with the same.
    planned : int, optional
        Number of shards when the folder is complete.
    shape : tuple of int, optional
        (c, h, w) of images, whose vectors are their pixels as bytes.
    """

    model: str
    dimension: int
    metric: str
    supervision: str = "ids"
    classes: tuple[str, ...] = ()
    data: str = ""
    planned: int | None = None
    shape: tuple[int, int, int] | None = None


def write_shard(folder: Path, number: int, shard: Shard) -> dict[str, Any]:
    """Write a shard to disk, replacing one of the same number in one rename.

    Parameters
    ----------
    folder : Path
        Folder of the shards.
    number : int
        Number of the shard, from 0.
    shard : Shard
        Its points.

    Returns
    -------
    dict
        The shard's record for `write_manifest`.

    Raises
    ------
    ValueError
        If the columns differ in length, a vector is not finite, or an id is there twice.
    """
    _check(shard)
    pa, parquet = arrow()
    table = pa.table(_columns(pa, shard), schema=_schema(pa, shard))
    path = folder / f"shard-{number:05d}.parquet"
    how = {"compression": "none", "use_dictionary": False, "row_group_size": max(GROUP // max(shard.vectors.shape[1], 1), 1)}
    with explain_full_disk(folder, KEPT), replacing(path) as file:
        parquet.write_table(table, file, **how, write_page_checksum=True)
    ids = np.sort(shard.ids)
    ends = {"first": ids[0].item(), "last": ids[-1].item()} if len(ids) else {}
    return {"file": path.name, "rows": len(shard.ids), **checksums(path), **ends}


def check_record(folder: Path, record: Mapping[str, Any], *, whole: bool = False) -> None:
    """Check that a shard exists and has the size of its record.

    Parameters
    ----------
    folder : Path
        Folder of the shards.
    record : mapping
        As of `write_shard`.
    whole : bool, default=False
        Compare the content with its checksum, too.

    Raises
    ------
    ShardDamagedError
        If the file is missing or does not match.
    """
    path = folder / str(record["file"])
    if not path.is_file():
        raise ShardDamagedError(f"{path} is missing; {AGAIN}")
    if path.stat().st_size != record["bytes"]:
        raise ShardDamagedError(f"{path} has {path.stat().st_size:,} bytes, and {MANIFEST} says {record['bytes']:,}; {AGAIN}")
    if whole and damage(path, record, whole=True):
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
    if shard.vectors.dtype == np.float32:
        check_finite("vectors", shard.vectors, "leave those points out")
    ids = np.sort(shard.ids)
    if bool((ids[1:] == ids[:-1]).any()):
        raise ValueError("ids has duplicates; give every point an id of its own")


def _schema(pa: Any, shard: Shard) -> Any:
    whole = np.issubdtype(shard.ids.dtype, np.integer)
    numbers = shard.labels is not None and shard.labels.ndim == 2
    item = pa.uint8() if shard.vectors.dtype == np.uint8 else pa.float32()
    fields = [
        pa.field("id", pa.int64() if whole else pa.string(), nullable=False),
        # items that cannot be null are read three times faster
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
    """The points of a file, one row group at a time."""
    columns = ["id", "vector", "label", *(["source"] if sources else [])]
    with _errors_named(path):
        file = arrow()[1].ParquetFile(path, memory_map=True, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            yield _shard(file.read_row_group(group, columns, use_threads=False), about, path)


def _shard(table: Any, about: About, path: Path) -> Shard:
    kind = table.schema.field("vector").type
    if kind.list_size != about.dimension:
        raise ShardDamagedError(f"{path} has vectors of {kind.list_size} dimensions, and {MANIFEST} says {about.dimension}; {AGAIN}")
    vectors = table.column("vector").combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, about.dimension)
    sources = np.array(table.column("source").to_pylist(), dtype=object) if "source" in table.column_names else None
    return Shard(_as_ids(table.column("id")), vectors, labels_of(table.column("label"), about), sources)


def labels_of(column: Any, about: About) -> np.ndarray | None:
    """A column of labels: numbers (n, t), names (n,), or None."""
    if about.supervision == "ids":
        return None
    if about.supervision == "numbers":
        return np.array(column.to_pylist(), dtype=np.float32)
    return np.array(column.to_pylist(), dtype=object)


def _as_ids(column: Any) -> np.ndarray:
    whole = arrow()[0].types.is_integer(column.type)
    return np.asarray(column.to_numpy(), dtype=np.int64) if whole else np.array(column.to_pylist(), dtype=np.str_)


def ids_of(path: Path) -> np.ndarray:
    """The ids of a file."""
    return _as_ids(column(path, "id"))


def column(path: Path, name: str) -> Any:
    """One column of a file, as of Arrow."""
    with _errors_named(path):
        return arrow()[1].ParquetFile(path, memory_map=True, page_checksum_verification=True).read([name], use_threads=False).column(name)


class _errors_named:  # noqa: N801
    """Turn any error of Parquet into one that names the file and the fix."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ShardDamagedError | ImportError):
            raise ShardDamagedError(f"{self.path} cannot be read ({error}); remove it and {AGAIN}") from error


def joined(parts: list[Shard]) -> Shard:
    """Concatenate parts of one shard."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Shard(np.empty(0, np.int64), np.empty((0, 0), np.float32), None)
    columns = zip(*parts, strict=True)
    return Shard(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]
