"""Vectors that are given: embeddings of any encoder with their ids, labels, texts or images, and further columns.

    nearkin.data.open_vectors("vectors.parquet")

A table (.parquet, a pandas or polars frame) holds one point in each row: a column of lists of numbers, or columns that count up (e0, e1,
...), and beside it any of id, label, target, split, group, text, and the path of an image. All other columns are kept as metadata. The
files are read in parts into one float32 array.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import encode_labels
from nearkin.compose.validation import check_choice
from nearkin.data.dataset import Dataset
from nearkin.data.files import listing
from nearkin.data.labels import SET_SEPARATOR, multi_hot, partly_numbered, split_name
from nearkin.data.progress import Report, few, inform, warn
from nearkin.data.shards import Shards, is_sharded, open_shards
from nearkin.data.sources.sharded import open_sharded
from nearkin.data.sources.table import read_cells
from nearkin.data.sources.vector_tables import PART, TARGET, USUAL, Table, VectorColumns, column_values, plain_list, read_vector_table

LONGEST = 2000  # characters of a text that are kept for showing
SEEN = 10_000  # rows by which a column is taken for classes
OWN_NAMES = ("data", "set")  # of the index


def open_vectors(
    what: Any,
    *,
    labels: Any = None,
    images: str | os.PathLike[str] | Sequence[str] | None = None,
    columns: VectorColumns | None = None,
    on_error: str = "raise",
    report: Report | None = None,
) -> Dataset:
    """Open vectors that any encoder has computed.

    Parameters
    ----------
    what : path, array, tensor, frame or mapping
        A .parquet, .npz or .npy file, a folder of shards, a numpy array or torch tensor (n, d), a pandas or polars frame, or a mapping of
        names to columns.
    labels : path or sequence, optional
        Labels of the vectors: one for each (None, NaN or "" where unknown), or a .csv, .tsv or .parquet file with a row for each vector, in
        the same order or with an id. Its other columns are kept as metadata.
    images : path or sequence of str, optional
        A folder of images: paths in the table are relative to it, or, if there are none, its images in the order of their names belong to
        the vectors. Or the path of each image.
    columns : VectorColumns, optional
        Which columns mean what.
    on_error : {"raise", "skip"}, default="raise"
        "skip" leaves out rows whose vector is missing or not finite, and reports how many.
    report : callable, optional
        Called with each line of progress, such as `print`.

    Returns
    -------
    Dataset
        With `columns` and, if there are images, `pictures`.

    Raises
    ------
    ValueError
        If vectors are missing or not finite, ids occur twice, lengths differ, or the file changes while it is read.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.data import open_vectors
    >>> table = {"embedding": np.eye(3), "label": ["cat", "cat", None], "price": [1.5, 2.0, 9.0]}
    >>> data = open_vectors(table)
    >>> data
    <Dataset vectors: 3 vectors of 3 numbers; 1 class (cat), known for 2; all 3; to learn from: classes>
    >>> data.columns
    {'price': [1.5, 2.0, 9.0]}
    """
    data = read_vectors(what, labels=labels, images=images, columns=columns, on_error=on_error, report=report)
    inform(report, data.describe())
    return data


def read_vectors(
    what: Any, *, labels: Any = None, images: Any = None, columns: VectorColumns | None, on_error: str, report: Report | None
) -> Dataset:
    """As `open_vectors`, without the line that describes the data."""
    check_choice("on_error", on_error, ("raise", "skip"))
    columns = columns or VectorColumns()
    path = Path(what).expanduser() if isinstance(what, str | os.PathLike) else None
    name, where = ("vectors", "the vectors") if path is None else (path.stem, str(path))
    if path is not None and is_sharded(path):
        return _of_shards(path, labels, images)
    with _unchanged(path):
        table = read_vector_table(what if path is None else path, columns, where)
    with _unchanged(Path(labels) if isinstance(labels, str | os.PathLike) else None):
        table = _with_labels(table, labels, columns, where, report)
    _check_lengths(table, where)
    total = len(table.vectors)
    table, rows = _finite(table, where, on_error, report)
    place = _Place(where, path.parent if path is not None else Path(), rows, total)
    data = _dataset(name, torch.from_numpy(table.vectors), table.cells, place, columns, images, report)
    if table.left_out:
        warn(report, f"{where}: {few(table.left_out)} {'is' if len(table.left_out) == 1 else 'are'} left out: no plain values")
    return data


class _Place(NamedTuple):
    """Where a table is from: its name in messages, the folder of its paths, its rows that are left (n,), and how many it had."""

    where: str
    base: Path
    rows: np.ndarray
    total: int


@contextmanager
def _unchanged(path: Path | None) -> Iterator[None]:
    """Raise if a file is another one after the reading than before."""
    if path is None or not path.exists():
        yield
        return
    before, failed = _state(path), None
    try:
        yield
    except (OSError, ValueError) as error:  # of a file that another process is writing, too
        failed = error
    if not path.exists() or before != _state(path):
        changed = f"{path} changed while it was read, so nothing of it is used; wait until it is complete, and run again"
        raise ValueError(changed) from failed
    if failed is not None:
        raise failed


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _with_labels(table: Table, labels: Any, columns: VectorColumns, where: str, report: Report | None) -> Table:
    """The table with the columns of --labels, by id if both have one, or else row by row."""
    if labels is None:
        return table
    if not isinstance(labels, str | os.PathLike):
        given = np.asarray(labels.detach().cpu()) if isinstance(labels, Tensor) else column_values(labels)
        if len(given) != len(table.vectors):
            raise ValueError(f"labels has {len(given):,} entries for {len(table.vectors):,} vectors; give one for each, None where unknown")
        return table._replace(cells={**table.cells, columns.label or "label": plain_list(given) if given.ndim == 1 else given.tolist()})
    path = Path(labels)
    if not path.exists():
        raise FileNotFoundError(f"labels: {path} does not exist; fix the path")
    found = {name: list(cells) for name, cells in read_cells(path, report).items()}
    own, theirs = _named("id", columns.id, table.cells), _named("id", columns.id, found)
    if own and theirs:
        return _by_id(table, own, found, theirs, path, report)
    size = len(next(iter(found.values())))
    if size != len(table.vectors):
        raise ValueError(
            f"{path} has {size:,} rows for {len(table.vectors):,} vectors of {where}; give one for each, or a column id in both"
        )
    if theirs and not own:
        numbers = [str(one) for one in found[theirs]]
        if numbers != (rows := [str(row) for row in range(size)]) and sorted(numbers) == sorted(rows):
            raise ValueError(
                f"{path}: its column {theirs!r} counts the rows in another order, and the vectors have no ids; sort it by {theirs!r}, or "
                "remove that column if the rows are in the order of the vectors"
            )
    return table._replace(cells={**table.cells, **found})


def _by_id(table: Table, own: str, found: Mapping[str, list[Any]], theirs: str, path: Path, report: Report | None) -> Table:
    row_of = {str(one): row for row, one in enumerate(found[theirs])}
    if len(row_of) < len(found[theirs]):
        raise ValueError(f"{path} has ids that occur twice in {theirs!r}; give each row an id of its own")
    rows = [row_of.get(str(one), -1) for one in table.cells[own]]
    unused = len(row_of) - len({row for row in rows if row >= 0})
    missing = rows.count(-1)
    if missing == len(rows):
        raise ValueError(f"{path}: none of its {len(row_of):,} ids is one of the {len(rows):,} vectors; check the column {theirs!r}")
    if missing or unused:
        inform(report, f"{path}: {missing:,} of {len(rows):,} vectors have no row there, and {unused:,} of its rows have no vector")
    joined = {name: [None if row < 0 else cells[row] for row in rows] for name, cells in found.items() if name != theirs}
    return table._replace(cells={**table.cells, **joined})


def _named(role: str, given: str | None, cells: Mapping[str, Any]) -> str | None:
    """The column of a role: the given one, or one with a usual name."""
    if given is not None:
        return given if given in cells else None
    return next((name for name in USUAL[role] if name in cells), None)


def _check_lengths(table: Table, where: str) -> None:
    for name, cells in table.cells.items():
        if len(cells) != len(table.vectors):
            raise ValueError(f"{where}: {name} has {len(cells):,} entries for {len(table.vectors):,} vectors; give one for each")


def _finite(table: Table, where: str, on_error: str, report: Report | None) -> tuple[Table, np.ndarray]:
    """The table without rows that are not finite, and the numbers of the rows that are left."""
    good = np.concatenate([np.isfinite(table.vectors[start : start + PART]).all(1) for start in range(0, len(table.vectors), PART)])
    wrong = np.flatnonzero(~good)
    rows = np.flatnonzero(good)
    if not len(wrong):
        return table, rows
    listed = few([f"row {row}" for row in wrong[:10].tolist()])
    text = f"{where}: {len(wrong):,} of {len(good):,} vectors are missing or not finite (NaN or infinity): {listed}"
    if on_error == "raise" or not len(rows):
        raise ValueError(f"{text}; fix them, or leave them out: on_error='skip' in Python, --skip-damaged for commands that read data")
    warn(report, f"{text}; they are left out. Compute them again to have all")
    cells: dict[str, Sequence[Any]] = {name: [values[row] for row in rows.tolist()] for name, values in table.cells.items()}
    return Table(table.vectors[rows], cells, table.left_out), rows


def _dataset(
    name: str,
    vectors: Tensor,
    cells: dict[str, Sequence[Any]],
    place: _Place,
    columns: VectorColumns,
    images: str | os.PathLike[str] | Sequence[str] | None,
    report: Report | None,
) -> Dataset:
    left = dict(cells)
    role = {one: _named(one, getattr(columns, one), left) for one in USUAL}
    known: dict[str, Any] = {}
    label = role["label"]
    if label:
        known |= _labels(label, left.pop(label), place.where, report)
    targets = columns.targets or [one for one in left if TARGET.fullmatch(one)]
    if targets:
        known |= _targets([(one, left.pop(one)) for one in targets], place.where)
    if not label and not targets and (likely := _like_classes(left)):
        usual, fix = ", ".join(USUAL["label"]), f"--label-column names one, such as {few(likely)}"
        inform(report, f"{place.where}: no column is called {usual}, so there are no labels; {fix}")
    split = role["split"]
    if split and all(split_name(str(cell)) for cell in left[split]):
        known["split"] = np.asarray([split_name(str(cell)) for cell in left.pop(split)], dtype=np.str_)
    if role["group"]:
        known["groups"] = encode_labels([str(cell) for cell in left.pop(role["group"])])[0]
    pictures = _pictures(left, role["image"], images, place, report)
    sources = _sources(left, role["id"], pictures, place)
    kept = set(columns.keep) if columns.keep is not None else None
    text = role["text"]
    shown = {_column_name(one, text): _plain(values) for one, values in left.items() if kept is None or one in kept or one == text}
    return Dataset(name, vectors, sources=sources, columns=shown, pictures=pictures, **known)


def _like_classes(cells: Mapping[str, Sequence[Any]]) -> list[str]:
    """Columns of texts each of which occurs in three rows and more on average; not those of another role."""
    found = []
    for name, values in cells.items():
        texts = [value for value in values[:SEEN] if isinstance(value, str) and value]
        if not any(name in names for names in USUAL.values()) and 1 < len(set(texts)) <= len(texts) / 3:
            found.append(name)
    return found


def _column_name(name: str, text: str | None) -> str:
    """What a column is called in the index: text for the texts that are shown; names that mean something there are changed."""
    if name == text:
        return "text"
    return f"{name} (given)" if name in OWN_NAMES or (name == "text" and text) else name


def _plain(values: Sequence[Any]) -> list[Any]:
    """The values of a column; times of a column that has days only become days."""
    times = [one for one in values if isinstance(one, datetime)]
    if times and all(one.time() == time() for one in times):
        values = [one.date() if isinstance(one, datetime) else one for one in values]
    return [_cell(one) for one in values]


def _cell(value: Any) -> Any:
    """A value that JSON can hold; None for what is missing."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[:LONGEST] + "…"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple | np.ndarray):
        return [_cell(one) for one in value]
    return str(value)


def _labels(name: str, cells: Sequence[Any], where: str, report: Report | None) -> dict[str, Any]:
    """Classes, sets or numbers, whichever the cells hold; -1 (a NaN, None or an empty text) where a class is unknown."""
    if any(isinstance(cell, list | tuple | np.ndarray) for cell in cells):
        texts = [SET_SEPARATOR.join(map(str, [] if cell is None else cell)) for cell in cells]
    else:
        missing = [cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell)) for cell in cells]
        numbers = [cell for cell, gone in zip(cells, missing, strict=True) if not gone and isinstance(cell, float)]
        if numbers and not all(number.is_integer() for number in numbers):
            return _targets([(name, cells)], where)
        texts = ["" if gone else _class_name(cell) for cell, gone in zip(cells, missing, strict=True)]
    if any(SET_SEPARATOR in text for text in texts) or any(isinstance(cell, list | tuple | np.ndarray) for cell in cells):
        sets, classes = multi_hot(texts)
        return {"sets": sets, "classes": classes}
    unknown = texts.count("")
    if unknown == len(texts):
        inform(report, f"{where}: no row has a {name!r}, so there are no labels")
        return {}
    if unknown:
        inform(report, f"{where}: {unknown:,} of {len(texts):,} rows have no {name!r}; their class is unknown, and they are kept")
    labels, classes = partly_numbered(texts, [not text for text in texts])
    return {"labels": labels, "classes": classes}


def _class_name(cell: Any) -> str:
    """2.0 is 2, which pandas makes of whole numbers with gaps."""
    return str(int(cell)) if isinstance(cell, float) else str(cell).strip()


def _targets(named: Sequence[tuple[str, Sequence[Any]]], where: str) -> dict[str, Any]:
    found = []
    for name, cells in named:
        try:
            numbers = np.array([np.nan if cell is None or cell == "" else float(cell) for cell in cells], dtype=np.float32)
        except (TypeError, ValueError):
            raise ValueError(f"{where}: {name!r} holds values that are no numbers; name other target columns, or leave it out") from None
        wrong = np.flatnonzero(~np.isfinite(numbers))
        if len(wrong):
            raise ValueError(
                f"{where}: {name!r} is missing or not finite in {len(wrong):,} of {len(numbers):,} rows, first row {wrong[0]}; "
                "fix them, or keep the column as metadata under another name"
            )
        found.append(numbers)
    return {"targets": torch.from_numpy(np.stack(found, 1)), "target_names": tuple(name for name, _ in named)}


def _pictures(
    left: dict[str, Sequence[Any]],
    column: str | None,
    images: str | os.PathLike[str] | Sequence[str] | None,
    place: _Place,
    report: Report | None,
) -> list[str]:
    """The image file of every row, "" where there is none; [] if there are no images at all."""
    if images is None and column is None:
        return []
    if column is not None and (images is None or isinstance(images, str | os.PathLike)):
        base = Path(place.base if images is None else images)
        paths = ["" if cell in (None, "") else os.path.join(base, str(cell)) for cell in left[column]]
    else:
        assert images is not None
        given = listing(os.fspath(images)) if isinstance(images, str | os.PathLike) else [os.fspath(path) for path in images]
        if len(given) != place.total:
            raise ValueError(
                f"images: there are {len(given):,} for {place.total:,} vectors of {place.where}; give one for each vector, "
                "or a column with the path of each image (--image-column)"
            )
        paths = [given[row] for row in place.rows.tolist()]
    there = [bool(path) and os.path.isfile(path) for path in paths]
    if not any(there) and images is None:
        return []  # the column names something else, which is kept as metadata
    if not all(there):
        gone = [path or "(no path)" for path, known in zip(paths, there, strict=True) if not known]
        warn(report, f"{place.where}: {len(gone):,} of {len(paths):,} images do not exist: {few(gone[:10])}; their points have none")
    return [os.path.abspath(path) if known else "" for path, known in zip(paths, there, strict=True)]


def _sources(left: dict[str, Sequence[Any]], column: str | None, pictures: Sequence[str], place: _Place) -> list[str]:
    """What each point is called: its id, its image or its row."""
    rows = place.rows.tolist()
    if column:
        names = ["" if cell is None else str(cell) for cell in left.pop(column)]
        seen: set[str] = set()
        twice = list(dict.fromkeys(name for name in names if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
        if twice:
            raise ValueError(
                f"{place.where}: {len(names) - len(seen):,} rows have an id that an earlier row has ({few(list(map(repr, twice[:10])))}); "
                "give each row an id of its own, or name no id column (--id-column '')"
            )
        return names
    if pictures and len(set(pictures)) == len(pictures):
        return list(pictures)
    named = pictures or [place.where] * len(rows)
    return [f"{name or place.where} row {row}" for name, row in zip(named, rows, strict=True)]


def _sources_of(shards: Shards, number: int) -> list[str]:
    found = shards.read(number, sources=True).sources
    return [] if found is None else [str(source) for source in found.tolist()]


def _of_shards(path: Path, labels: Any, images: Any) -> Dataset:
    """A folder of shards as it is; its vectors stay on disk."""
    if labels is not None or images is not None:
        raise ValueError(f"{path} holds shards, which have their labels with them; leave labels and images out")
    shards = open_shards(path)
    sources = [source for number in range(len(shards.records)) for source in _sources_of(shards, number)]
    data = Dataset(path.resolve().name, **open_sharded(path), sources=sources)
    if data.kind != "vectors":
        raise ValueError(f"{path} holds shards of images; embed them with `nearkin embed` first")
    return data
