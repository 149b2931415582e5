"""The rows of table 1 of [lu2019sampling] by data set, and how one stands to others: what the answer is made of."""

from collections.abc import Mapping, Sequence

from papers.cell import Cell
from papers.contest import apart
from papers.lu2019 import BATCHES, MARGINS, OTHERS, OURS, SETS, TABLE_1, WITH_VECTORS, Loss
from papers.verdict import Verdict

HEADLINE = "P@1"
SINGLE: Mapping[str, Loss] = {
    **{f"11-{name}": loss for name, loss in {**TABLE_1, **OURS, **MARGINS, **OTHERS}.items()},
    **{f"any-{name}": loss for name, loss in WITH_VECTORS.items()},
    **{f"2-{name}": loss for name, loss in TABLE_1.items()},
}  # every row that is one trained model, by its batches and its name
NAMED = 3  # rivals that a sentence names
Rows = Sequence[tuple[Cell, Verdict]]
Found = Mapping[str, Verdict]  # P@1 of the rows of a data set, by batches and name


def by_trial(rows: Rows, column: str = HEADLINE) -> dict[str | None, Verdict]:
    """One column of every trial that was run."""
    return {cell.trial: verdict for cell, verdict in rows if cell.column == column and verdict.mean is not None}


def by_set(rows: Rows, column: str = HEADLINE) -> dict[str, Found]:
    """P@1, or another column, of every single model that was run, by data set."""
    known = by_trial(rows, column)
    found = {data: {name: known[trial] for name in SINGLE if (trial := f"lu2019-{data}-{name}") in known} for data in SETS}
    return {data: some for data, some in found.items() if some}


def title(data: str) -> str:
    """A data set's name alone."""
    return SETS[data].title.partition(" at ")[0]


def said(name: str) -> str:
    """A row and its batches, in words."""
    return f"{SINGLE[name].row} with {BATCHES[name.partition('-')[0]]}"


def known(one: Verdict) -> float:
    """The mean of a row that was run."""
    assert one.mean is not None
    return one.mean


def with_margin(one: Verdict) -> str:
    """Mean and margin, in words."""
    return f"{known(one):.1f} ± {one.margin:.1f}"


def best_first(rivals: Mapping[str, Verdict]) -> str:
    """The first few by their means, and dots for the others."""
    order = sorted(rivals, key=lambda row: -known(rivals[row]))
    return ", ".join([*(f"{row} {known(rivals[row]):.1f}" for row in order[:NAMED]), *(["..."] if len(order) > NAMED else [])])


def standing(own: Verdict, rivals: Mapping[str, Verdict]) -> str:
    """How many rivals are below, above (the first few by name), and not to be told apart."""
    signs = {row: apart(own, one) for row, one in rivals.items()}
    above = {row: rivals[row] for row, sign in signs.items() if sign < 0}
    below, level = (list(signs.values()).count(sign) for sign in (1, 0))
    return (
        f"of {len(rivals)} others {below} below it, {len(above)} above{f' ({best_first(above)})' if above else ''}, {level} not told apart"
    )


def listed(told: Sequence[str]) -> list[str]:
    """Items of a list."""
    return [f"- {one}" for one in told]
