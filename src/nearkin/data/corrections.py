"""Corrections: labels that somebody looked at and mended, in a CSV with the columns path and label, laid over the data's own."""

import csv
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from nearkin.data.dataset import Dataset
from nearkin.data.images import Files
from nearkin.data.progress import Report, few, tell


def corrected(data: Dataset, table: str, report: Report | None = None) -> Dataset:
    """The data with the labels of the table where it has some; the data as they are where no table is named.

    A path is a point's source, as the explorer and reports write it; for image files it may also be relative to the table's folder.
    A name that is no class yet becomes one.
    """
    if not table:
        return data
    if data.labels is None:
        raise ValueError(f"{table} corrects labels, and {data.name} has none; give data with a class for each point")
    path = Path(table)
    wanted = _read(path)
    rows = _rows(data, path, [source for source, _ in wanted])
    names = [*data.classes, *sorted({label for _, label in wanted} - set(data.classes))]
    labels = data.labels.clone()
    labels[rows] = torch.tensor([names.index(label) for _, label in wanted])
    changed = int((labels != data.labels).sum())
    tell(report, f"{path.name}: {changed:,} of {len(data):,} labels corrected, {len(wanted) - changed:,} confirmed")
    return replace(data, labels=labels, classes=tuple(names))


def points_of(data: Dataset) -> list[str]:
    """Where the points come from, the same from whatever folder they are asked for."""
    return [os.path.abspath(path) for path in data.sources] if isinstance(data.inputs, Files) else list(data.sources)


def _read(path: Path) -> list[tuple[str, str]]:
    """(path, label) of every row."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        missing = {"path", "label"} - set(reader.fieldnames or ())
        if missing:
            raise ValueError(f"{path} has no column {few(sorted(missing))}; corrections need path and label")
        found = [(reader.line_num, row["path"] or "", (row["label"] or "").strip()) for row in reader]
    if not found:
        raise ValueError(f"{path} has no rows below its header; leave it away where nothing is to be corrected")
    known: dict[str, str] = {}
    for number, source, label in found:
        if not label:
            raise ValueError(f"{path}: row {number} has no label; fill it in, or remove the row")
        if known.setdefault(source, label) != label:
            raise ValueError(f"{path}: {source} is {known[source]!r} and, in row {number}, {label!r}; keep one of the two")
    return list(known.items())


def _rows(data: Dataset, path: Path, sources: Sequence[str]) -> torch.Tensor:
    """Where the points with these sources stand."""
    where = {source: row for row, source in enumerate(points_of(data))}
    rows = [where.get(source, where.get(os.path.abspath(path.parent / source), -1)) for source in sources]
    strangers = [source for source, row in zip(sources, rows, strict=True) if row < 0]
    if strangers:
        raise ValueError(
            f"{path}: {len(strangers):,} of {len(rows):,} paths are no points of {data.name}: {few(strangers, 3)}; mend or remove them"
        )
    return torch.tensor(rows, dtype=torch.int64)
