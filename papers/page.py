"""docs/results.md, written from the saved runs alone."""

import textwrap
from collections.abc import Mapping, Sequence

from papers import codes, hao2018, huang2019, lu2019, ren2014, taylor2010
from papers.cell import Cell
from papers.claimed import CLAIMS, RESTARTS
from papers.claims import claims_section
from papers.contest import contest
from papers.lu2019_answer import answer
from papers.verdict import Verdict

HEAD = """# Results

Every printed figure beside ours. This page is written by `python -m papers` from the JSON in `docs/results/`; no figure of ours is typed
by hand.

Protocol: where anything is tuned, it is on a tenth of the training part unless the text above a table says otherwise; then the training is
done anew on all of it, and the test part is looked at once, after the last epoch. Rows of one table that share an augmentation share
network, sampler and tuning budget, too; rows beyond the documents say what they add. Tables that broke the rule of one look are all three
of Ren et al., our times to accuracy, CIFAR-10 and MNIST in 2-D of Hao et al., COIL-20 and stick figures of 64 px, the goals beyond the
paper of Huang et al., and CUB and CIFAR-100 of Lu et al.; [the log](log.md) says how. The same seed run again at a later time did not give
the same figure on a GPU; the log says how far apart they were. "Spread" is the standard deviation over seeds, "s a run" the mean seconds of
a training or a fit, of runs that were alone on their GPU where there are any. Seconds on a CPU were taken beside other work; "one of 4"
says that up to so many runs shared a GPU. Beside a verdict, ✓ says that our mean reaches what we set out for, which is the printed figure
unless the note names another as "wanted", and ✗ that it does not: a row can be reproduced within its margin and still have a mean on the
worse side.

- **reproduced**: the printed figure lies within our mean plus or minus the larger of two standard deviations and the 95 % binomial interval
  of the test part.
- **better**, **short**: it lies outside, on either side. A short row's note names the ablations: what it is with one thing or a few
  changed, each tuned anew where anything is tuned.
- **wide tables** (of Lu et al.): percent ([metrics.md](metrics.md) says of what; R@k is recall@k), seconds for 1,000 iterations, and the
  pairs or triplets that bore on the loss in one iteration (for Prec@k the misplaced ones, strangers helped by the margin); ours plus or
  minus the larger of two standard deviations over seeds and the 95 % bootstrap interval over queries (for NMI, AMI and F1 the range over
  starts of k-means); a row of one seed has the interval alone, which leaves the chance in its training out. Settings are chosen on held-out
  *classes* of the training part. Two rows are told apart when their difference exceeds both margins taken together, the root of the sum of
  their squares; since all rows answer the same queries, this is on the careful side where there are seeds. "chosen" is what tuning took,
  and in brackets the P@1 it was taken for.
- **cited**: another paper's row, only quoted. **ours**: nothing is printed. **not run here**: it can be run and has not been. **diverged**:
  every training did; where only some did, the note counts them, and the figures are those of the others.
"""
HEADS = ("unit", "printed", "ours", "spread", "seeds", "s a run", "device", "verdict", "note")
QUESTION = "[lu2019sampling]: does optimizing Prec@k beat other losses on unseen classes?"
WIDTH = 140  # of a line of running text
TOLD = (ren2014, taylor2010, hao2018, huang2019, codes)  # whose own words stand above their first table


def results_page(found: Sequence[tuple[Cell, Verdict]], pictures: Mapping[str, list[str]] | None = None) -> str:
    """The whole page, with lines for the pictures of each table."""
    claims = claims_section(CLAIMS, RESTARTS, found)
    lines, pictures = [HEAD, *claims], pictures or {}
    by_trial = {(cell.trial, cell.figure): verdict for cell, verdict in found}
    wide = [one for one in found if one[0].wide]
    lines += paragraphs([f'What [lu2019sampling] claims has a section of its own, "{QUESTION}".']) if claims and wide else []
    words = {cell.table: str(module.__doc__) for module in TOLD for cell in module.CELLS}
    told = set[str]()
    for table in dict.fromkeys(cell.table for cell, _ in found):
        rows = [(cell, verdict) for cell, verdict in found if cell.table == table]
        if rows[0][0].wide:
            lines += _answered(wide) if rows[0] == wide[0] else []
            lines += [f"## {table}", "", *contest(rows), *wide_table(rows), "", *_devices(rows), *pictures.get(table, [])]
            continue
        columns = any(cell.column for cell, _ in rows)
        about = words.get(table, "")
        lines += [f"## {table}", "", *(paragraphs(about.strip().split("\n\n")[1:]) if about not in told else [])]
        lines += paragraphs([ren2014.ABOUT[table]]) if table in ren2014.ABOUT else []
        told.add(about)
        head = ["row", *([_kind(rows)] if columns else []), *HEADS]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(_row(cell, verdict, columns, by_trial)) + " |" for cell, verdict in rows]
        lines += ["", *pictures.get(table, [])]
    return "\n".join(lines)


def _answered(wide: Sequence[tuple[Cell, Verdict]]) -> list[str]:
    """The section before the first wide table: what all of them say together, and how they were made."""
    return [f"## {QUESTION}", "", *paragraphs(answer(wide)), "### How these rows were made", "", *paragraphs(lu2019.protocol())]


def paragraphs(texts: Sequence[str]) -> list[str]:
    """Each text in lines that can be read, and an empty line after it; items of a list and lines of a table follow without one."""
    lines = list[str]()
    for text in texts:
        item, row = text.startswith("- "), text.startswith("|")
        if len(lines) > 1 and lines[-2].startswith(("- ", "  ") if item else "|" if row else "\n"):
            lines.pop()
        wrapped = textwrap.wrap(" ".join(text.split()), WIDTH, subsequent_indent="  " if item else "", break_on_hyphens=False)
        lines += [*([text] if row else wrapped), ""]
    return lines


def _kind(rows: Sequence[tuple[Cell, Verdict]]) -> str:
    """What the columns of a document's table are here: data sets, each with a trial of its own, or figures of one trial."""
    run = [(cell.row, cell.trial) for cell, _ in rows if cell.trial is not None]
    return "data" if len(set(run)) == len(run) else "figure"


def _row(cell: Cell, verdict: Verdict, columns: bool, by_trial: Mapping[tuple[str | None, str], Verdict]) -> list[str]:
    ours, spread = (cell.told(value) for value in (verdict.mean, verdict.spread))
    seconds = "" if verdict.seconds is None else f"{verdict.seconds:,.1f}" + (f" (one of {verdict.beside + 1})" if verdict.beside else "")
    reached = verdict.reached(cell)
    wanted = f"wanted {cell.wanted:g}" if cell.wanted is not None else ""
    if reached is False and (goal := cell.goal) is not None and verdict.mean is not None and ours == cell.told(goal):
        wanted = f"{wanted or 'printed'}, missed by {abs(verdict.mean - goal):.1g}"  # which two digits do not show
    why = short_by(cell, by_trial) if verdict.word == "short" and cell.ablations else ""
    each = f"runs: {', '.join(f'{value:.2f}' for value in verdict.values)}" if cell.unit == "seconds" and verdict.seeds > 1 else ""
    note = "; ".join(text for text in (wanted, _diverged(verdict), cell.note, each, why) if text)
    numbers = [cell.told(cell.printed), ours, spread, str(verdict.seeds or ""), seconds]
    device = verdict.device.replace(" 1 threads", " 1 thread")
    return [cell.row, *([cell.column] if columns else []), cell.unit, *numbers, device, verdict.state(cell), note]


def _diverged(verdict: Verdict) -> str:
    return f"{verdict.diverged} of {verdict.seeds + verdict.diverged} diverged" if verdict.diverged else ""


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
        most = max((verdict for _, verdict in mine.values()), key=lambda verdict: verdict.seeds)
        seeds = f"{most.seeds}, {_diverged(most)}" if most.diverged else str(most.seeds or "not run here")
        ours = [_with_margin(*mine[head]) if head in mine else "" for head in heads]
        lines.append("| " + " | ".join([name, seeds, *ours, _choice(next(iter(mine.values()))[1])]) + " |")
        if any(cell.printed is not None for cell, _ in mine.values()):
            printed = ["" if head not in mine or (value := mine[head][0].printed) is None else f"*{value:.1f}*" for head in heads]
            lines.append("| " + " | ".join(["*the same, as printed*", "", *printed, ""]) + " |")
    return lines


def _choice(verdict: Verdict) -> str:
    return verdict.chosen + ("" if verdict.held_out is None else f" ({100 * verdict.held_out:.1f})")


def _with_margin(cell: Cell, verdict: Verdict) -> str:
    if verdict.mean is None:
        return ""
    return f"{verdict.mean:,.1f}" + (f" ± {verdict.margin:.1f}" if cell.unit.endswith("%") else "")


def _devices(rows: Sequence[tuple[Cell, Verdict]]) -> list[str]:
    """Where the rows of a wide table were run: most of them on the first device, and the others by name."""
    where: dict[str, list[str]] = {}
    for cell, verdict in rows:
        if verdict.device and cell.row not in where.setdefault(verdict.device, []):
            where[verdict.device].append(cell.row)
    first, *others = sorted(where, key=lambda device: (-len(where[device]), device)) or [""]
    told = [f"Run on {first}", *(f"on {device}: {', '.join(where[device])}" for device in others)]
    return [f"{'; '.join(told)}.", ""] if first else []
