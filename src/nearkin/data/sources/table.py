"""Tables: one image in each row, with the column path and any of label, target, split and group."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import encode_labels
from nearkin.data.columns import check_header
from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.delimited import dialect_of, header_and_rows, with_points
from nearkin.data.images import SKIP
from nearkin.data.labels import SET_SEPARATOR, multi_hot, partly_numbered, split_name
from nearkin.data.progress import Report, few, inform, warn
from nearkin.data.sources.options import ReadOptions
from nearkin.data.spelled_numbers import number_of


@dataclass(frozen=True)
class Columns:
    """Names of the columns. For None the usual name is used, if there is such a column."""

    path: str = "path"
    label: str | None = None
    targets: tuple[str, ...] | None = None
    split: str | None = None
    group: str | None = None
    texts: tuple[str, ...] = ()  # the points are texts, not image files
    ignored: tuple[str, ...] = ()  # of a table whose rows are the points
    kept: tuple[str, ...] = ()  # of such a table: used although they look like an id
    categories: tuple[str, ...] = ()  # of such a table: their numbers are names


@dataclass(frozen=True)
class Cells:
    """The columns of a table by name."""

    of: Mapping[str, Sequence[Any]]
    numbers: Sequence[int]  # row numbers as in an editor or a spreadsheet: the header is row 1

    def take(self, rows: Sequence[int]) -> "Cells":
        """Some of the rows."""
        return Cells({name: [column[row] for row in rows] for name, column in self.of.items()}, [self.numbers[row] for row in rows])


def open_table(table: Path, columns: Columns, options: ReadOptions, name: str | None = None) -> Dataset:
    """Open the images of a table. Paths are relative to the table's folder."""
    cells = numbered_cells(table, options.report)
    known = existing_columns(table, cells, columns)
    paths = [os.path.join(table.parent, str(cell)) for cell in cells.of[columns.path]]
    rows = _present(table, cells, paths, options)
    some = cells.take(rows)
    paths = [paths[row] for row in rows]
    sources = [f"{path} ({table.name} row {number})" for path, number in zip(paths, some.numbers, strict=True)]
    return Dataset(name or table.stem, options.files(paths), sources=sources, **known_of(table, known, some, options.report))


def known_of(table: Path, known: Columns, some: Cells, report: Report | None) -> dict[str, Any]:
    """What the rows of a table say of their points, as arguments of a `Dataset`: labels, numbers, groups and splits."""
    known_labels: dict[str, Any] = {}
    if known.label:
        known_labels |= _labels(table, known.label, some, report)
    if known.targets:
        known_labels |= {"targets": _numbers(table, known.targets, some), "target_names": known.targets}
    if known.group:
        known_labels["groups"] = encode_labels([str(cell) for cell in some.of[known.group]])[0]
    return {**known_labels, "split": _splits(table, known.split, some) if known.split else np.full(len(some.numbers), WHOLE)}


def read_cells(table: Path, report: Report | None = None) -> Mapping[str, Sequence[Any]]:
    """The columns of a table file by name; cells of a text file are texts, and missing ones are empty."""
    return numbered_cells(table, report).of


def numbered_cells(table: Path, report: Report | None = None) -> Cells:
    """The same, with the numbers of the rows."""
    if table.suffix.lower() == ".parquet":
        return _parquet(table)
    dialect = dialect_of(table)
    header, lines = header_and_rows(table, dialect)
    check_header(table, header)
    rows = list(lines)
    if not rows:
        raise ValueError(f"{table} has no rows below its header; give one row for each image")
    for number, row in rows:
        if len(row) != len(header):
            raise ValueError(f"{table}: row {number} has {len(row)} cells, and the header has {len(header)}; fix that row")
    columns = with_points(table, dialect, header, [row for _, row in rows], (), report)
    return Cells(dict(zip(header, columns, strict=True)), [number for number, _ in rows])


def _parquet(table: Path) -> Cells:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError(f"{table}: Parquet needs pyarrow; pip install 'nearkin[table]', or save the table as CSV") from None
    read = parquet.read_table(table)
    if read.num_rows == 0:
        raise ValueError(f"{table} has no rows; give one row for each image")
    columns = {name: ["" if cell is None else cell for cell in cells] for name, cells in read.to_pydict().items()}
    return Cells(columns, range(1, read.num_rows + 1))


def existing_columns(table: Path, cells: Cells, columns: Columns) -> Columns:
    """The columns that exist; those that the caller named must."""
    points = list(columns.texts or [columns.path])
    named = [*points, *(columns.targets or ()), *(name for name in (columns.label, columns.split, columns.group) if name)]
    missing = [name for name in named if name not in cells.of]
    if missing:
        raise ValueError(
            f"{table} has no column {few([repr(name) for name in missing])}; its columns are {few(list(cells.of))}. "
            "Set the names with path_column, text_column, label_column, target_columns, split_column or group_column "
            "(nearkin train: --set data.label_column=..., and so on)"
        )

    def usual(given: str | None, name: str) -> str | None:
        return given or (name if name in cells.of else None)

    targets = columns.targets or (("target",) if "target" in cells.of else None)
    return Columns(
        columns.path, usual(columns.label, "label"), targets, usual(columns.split, "split"), usual(columns.group, "group"), columns.texts
    )


def _present(table: Path, cells: Cells, paths: list[str], options: ReadOptions) -> list[int]:
    """Positions of the rows whose file exists."""
    missing = [row for row, path in enumerate(paths) if not os.path.isfile(path)]
    if not missing:
        return list(range(len(paths)))
    listed = few([f"row {cells.numbers[row]} ({paths[row]})" for row in missing])
    if options.on_error == "raise" or len(missing) == len(paths):
        raise FileNotFoundError(
            f"{table}: {len(missing):,} of {len(paths):,} files do not exist: {listed}. "
            f"Paths are relative to the table's folder; fix them, or pass {SKIP} to leave those rows out"
        )
    warn(options.report, f"{table}: left out {len(missing):,} of {len(paths):,} rows whose file does not exist: {listed}")
    gone = set(missing)
    return [row for row in range(len(paths)) if row not in gone]


def _labels(table: Path, name: str, cells: Cells, report: Report | None) -> dict[str, Any]:
    """Classes, -1 for empty cells; or sets, if a cell holds several."""
    texts = [str(cell).strip() for cell in cells.of[name]]
    if any(SET_SEPARATOR in text for text in texts):
        sets, classes = multi_hot(texts)
        return {"sets": sets, "classes": classes}
    if not any(texts):
        raise ValueError(f"{table}: no row has a {name!r}; fill some in, or remove the column to train without classes")
    labels, classes = partly_numbered(texts, [not text for text in texts])
    missing = texts.count("")
    if missing:
        inform(report, f"{table}: {missing:,} of {len(texts):,} rows have no {name!r}; their class is unknown")
    return {"labels": labels, "classes": classes}


def _numbers(table: Path, names: Sequence[str], cells: Cells) -> Tensor:
    """(n, t) float32."""
    for name in names:
        for number, cell in zip(cells.numbers, cells.of[name], strict=True):
            if not _is_number(cell):
                raise ValueError(
                    f"{table}: row {number} has {name!r} = {str(cell)!r}, which is not a finite number; fix it, or remove the row"
                )
    return torch.tensor([[_number(cell) for cell in cells.of[name]] for name in names], dtype=torch.float32).T.contiguous()


def _is_number(cell: Any) -> bool:
    try:
        return bool(np.isfinite(_number(cell)))
    except (TypeError, ValueError):  # a date in Parquet is neither a number nor a text
        return False


def _number(cell: Any) -> float:
    found = number_of(cell) if isinstance(cell, str) else None
    return float(cell) if found is None else found


def _splits(table: Path, name: str, cells: Cells) -> np.ndarray:
    found = [split_name(str(cell)) for cell in cells.of[name]]
    if None in found:
        at = found.index(None)
        raise ValueError(
            f"{table}: row {cells.numbers[at]} has {name!r} = {str(cells.of[name][at])!r}; it must be train, validation or test"
        )
    return np.asarray(found, dtype=np.str_)
