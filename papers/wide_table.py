"""Tables with one line per row and all its columns, as those of Lu et al."""

from collections.abc import Sequence

from papers.cell import AFTER_TEST, Cell
from papers.claim import line
from papers.row_table import diverged
from papers.verdict import Verdict

Rows = Sequence[tuple[Cell, Verdict]]


def wide_table(rows: Rows) -> list[str]:
    """One line for each row with all its columns, ours plus or minus the margin; where figures are printed, a line for those."""
    heads = list(dict.fromkeys(cell.column for cell, _ in rows))
    if all(verdict.mean is None and cell.printed is None for cell, verdict in rows):
        return [f"Set up, and not run: {', '.join(dict.fromkeys(cell.label for cell, _ in rows))}."]
    lines = [line(["row", "seeds", *heads, "chosen"]), "|" + "---|" * (len(heads) + 3)]
    for name in dict.fromkeys(cell.row for cell, _ in rows):
        mine = {cell.column: (cell, verdict) for cell, verdict in rows if cell.row == name}
        most = max((verdict for _, verdict in mine.values()), key=lambda verdict: verdict.seeds)
        seeds = f"{most.seeds}, {diverged(most)}" if most.diverged else most.count or "not run"
        ours = [_with_margin(*mine[head]) if head in mine else "" for head in heads]
        first, verdict = next(iter(mine.values()))
        lines.append(line([first.label, seeds, *ours, _choice(verdict)]))
        if any(cell.printed is not None for cell, _ in mine.values()):
            printed = ["" if head not in mine or (value := mine[head][0].printed) is None else f"*{value:.1f}*" for head in heads]
            lines.append(line(["*the same, as printed*", "", *printed, ""]))
    return lines


def below(rows: Rows) -> list[str]:
    """The devices of the rows, and what the mark means where a row has it."""
    reasons = dict.fromkeys(cell.after_test for cell, _ in rows if cell.after_test)
    return [*_devices(rows), *(line for reason in reasons for line in (f"{AFTER_TEST} {reason}.", ""))]


def _choice(verdict: Verdict) -> str:
    return verdict.chosen + ("" if verdict.held_out is None else f" ({100 * verdict.held_out:.1f})")


def _with_margin(cell: Cell, verdict: Verdict) -> str:
    if verdict.mean is None:
        return ""
    return f"{verdict.mean:,.1f}" + (f" ± {verdict.margin:.1f}" if cell.unit.endswith("%") else "")


def _devices(rows: Rows) -> list[str]:
    """The device of most rows, and the others with their rows."""
    where: dict[str, list[str]] = {}
    for cell, verdict in rows:
        if verdict.device and cell.row not in where.setdefault(verdict.device, []):
            where[verdict.device].append(cell.row)
    first, *others = sorted(where, key=lambda device: (-len(where[device]), device)) or [""]
    texts = [f"Run on {first}", *(f"on {device}: {', '.join(where[device])}" for device in others)]
    return [f"{'; '.join(texts)}.", ""] if first else []
