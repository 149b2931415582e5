"""The columns of a table of vectors: which of them holds the vectors, and what the others hold."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from nearkin.data.progress import few
from nearkin.data.sources.arrays import ARRAY_SUFFIXES, VECTORS, array_heads, read_arrays, with_unknown

VECTOR_SUFFIXES = (".parquet", *ARRAY_SUFFIXES)
MOST_COLUMNS = 100  # of metadata; with more, name those to keep
PART = 65_536  # rows read at a time
USUAL = {
    "label": ("label", "labels", "class", "y"),
    "id": ("id", "ids"),
    "text": ("text",),
    "image": ("path", "image", "image_path", "file", "filename", "file_name"),
    "split": ("split",),
    "group": ("group", "groups"),
}
TARGET = re.compile(r"target( \d+)?")
COUNTED = re.compile(r"(.*?)(\d+)")


class Table(NamedTuple):
    """The vectors (n, d) float32 of a source, its other columns, and those that were not read."""

    vectors: np.ndarray
    cells: dict[str, Sequence[Any]]
    left_out: list[str]


@dataclass(frozen=True)
class VectorColumns:
    """Which columns of a table mean what. For None the usual names are looked for; "" means none.

    Parameters
    ----------
    vector : str, optional
        The column of lists of numbers.
    label : str, optional
        The class; a list, or names separated by |, is a set of classes. Usual: label, labels, class, y.
    targets : sequence of str, optional
        Columns with numbers to judge neighbors by. Usual: target.
    id : str, optional
        The id of each row, shown as its source. Usual: id, ids.
    text : str, optional
        The text that a vector was computed from. Usual: text.
    image : str, optional
        The path of an image. Usual: path, image, image_path, file, filename, file_name.
    split : str, optional
        train, validation or test. Usual: split.
    group : str, optional
        Rows that belong together. Usual: group, groups.
    keep : sequence of str, optional
        The columns to keep as metadata. By default all, at most 100.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.data import VectorColumns, open_vectors
    >>> table = {"e": np.eye(2), "genre": ["jazz", "folk"], "year": [1959, 1963]}
    >>> open_vectors(table, columns=VectorColumns(label="genre")).classes
    ('folk', 'jazz')
    """

    vector: str | None = None
    label: str | None = None
    targets: Sequence[str] | None = None
    id: str | None = None
    text: str | None = None
    image: str | None = None
    split: str | None = None
    group: str | None = None
    keep: Sequence[str] | None = None


def holds_vectors(path: Path, paths: str = "path") -> bool:
    """Whether a Parquet file has one column of vectors and no column `paths`: a table of vectors, not of images."""
    if path.suffix.lower() != ".parquet":
        return False
    kinds = _parquet_kinds(path)
    return paths not in kinds and list(kinds.values()).count("vector") == 1


def holds_vector_array(path: Path) -> bool:
    """Whether an array file holds vectors (n, d), by a usual name or alone; only the heads of its arrays are read."""
    if path.suffix.lower() not in ARRAY_SUFFIXES:
        return False
    shapes = {name: shape for name, (shape, kind) in array_heads(path).items() if kind in "fiu"}
    return any(len(shapes.get(name, ())) == 2 for name in VECTORS)


def read_vector_table(what: Any, columns: VectorColumns, where: str) -> Table:
    """Read a file, an array, a tensor, a frame or a mapping of names to columns; `where` names it in messages."""
    if isinstance(what, Path):
        if not what.exists():
            raise FileNotFoundError(f"{what} does not exist; give a file of vectors ({', '.join(VECTOR_SUFFIXES)}) or a folder of shards")
        if what.suffix.lower() == ".parquet":
            return _from_parquet(what, columns)
        if what.suffix.lower() in ARRAY_SUFFIXES:
            return _from_mapping(_npz_columns(read_arrays(what)), columns, where)
        raise ValueError(
            f"{what} ends with {what.suffix or 'nothing'!r}; give vectors as {', '.join(VECTOR_SUFFIXES)}, or a folder of shards"
        )
    if isinstance(what, Tensor):
        return Table(_numbers(what.detach().cpu().float().numpy(), where), {}, [])
    if isinstance(what, np.ndarray):
        return Table(_numbers(what, where), {}, [])
    names = list(what) if isinstance(what, Mapping) else list(getattr(what, "columns", ()))
    if not names:
        kind = type(what).__name__
        raise ValueError(f"vectors are a {kind}; give a file, an array (n, d), a pandas or polars frame, or a mapping of names to columns")
    return _from_mapping({str(name): column_values(what[name]) for name in names}, columns, where)


def column_values(column: Any) -> np.ndarray:
    """A column of a frame or mapping as an array, (n,) or (n, d)."""
    if isinstance(column, Tensor):
        return np.asarray(column.detach().cpu())
    if hasattr(column, "to_numpy"):
        return np.asarray(column.to_numpy())
    held = list(column)
    if held and isinstance(held[0], Sequence | np.ndarray) and not isinstance(held[0], str | bytes):
        return _objects(held)
    return np.asarray(held) if all(isinstance(one, int | float | np.number) for one in held) else _objects(held)


def _objects(held: Sequence[Any]) -> np.ndarray:
    found = np.empty(len(held), dtype=object)
    found[:] = list(held)
    return found


def _npz_columns(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by name; class numbers with `classes` become names, and rows of `sets` and `targets` columns."""
    found = {name: array for name, array in arrays.items() if name != "classes"}
    if "classes" in arrays and "labels" in found and found["labels"].dtype.kind in "iu":
        names = arrays["classes"]
        numbers = found["labels"]
        if numbers.max(initial=0) >= len(names):
            raise ValueError(f"labels holds {numbers.max()}, but classes has {len(names)} names; labels are positions in classes")
        found["labels"] = np.where(numbers < 0, "", names[numbers.clip(0)].astype(np.str_))
    for name in USUAL["label"]:
        if name in found and found[name].ndim == 1 and found[name].dtype.kind in "iu":
            found[name] = with_unknown(found[name])
    if "sets" in found:
        names = arrays.get("classes", np.arange(found["sets"].shape[1])).astype(np.str_)
        found["labels"] = _objects([names[row.astype(np.bool_)].tolist() for row in found.pop("sets")])
    if "targets" in found and found["targets"].ndim == 2:
        targets = found.pop("targets")
        found |= {f"target {at}" if targets.shape[1] > 1 else "target": targets[:, at] for at in range(targets.shape[1])}
    if "sources" in found:  # of `nearkin embed`, whose ids are row numbers
        found["id"] = found.pop("sources")
        found.pop("ids", None)
    return found


def _from_mapping(held: Mapping[str, np.ndarray], columns: VectorColumns, where: str) -> Table:
    kinds = {name: _kind_of(values) for name, values in held.items()}
    names = _chosen_vectors(kinds, columns.vector, where)
    lengths = {name: len(values) for name, values in held.items() if values.ndim}
    if len(set(lengths.values())) > 1:
        listed = few([f"{name} ({length:,})" for name, length in lengths.items()])
        raise ValueError(f"{where}: the columns differ in length: {listed}; give one value for each vector")
    vectors = _numbers(held[names[0]], where) if kinds[names[0]] == "vector" else np.stack([held[name] for name in names], 1)
    rest = [name for name in held if name not in names]
    plain, left_out = _kept(rest, kinds, columns, where)
    return Table(_numbers(vectors, where), {name: plain_list(held[name]) for name in plain}, left_out)


def _from_parquet(path: Path, columns: VectorColumns) -> Table:
    """The vectors in parts, and then the other columns."""
    kinds = _parquet_kinds(path)
    file = _parquet(path).ParquetFile(path)
    n = file.metadata.num_rows
    if not n:
        raise ValueError(f"{path} has no rows; give one row for each vector")
    names = _chosen_vectors(kinds, columns.vector, str(path))
    plain, left_out = _kept([name for name in kinds if name not in names], kinds, columns, str(path))
    vectors, start = np.empty((0, 0), np.float32), 0
    for batch in file.iter_batches(batch_size=PART, columns=names):
        parts = [batch.column(batch.schema.get_field_index(name)) for name in names]
        some = _lists(parts[0], path, start) if kinds[names[0]] == "vector" else np.stack([_floats(part) for part in parts], 1)
        if not start:
            vectors = np.empty((n, some.shape[1]), np.float32)
        if some.shape[1] != vectors.shape[1]:
            raise ValueError(
                f"{path}: {names[0]!r} has vectors of {vectors.shape[1]} numbers, and from row {start} on of {some.shape[1]}; "
                "give all vectors the same length"
            )
        vectors[start : start + len(some)] = some
        start += len(some)
    if start != n:
        raise ValueError(f"{path} has {start:,} rows and says {n:,}; write it again")
    read = file.read(columns=plain) if plain else None
    return Table(vectors, {name: read.column(name).to_pylist() for name in plain} if read is not None else {}, left_out)


def _parquet_kinds(path: Path) -> dict[str, str]:
    parquet = _parquet(path)
    try:
        return _kinds(parquet.read_schema(path))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged or no Parquet file ({error}); write it again") from None


def _parquet(path: Path) -> Any:
    try:
        return import_module("pyarrow.parquet")
    except ImportError:
        fix = "pip install 'nearkin[table]', or save the vectors as .npz with np.savez(FILE, vectors=..., label=...)"
        raise ImportError(f"{path}: Parquet needs pyarrow, which is not installed; {fix}") from None


def _kinds(schema: Any) -> dict[str, str]:
    """What each column of a Parquet file holds: vector, number, plain or other."""
    types = import_module("pyarrow.types")
    found = {}
    for column in schema:
        kind = column.type
        if types.is_dictionary(kind):
            kind = kind.value_type
        listed = any(getattr(types, f"is_{name}list")(kind) for name in ("", "large_", "fixed_size_"))
        number = any(getattr(types, f"is_{name}")(kind) for name in ("integer", "floating"))
        if listed:
            inner = kind.value_type
            numbers = any(getattr(types, f"is_{name}")(inner) for name in ("integer", "floating"))
            texts = types.is_string(inner) or types.is_large_string(inner)
            found[column.name] = "vector" if numbers else "set" if texts else "other"
        elif number:
            found[column.name] = "number"
        else:
            plain = ("string", "large_string", "boolean", "date", "timestamp", "null", "decimal")
            found[column.name] = "plain" if any(getattr(types, f"is_{name}")(kind) for name in plain) else "other"
    return found


def _kind_of(values: np.ndarray) -> str:
    """The same for a column in memory."""
    if values.ndim == 2:
        return "vector" if values.dtype.kind in "fiu" else "other"
    if values.ndim != 1:
        return "other"
    if values.dtype.kind in "fiu":
        return "number"
    if values.dtype.kind != "O":
        return "plain" if values.dtype.kind in "USbM" else "other"
    first = next((one for one in values.tolist() if one is not None), "")
    if isinstance(first, np.ndarray):
        return "vector" if first.ndim == 1 and first.dtype.kind in "fiu" else "set" if first.dtype.kind in "USO" else "other"
    if isinstance(first, Sequence) and not isinstance(first, str | bytes):
        return (
            "set"
            if all(isinstance(one, str) for one in first)
            else "vector"
            if all(isinstance(one, int | float) for one in first)
            else "other"
        )
    return "plain" if isinstance(first, str | int | float | bool | date | np.generic) else "other"


def _chosen_vectors(kinds: Mapping[str, str], wanted: str | None, where: str) -> list[str]:
    """The column of vectors, or the columns that count up."""
    if wanted is not None:
        if kinds.get(wanted) != "vector":
            held = "is not there" if wanted not in kinds else "does not hold lists of numbers"
            raise ValueError(f"{where}: the vector column {wanted!r} {held}; its columns are {few(list(kinds))}")
        return [wanted]
    found = _vector_columns(kinds)
    if found is None:
        several = [name for name, kind in kinds.items() if kind == "vector"]
        raise ValueError(
            f"{where} has several columns of vectors: {few(several)}; name one with --vector-column (VectorColumns(vector=...))"
        )
    if not found:
        raise ValueError(
            f"{where} has no column of vectors; its columns are {few(list(kinds))}. "
            "Give a column of lists of numbers, or columns that count up: e0, e1, ..."
        )
    return found


def _vector_columns(kinds: Mapping[str, str]) -> list[str] | None:
    """The names, [] if there are none, None if several columns could be meant."""
    lists = [name for name, kind in kinds.items() if kind == "vector"]
    usual = [name for name in VECTORS if name in lists]
    if len(lists) == 1 or usual:
        return [(usual or lists)[0]]
    if lists:
        return None
    families: dict[str, list[tuple[int, str]]] = {}
    for name, kind in kinds.items():
        counted = COUNTED.fullmatch(name) if kind == "number" else None
        if counted:
            families.setdefault(counted[1], []).append((int(counted[2]), name))
    found = max(families.values(), key=len, default=[])
    numbers = sorted(number for number, _ in found)
    together = len(found) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return [name for _, name in sorted(found)] if together else []


def _kept(names: Sequence[str], kinds: Mapping[str, str], columns: VectorColumns, where: str) -> tuple[list[str], list[str]]:
    """The columns with plain values that are kept, and those that are not."""
    named = [name for name in (columns.label, columns.id, columns.text, columns.image, columns.split, columns.group) if name]
    named += [*(columns.targets or ()), *(columns.keep or ())]
    missing = [name for name in named if name not in names]
    if missing:
        raise ValueError(f"{where} has no column {few([repr(name) for name in missing])}; its columns are {few(list(names))}")
    usual = [name for options in USUAL.values() for name in options]
    usual += [name for name in names if TARGET.fullmatch(name)]
    plain = [name for name in names if kinds[name] in ("number", "plain", "set")]
    others = [name for name in names if name not in plain]
    if columns.keep is not None:
        plain = [name for name in plain if name in (*named, *usual)]
    elif len(plain) > MOST_COLUMNS:
        first = set([name for name in plain if name in (*named, *usual)] + plain[:MOST_COLUMNS])
        others += [name for name in plain if name not in first]
        plain = [name for name in plain if name in first]
    return plain, others


def _numbers(array: np.ndarray, where: str) -> np.ndarray:
    """(n, d) float32; rows of lists must have one length, and missing ones become NaN."""
    if array.dtype == object:
        rows = array.tolist()
        lengths = {len(row) for row in rows if row is not None}
        if len(lengths) != 1:
            raise ValueError(f"{where}: the vectors have {few(sorted(map(str, lengths))) or 'no'} numbers; give all the same length")
        empty = np.full(lengths.pop(), np.nan)
        array = np.array([empty if row is None else row for row in rows], dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiub":
        raise ValueError(f"{where}: vectors are {array.dtype} {array.shape}; give numbers (n, d), at least one row")
    with np.errstate(over="ignore"):  # what does not fit becomes infinity, and is reported with its row
        return np.ascontiguousarray(array, dtype=np.float32)


def _lists(column: Any, path: Path, start: int) -> np.ndarray:
    """(b, d) float32 of a column of lists; missing rows become NaN."""
    lengths = np.asarray(import_module("pyarrow.compute").list_value_length(column).to_numpy(zero_copy_only=False), dtype=np.float64)
    there = ~np.isnan(lengths)
    if not there.any():
        raise ValueError(f"{path}: no row from {start} to {start + len(column) - 1} has a vector; give one for each row")
    length = int(lengths[there][0])
    wrong = np.flatnonzero(there & ((lengths != length) | (lengths == 0)))
    if len(wrong):
        shown = f"row {start + wrong[0]} has a vector of {int(lengths[wrong[0]])} numbers, and others of {length}"
        raise ValueError(f"{path}: {shown}; give all vectors the same length")
    flat = _floats(column.filter(import_module("pyarrow.compute").is_valid(column)).flatten())
    found = np.full((len(column), length), np.nan, np.float32)
    found[there] = flat.reshape(-1, length)
    return found


def _floats(column: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.float32)


def plain_list(values: np.ndarray) -> list[Any]:
    """A column as Python's own values; dates become texts."""
    if values.dtype.kind == "M":
        return [None if np.isnat(one) else str(one) for one in values]
    if values.dtype.kind == "S":
        return [one.decode(errors="replace") for one in values.tolist()]
    return [one.tolist() if isinstance(one, np.ndarray | np.generic) else one for one in values.tolist()]
