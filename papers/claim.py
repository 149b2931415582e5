"""What a paper claims, as differences of figures, and what our runs say about it.

A claim is a few differences that should be above 0. The margin of a difference combines the margins of its figures (the root of the sum
of their squares), as if every figure had its own test part. They share one, so the margin is on the wide side.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from papers.cell import AFTER_TEST, Cell
from papers.verdict import Verdict, comparable_margins

Rows = Sequence[tuple[Cell, Verdict]]
Term = tuple[str, str]  # a trial and one of its figures
Word = Literal["holds", "does not hold", "not told apart", "not run"]
HEADS = ("claim", "difference", "printed", "ours", "margin", "spread", "seeds", "settings", "outcome")
DEFINITIONS = (
    "A claim is tested by differences that should be above 0, in the unit of the figures.",
    "- **holds**: our difference is above its margin. **does not hold**: it is as far below 0. **not told apart**: it is within the "
    "margin. **not run**: a row is missing.",
    "- **margin**: that of each row is the larger of two standard deviations over seeds and the 95 % binomial interval of the test part; "
    "the margins of a difference are combined as the root of the sum of squares. A row with one seed takes the widest deviation of the "
    "rows it is compared with. Where all rows have one seed, the margin says nothing about the variation between seeds.",
    "- **less** or **more than printed**: our difference is farther than the margin from the printed one.",
    "- **spread**: the largest standard deviation over seeds among the rows. **seeds**: those of the row that has the fewest.",
    f"- **settings**: how they were selected. {AFTER_TEST}: for a row of the difference, after test figures had been seen.",
)


@dataclass(frozen=True)
class Difference:
    """The sum of `plus` minus the sum of `minus`; the claim is that it is above 0. `caveat` says what else differs between the rows."""

    label: str
    plus: tuple[Term, ...]
    minus: tuple[Term, ...]
    caveat: str = ""


@dataclass(frozen=True)
class Claim:
    """What a paper says, in our words, where it says so, and the differences that test it."""

    statement: str
    source: str
    differences: tuple[Difference, ...]
    not_run: str = ""  # why there are no differences to test it by


@dataclass(frozen=True)
class Outcome:
    """The result of a difference: ours with its margin (0 where rows have one run and no binomial error), and the printed one."""

    word: Word
    ours: float | None = None
    margin: float = 0.0
    printed: float | None = None
    spread: float | None = None
    seeds: int = 0  # of the row that has the fewest
    settings: str = ""


def decide(difference: Difference, found: Mapping[Term, tuple[Cell, Verdict]]) -> Outcome:
    """The outcome from cells and verdicts by trial and figure."""
    above, below = ([found[term] for term in terms] for terms in (difference.plus, difference.minus))
    rows = (*above, *below)
    printed = _total(above, below, [cell.printed for cell, _ in rows])
    ours = _total(above, below, [verdict.mean for _, verdict in rows])
    if ours is None:
        return Outcome("not run", printed=printed)
    margin = math.hypot(*comparable_margins([verdict for _, verdict in rows]))
    word: Word = "not told apart" if abs(ours) <= margin else "holds" if ours > 0 else "does not hold"
    spreads = [verdict.spread for _, verdict in rows if verdict.spread is not None]
    return Outcome(word, ours, margin, printed, max(spreads, default=None), min(verdict.seeds for _, verdict in rows), settings_of(rows))


def settings_of(rows: Rows) -> str:
    """How the settings of rows were selected, marked where test figures had a part in it."""
    kinds = " and ".join(dict.fromkeys(verdict.selection for _, verdict in rows if verdict.selection))
    return f"{kinds} {AFTER_TEST}".strip() if any(cell.after_test for cell, _ in rows) else kinds


def _total(above: Rows, below: Rows, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(above) + len(below):
        return None
    return math.fsum(known[: len(above)]) - math.fsum(known[len(above) :])


def by_term(rows: Rows) -> dict[Term, tuple[Cell, Verdict]]:
    """Cells and verdicts by trial and figure; of two cells of one trial the one with a printed figure counts."""
    printed_last = sorted(rows, key=lambda one: one[0].printed is not None)
    return {(cell.trial, cell.figure): (cell, verdict) for cell, verdict in printed_last if cell.trial is not None}


def outcomes(claims: Sequence[Claim], rows: Rows) -> Iterator[tuple[Claim, Difference, Outcome]]:
    """Every difference whose cells are among the rows, with its outcome, and claims that cannot be tested."""
    found = by_term(rows)
    for claim in claims:
        if claim.not_run:
            yield claim, Difference("", (), (), claim.not_run), Outcome("not run")
        for one in claim.differences:
            if all(term in found for term in (*one.plus, *one.minus)):
                yield claim, one, decide(one, found)


def claim_table(claims: Sequence[Claim], rows: Rows) -> list[str]:
    """Lines of Markdown, one for each difference; nothing where there is none."""
    found, lines, last = by_term(rows), list[str](), ""
    for claim, one, outcome in outcomes(claims, rows):
        name = f"{claim.statement} ({claim.source})"
        lines.append(
            line([name if name != last else "", *_columns(one, outcome, found[one.plus[0]][0] if one.plus else None)])
        )  # named once, in its first line
        last = name
    return [line(HEADS), "|" + "---|" * len(HEADS), *lines, ""] if lines else []


def line(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _columns(difference: Difference, outcome: Outcome, cell: Cell | None) -> list[str]:
    """In the unit of the cells that it is a difference of."""
    if cell is None:
        return [*[""] * 7, f"{outcome.word}: {difference.caveat}"]
    printed, ours = (signed(cell, value) for value in (outcome.printed, outcome.ours))
    margin = "" if outcome.ours is None else cell.text(outcome.margin) if outcome.margin else "none: one run per row"
    word = ", ".join([outcome.word, *_against_print(outcome)]) + (
        f"; {difference.caveat}" if difference.caveat and outcome.ours is not None else ""
    )
    return [difference.label, printed, ours, margin, cell.text(outcome.spread), str(outcome.seeds or ""), outcome.settings, word]


def signed(cell: Cell, value: float | None) -> str:
    """A difference in the unit of a cell, with its sign; empty for None."""
    if value is None:
        return ""
    text = cell.text(abs(value))
    return text if not text.strip("0.") else f"{'-' if value < 0 else '+'}{text}"


def _against_print(outcome: Outcome) -> list[str]:
    """Whether our difference is farther than its margin from the printed one, which a word about 0 does not say."""
    if outcome.ours is None or outcome.printed is None or abs(outcome.ours - outcome.printed) <= outcome.margin:
        return []
    return ["less than printed" if outcome.ours < outcome.printed else "more than printed"]


def restart_table(restarts: Mapping[str, Term], rows: Rows) -> list[str]:
    """Best and worst training of each row, which is what local optima cost: every seed has other first weights and other batches."""
    found, lines = by_term(rows), list[str]()
    for label, (cell, verdict) in {label: found[term] for label, term in restarts.items() if term in found}.items():
        if len(verdict.values) > 1:
            low, high = min(verdict.values), max(verdict.values)
            lines.append(line([label, cell.unit, str(len(verdict.values)), f"{low:.2f}", f"{high:.2f}", f"{high - low:.2f}"]))
    if not lines:
        return []
    return [
        "NCA is not convex, and the paper leaves local optima to future work. The trainings of a row differ in first weights and batches;",
        "the range is what a single training risks.",
        "",
        "| row | unit | trainings | lowest | highest | range |",
        "|---|---|---|---|---|---|",
        *lines,
        "",
    ]
