"""The cells and their states as tables for a terminal of 80 columns."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from papers.cell import LEGEND, Cell
from papers.tables import verdicts
from papers.verdict import Verdict

HEADLINES = ("P@1", "MAP@R")  # the figures of wide tables that are listed; the page has all columns
ROW, STATE, STATES = "row", "state", "cells"  # heads of columns
MARKS = "✓ our mean reaches the printed figure, or the target where nothing is printed; ✗ it does not"
WORD = 18  # width of the longest word of a row
Found = Sequence[tuple[Cell, Verdict]]
Lines = tuple[list[str], list[list[str]]]  # heads, and the cells of every line


def show(console: Console, cells: Sequence[Cell], folder: Path) -> None:
    """Print the tables. The unit is in the title where all rows share it; a table without printed figures has no column for them."""
    marked = flagged = False
    for name in dict.fromkeys(cell.table for cell in cells):
        found = verdicts([cell for cell in cells if cell.table == name], folder)
        units = {cell.unit for cell, _ in found if not cell.wide or cell.column in HEADLINES}
        console.print(f"{name} ({units.pop()})" if len(units) == 1 else name, markup=False)  # a table's own title is as narrow as the table
        printed = any(cell.printed is not None for cell, _ in found)
        heads, lines = _wide(found, printed) if found[0][0].wide else _narrow(found, printed, bool(units))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for head in heads:
            text = head in (ROW, STATE, STATES)
            table.add_column(
                head, justify="left" if text else "right", no_wrap=head not in (ROW, STATES), min_width=WORD if head == ROW else None
            )
        for line in lines:
            table.add_row(*line)
            marked = marked or line[-1].endswith(("✓", "✗"))
        flagged = flagged or any(cell.after_test for cell, _ in found)
        console.print(table)
    if marked:
        console.print(MARKS)
    if flagged:
        console.print(LEGEND)


def _narrow(found: Found, printed: bool, units: bool) -> Lines:
    """A line for every cell."""
    heads = [ROW, *(["printed"] if printed else []), "ours (seeds)", STATE]
    lines = []
    for cell, verdict in found:
        row = ", ".join(text for text in (cell.label, cell.column, cell.unit if units else "") if text)
        lines.append([row, *([cell.text(cell.printed)] if printed else []), _ours(cell, verdict), verdict.state(cell)])
    return heads, lines


def _wide(found: Found, printed: bool) -> Lines:
    """A line for every row, with two of its figures and the number of its cells in each state."""
    first, *others = HEADLINES
    heads = [ROW, *(["printed"] if printed else []), f"{first} (seeds)", *others, STATES]
    lines = []
    for row in dict.fromkeys(cell.row for cell, _ in found):
        mine = {cell.column: (cell, verdict) for cell, verdict in found if cell.row == row}
        states = Counter(verdict.word for _, verdict in mine.values())
        counts = ", ".join(f"{count} {word}" for word, count in states.items())
        cell, verdict = mine[first]
        rest = [_ours(*mine[column], seeds=False) for column in others]
        lines.append([cell.label, *([cell.text(cell.printed)] if printed else []), _ours(cell, verdict), *rest, counts])
    return heads, lines


def _ours(cell: Cell, verdict: Verdict, *, seeds: bool = True) -> str:
    if verdict.mean is None:
        return ""
    spread = "" if verdict.spread is None else f" ± {cell.text(verdict.spread)}"
    again = f", {len(verdict.values)} runs" if verdict.count != str(verdict.seeds) else ""
    return cell.text(verdict.mean) + spread + (f" ({verdict.seeds}{again})" if seeds else "")
