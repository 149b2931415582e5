"""`nearkin clean`: probable label errors, copies, leaks and outliers, as one table that `nearkin train --labels` takes back."""

import csv
import io
import json
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.table import Table
from rich.text import Text

from nearkin.cli.given import options_of
from nearkin.cli.progress import TrainingView
from nearkin.cli.terminal import Terminal
from nearkin.cli.unlearned import READ, Unlearned, folder_of, is_vectors, place_names, texts_of, unlearned
from nearkin.data.cells import inert
from nearkin.data.dataset import Dataset
from nearkin.data.delimited import dialect_of, header_and_rows
from nearkin.data.disk import explain_full_disk, replacing
from nearkin.evaluate import Problems, clean
from nearkin.index.given import is_given

SHOWN = 10  # rows of each kind in the terminal
TABLES = {"clean": "problems", "pick": "picks"}  # of each command, as .csv and .json
LONGEST = 300  # characters of a text in a table
TRAINED = {"clean": "cleaned", "pick": "picked"}  # folders that the next command names
MARKS = ("label", "accept")  # columns that a person fills in
Row = dict[str, str]


def run(arguments: Namespace) -> int:
    """Write problems.csv and problems.json, then print the surest of each kind."""
    out = output_folder(arguments, "clean")
    with TrainingView("clean") as view:
        found = unlearned(arguments, out, view)
        view.message(f"judging {len(found.data):,} points by {found.words}")
        problems = listed(found)
    rows = with_texts(problems.as_rows(), [one.row for one in problems.rows], found.data)
    text, kept = carried(out, "problems", csv_of(rows) if rows else problems.to_csv(), ("kind", "path"))
    write(out / "problems.csv", text)
    about = {"data": arguments.data, "points": len(found.data), "judged by": found.words, "counts": problems.counts}
    write(out / "problems.json", json.dumps({**about, "notes": problems.notes, "problems": rows}, indent=1) + "\n")
    _print(arguments, out, problems, labeled=found.data.supervision == "classes")
    say_kept(kept, out / "problems.csv")
    return 0


def with_texts(rows: list[dict[str, Any]], places: Sequence[int], data: Dataset) -> list[dict[str, Any]]:
    """The rows of a table with the beginning of each point's text, if there are any, for the person who fills it in."""
    texts = texts_of(data)
    if texts is None:
        return rows
    shown = [" ".join(str(texts[place] or "").split()) for place in places]
    short = [text if len(text) <= LONGEST else text[: LONGEST - 1] + "…" for text in shown]
    return [{**row, "text": text} for row, text in zip(rows, short, strict=True)]


def csv_of(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV, in which no cell is a formula."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows({name: inert(str(value)) for name, value in row.items()} for row in rows)
    return file.getvalue()


def carried(out: Path, stem: str, text: str, key: Sequence[str]) -> tuple[str, int]:
    """The new table with the rows whose label or mark a person changed in the one that is there, and how many these are.

    The JSON beside the table says how it was written. Changed rows that the new table does not have come first.
    """
    new, columns = list(csv.DictReader(io.StringIO(text))), text.splitlines()[0].split(",")
    kept = {_key(row, key): row for row in _changed(out, stem, columns, key)}
    known = {_key(row, key): row for row in new}
    merged = {**{name: row for name, row in kept.items() if name not in known}, **known, **kept}
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(merged.values())
    return file.getvalue(), len(kept)


def _changed(out: Path, stem: str, columns: Sequence[str], key: Sequence[str]) -> list[Row]:
    """The rows of the table that is there whose label or mark is not the one that was written."""
    table, about = out / f"{stem}.csv", out / f"{stem}.json"
    if not table.is_file():
        return []
    rows = json.loads(about.read_text(encoding="utf-8"))[stem] if about.is_file() else []
    written = {_key(row, key): row for row in ({name: inert(str(value)) for name, value in row.items()} for row in rows)}
    header, rows = header_and_rows(table, dialect_of(table))
    found = [{name: row.get(name, "") for name in columns} for row in (dict(zip(header, cells, strict=False)) for _, cells in rows)]
    return [row for row in found if any(row[name] != written.get(_key(row, key), {}).get(name, "") for name in MARKS if name in row)]


def _key(row: Row, key: Sequence[str]) -> tuple[str, ...]:
    return tuple(row[name] for name in key)


def say_kept(count: int, path: Path) -> None:
    """Say that edits of an earlier table were kept."""
    if count:
        rows = "1 row that you filled in before is" if count == 1 else f"{count:,} rows that you filled in before are"
        Terminal(highlight=False).print(f"{rows} kept in {path}.", soft_wrap=True, markup=False)


def listed(found: Unlearned) -> Problems:
    """The problems of the data; no wrong label of a table's row whose cells are mostly missing, which other rows cannot contradict."""
    data = found.data
    labels = data.labels if data.supervision == "classes" else None
    split = data.split if len(data.parts) > 1 else None
    problems = clean(found.embeddings, labels, found.affinity, split=split, names=place_names(data), classes=data.classes)
    if data.table is None or labels is None:
        return problems
    empty = data.table.mostly_missing(data.read(data.ids).numpy())
    count = int((empty & (labels.numpy() >= 0)).sum())
    notes = (f"Rows whose label was not judged, because most of their cells are missing: {count:,}.",) if count else ()
    rows = [one for one in problems.rows if one.kind != "label" or not empty[one.row]]
    return problems._replace(rows=rows, notes=(*problems.notes, *notes))


def output_folder(arguments: Namespace, verb: str) -> Path:
    """--out, or a folder in the model folder, or one in runs/ that is named after the data; not one with the table of other data.

    runs/docs-clean for docs.parquet; runs/docs.parquet-clean if the first is of other data, such as docs.npz.
    """
    source = Path(arguments.data)
    if arguments.out:
        usual = [Path(arguments.out)]
    elif (source / "model.json").exists():
        usual = [source / verb]
    else:
        usual = [Path("runs") / f"{name}-{verb}" for name in dict.fromkeys((source.resolve().stem, source.resolve().name))]
    for out in usual:
        about = out / f"{TABLES[verb]}.json"
        other = json.loads(about.read_text(encoding="utf-8")).get("data") if about.is_file() else None
        if other is None or Path(other).resolve() == source.resolve():
            return out
    raise ValueError(f"{out} holds the table of other data, {other}; pass another folder as --out")


def write(path: Path, text: str) -> None:
    """Write a file that is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(path.parent, "run the same command again; the previous file is unchanged"), replacing(path) as file:
        file.write(text.encode())


def table_of(columns: Sequence[str], rows: Sequence[dict[str, Any]], data: str) -> Table:
    """Rows as a table of plain texts, with paths below the data as they are there."""
    table, below = Table(*columns), f"{Path(data).absolute()}{os.sep}"
    for row in rows:
        table.add_row(*(Text(str(row[name]).replace(below, ""), overflow="fold") for name in columns))
    return table


def _print(arguments: Namespace, out: Path, problems: Problems, *, labeled: bool) -> None:
    console = Terminal(highlight=False)
    if not labeled:
        console.print(
            "There are no classes, so no label was judged; name their column with --label, or pass --labels FILE.", soft_wrap=True
        )
    for note in problems.notes:
        console.print(note, markup=False, soft_wrap=True)
    rows = problems.as_rows()
    if not rows:
        console.print(f"No problems found among {len(problems.names):,} points.")
        return
    shown = [row for kind in problems.counts for row in [one for one in rows if one["kind"] == kind][:SHOWN]]
    console.print(table_of(("kind", "path", "label", "suggested", "score", "reason"), shown, arguments.data))
    counts = ", ".join(f"{count:,} {kind}" for kind, count in problems.counts.items())
    console.print(f"{counts}; all of them are in {out / 'problems.csv'}.", soft_wrap=True, markup=False)
    console.print(
        "Write x into the column accept to take a suggested label, or to leave out a copy or an outlier; or edit a label. Then:\n"
        + "\n".join(f"  nearkin {command}" for command in next_commands(arguments, str(out / "problems.csv"))),
        soft_wrap=True,
        markup=False,
    )


def next_commands(arguments: Namespace, table: str) -> list[str]:
    """The commands that take the table back: training on the data, and a new look at vectors."""
    folder = folder_of(arguments)
    if folder is not None and is_given(folder):
        again = options_of(folder, without=table)
        return [] if again is None else [_words("explore", *again, *_tables(arguments), "--labels", table, "--replace")]
    source = "DATA" if folder is not None else arguments.data
    named = [word for name in ("text", "label", "ignore") if getattr(arguments, name) for word in (f"--{name}", getattr(arguments, name))]
    commands = [_words("train", source, *named, "--labels", table, "--out", f"runs/{TRAINED[arguments.verb]}")]
    if folder is not None or arguments.text or not is_vectors(source):
        return commands
    columns = {"--label-column": arguments.label} | {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in READ}
    read = [word for name, value in columns.items() if value for word in (name, value)]
    explore = _words("explore", source, *read, *_tables(arguments), "--labels", table, "--replace")
    return [explore] if arguments.labels or read[2 * bool(arguments.label) :] else [*commands, explore]  # which train cannot read


def _tables(arguments: Namespace) -> list[str]:
    return [word for name in arguments.labels or () for word in ("--labels", name)]


def _words(*words: str) -> str:
    return " ".join(map(quote, words))
