"""docs/results.md, written from the saved runs alone."""

from collections.abc import Sequence

from nearkin.reproduce.cell import Cell
from nearkin.reproduce.verdict import Verdict

HEAD = """# Results

Every printed figure beside ours. This page is written by `nearkin reproduce` from the JSON in `docs/results/`; nothing on it is typed
by hand.

Protocol: settings are chosen on a tenth of the training part, then the training is done anew on all of it; the test part is looked at
once, after the last epoch. Rows of one table share network, sampler, augmentation and tuning budget. Two tables broke the rule of one
look, MNIST of Ren et al. and COIL-20; [the log](log.md) says how. A tick says that what we set out to reach (the printed figure, or the
one named) is reached.

- **reproduced**: the printed figure lies within our mean plus or minus the larger of two standard deviations and the 95 % binomial interval
  of the test part.
- **better**, **short**: it lies outside, on either side.
- **cited**: another paper's row, only quoted. **ours**: nothing is printed. **not run here**: it can be run and has not been.
"""


def results_page(found: Sequence[tuple[Cell, Verdict]]) -> str:
    """The whole page."""
    lines = [HEAD]
    for table in dict.fromkeys(cell.table for cell, _ in found):
        rows = [(cell, verdict) for cell, verdict in found if cell.table == table]
        columns = any(cell.column for cell, _ in rows)
        lines += [f"## {table}", ""]
        head = ["row", *(["data"] if columns else []), "unit", "printed", "ours", "spread", "seeds", "s a run", "verdict", "note"]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(_row(cell, verdict, columns)) + " |" for cell, verdict in rows]
        lines += ["", *_devices(rows)]
    return "\n".join(lines)


def _row(cell: Cell, verdict: Verdict, columns: bool) -> list[str]:
    ours = "" if verdict.mean is None else f"{verdict.mean:.2f}"
    spread = "" if verdict.spread is None else f"{verdict.spread:.2f}"
    seconds = "" if verdict.seconds is None else f"{verdict.seconds:,.1f}"
    reached = verdict.reached(cell)
    word = verdict.word + ("" if reached is None else " ✓" if reached else " ✗")
    wanted = f"wanted {cell.wanted:g}" if cell.wanted is not None else ""
    note = "; ".join(text for text in (wanted, cell.note) if text)
    printed = "" if cell.printed is None else f"{cell.printed:.2f}"
    return [cell.row, *([cell.column] if columns else []), cell.unit, printed, ours, spread, str(verdict.seeds or ""), seconds, word, note]


def _devices(rows: Sequence[tuple[Cell, Verdict]]) -> list[str]:
    devices = sorted({verdict.device for _, verdict in rows if verdict.device})
    return [f"Run on {', '.join(devices)}.", ""] if devices else []
