"""Corrected labels: a CSV with the columns path and label, whose labels replace those of the data."""

import csv
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from nearkin.data.cells import restored
from nearkin.data.dataset import Dataset
from nearkin.data.images import Files
from nearkin.data.progress import Report, few, inform


def corrected(data: Dataset, table: str, report: Report | None = None) -> Dataset:
    """The data with the labels of the table; unchanged if `table` is empty.

    A path is the source of a point, as the explorer and reports write it; for image files it may also be relative to the table's folder.
    New class names become new classes.
    """
    if not table:
        return data
    if data.labels is None:
        raise ValueError(f"{table} corrects labels, and {data.name} has none; use data with a class for each point")
    path = Path(table)
    corrections = _read(path)
    rows = _rows(data, path, [source for source, _ in corrections])
    names = [*data.classes, *sorted({label for _, label in corrections} - set(data.classes))]
    labels = data.labels.clone()
    labels[rows] = torch.tensor([names.index(label) for _, label in corrections])
    changed = int((labels != data.labels).sum())
    inform(report, f"{path.name}: {changed:,} of {len(data):,} labels corrected, {len(corrections) - changed:,} confirmed")
    return replace(data, labels=labels, classes=tuple(names))


def source_names(data: Dataset) -> list[str]:
    """The source of every point; paths of files are absolute."""
    return [os.path.abspath(path) for path in data.sources] if isinstance(data.inputs, Files) else list(data.sources)


def _read(path: Path) -> list[tuple[str, str]]:
    """(path, label) of every row."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        missing = {"path", "label"} - set(reader.fieldnames or ())
        if missing:
            raise ValueError(f"{path} has no column {few(sorted(missing))}; corrections need path and label")
        found = [(reader.line_num, restored(row["path"] or ""), restored((row["label"] or "").strip())) for row in reader]
    if not found:
        raise ValueError(f"{path} has no rows below its header; leave it out if nothing is to be corrected")
    known: dict[str, str] = {}
    for number, source, label in found:
        if not label:
            raise ValueError(f"{path}: row {number} has no label; fill it in, or remove the row")
        if known.setdefault(source, label) != label:
            raise ValueError(f"{path}: {source} is {known[source]!r} and, in row {number}, {label!r}; keep one of the two")
    return list(known.items())


def _rows(data: Dataset, path: Path, sources: Sequence[str]) -> torch.Tensor:
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
    return torch.tensor(rows, dtype=torch.int64)
