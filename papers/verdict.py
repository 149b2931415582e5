"""Our figure against the printed one: mean, spread, and a one-word verdict."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from papers.cell import Cell

Word = Literal["reproduced", "better", "short", "cited", "not run", "diverged", "ours"]
ROUNDING = 1e-9  # 100 (1 - 0.99) is a little above 1
TEST_SIZE = {"mnist": 10_000, "cifar10": 10_000, "cifar100": 10_000, "digits": 360, "svhn": 26_032, "cub-200-2011": 5_794, "dogs": 8_580}
TEST_SIZE |= {"omniglot": 13_180}
HELD_OUT_SIZE = {"cifar10": 5_000, "cifar100": 5_000, "omniglot-200": 1_000}  # of the training part: a tenth, or a quarter of the last
Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """The result for one cell. `margin` is the half-width within which a printed figure counts as reproduced."""

    word: Word
    mean: float | None = None
    spread: float | None = None  # standard deviation over trainings; None for a single one
    seeds: int = 0  # different ones that have a figure
    margin: float = 0.0
    seconds: float | None = None
    beside: int = 0  # number of other runs that shared the machine while the seconds were taken
    device: str = ""
    values: tuple[float, ...] = ()  # of every training
    latest: tuple[float, ...] = ()  # of the latest training of every seed
    chosen: str = ""  # what tuning chose, or the members of an ensemble
    selection: str = ""  # how the settings were selected
    held_out: float | None = None  # figure of the chosen candidate on its held-out part
    extra: float | None = None  # mean of the cell's second figure
    diverged: int = 0  # seeds without a figure, because the training diverged

    def reached(self, cell: Cell) -> bool | None:
        """Whether our mean is at least as good as the printed figure, or as the target where nothing is printed."""
        if self.mean is None or cell.threshold is None:
            return None
        ahead = cell.threshold - self.mean if cell.smaller_is_better else self.mean - cell.threshold
        return ahead > -ROUNDING

    def state(self, cell: Cell) -> str:
        """The word, with a mark for `reached`."""
        reached = self.reached(cell)
        return self.word + ("" if reached is None else " ✓" if reached else " ✗")

    @property
    def count(self) -> str:
        """The number of seeds, and of trainings where seeds were trained more than once."""
        again = f" ({len(self.values)} trainings)" if len(self.values) > len(self.latest) > 0 else ""
        return f"{self.seeds}{again}" if self.seeds else ""

    def repeats(self, cell: Cell) -> str:
        """A sentence on seeds that were trained more than once; empty where none was, or where it makes no difference."""
        if len(self.values) == len(self.latest):
            return ""
        spread = f" ± {cell.text(statistics.stdev(self.latest))}" if len(self.latest) > 1 else ""
        latest = f"{cell.text(statistics.fmean(self.latest))}{spread}"
        if latest == f"{cell.text(self.mean)} ± {cell.text(self.spread)}":
            return ""
        return f"mean of all {len(self.values)} trainings of {self.seeds} seeds; the latest of each seed alone have {latest}"


def judge(cell: Cell, runs: Runs, data: str | None, held_out: bool = False) -> Verdict:
    """The verdict on a cell from the runs of its trial, measured on the test part of the data or on what was held out.

    Every training counts. A run marked as "earlier" was trained again with the same seed and settings.
    """
    if cell.trial is None:
        return Verdict("not run" if cell.unavailable else "cited")
    ended = [run for run in runs if run["figures"]]
    diverged = len(runs) - len(ended)
    if runs and not ended:
        return Verdict("diverged", diverged=diverged, device=str(runs[0]["device"]))
    counted = [run for run in ended if cell.unit != "seconds" or not run.get("beside")]  # times of runs that shared a GPU do not count
    found = [(run, value) for run in counted if (value := cell.value(_measured(run))) is not None]
    if not found:
        return Verdict("not run", diverged=diverged)
    values = tuple(value for _, value in found)
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if len(values) > 1 else None
    margin = max(2 * (spread or 0.0), _binomial(cell, mean, (HELD_OUT_SIZE if held_out else TEST_SIZE).get(data or "")), _drawn(cell, runs))
    second = [value for run in counted if (value := replace(cell, figure=cell.extra).value(_measured(run))) is not None]
    now = [run for run in ended if "earlier" not in run] or ended
    beside = min(run.get("beside", 0) for run in now)
    return Verdict(
        _word(cell, mean, margin),
        mean,
        spread,
        len({run.get("seed", number) for number, (run, _) in enumerate(found)}),
        margin,
        statistics.fmean(run["seconds"] for run in now if run.get("beside", 0) == beside),
        beside,
        str(ended[0]["device"]),
        values,
        tuple(value for run, value in found if "earlier" not in run),
        extra=statistics.fmean(second) if second else None,
        diverged=diverged,
    )


def _measured(run: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a run, and its seconds among them."""
    return {**run["figures"], **{name: run[name] for name in ("seconds", "whole_seconds") if name in run}}


def comparable_margins(rows: Sequence[Verdict]) -> list[float]:
    """Margins of rows that are compared: a row with a single seed takes the widest deviation over seeds among the others."""
    seeds = max((2 * row.spread for row in rows if row.spread is not None), default=0.0)
    return [row.margin if row.seeds > 1 else max(row.margin, seeds) for row in rows]


def _word(cell: Cell, mean: float, margin: float) -> Word:
    if cell.printed is None:
        return "ours"
    if abs(mean - cell.printed) <= min(margin, abs(cell.printed)):  # runs that scatter wider than the figure itself do not agree with it
        return "reproduced"
    return "better" if (mean < cell.printed) == cell.smaller_is_better else "short"


def _drawn(cell: Cell, runs: Runs) -> float:
    """Half the mean width of the runs' intervals for the figure, over queries or over starts of k-means."""
    spans = [ends for run in runs if (ends := run.get("intervals", {}).get(cell.figure)) is not None]
    if not spans:
        return 0.0
    scale = 100 if cell.unit.endswith("%") else 1
    return scale * statistics.fmean((high - low) / 2 for low, high in spans)


def _binomial(cell: Cell, mean: float, size: int | None) -> float:
    """Half the 95 % binomial interval of a share counted on so many points, in percent; 0 for other units."""
    if size is None or not cell.unit.endswith("%"):
        return 0.0
    share = min(max(mean / 100, 1 / size), 1 - 1 / size)
    return 100 * 1.96 * math.sqrt(share * (1 - share) / size)
