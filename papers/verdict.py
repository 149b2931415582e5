"""Ours against the printed figure: mean, spread, and one word."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from papers.cell import Cell

Word = Literal["reproduced", "better", "short", "cited", "not run here", "diverged", "ours"]
ROUNDING = 1e-9  # 100 (1 - 0.99) is a little above 1
TEST_SIZE = {"mnist": 10_000, "cifar10": 10_000, "cifar100": 10_000, "digits": 360, "svhn": 26_032, "cub-200-2011": 5_794, "dogs": 8_580}
HELD_OUT_SIZE = {"cifar10": 5_000}  # a tenth of the training part


@dataclass(frozen=True)
class Verdict:
    """What became of a cell. `margin` is the half-width within which a printed figure counts as reproduced."""

    word: Word
    mean: float | None = None
    spread: float | None = None  # standard deviation over seeds; None for a single one
    seeds: int = 0  # that have a figure
    margin: float = 0.0
    seconds: float | None = None
    beside: int = 0  # how many other runs shared the machine while the seconds were taken
    device: str = ""
    values: tuple[float, ...] = ()  # of every seed
    chosen: str = ""  # in words: what tuning took, or the members of an ensemble
    held_out: float | None = None  # what the tuning's best run had on its held-out part
    diverged: int = 0  # seeds that have no figure, because the training diverged

    def reached(self, cell: Cell) -> bool | None:
        """Whether our mean is at least what was wanted (the printed figure unless the cell says otherwise)."""
        if self.mean is None or cell.goal is None:
            return None
        ahead = cell.goal - self.mean if cell.smaller_is_better else self.mean - cell.goal
        return ahead > -ROUNDING

    def state(self, cell: Cell) -> str:
        """The word, with a mark that says whether what was wanted is reached, where anything was."""
        reached = self.reached(cell)
        return self.word + ("" if reached is None else " ✓" if reached else " ✗")


def judge(cell: Cell, runs: Sequence[Mapping[str, Any]], data: str | None, held_out: bool = False) -> Verdict:
    """The verdict on a cell from the runs of its trial, measured on the test part of the data, or on what was held out."""
    if cell.trial is None:
        return Verdict("cited")
    ended = [run for run in runs if run["figures"]]
    diverged = len(runs) - len(ended)
    if runs and not ended:
        return Verdict("diverged", diverged=diverged, device=str(runs[0]["device"]))
    counted = [run for run in ended if cell.unit != "seconds" or not run.get("beside")]  # a time beside other runs is no time
    values = [value for run in counted if (value := cell.value(_measured(run))) is not None]
    if not values:
        return Verdict("not run here", diverged=diverged)
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if len(values) > 1 else None
    margin = max(2 * (spread or 0.0), _binomial(cell, mean, (HELD_OUT_SIZE if held_out else TEST_SIZE).get(data or "")), _drawn(cell, runs))
    beside = min(run.get("beside", 0) for run in ended)
    seconds = statistics.fmean(run["seconds"] for run in ended if run.get("beside", 0) == beside)
    device = str(ended[0]["device"])
    return Verdict(_word(cell, mean, margin), mean, spread, len(values), margin, seconds, beside, device, tuple(values), diverged=diverged)


def _measured(run: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a run, and its seconds among them."""
    return {**run["figures"], **{name: run[name] for name in ("seconds", "whole_seconds") if name in run}}


def margins_beside(rows: Sequence[Verdict]) -> list[float]:
    """Of rows that are compared: one with a single seed cannot know how far seeds lie apart, and takes the widest deviation among them."""
    seeds = max((2 * row.spread for row in rows if row.spread is not None), default=0.0)
    return [row.margin if row.seeds > 1 else max(row.margin, seeds) for row in rows]


def _word(cell: Cell, mean: float, margin: float) -> Word:
    if cell.printed is None:
        return "ours"
    if abs(mean - cell.printed) <= margin:
        return "reproduced"
    return "better" if (mean < cell.printed) == cell.smaller_is_better else "short"


def _drawn(cell: Cell, runs: Sequence[Mapping[str, Any]]) -> float:
    """Half the width of the intervals over queries (or over starts of k-means) that the runs give for the figure, on average."""
    spans = [ends for run in runs if (ends := run.get("intervals", {}).get(cell.figure)) is not None]
    if not spans:
        return 0.0
    scale = 100 if cell.unit.endswith("%") else 1
    return scale * statistics.fmean((high - low) / 2 for low, high in spans)


def _binomial(cell: Cell, mean: float, size: int | None) -> float:
    """95 % of what counting a share on so many points leaves open, in percent; 0 for other units."""
    if size is None or not cell.unit.endswith("%"):
        return 0.0
    share = min(max(mean / 100, 1 / size), 1 - 1 / size)
    return 100 * 1.96 * math.sqrt(share * (1 - share) / size)
