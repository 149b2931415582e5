"""docs/results.md, written from the saved runs alone."""

from collections.abc import Mapping, Sequence

from nearkin.reproduce import lu2019
from nearkin.reproduce.cell import Cell
from nearkin.reproduce.claimed import CLAIMS, RESTARTS
from nearkin.reproduce.claims import claims_section
from nearkin.reproduce.contest import contest
from nearkin.reproduce.lu2019_answer import answer
from nearkin.reproduce.verdict import Verdict

HEAD = """# Results

Every printed figure beside ours. This page is written by `nearkin reproduce` from the JSON in `docs/results/`; nothing on it is typed
by hand.

Protocol: settings are chosen on a tenth of the training part, then the training is done anew on all of it; the test part is looked at once,
after the last epoch. Rows of one table that share an augmentation share network, sampler and tuning budget, too; rows beyond the documents
say what they add. Five tables broke the rule of one look, both of Ren et al., CIFAR-10 of Hao et al., COIL-20, and CUB of Lu et al.; [the
log](log.md) says how. A tick says that what we set out to reach (the printed figure, or the one named) is reached. Seconds on a CPU were
taken beside other work; "one of 4" says that so many runs shared a GPU.

- **reproduced**: the printed figure lies within our mean plus or minus the larger of two standard deviations and the 95 % binomial interval
  of the test part.
- **better**, **short**: it lies outside, on either side. A short row's note names the ablations: what it is with one thing changed.
- **wide tables** (of Lu et al.): ours plus or minus the larger of two standard deviations over seeds and the 95 % bootstrap interval over
  queries (for NMI, AMI and F1 the range over starts of k-means). Settings are chosen on held-out *classes* of the training part. Two rows
  are told apart when their difference exceeds both margins taken together, the root of the sum of their squares. "chosen" is what
  tuning took, and in brackets the P@1 it was taken for.
- **cited**: another paper's row, only quoted. **ours**: nothing is printed. **not run here**: it can be run and has not been.
"""


def results_page(found: Sequence[tuple[Cell, Verdict]], pictures: Mapping[str, list[str]] | None = None) -> str:
    """The whole page, with lines for the pictures of each table."""
    claims = claims_section(CLAIMS, RESTARTS, found)
    lines, pictures = [HEAD, *claims], pictures or {}
    by_trial = {(cell.trial, cell.figure): verdict for cell, verdict in found}
    wide = [one for one in found if one[0].wide]
    for table in dict.fromkeys(cell.table for cell, _ in found):
        rows = [(cell, verdict) for cell, verdict in found if cell.table == table]
        if rows[0][0].wide:
            first = [lu2019.protocol(), "", *answer(wide)] if rows[0] == wide[0] else []
            lines += [f"## {table}", "", *first, *contest(rows), *wide_table(rows), "", *_devices(rows), *pictures.get(table, [])]
            continue
        columns = any(cell.column for cell, _ in rows)
        lines += [f"## {table}", ""]
        head = ["row", *(["data"] if columns else []), "unit", "printed", "ours", "spread", "seeds", "s a run", "device", "verdict", "note"]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(_row(cell, verdict, columns, by_trial)) + " |" for cell, verdict in rows]
        lines += ["", *pictures.get(table, [])]
    return "\n".join(lines)


def _row(cell: Cell, verdict: Verdict, columns: bool, by_trial: Mapping[tuple[str | None, str], Verdict]) -> list[str]:
    ours = "" if verdict.mean is None else f"{verdict.mean:.2f}"
    spread = "" if verdict.spread is None else f"{verdict.spread:.2f}"
    seconds = "" if verdict.seconds is None else f"{verdict.seconds:,.1f}" + (f" (one of {verdict.beside + 1})" if verdict.beside else "")
    reached = verdict.reached(cell)
    word = verdict.word + ("" if reached is None else " ✓" if reached else " ✗")
    wanted = f"wanted {cell.wanted:g}" if cell.wanted is not None else ""
    why = short_by(cell, by_trial) if verdict.word == "short" and cell.ablations else ""
    note = "; ".join(text for text in (wanted, cell.note, why) if text)
    printed = "" if cell.printed is None else f"{cell.printed:.2f}"
    numbers = [printed, ours, spread, str(verdict.seeds or ""), seconds]
    return [cell.row, *([cell.column] if columns else []), cell.unit, *numbers, verdict.device, word, note]


def short_by(cell: Cell, by_trial: Mapping[tuple[str | None, str], Verdict]) -> str:
    """What the ablations of a cell gave, for one that falls short."""
    found = [(one.said, by_trial.get((one.trial, one.figure))) for one in cell.ablations]
    told = [f"{said} {verdict.mean:.2f}" for said, verdict in found if verdict is not None and verdict.mean is not None]
    return f"ablations: {', '.join(told)}" if told else "no ablation has been run here"


def wide_table(rows: Sequence[tuple[Cell, Verdict]]) -> list[str]:
    """One line for each row with all its columns, ours plus or minus the margin; where figures are printed, a line for those."""
    heads = list(dict.fromkeys(cell.column for cell, _ in rows))
    if all(verdict.mean is None and cell.printed is None for cell, verdict in rows):
        return [f"Set up, and not run here: {', '.join(dict.fromkeys(cell.row for cell, _ in rows))}."]
    lines = ["| " + " | ".join(["row", "seeds", *heads, "chosen"]) + " |", "|" + "---|" * (len(heads) + 3)]
    for name in dict.fromkeys(cell.row for cell, _ in rows):
        mine = {cell.column: (cell, verdict) for cell, verdict in rows if cell.row == name}
        seeds = max(verdict.seeds for _, verdict in mine.values())
        ours = [_with_margin(*mine[head]) if head in mine else "" for head in heads]
        lines.append(
            "| " + " | ".join([name, str(seeds) if seeds else "not run here", *ours, _choice(next(iter(mine.values()))[1])]) + " |"
        )
        if any(cell.printed is not None for cell, _ in mine.values()):
            printed = ["" if head not in mine or (value := mine[head][0].printed) is None else f"*{value:.1f}*" for head in heads]
            lines.append("| " + " | ".join(["*the same, as printed*", "", *printed, ""]) + " |")
    return lines


def _choice(verdict: Verdict) -> str:
    return verdict.chosen + ("" if verdict.held_out is None else f" ({100 * verdict.held_out:.1f})")


def _with_margin(cell: Cell, verdict: Verdict) -> str:
    if verdict.mean is None:
        return ""
    return f"{verdict.mean:.1f}" + (f" ± {verdict.margin:.1f}" if cell.unit.endswith("%") else "")


def _devices(rows: Sequence[tuple[Cell, Verdict]]) -> list[str]:
    devices = sorted({verdict.device for _, verdict in rows if verdict.device})
    return [f"Run on {', '.join(devices)}.", ""] if devices else []
