"""`nearkin reproduce`: the documents' tables, run again."""

import shutil
from argparse import Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from nearkin.reproduce.cell import Cell
from nearkin.reproduce.gallery import draw, shown
from nearkin.reproduce.page import results_page
from nearkin.reproduce.running import Place, run_trials, unfinished
from nearkin.reproduce.tables import TABLES, chosen, verdicts
from nearkin.reproduce.verdict import Verdict

HEADLINES = ("P@1", "MAP@R")  # of wide tables; the page has all columns


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
    for name in dict.fromkeys(cell.table for cell in cells):
        found = verdicts([cell for cell in cells if cell.table == name and (not cell.wide or cell.column in HEADLINES)], folder)
        units = {cell.unit for cell, _ in found}
        console.print(
            f"{name} ({units.pop()})" if len(units) == 1 else name, markup=False
        )  # as a table's title it would be as narrow as that
        printed = any(cell.printed is not None for cell, _ in found)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for head, justify in (("row", "left"), *([("printed", "right")] if printed else []), ("ours (seeds)", "right"), ("state", "left")):
            table.add_column(head, justify=justify, no_wrap=head != "row")  # type: ignore[arg-type]
        for cell, verdict in found:
            row = ", ".join(text for text in (cell.row, cell.column, cell.unit if units else "") if text)
            table.add_row(row, *(["" if cell.printed is None else f"{cell.printed:.2f}"] if printed else []), _ours(verdict), verdict.word)
        console.print(table)


def _ours(verdict: Verdict) -> str:
    if verdict.mean is None:
        return ""
    return f"{verdict.mean:.2f}" + ("" if verdict.spread is None else f" ± {verdict.spread:.2f}") + f" ({verdict.seeds})"
