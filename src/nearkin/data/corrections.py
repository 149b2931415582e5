"""Corrected labels: a CSV with the columns path and label, whose labels replace those of the data."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nearkin.data.cells import restored
from nearkin.data.dataset import Dataset
from nearkin.data.delimited import dialect_of, header_and_rows, tell
from nearkin.data.images import Files
from nearkin.data.progress import Report, few, inform

NOT_ACCEPTED = ("", "no", "n", "0", "false")  # in the column accept
LEFT_OUT = ("duplicate", "near duplicate", "leak", "outlier")  # kinds of problems for which an accepted point is left out


class _Row(NamedTuple):
    """A row of the table: its line, the point, its label, and whether it was accepted as a suggestion or for leaving the point out."""

    line: int
    source: str
    label: str
    accepted: bool
    left_out: bool


def corrected(data: Dataset, table: str, report: Report | None = None) -> Dataset:
    """The data with the labels of the table; unchanged if `table` is empty.

    A path is the source of a point, as the explorer and reports write it; for image files it may also be relative to the table's folder.
    New class names become new classes; data without labels get those of the table, and other points stay without one. An empty label is
    none yet: the point stays as it is. In a table of `nearkin clean`, a row with something in its column accept takes the suggested label,
    or leaves out a copy or an outlier.
    """
    if not table:
        return data
    path = Path(table)
    found = _read(path, report)
    places = _rows(data, path, [row.source for row in found])
    labels = _labels(path, found, places)
    gone = sorted({place for row, place in zip(found, places, strict=True) if row.left_out})
    empty = sum(not row.label and not row.left_out for row in found)
    if empty:
        inform(report, f"{path.name}: {empty:,} of {len(found):,} rows have no label yet; their points stay as they are")
    if labels and data.labels is None:
        if data.supervision != "ids":
            raise ValueError(f"{table} names classes, and {data.name} has {data.supervision}; use data with classes or without labels")
        data = replace(data, labels=torch.full((len(data),), -1), by=None)  # the table has all labels that are known
    if data.labels is not None:
        data = _relabeled(data, path, labels, report)
    if not gone:
        return data
    inform(report, f"{path.name}: {len(gone):,} of {len(data):,} points left out")
    return data.subset(np.delete(np.arange(len(data)), gone))


def is_corrections(table: Any) -> bool:
    """Whether this is a CSV file with the columns path and label, and without a column id."""
    if not isinstance(table, str | os.PathLike) or not os.fspath(table).lower().endswith(".csv") or not Path(table).is_file():
        return False
    try:
        names, rows = header_and_rows(Path(table), dialect_of(Path(table)))
    except ValueError:  # which the reader of labels raises again
        return False
    rows.close()
    return {"path", "label"} <= set(names) and "id" not in names


def labels_and_corrections(tables: Sequence[str]) -> tuple[str | None, list[str]]:
    """The table of labels among those that are named, if there is one, and the tables of corrections, which come after it."""
    corrections = [table for table in tables if is_corrections(table)]
    labels = [table for table in tables if table not in corrections]
    if len(labels) > 1:
        raise ValueError(
            f"--labels names {len(labels)} tables of labels: {few(labels)}; give one, and others with the columns path and label"
        )
    return (labels[0] if labels else None), corrections


def _relabeled(data: Dataset, path: Path, labels: dict[int, str], report: Report | None) -> Dataset:
    assert data.labels is not None
    names = [*data.classes, *sorted(set(labels.values()) - set(data.classes))]
    new = data.labels.clone()
    new[list(labels)] = torch.tensor([names.index(label) for label in labels.values()], dtype=new.dtype)
    changed = int((new != data.labels).sum())
    inform(report, f"{path.name}: {changed:,} of {len(data):,} labels corrected, {len(labels) - changed:,} as they were")
    return replace(data, labels=new, classes=tuple(names))


def _labels(path: Path, found: Sequence[_Row], places: Sequence[int]) -> dict[int, str]:
    """The label of every point in the table. If a point is in several rows, the accepted one counts."""
    known: dict[int, _Row] = {}
    for row, place in zip(found, places, strict=True):
        other = known.get(place)
        if not row.label or row.left_out:
            continue
        if other is None or other.label == row.label:
            known[place] = row
        elif row.accepted != other.accepted:
            known[place] = row if row.accepted else other
        else:
            raise ValueError(f"{path}: {row.source} is {other.label!r} and, in row {row.line}, {row.label!r}; keep one of the two")
    return {place: row.label for place, row in known.items()}


def source_names(data: Dataset) -> list[str]:
    """The source of every point; paths of files are absolute."""
    return [os.path.abspath(path) for path in data.sources] if isinstance(data.inputs, Files) else list(data.sources)


def _read(path: Path, report: Report | None) -> list[_Row]:
    """Every row; a spreadsheet may have saved the table in another way than it was written."""
    dialect = dialect_of(path)
    header, rows = header_and_rows(path, dialect)
    tell(path, dialect, (), report)
    if missing := {"path", "label"} - set(header):
        raise ValueError(f"{path} has no column {few(sorted(missing))}; corrections need path and label")
    found = [_row(path, number, dict(zip(header, cells, strict=False))) for number, cells in rows]
    if not found:
        raise ValueError(f"{path} has no rows below its header; leave it out if nothing is to be corrected")
    return found


def _row(path: Path, line: int, cells: dict[str, str]) -> _Row:
    """One row; in a table of suggestions, one that is accepted takes its suggestion."""
    texts = {name: restored((cells.get(name) or "").strip()) for name in ("label", "suggested", "accept", "kind")}
    accepted = texts["accept"].lower() not in NOT_ACCEPTED
    left_out = accepted and texts["kind"] in LEFT_OUT
    label = texts["suggested"] if accepted and not left_out else texts["label"]
    if not label and accepted and not left_out:
        raise ValueError(f"{path}: row {line} is accepted and has no suggested label; write its label instead, or empty the column accept")
    return _Row(line, restored(cells.get("path") or ""), label, accepted, left_out)


def _rows(data: Dataset, path: Path, sources: Sequence[str]) -> list[int]:
    """The rows of the points with these sources."""
    where = {source: row for row, source in enumerate(source_names(data))}
    if isinstance(data.inputs, Files):  # the plain path of a file that a table lists once
        places = [os.path.abspath(one) for one in data.inputs.paths]
        once = Counter(places)
        where |= {place: row for row, place in enumerate(places) if once[place] == 1}
    rows = [
        where.get(source, where.get(os.path.abspath(path.parent / source), where.get(os.path.abspath(source), -1))) for source in sources
    ]
    unknown = [source for source, row in zip(sources, rows, strict=True) if row < 0]
    if unknown:
        raise ValueError(f"{path}: {len(unknown):,} of {len(rows):,} paths are not in {data.name}: {few(unknown, 3)}; fix or remove them")
    return rows
