"""`python -m papers`: run the tables of the five papers again and put our figures beside the printed ones."""

import shutil
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from papers.cell import Cell
from papers.gallery import draw, shown
from papers.page import results_page
from papers.running import Place, run_trials, unfinished
from papers.tables import TABLES, chosen, verdicts
from papers.verdict import Verdict

HEADLINES = ("P@1", "MAP@R")  # the figures of wide tables that are shown; the page has all columns
ROW, STATE, STATES = "row", "state", "cells"  # heads of the list's columns
MARKS = "✓ our mean reaches the printed figure, or what the page's note names as wanted; ✗ it does not"
WORD = 18  # what the longest word of a row takes
Found = Sequence[tuple[Cell, Verdict]]
Lines = tuple[list[str], list[list[str]]]  # heads, and the cells of every line


ABOUT = "Run the papers' tables again and put our figures beside the printed ones. Every finished run is saved as JSON."
EXAMPLES = """examples:
  python -m papers --list
  python -m papers digits                                a small table that runs anywhere
  python -m papers ren2014 --data-root data --resume --budget 20 --at-once 4"""


def parser() -> ArgumentParser:
    """The command line."""
    made = ArgumentParser("python -m papers", description=ABOUT, epilog=EXAMPLES, formatter_class=RawDescriptionHelpFormatter)
    named = "ren2014, taylor2010, hao2018, huang2019, lu2019, digits, codes, or the beginning of a trial's name (default: all)"
    made.add_argument("tables", nargs="*", metavar="TABLE", help=named)
    made.add_argument("--list", action="store_true", help="only show every cell and its state")
    made.add_argument("--budget", type=float, default=float("inf"), metavar="MINUTES", help="start no run after this time")
    made.add_argument("--resume", action="store_true", help="keep saved runs and do only what is missing; without it they are run again")
    together = "runs side by side, each in its own process (default: 1); on one GPU they take turns unless NVIDIA MPS runs"
    made.add_argument("--at-once", type=int, default=1, metavar="N", help=together)
    saved = "where runs are saved; the page is FOLDER.md (default: %(default)s)"
    made.add_argument("--out", default="docs/results", metavar="FOLDER", help=saved)
    made.add_argument("--data-root", default="data", metavar="FOLDER", help="where known data sets are looked for (default: %(default)s)")
    made.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: cuda if available)")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; a bad table name or folder is one line on stderr."""
    arguments = parser().parse_args(words)
    try:
        return run(arguments)
    except (ValueError, OSError) as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2


def run(arguments: Namespace) -> int:
    """Run what is missing, then write the page."""
    console = Console(highlight=False)
    trials, cells = chosen(arguments.tables)
    folder = Path(arguments.out)
    if not arguments.list:
        if not arguments.resume:
            for trial in trials:
                (folder / f"{trial.name}.json").unlink(missing_ok=True)
                shutil.rmtree(unfinished(folder, trial), ignore_errors=True)
        place = Place(str(arguments.data_root), arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"), str(folder))
        timed = {cell.trial for cell in cells if cell.unit == "seconds" and cell.trial is not None}
        whole = run_trials(trials, folder, place, console.print, minutes=arguments.budget, at_once=arguments.at_once, timed=timed)
        if not whole:
            console.print("the budget is spent; `--resume` goes on with what is missing")
        every = [cell for _, some in TABLES.values() for cell in some]
        page = folder.parent / f"{folder.name}.md"
        if find_spec("matplotlib"):
            draw(folder)
        else:
            console.print("no pictures are drawn: they need matplotlib, pip install 'nearkin[plot]'")
        page.write_text(results_page(verdicts(every, folder), shown(folder)), encoding="utf-8")
        console.print(f"written: {page}")
    _show(console, cells, folder)
    return 0


def _show(console: Console, cells: Sequence[Cell], folder: Path) -> None:
    """Tables for a terminal of 80 columns: the unit stands in the title where all rows share it; without printed figures no such column."""
    marked = False
    for name in dict.fromkeys(cell.table for cell in cells):
        found = verdicts([cell for cell in cells if cell.table == name], folder)
        units = {cell.unit for cell, _ in found if not cell.wide or cell.column in HEADLINES}
        console.print(f"{name} ({units.pop()})" if len(units) == 1 else name, markup=False)  # a title would be as narrow as its table
        printed = any(cell.printed is not None for cell, _ in found)
        heads, lines = _wide(found, printed) if found[0][0].wide else _narrow(found, printed, bool(units))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for head in heads:
            words = head in (ROW, STATE, STATES)
            table.add_column(
                head, justify="left" if words else "right", no_wrap=head not in (ROW, STATES), min_width=WORD if head == ROW else None
            )
        for line in lines:
            table.add_row(*line)
            marked = marked or line[-1].endswith(("✓", "✗"))
        console.print(table)
    if marked:
        console.print(MARKS)


def _narrow(found: Found, printed: bool, units: bool) -> Lines:
    """A line for every cell."""
    heads = [ROW, *(["printed"] if printed else []), "ours (seeds)", STATE]
    lines = []
    for cell, verdict in found:
        row = ", ".join(text for text in (cell.row, cell.column, cell.unit if units else "") if text)
        lines.append([row, *([cell.told(cell.printed)] if printed else []), _ours(cell, verdict), verdict.state(cell)])
    return heads, lines


def _wide(found: Found, printed: bool) -> Lines:
    """A line for every row, with two of its figures and how many of its cells are in which state."""
    first, *others = HEADLINES
    heads = [ROW, *(["printed"] if printed else []), f"{first} (seeds)", *others, STATES]
    lines = []
    for row in dict.fromkeys(cell.row for cell, _ in found):
        mine = {cell.column: (cell, verdict) for cell, verdict in found if cell.row == row}
        states = Counter(verdict.word for _, verdict in mine.values())
        told = ", ".join(f"{count} {word}" for word, count in states.items())
        cell, verdict = mine[first]
        rest = [_ours(*mine[column], seeds=False) for column in others]
        lines.append([row, *([cell.told(cell.printed)] if printed else []), _ours(cell, verdict), *rest, told])
    return heads, lines


def _ours(cell: Cell, verdict: Verdict, *, seeds: bool = True) -> str:
    if verdict.mean is None:
        return ""
    spread = "" if verdict.spread is None else f" ± {cell.told(verdict.spread)}"
    return cell.told(verdict.mean) + spread + (f" ({verdict.seeds})" if seeds else "")


if __name__ == "__main__":
    sys.exit(main())
