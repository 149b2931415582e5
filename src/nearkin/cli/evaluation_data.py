"""The data of `nearkin evaluate`: which points are the queries, and the parts that the training split its data into."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import numpy as np

from nearkin.cli.datasets import choice_of, open_for, own_data
from nearkin.data import Dataset, Partition
from nearkin.data.checksums import check
from nearkin.data.corrections import corrected
from nearkin.data.dataset import WHOLE
from nearkin.data.disk import FileDamagedError, read_json
from nearkin.data.loader import without_damaged
from nearkin.data.progress import Report
from nearkin.index.given import given_points, is_given
from nearkin.models.folder import about_of, readable, reading

LEFT_OUT_ITSELF = "The vectors have no splits: each of them is a query against all the others."
NOTHING_HELD_OUT = "The data have no labels, so nothing was held out: each training point is a query against all the others."


class Queries(NamedTuple):
    """The queries, the name of their part, all parts of the run's data, and notes for the reader."""

    data: Dataset
    split: str
    parts: dict[str, Dataset]
    notes: tuple[str, ...]


def _some_unknown(data: Dataset) -> bool:
    return data.supervision == "classes" and data.labels is not None and bool((data.labels < 0).any())


def queries_for(arguments: Namespace, folder: Path, report: Report) -> Queries:
    """The part that the run held out, or DATA."""
    parts, notes = _parts(folder, arguments, report)
    part = arguments.part
    if arguments.data is None:
        if part not in parts and set(parts) == {"train"} and is_given(folder):
            return Queries(
                parts["train"], "all that have a class" if _some_unknown(parts["train"]) else "all points", parts, (*notes, LEFT_OUT_ITSELF)
            )
        if part not in parts and set(parts) == {"train"} and parts["train"].supervision == "ids":
            return Queries(parts["train"], "train", parts, (*notes, NOTHING_HELD_OUT))
        if part not in parts:
            raise ValueError(
                f"the training held out no {part} part (it has {', '.join(parts)}); name other data after the folder, or another --part"
            )
        return Queries(parts[part], part, parts, notes)
    other = _opened(arguments, folder, arguments.data, report)
    parts = parts or {name: other.part(name) for name in other.parts}
    queries, split = (other.part(part), part) if part in other.parts else (other, f"all of {other.name}")
    return Queries(queries, split, parts, notes)


def _parts(folder: Path, arguments: Namespace, report: Report) -> tuple[dict[str, Dataset], tuple[str, ...]]:
    """The run's data, split as split.json says, and a note on damaged files; empty if run.json names no data.

    Vectors that were given are split as they say; if they are many and say nothing, some drawn at random are the queries.
    """
    if is_given(folder):
        return _given_parts(given_points(folder, verify=not arguments.no_verify), arguments.queries, arguments.references)
    if not choice_of(folder, verify=not arguments.no_verify).source:
        return {}, ()
    data, notes = _whole(folder, arguments, report)
    return {name: data.part(name) for name in data.parts}, notes


def whole_data(arguments: Namespace, folder: Path, report: Report) -> Dataset:
    """All data of the run, split as split.json says."""
    if is_given(folder):
        return given_points(folder, verify=not arguments.no_verify)
    if not choice_of(folder, verify=not arguments.no_verify).source:
        raise ValueError(f"{folder} does not say what it was trained on; pass the data instead of the model folder")
    return _whole(folder, arguments, report)[0]


def _whole(folder: Path, arguments: Namespace, report: Report) -> tuple[Dataset, tuple[str, ...]]:
    choice = choice_of(folder, verify=not arguments.no_verify)
    try:
        found = _opened(arguments, folder, choice.source, report)
    except FileNotFoundError as error:
        fix = "" if choice.root else "; put them back there, or pass --data-root for a known data set"
        raise FileNotFoundError(f"the queries are compared with the training data, which cannot be opened: {error}{fix}") from error
    data = without_damaged(found, report)  # as the training did before it split them
    damaged = len(found) - len(data)
    data = resplit(data, _split(folder, verify=not arguments.no_verify))
    return data, (f"{damaged:,} of {len(found):,} files of {found.name} are damaged and were left out.",) if damaged else ()


def _given_parts(data: Dataset, most: int, references: int | None) -> tuple[dict[str, Dataset], tuple[str, ...]]:
    if set(data.parts) != {WHOLE}:
        return {name: data.part(name) for name in data.parts}, ()
    if len(data) <= 2 * most:
        return {"train": data}, ()
    order = np.random.default_rng(0).permutation(len(data))
    others = len(data) - most if references is None else min(references, len(data) - most)
    which = "the others" if others == len(data) - most else f"{others:,} of the others"
    note = f"The vectors have no splits: {most:,} of them, drawn at random, are the queries, and {which} the references."
    return {"train": data.subset(np.sort(order[most : most + others])), "test": data.subset(np.sort(order[:most]))}, (note,)


def _split(folder: Path, *, verify: bool) -> dict[str, object]:
    """Read split.json; if it is damaged, the error names it and the fix."""
    page, fix = folder / "split.json", f"`nearkin train --resume {quote(str(folder))}` writes it again; or restore it from a copy"
    if verify:
        check(page, folder, fix)
    written = read_json(page, fix)
    if not isinstance(written, dict):
        raise FileDamagedError(f"{page} is damaged: it is no split; {fix}")
    return written


def resplit(data: Dataset, written: dict[str, object]) -> Dataset:
    """Split the data as split.json says; raise if their number has changed since."""
    cut = written.get("cut", written)
    assert isinstance(cut, dict)
    if "rows" not in cut:
        return data if set(data.parts) != {WHOLE} else data.with_split(["train"] * len(data))
    try:
        partition = Partition.from_dict(cut)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise FileDamagedError(f"split.json is damaged ({error!r}); `nearkin train --resume FOLDER` writes it again") from error
    rows = data.split == "train" if "cut" in written else np.ones(len(data), dtype=np.bool_)
    if int(rows.sum()) != len(partition.names):
        raise ValueError(
            f"{data.name} has {int(rows.sum()):,} points, but the training split {len(partition.names):,}: the data changed since; "
            "train again, or restore the data"
        )
    names = data.split.astype("<U10")
    names[rows] = partition.names
    return data.with_split(names)


def _opened(arguments: Namespace, folder: Path, source: str, report: Report) -> Dataset:
    """Open data as the training would; other images are resized to the model's shape."""
    about = about_of(folder)
    choice = choice_of(folder, verify=not arguments.no_verify)
    data = open_for(
        arguments,
        choice,
        source,
        **reading(about),
        **choice.columns(),
        on_error=choice.on_error,
        report=report,
    )
    data = corrected(readable(folder, about, data), choice.corrections if own_data(source, choice) else "", report)
    known = {"classes": data.labels, "numbers": data.targets, "sets": data.sets}.get(about["supervision"])
    return replace(data, by=about["supervision"]) if known is not None else data
