"""The rows of table 1 of [lu2019sampling] by data set, and how one compares with others: what the summary is made of."""

from collections.abc import Mapping, Sequence

from papers.cell import AFTER_TEST, Cell
from papers.comparison import order
from papers.lu2019 import AFTER_TEST as CHANGED
from papers.lu2019 import BATCHES
from papers.lu2019_trials import MARGINS, OTHERS, OURS, SETS, TABLE_1, WITH_VECTORS, Loss
from papers.verdict import Verdict

HEADLINE = "P@1"
SINGLE: Mapping[str, Loss] = {
    **{f"11-{name}": loss for name, loss in {**TABLE_1, **OURS, **MARGINS, **OTHERS}.items()},
    **{f"any-{name}": loss for name, loss in WITH_VECTORS.items()},
    **{f"2-{name}": loss for name, loss in TABLE_1.items()},
}  # every row that is one trained model, by its batches and its name
NAMED = 3  # baselines that a sentence names
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


def plain_title(data: str) -> str:
    """The name of a data set alone."""
    return SETS[data].title.partition(" at ")[0]


def title(data: str) -> str:
    """The name of a data set, marked where its protocol was changed after test figures had been seen."""
    return plain_title(data) + (AFTER_TEST if data in CHANGED else "")


def with_batches(name: str) -> str:
    """A row and its batches, in words."""
    return f"{SINGLE[name].row} with {BATCHES[name.partition('-')[0]]}"


def known(one: Verdict) -> float:
    """The mean of a row that was run."""
    assert one.mean is not None
    return one.mean


def with_margin(one: Verdict) -> str:
    """Mean and margin, in words."""
    return f"{known(one):.1f} ± {one.margin:.1f}"


def best_first(baselines: Mapping[str, Verdict]) -> str:
    """The first few by their means, and dots for the others."""
    ranked = sorted(baselines, key=lambda row: -known(baselines[row]))
    return ", ".join([*(f"{row} {known(baselines[row]):.1f}" for row in ranked[:NAMED]), *(["..."] if len(ranked) > NAMED else [])])


def rank(own: Verdict, baselines: Mapping[str, Verdict]) -> str:
    """The numbers of baselines below, above (the first few by name), and not told apart."""
    signs = {row: order(own, one) for row, one in baselines.items()}
    above = {row: baselines[row] for row, sign in signs.items() if sign < 0}
    below, level = (list(signs.values()).count(sign) for sign in (1, 0))
    names = f" ({best_first(above)})" if above else ""
    return f"of {len(baselines)} others {below} below it, {len(above)} above{names}, {level} not told apart"


def items(texts: Sequence[str]) -> list[str]:
    """Items of a Markdown list."""
    return [f"- {one}" for one in texts]
