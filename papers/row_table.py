"""Tables with one line per cell, and tables of printed figures alone."""

from collections.abc import Mapping, Sequence

from papers.cell import AFTER_TEST, LEGEND, Cell
from papers.claim import line
from papers.verdict import Verdict

HEADS = ("unit", "printed", "ours", "spread", "seeds", "seconds", "settings", "device", "verdict", "note")
Rows = Sequence[tuple[Cell, Verdict]]
ByTrial = Mapping[tuple[str | None, str], Verdict]  # verdicts by trial and figure


def row_table(rows: Rows, by_trial: ByTrial) -> list[str]:
    """Lines of Markdown; a table without trials of ours has its printed figures in rows and columns."""
    if all(cell.trial is None for cell, _ in rows):
        return printed_table(rows)
    columns, extra = any(cell.column for cell, _ in rows), any(cell.extra for cell, _ in rows)
    head = ["row", *([_kind(rows)] if columns else []), *HEADS]
    if extra:
        head.insert(head.index("spread") + 1, "1-NN")
    lines = [line(head), "|" + "---|" * len(head)]
    lines += [line(_row(cell, verdict, columns, extra, by_trial)) for cell, verdict in rows]
    return [*lines, "", *legend(rows)]


def legend(rows: Rows) -> list[str]:
    """What the mark means, below a table that has one."""
    return [f"{LEGEND}; the note gives the reason.", ""] if any(cell.after_test for cell, _ in rows) else []


def printed_table(rows: Rows) -> list[str]:
    """Printed figures that are only quoted, one line per row."""
    heads = list(dict.fromkeys(cell.column for cell, _ in rows))
    lines = [line(["row", *heads, "verdict", "note"]), "|" + "---|" * (len(heads) + 3)]
    for name in dict.fromkeys(cell.row for cell, _ in rows):
        mine = {cell.column: (cell, verdict) for cell, verdict in rows if cell.row == name}
        cell, verdict = next(iter(mine.values()))
        figures = [mine[head][0].text(mine[head][0].printed) if head in mine else "" for head in heads]
        lines.append(line([cell.label, *figures, verdict.word, "; ".join(text for text in (cell.unavailable, cell.note) if text)]))
    return [f"Printed figures, {rows[0][0].unit}.", "", *lines, ""]


def _kind(rows: Rows) -> str:
    """What the columns of a printed table are here: data sets, each with its own trial, or figures of one trial."""
    run = [(cell.row, cell.trial) for cell, _ in rows if cell.trial is not None]
    return "data" if len(set(run)) == len(run) else "figure"


def _row(cell: Cell, verdict: Verdict, columns: bool, extra: bool, by_trial: ByTrial) -> list[str]:
    shared = f" (one of {verdict.beside + 1})" if verdict.beside else ""
    seconds = "" if verdict.seconds is None else f"{verdict.seconds:,.1f}{shared}"
    numbers = [cell.text(cell.printed), cell.text(verdict.mean), cell.text(verdict.spread)]
    numbers += [cell.text(verdict.extra)] if extra else []
    device = verdict.device.replace(" 1 threads", " 1 thread")
    texts = [verdict.count, seconds, verdict.selection if verdict.mean is not None else "", device, verdict.state(cell)]
    return [cell.label, *([cell.column] if columns else []), cell.unit, *numbers, *texts, _note(cell, verdict, by_trial)]


def _note(cell: Cell, verdict: Verdict, by_trial: ByTrial) -> str:
    threshold = f"target {cell.target:g}" if cell.target is not None and cell.printed is None else ""
    if verdict.reached(cell) is False and verdict.mean is not None and cell.text(verdict.mean) == cell.text(cell.threshold):
        missed = abs(verdict.mean - (cell.threshold or 0.0))
        threshold = f"{threshold or 'printed'}, missed by {missed:.1g}"  # which two digits do not show
    why = short_by(cell, by_trial) if verdict.word == "short" and cell.ablations else ""
    each = f"runs: {', '.join(f'{value:.2f}' for value in verdict.values)}" if cell.unit == "seconds" and verdict.seeds > 1 else ""
    after = f"{AFTER_TEST} {cell.after_test}" if cell.after_test else ""
    texts = (threshold, diverged(verdict), verdict.repeats(cell), cell.unavailable, cell.note, each, after, why)
    return "; ".join(text for text in texts if text)


def diverged(verdict: Verdict) -> str:
    """How many trainings diverged; empty where none did."""
    return f"{verdict.diverged} of {len(verdict.values) + verdict.diverged} diverged" if verdict.diverged else ""


def short_by(cell: Cell, by_trial: ByTrial) -> str:
    """The figures of the ablations of a cell that falls short."""
    found = [(one.label, by_trial.get((one.trial, one.figure))) for one in cell.ablations]
    texts = [f"{label} {verdict.mean:.2f}" for label, verdict in found if verdict is not None and verdict.mean is not None]
    return f"ablations: {', '.join(texts)}" if texts else "no ablation has been run"
