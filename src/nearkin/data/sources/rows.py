"""Tables whose rows are the points: columns of numbers, categories, booleans and dates, with a class or numbers to learn from."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearkin.compose.points import encode_labels
from nearkin.data.columns import Cells, TableSchema, misread_numbers, moments_in, read_columns
from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.delimited import dialect_of, header_and_rows
from nearkin.data.files import is_image
from nearkin.data.labels import partly_numbered, split_name
from nearkin.data.progress import Report, few, inform, warn
from nearkin.data.sources.table import Columns
from nearkin.data.spelled_numbers import number_of
from nearkin.data.table_format import TableFormat

MOST_CLASSES = 20  # different whole numbers up to which a label column of numbers holds classes
_ANOTHER = "name another column with --label (label_column)"
_NUMBERS = f"fractions, or more than {MOST_CLASSES} different numbers"


def lists_files(path: Path, path_column: str) -> bool:
    """Whether a table has the column of paths, or names of image files in its first row, so that its rows are image files."""
    if path.suffix.lower() == ".parquet":
        try:
            return path_column in import_module("pyarrow.parquet").read_schema(path).names
        except ImportError:
            return True  # the reader of image tables names what to install
    header, lines = header_and_rows(path, dialect_of(path))
    _, first = next(lines, (0, list[str]()))
    lines.close()
    return path_column in header or any(is_image(cell.strip()) for cell in first)


def open_rows(
    what: Any, columns: Columns, report: Report | None, known: TableFormat | None = None, *, asked: bool = False, keep: bool = False
) -> Dataset:
    """Open a table file or a frame whose rows are the points; `known` is the format of the model that reads them.

    Of rows that are `asked` about, classes and numbers are not read, so that a row without them is not left out. With `keep`, rows
    without a class have the class -1, and those that a model reads have NaN for missing numbers.
    """
    name = Path(what).stem if isinstance(what, str | os.PathLike) else "table"
    where = str(what) if isinstance(what, str | os.PathLike) else "the table"
    try:
        cells = read_columns(
            Path(what) if isinstance(what, str | os.PathLike) else what, columns.ignored if known is None else known.ignored, report
        )
        cells |= {name: cells[name].as_categories() for name in columns.categories if name in cells}
        found = _format(where, cells, columns, report) if known is None else known
        read = replace(found, label="", targets=()) if asked and known else found
        needed = (*(() if keep else (read.label,)), *(() if keep and known else read.targets))
        kept, answers = _answers(where, cells, read, report, needed)
        cells = {name: Cells(of.said, of.values[kept]) for name, of in cells.items()}
        if known is None:
            found = replace(found, schema=TableSchema.learned(cells, found.besides, columns.kept))
            _check_classes(found.label, answers)
            inform(report, f"the columns of {where}:\n{found.schema.described()}")
        encoded = found.schema.encode(cells, found.besides)
        _refuse_beyond_32_bits(encoded.numbers, found.schema)
    except (ValueError, TypeError) as error:  # a cell of another type, say a list, is a TypeError to scikit-learn
        raise ValueError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
    inputs = torch.from_numpy(np.concatenate([encoded.numbers, encoded.categories], 1).astype(np.float32))
    first = 2 if isinstance(what, str | os.PathLike) and Path(what).suffix.lower() != ".parquet" else 1  # below a CSV's header
    sources = [f"{where if where != 'the table' else name} row {row + first}" for row in kept.tolist()]
    return Dataset(name, inputs, sources=sources, columns=_shown(found, cells, encoded.numbers), table=found, **answers)


def _refuse_beyond_32_bits(numbers: np.ndarray, schema: TableSchema) -> None:
    """A model folder computes with 32 bits, in which such numbers would be infinite."""
    rows, columns = np.nonzero(np.abs(numbers) > np.finfo(np.float32).max)
    if len(rows):
        name, cell = schema.number_names[columns[0]], numbers[rows[0], columns[0]]
        raise ValueError(
            f"column {name!r} holds numbers beyond 3.4e38 ({cell:g}); divide them, or leave the column out by --ignore {name!r}"
        )


def _shown(found: TableFormat, cells: Mapping[str, Cells], numbers: np.ndarray) -> dict[str, list[Any]]:
    """The cells of the features as JSON holds them: dates as text, missing ones as None."""
    shown, at = dict[str, list[Any]](), 0
    for column in found.schema.columns:
        if column.kind == "number":
            shown[column.name] = [None if np.isnan(cell) else float(cell) + column.offset for cell in numbers[:, at]]
        else:
            plain = cells[column.name].plain()
            shown[column.name] = [cell if isinstance(cell, bool | str | None) else str(cell) for cell in plain]
        at += len(column.features())
    return shown


def _format(where: str, cells: Mapping[str, Cells], columns: Columns, report: Report | None) -> TableFormat:
    """Which columns are no features: those that the caller named must be there, usual names may."""
    listed = (columns.label, *(columns.targets or ()), columns.split, columns.group, *columns.ignored, *columns.kept, *columns.categories)
    wanted = [name for name in listed if name]
    missing = [name for name in wanted if name not in cells]
    if missing:
        raise ValueError(f"{where} has no column {few([repr(name) for name in missing])}; its columns are {few(list(cells))}")

    def usual(given: str | None, name: str) -> str:
        return given or (name if name in cells else "")

    targets = columns.targets or (("target",) if "target" in cells and not columns.label and "label" not in cells else ())
    label = "" if targets and columns.label is None and "label" not in cells else usual(columns.label, "label")
    if label:
        _refuse_moments("label", label, cells[label], f", read them as classes by --category {label!r} (category_columns), or {_ANOTHER}")
    for name in targets:
        _refuse_moments("target", name, cells[name])
    if label and not targets and _is_amount(label, cells[label]):
        inform(report, f"{label} holds {_NUMBERS}: it is learned as a number; --category {label} reads classes")
        label, targets = "", (label,)
    if not label and not targets:
        raise ValueError(
            f"{where} has no column 'label' or 'target' to learn from; name one with --label (label_column) or "
            f"--set data.target_columns=...: its columns are {few(list(cells))}. A table of image files has a column 'path'"
        )
    split, group = usual(columns.split, "split"), usual(columns.group, "group")
    both = [name for name in columns.ignored if name in (label, *targets)]
    if both:
        raise ValueError(f"{where}: the column {both[0]!r} is both ignored and learned from; {_ANOTHER}")
    return TableFormat(TableSchema(()), label, tuple(targets), split, group, columns.ignored)


def _is_amount(name: str, cells: Cells) -> bool:
    """Whether a label column holds quantities rather than names of classes."""
    if cells.said in ("boolean", "category"):
        return False
    numbers = _as_numbers(cells)
    if numbers is None:
        _refuse_misread_numbers(name, cells)
        return False
    present = numbers[~np.isnan(numbers)]
    return bool((present != np.floor(present)).any()) or len(np.unique(present)) > MOST_CLASSES


def _as_numbers(cells: Cells) -> np.ndarray | None:
    """float64 with NaN where a cell is missing; None if a cell is no number."""
    if cells.said in ("number", "boolean", "duration"):
        return cells.values
    if cells.said == "date":
        return None
    try:
        return np.array([np.nan if cell is None else _spelled(cell) for cell in cells.values], dtype=np.float64)
    except ValueError:
        return None


def _spelled(cell: str) -> float:
    """The number of a cell, infinity included, which is refused later by its own words."""
    number = number_of(cell)
    return float(cell) if number is None else number


def _refuse_moments(what: str, name: str, cells: Cells, or_else: str = "") -> None:
    """Dates and durations to learn from: one class for each date, or seconds, are hardly meant."""
    if found := moments_in(cells):
        kind, shown = found
        number = "days since a fixed one" if kind == "dates" else "days or hours"
        raise ValueError(f"the {what} column {name!r} holds {kind} ({shown!r}); make them numbers, such as {number}{or_else}")


def _refuse_misread_numbers(name: str, cells: Cells) -> None:
    """Many different cells that are numbers but for a few, or for signs: each would be a class of its own."""
    if cells.said == "text" and len(set(cells.values) - {None}) > MOST_CLASSES and (why := misread_numbers(name, cells)):
        raise ValueError(why)


def _answers(
    where: str, cells: Mapping[str, Cells], found: TableFormat, report: Report | None, needed: Sequence[str]
) -> tuple[np.ndarray, dict[str, Any]]:
    """The rows that have the columns that are needed, and their classes or numbers, as arguments of a `Dataset`."""
    count = len(next(iter(cells.values())).values)
    known = np.ones(count, dtype=bool)
    named = [name for name in needed if name in cells]
    for name in named:
        known &= ~_missing(cells[name])
    if named and not known.any():
        raise ValueError(f"{where}: {few(named)} is missing in every row; fill it in for some")
    if not known.all():
        warn(report, f"{where}: {few(named)} is missing in {int((~known).sum()):,} of {count:,} rows, which are left out")
    kept = np.flatnonzero(known)
    answers: dict[str, Any] = {"split": _split(where, cells, found.split, kept)}
    if found.label in cells:
        answers |= _classes(cells[found.label].plain()[kept], _missing(cells[found.label])[kept])
    if found.targets and all(name in cells for name in found.targets):
        answers |= {"targets": _targets(where, cells, found.targets, kept), "target_names": found.targets}
    if found.group in cells:
        answers["groups"] = encode_labels([str(cell) for cell in cells[found.group].plain()[kept]])[0]
    return kept, answers


def _check_classes(name: str, answers: Mapping[str, Any]) -> None:
    """Refuse to learn from classes of which none has two rows."""
    labels, classes = answers.get("labels"), answers.get("classes", ())
    if labels is not None and 1 < len(classes) == int((labels >= 0).sum()):
        raise ValueError(f"every class of {name!r} has one row alone, so that no neighbor can be right; name another column with --label")


def _missing(cells: Cells) -> np.ndarray:
    return np.array([cell is None for cell in cells.plain()], dtype=bool)


def _classes(values: np.ndarray, missing: np.ndarray) -> dict[str, Any]:
    names = [str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in values.tolist()]
    labels, classes = partly_numbered(names, missing)
    return {"labels": labels, "classes": classes}


def _targets(where: str, cells: Mapping[str, Cells], names: Sequence[str], kept: np.ndarray) -> torch.Tensor:
    columns = []
    for name in names:
        numbers = _as_numbers(cells[name])
        if numbers is None:
            _refuse_misread_numbers(name, cells[name])
            wrong = few([repr(cell) for cell in dict.fromkeys(cells[name].plain()) if not isinstance(cell, str) or number_of(cell) is None])
            raise ValueError(
                f"{where}: the target column {name!r} holds cells that are no numbers ({wrong}); for classes name it with --label"
            )
        columns.append(numbers[kept])
    found = np.stack(columns, 1).astype(np.float32)
    if np.isinf(found).any():
        raise ValueError(f"{where}: {few(list(names))} holds infinity, or numbers beyond float32; remove these rows, or clip them")
    return torch.from_numpy(found)


def _split(where: str, cells: Mapping[str, Cells], name: str, kept: np.ndarray) -> np.ndarray:
    if name not in cells:
        return np.full(len(kept), WHOLE)
    found = [split_name(str(cell)) for cell in cells[name].plain()[kept]]
    if None in found:
        other = str(cells[name].plain()[kept][found.index(None)])
        raise ValueError(f"{where}: the column {name!r} of the parts holds {other!r}; allowed are train, validation and test")
    return np.array(found)
