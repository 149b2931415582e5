"""What a terminal shows while a verb works: notes, and for training one live bar; plain lines when nobody is watching."""

from collections.abc import Mapping
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

PACE = 600.0  # seconds over which the bar takes the pace: one step may take longer than the half minute that is usual
LINES = 100  # of epochs, at most: the log has them all
EARLY, LONG = 5.0, 60.0  # seconds of steps, after which it is told how long the rest will take; unless that is soon over


def note(line: str) -> None:
    """A line beside the answer, which goes to stdout alone."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)


class TrainingView:
    """A Reporter that draws: loss, valid queries, validation figures, points a second, time left."""

    def __init__(self, what: str = "training") -> None:
        self.what = what
        self.console = Console(stderr=True, highlight=False)
        words = TextColumn("{task.description}", table_column=Column())  # goes on in a second line where the terminal is narrow
        counts = (made(table_column=Column(no_wrap=True)) for made in (MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn))
        columns = (words, BarColumn(bar_width=12, table_column=Column(no_wrap=True)), *counts)
        self.bar = Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal, speed_estimate_period=PACE
        )
        self.task: TaskID | None = None
        self.so_far = ""  # the figures of the last epoch
        self.lines = 0  # of LINES: how far the training was when an epoch last had one
        self.steps, self.first = 0, (0, 0.0)  # how many there will be; the first that was seen to end, and when
        self.foretold = self.console.is_terminal  # how long it will take, which the bar tells where there is one

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def message(self, line: str) -> None:
        """A line above the bar."""
        self.console.print(line, soft_wrap=True, markup=False)

    def started(self, steps: int, done: int) -> None:
        """The bar appears."""
        self.task, self.steps = self.bar.add_task(self.what, total=steps, completed=done), steps

    def step(self, done: int, figures: Mapping[str, Any]) -> None:
        """The bar moves."""
        if self.task is not None:
            valid = f", valid {figures['valid']}" if "valid" in figures else ""
            self.bar.update(self.task, completed=done, description=f"loss {figures['loss']:.4f}{valid}{self.so_far}")
        if not self.foretold:
            self._foretell(done, monotonic())

    def _foretell(self, done: int, now: float) -> None:
        """One line, early, on how long it will take; the first step warms up and is no measure."""
        before, since = self.first
        if not before:
            self.first = done, now
        elif now - since >= EARLY:
            left = (self.steps - done) * (now - since) / (done - before)
            if left >= LONG:
                self.message(f"{self.what}: about {timedelta(seconds=round(left))} to go after {done:,} of {self.steps:,} steps")
            self.foretold = True

    def epoch(self, figures: Mapping[str, Any]) -> None:
        """A line for every epoch, or every few of many; its speed and its first validation figure stay beside the bar."""
        told = ("epoch", "loss", "steps", "points_per_second")
        rest = [f", {name} {value:.{4 if abs(value) < 10 else 1}f}" for name, value in figures.items() if name not in told]
        speed = f", {figures['points_per_second']:,} points/s"
        self.so_far = speed + "".join(rest[:1])
        lines = figures["steps"] * LINES // max(self.steps, 1)
        if lines == self.lines:
            return
        self.lines = lines
        self.console.print(f"epoch {figures['epoch']}: loss {figures['loss']:.4f}{speed}{''.join(rest)}", soft_wrap=True)
