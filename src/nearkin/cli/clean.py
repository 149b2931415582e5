"""`nearkin clean`: probable label errors, copies, leaks and outliers, as one table that `nearkin train --labels` takes back."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.table import Table
from rich.text import Text

from nearkin.cli.progress import TrainingView
from nearkin.cli.terminal import Terminal
from nearkin.cli.unlearned import Unlearned, is_vectors, place_names, unlearned
from nearkin.data.disk import explain_full_disk, replacing
from nearkin.evaluate import Problems, clean

SHOWN = 10  # rows of each kind in the terminal


def run(arguments: Namespace) -> int:
    """Write problems.csv and problems.json, then print the surest of each kind."""
    out = output_folder(arguments, "clean")
    with TrainingView("clean") as view:
        found = unlearned(arguments, out, view)
        view.message(f"judging {len(found.data):,} points by {found.words}")
        problems = listed(found)
    write(out / "problems.csv", problems.to_csv())
    about = {"data": arguments.data, "points": len(found.data), "judged by": found.words, "counts": problems.counts}
    write(out / "problems.json", json.dumps({**about, "notes": problems.notes, "problems": problems.as_rows()}, indent=1) + "\n")
    _print(arguments, out, problems, vectors=is_vectors(arguments.data))
    return 0


def listed(found: Unlearned) -> Problems:
    """The problems of the data."""
    data = found.data
    labels = data.labels if data.supervision == "classes" else None
    split = data.split if len(data.parts) > 1 else None
    return clean(found.embeddings, labels, found.affinity, split=split, names=place_names(data), classes=data.classes)


def output_folder(arguments: Namespace, verb: str) -> Path:
    """--out, or a folder in the model folder, or one in runs/ that is named after the data."""
    if arguments.out:
        return Path(arguments.out)
    source = Path(arguments.data)
    return source / verb if (source / "model.json").exists() else Path("runs") / f"{source.resolve().stem}-{verb}"


def write(path: Path, text: str) -> None:
    """Write a file that is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(path.parent, "run the same command again; the previous file is unchanged"), replacing(path) as file:
        file.write(text.encode())


def table_of(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    """Rows as a table of plain texts."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(str(row[name]), overflow="fold") for name in columns))
    return table


def _print(arguments: Namespace, out: Path, problems: Problems, *, vectors: bool) -> None:
    console = Terminal(highlight=False)
    for note in problems.notes:
        console.print(note, markup=False, soft_wrap=True)
    rows = problems.as_rows()
    if not rows:
        console.print(f"No problems found among {len(problems.names):,} points.")
        return
    shown = [row for kind in problems.counts for row in [one for one in rows if one["kind"] == kind][:SHOWN]]
    console.print(table_of(("kind", "path", "label", "suggested", "score", "reason"), shown))
    counts = ", ".join(f"{count:,} {kind}" for kind, count in problems.counts.items())
    console.print(f"{counts}; all of them are in {out / 'problems.csv'}.", soft_wrap=True, markup=False)
    source = quote(arguments.data) if not (Path(arguments.data) / "model.json").exists() else "DATA"
    source += "".join(f" --{name} {quote(getattr(arguments, name))}" for name in ("text", "label") if getattr(arguments, name))
    console.print(
        "Write x into the column accept to take a suggested label, or to leave out a copy or an outlier; or edit a label. Then:\n"
        f"  nearkin train {source} --labels {quote(str(out / 'problems.csv'))} --out runs/cleaned"
        + (f"\n  nearkin explore {source} --labels {quote(str(out / 'problems.csv'))} --replace" if vectors else ""),
        soft_wrap=True,
        markup=False,
    )
