"""What the documents claim, each as differences of figures, and what our runs say of it.

A claim is a few differences that should be above 0. A difference has the margins of its figures taken together (the root of the sum of
their squares), as if every figure had a test part of its own; they share one, so this is on the careful side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from papers.cell import Cell
from papers.verdict import Verdict, margins_beside

Rows = Sequence[tuple[Cell, Verdict]]
Term = tuple[str, str]  # a trial and one of its figures
Word = Literal["holds", "does not hold", "not told apart", "not decided: rows missing"]
HEAD = (
    "## Claims of the documents",
    "",
    "Each claim is a few differences that should be above 0, in points of the figures' own unit. It **holds** where ours is above its",
    "margin, **does not hold** where it is as far below 0, and else the rows are **not told apart**. The margin of a difference is that of",
    "its rows taken together: two standard deviations over seeds or the 95 % binomial interval of the test part, whichever is larger; then",
    'the root of the sum of squares. **Less** or **more than printed**: ours is farther than that from the printed difference. "Seeds"',
    "are those of the row that has the fewest. A row with one seed takes the widest deviation of the rows beside it; where all have one,",
    "the margin knows nothing of how far seeds lie apart.",
    "",
)


@dataclass(frozen=True)
class Difference:
    """The sum of `plus` less the sum of `minus`; the claim is that it is above 0."""

    said: str
    plus: tuple[Term, ...]
    minus: tuple[Term, ...]


@dataclass(frozen=True)
class Claim:
    """What a document says, in our words, and the differences that test it."""

    said: str
    where: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a difference: ours with its margin (0 where rows have one run and no binomial error), and the printed one."""

    word: Word
    ours: float | None = None
    margin: float = 0.0
    printed: float | None = None
    seeds: int = 0  # of the row that has the fewest


def decide(difference: Difference, found: Mapping[Term, tuple[Cell, Verdict]]) -> Outcome:
    """The outcome from cells and verdicts by trial and figure."""
    above, below = ([found[term] for term in terms] for terms in (difference.plus, difference.minus))
    printed = _total(above, below, [cell.printed for cell, _ in (*above, *below)])
    ours = _total(above, below, [verdict.mean for _, verdict in (*above, *below)])
    if ours is None:
        return Outcome("not decided: rows missing", printed=printed)
    margin = math.hypot(*margins_beside([verdict for _, verdict in (*above, *below)]))
    word: Word = "not told apart" if abs(ours) <= margin else "holds" if ours > 0 else "does not hold"
    return Outcome(word, ours, margin, printed, min(verdict.seeds for _, verdict in (*above, *below)))


def _total(above: Rows, below: Rows, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(above) + len(below):
        return None
    return math.fsum(known[: len(above)]) - math.fsum(known[len(above) :])


def claims_section(claims: Sequence[Claim], restarts: Mapping[str, Term], rows: Rows) -> list[str]:
    """Lines of Markdown: a table of what could be decided, what could not, and the restarts; nothing where the rows are of other tables."""
    cells_printed_last = sorted(rows, key=lambda one: one[0].printed is not None)  # a trial may answer cells of two tables
    found = {(cell.trial, cell.figure): (cell, verdict) for cell, verdict in cells_printed_last if cell.trial is not None}
    lines, missing = list[str](), list[str]()
    for claim in claims:
        asked = [one for one in claim.differences if all(term in found for term in (*one.plus, *one.minus))]
        decided = [(one, decide(one, found)) for one in asked]
        told = [_columns(one, outcome, found[one.plus[0]][0]) for one, outcome in decided if outcome.ours is not None]
        if len(told) < len(asked):
            some = f"{len(asked) - len(told)} of {len(asked)} differences" if told else "all of it"
            missing.append(f"- {claim.said} ({claim.where}): {some}")
        names = [f"{claim.said} ({claim.where})", *[""] * len(told)]  # said once, in its first line
        lines += ["| " + " | ".join([name, *columns]) + " |" for name, columns in zip(names, told, strict=False)]
    table = (
        ["| claim | difference | printed | ours | margin | seeds | outcome |", "|---|---|---|---|---|---|---|", *lines, ""] if lines else []
    )
    undecided = ["Not decided, because rows are missing:", "", *missing, ""] if missing else []
    body = [*table, *undecided, *_restarts(restarts, found)]
    return [*HEAD, *body] if body else []


def _columns(difference: Difference, outcome: Outcome, cell: Cell) -> list[str]:
    """In the unit of the cells that it is a difference of."""
    printed, ours = (
        "" if value is None else f"{'-' if value < 0 else '+'}{cell.told(abs(value))}" for value in (outcome.printed, outcome.ours)
    )
    margin = cell.told(outcome.margin) if outcome.margin else "none: one run a row"
    return [difference.said, printed, ours, margin, str(outcome.seeds), ", ".join([outcome.word, *_beside_print(outcome)])]


def _beside_print(outcome: Outcome) -> list[str]:
    """Whether ours is another difference than the printed one, which a word about 0 does not say."""
    if outcome.ours is None or outcome.printed is None or abs(outcome.ours - outcome.printed) <= outcome.margin:
        return []
    return ["less than printed" if outcome.ours < outcome.printed else "more than printed"]


def _restarts(restarts: Mapping[str, Term], found: Mapping[Term, tuple[Cell, Verdict]]) -> list[str]:
    """A seed is a restart: other weights to begin with, other batches. What the worst of them loses is what local optima cost."""
    lines = []
    for said, (cell, verdict) in {said: found[term] for said, term in restarts.items() if term in found}.items():
        if len(verdict.values) > 1:
            low, high = min(verdict.values), max(verdict.values)
            lines.append(f"| {said} | {cell.unit} | {len(verdict.values)} | {low:.2f} | {high:.2f} | {high - low:.2f} |")
    if not lines:
        return []
    return [
        "NCA is not convex, and the document names local optima as work to come. Every seed is a restart, with other weights to begin with",
        "and other batches; the distance between the best and the worst is what a single start risks.",
        "",
        "| restarted | unit | starts | lowest | highest | apart |",
        "|---|---|---|---|---|---|",
        *lines,
        "",
    ]
