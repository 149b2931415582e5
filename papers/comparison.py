"""Prec@5 against the other losses of a wide table: which are above it, which below, and which cannot be told apart?"""

import math
from collections.abc import Sequence

from papers.cell import Cell
from papers.claim import line
from papers.verdict import Verdict

COMPARED = ("Prec@5 as printed", "Prec@5 as released")
COLUMNS_COMPARED = ("P@1", "P@5", "MAP@R")
NO_BASELINES = ("Prec@", "Raw", "Untrained", "Pretrained", "The two best")  # beginnings of rows that are variants, floors or ensembles

Rows = Sequence[tuple[Cell, Verdict]]


def comparison_table(rows: Rows) -> list[str]:
    """A line for every form of Prec@5 and column, and an empty one; nothing where there is nothing to compare."""
    labels = {cell.row: cell.label for cell, _ in rows}
    lines = []
    for form in COMPARED:
        for column in COLUMNS_COMPARED:
            found = {cell.row: verdict for cell, verdict in rows if cell.column == column}
            if cells := _against(form, found):
                lines.append(line([f"{labels[form]}, {column}", *cells]))
    head = ["| against the other losses | its %, ± margin | above it | not told apart from it | below it |", "|---|---|---|---|---|"]
    return [*head, *lines, ""] if lines else []


def _against(form: str, found: dict[str, Verdict]) -> list[str]:
    own = found.get(form)
    baselines = {name: one for name, one in found.items() if one.mean is not None and not name.startswith(NO_BASELINES)}
    if own is None or own.mean is None or not baselines:
        return []
    signs = {name: order(own, one) for name, one in baselines.items()}
    above, level, below = ([name for name, sign in signs.items() if sign == one] for one in (-1, 0, 1))
    return [f"{own.mean:.1f} ± {own.margin:.1f}", _listed(above), _listed(level), f"{len(below)} of {len(baselines)}"]


def order(one: Verdict, other: Verdict) -> int:
    """1 where the first mean is larger by more than both margins combined, -1 where it is as much smaller, 0 otherwise."""
    assert one.mean is not None and other.mean is not None
    gap = one.mean - other.mean
    return 0 if abs(gap) <= math.hypot(one.margin, other.margin) else (1 if gap > 0 else -1)


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"
