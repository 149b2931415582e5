"""Progress on stderr: notes, and for training a live bar on a terminal or plain lines otherwise."""

from collections.abc import Mapping
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from nearkin.cli.terminal import Terminal
from nearkin.data.progress import Progress as ProgressLine

PACE = 600.0  # seconds over which the bar averages the speed: one step may take longer than rich's 30 seconds
LINES = 100  # printed epochs, at most; the log has all of them
EARLY, LONG = 5.0, 60.0  # print the time left after EARLY seconds, if it is at least LONG seconds
NOT_MEASURED = ("epoch", "loss", "steps", "points_per_second", "validation points")
OF_TRAINING = ("dimensions used",)  # all other figures are of the validation part, or say what they are of


def note(line: str) -> None:
    """Print a line to stderr; only results go to stdout."""
    Terminal(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)


class TrainingView:
    """A Reporter that shows loss, valid queries, validation figures, points per second and the time left."""

    def __init__(self, what: str = "training") -> None:
        self.what = what
        self.console = Terminal(stderr=True, highlight=False)
        text = TextColumn("{task.description}", table_column=Column())  # wraps where the terminal is narrow
        counts = (column(table_column=Column(no_wrap=True)) for column in (MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn))
        columns = (text, BarColumn(bar_width=12, table_column=Column(no_wrap=True)), *counts)
        self.bar = Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal, speed_estimate_period=PACE
        )
        self.task: TaskID | None = None
        self.reading: TaskID | None = None  # decoding, or computing features
        self.so_far = ""  # the figures of the last epoch
        self.lines = 0  # progress of the training at the last printed epoch, from 0 to LINES
        self.steps, self.first = 0, (0, 0.0)  # the total; the first step that ended, and when
        self.estimated = self.console.is_terminal  # whether the time left was printed; on a terminal the bar shows it

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def message(self, line: str) -> None:
        """Print a line above the bar; on a terminal, progress is a bar of its own."""
        if isinstance(line, ProgressLine) and self.console.is_terminal:
            if self.reading is None:
                self.reading = self.bar.add_task(line.what, total=line.total)
            speed = line.rpartition(", ")[2] if line.endswith("/s") else ""
            self.bar.update(self.reading, description=f"{line.what} {speed}", total=line.total, completed=line.done)
            if line.done == line.total:
                self.bar.remove_task(self.reading)
                self.reading = None
            return
        self.console.print(line, soft_wrap=True, markup=False)

    def confirm(self, question: str) -> bool:
        """Ask on the terminal; anything but y or yes is no."""
        self.bar.stop()
        answer = self.console.input(f"{question} [y/N] ", markup=False)
        self.bar.start()
        return answer.strip().lower() in ("y", "yes")

    def started(self, steps: int, done: int) -> None:
        """Show the bar."""
        self.task, self.steps = self.bar.add_task(self.what, total=steps, completed=done), steps

    def step(self, done: int, figures: Mapping[str, Any]) -> None:
        """Move the bar."""
        if self.task is not None:
            valid = f", valid {figures['valid']}" if "valid" in figures else ""
            self.bar.update(self.task, completed=done, description=f"loss {figures['loss']:.4f}{valid}{self.so_far}")
        if not self.first[0]:
            self.first = done, monotonic()
        elif not self.estimated and monotonic() - self.first[1] >= LONG:  # a long first epoch
            self._estimate(done, monotonic(), ", not counting validation")

    def _estimate(self, done: int, now: float, but: str = "") -> None:
        """Print the estimated time left once, after an epoch with its validation; the first step is a warm-up and is not counted."""
        before, since = self.first
        if self.estimated or not before or done <= before or now - since < EARLY:
            return
        left = (self.steps - done) * (now - since) / (done - before)
        if left >= LONG:
            self.message(f"{self.what}: about {timedelta(seconds=round(left))} left after {done:,} of {self.steps:,} steps{but}")
        self.estimated = True

    def epoch(self, figures: Mapping[str, Any]) -> None:
        """Print a line for every epoch, or every few of many; keep its speed and first validation figure next to the bar."""
        self._estimate(figures["steps"], monotonic())
        shown = {name: f"{name} {value:.{4 if abs(value) < 10 else 1}f}" for name, value in figures.items() if name not in NOT_MEASURED}
        held = [text for name, text in shown.items() if name not in OF_TRAINING]
        where = f"; validation ({figures['validation points']:,} points): " if "validation points" in figures else ", "
        rest = (where + ", ".join(held) if held else "") + "".join(f"; {text}" for name, text in shown.items() if name in OF_TRAINING)
        speed = f", {figures['points_per_second']:,} points/s"
        self.so_far = speed + (where + held[0] if held else "".join(f", {text}" for text in shown.values()))
        lines = figures["steps"] * LINES // max(self.steps, 1)
        if lines == self.lines:
            return
        self.lines = lines
        self.console.print(f"epoch {figures['epoch']}: loss {figures['loss']:.4f}{speed}{rest}", soft_wrap=True)
