"""Texts: a column of a table, or a folder of .txt files with a folder for each class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.files import IMAGE_SUFFIXES, UNREAD_SUFFIXES, folders, listing
from nearkin.data.images import SKIP
from nearkin.data.labels import class_numbers, split_name
from nearkin.data.progress import few, warn
from nearkin.data.sources.options import ReadOptions
from nearkin.data.sources.table import Cells, Columns, existing_columns, known_of, numbered_cells
from nearkin.data.texts import Texts

TEXT_SUFFIXES = (".txt",)


def open_text_table(table: Path, columns: Columns, options: ReadOptions) -> Dataset:
    """The texts of a table. Several text columns are texts that belong together: one class a row."""
    cells = numbered_cells(table, options.report)
    known = existing_columns(table, cells, columns)
    texts = {name: [str(cell).strip() for cell in cells.of[name]] for name in known.texts}
    rows = _filled(table, cells, texts, options)
    some = cells.take(rows)
    if len(known.texts) > 1:
        return _belonging_together(table, known.texts, some, options)
    sources = [f"{table.name} row {number}" for number in some.numbers]
    held = [texts[known.texts[0]][row] for row in rows]
    return Dataset(table.stem, Texts(held), sources=sources, **known_of(table, known, some, options.report))


def _belonging_together(table: Path, names: Sequence[str], cells: Cells, options: ReadOptions) -> Dataset:
    """Row after row, the texts of a row one after the other; a row is a class and a group."""
    count = len(names)
    held = [str(cells.of[name][row]).strip() for row in range(len(cells.numbers)) for name in names]
    rows = torch.arange(len(cells.numbers)).repeat_interleave(count)
    sources = [f"{table.name} row {number}, {name}" for number in cells.numbers for name in names]
    split: dict[str, Any] = known_of(table, existing_columns(table, cells, Columns(texts=tuple(names))), cells, options.report)
    classes = tuple(f"row {number}" for number in cells.numbers)
    return Dataset(
        table.stem,
        Texts(held),
        labels=rows,
        classes=classes,
        groups=rows,
        split=split["split"].repeat(count),
        sources=sources,
        by="classes",
    )


def _filled(table: Path, cells: Cells, texts: dict[str, list[str]], options: ReadOptions) -> list[int]:
    """Positions of the rows whose texts are not empty."""
    empty = [row for row in range(len(cells.numbers)) if not all(column[row] for column in texts.values())]
    if not empty:
        return list(range(len(cells.numbers)))
    listed = few([f"row {cells.numbers[row]}" for row in empty])
    if options.on_error == "raise" or len(empty) == len(cells.numbers):
        raise ValueError(
            f"{table}: {len(empty):,} of {len(cells.numbers):,} rows have an empty {few([repr(name) for name in texts])}: {listed}; "
            f"fill them in, remove them, or pass {SKIP} to leave them out"
        )
    warn(options.report, f"{table}: left out {len(empty):,} of {len(cells.numbers):,} rows with an empty text: {listed}")
    gone = set(empty)
    return [row for row in range(len(cells.numbers)) if row not in gone]


def holds_texts(folder: Path) -> bool:
    """Whether a folder holds .txt files and no photographs, whose captions they might be; one .txt alone describes something else."""
    return len(listing(folder, TEXT_SUFFIXES)) > 1 and not listing(folder, (*IMAGE_SUFFIXES, *UNREAD_SUFFIXES))


def open_text_folder(folder: Path, options: ReadOptions) -> Dataset:
    """The .txt files of a folder. Folders in it named train, val, validation or test are splits; any others are classes."""
    inside = folders(folder)
    splits = {sub: split for sub in inside if (split := split_name(sub))}
    found: list[tuple[str, str | None, str]] = []  # path, class, split
    for sub, split in splits.items() or {"": WHOLE}.items():
        place = folder / sub
        classes = [name for name in folders(place) if listing(place / name, TEXT_SUFFIXES)]
        named = [(path, label, split) for label in classes for path in listing(place / label, TEXT_SUFFIXES)]
        found += named or [(path, None, split) for path in listing(place, TEXT_SUFFIXES)]
        loose = len(listing(place, TEXT_SUFFIXES)) - len(named)
        if named and loose:
            raise ValueError(f"{place} has {loose:,} .txt files next to its class folders ({few(classes, 3)}); move them into one of these")
    texts = [_read(path) for path, _, _ in found]
    empty = [found[at][0] for at, text in enumerate(texts) if not text]
    if empty and (options.on_error == "raise" or len(empty) == len(found)):
        raise ValueError(
            f"{folder}: {len(empty):,} of {len(found):,} texts are empty: {few(empty)}; remove them, or pass {SKIP} to leave them out"
        )
    if empty:
        warn(options.report, f"{folder}: left out {len(empty):,} of {len(found):,} texts, which are empty: {few(empty)}")
    kept = [at for at, text in enumerate(texts) if text]
    labels = [found[at][1] for at in kept]
    if any(label is None for label in labels) and any(label is not None for label in labels):
        raise ValueError(f"{folder}: some splits have class folders and others have none; use class folders in all splits, or in none")
    answers: dict[str, Any] = {}
    if labels[0] is not None:
        numbers, classes_found = class_numbers([str(label) for label in labels])
        answers = {"labels": numbers, "classes": classes_found, "from_folders": True}
    data = Dataset(folder.resolve().name, Texts([texts[at] for at in kept]), sources=[found[at][0] for at in kept], **answers)
    return data.with_split([found[at][2] for at in kept])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8 ({error}); save it again as UTF-8") from None
