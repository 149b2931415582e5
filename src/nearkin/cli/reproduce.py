"""`nearkin reproduce`: the documents' tables, run again."""

import shutil
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from nearkin.reproduce.gallery import draw, shown
from nearkin.reproduce.page import results_page
from nearkin.reproduce.running import Place, run_trials, unfinished
from nearkin.reproduce.tables import TABLES, chosen, verdicts

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
        whole = run_trials(trials, folder, place, console.print, minutes=arguments.budget, at_once=arguments.at_once)
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


def _show(console: Console, cells: tuple, folder: Path) -> None:  # type: ignore[type-arg]
    for name in dict.fromkeys(cell.table for cell in cells):
        table = Table("row", "data", "unit", "printed", "ours", "seeds", "state", title=name.replace("[", "\\["), title_justify="left")
        shown_here = [cell for cell in cells if cell.table == name and (not cell.wide or cell.column in HEADLINES)]
        for cell, verdict in verdicts(shown_here, folder):
            printed = "" if cell.printed is None else f"{cell.printed:.2f}"
            ours = "" if verdict.mean is None else f"{verdict.mean:.2f}" + ("" if verdict.spread is None else f" ± {verdict.spread:.2f}")
            table.add_row(cell.row, cell.column, cell.unit, printed, ours, str(verdict.seeds or ""), verdict.word)
        console.print(table)
