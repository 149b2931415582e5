"""Progress and warnings as lines of text for a function that the caller passes as `report`; nothing here prints.

`report=print` is enough. Long work sends `Progress` lines, which also carry their numbers, so that a terminal can draw a bar.
"""

import time
import warnings
from collections.abc import Callable

Report = Callable[[str], None]
PAUSE = 1.0  # seconds between two lines of progress


class Progress(str):
    """A line of progress, such as 'train.mat: 17.0 of 170.0 MB (10 %)', with its numbers as attributes.

    Parameters
    ----------
    what : str
        What is being done.
    done : int
        How much of it is done.
    total : int or None
        How much there is to do; None if unknown.
    unit : str, default=""
        Unit to print.
    scale : int, default=1
        Divide the printed numbers by this.
    rate : str, default=""
        Speed to print, such as "120 images/s".

    Examples
    --------
    >>> from nearkin.data import Progress
    >>> line = Progress("train.mat", 17_000_000, 170_000_000, "MB", 1_000_000)
    >>> print(line)
    train.mat: 17.0 of 170.0 MB (10 %)
    >>> line.done
    17000000
    """

    what: str
    done: int
    total: int | None

    def __new__(cls, what: str, done: int, total: int | None, unit: str = "", scale: int = 1, rate: str = "") -> "Progress":
        known = "" if total is None else f" of {_count(total, scale)}"
        share = f" ({100 * done // total} %)" if total else ""
        line = super().__new__(cls, f"{what}: {_count(done, scale)}{known}{unit and ' ' + unit}{share}{rate and ', ' + rate}")
        line.what, line.done, line.total = what, done, total
        return line


class Ticker:
    """Report progress at most once in `PAUSE` seconds, and always when the total is reached."""

    def __init__(self, report: Report | None, what: str, total: int | None, unit: str = "", scale: int = 1) -> None:
        self.report, self.what, self.total, self.unit, self.scale = report, what, total, unit, scale
        self.began = self.last = time.monotonic()

    def update(self, done: int) -> None:
        now = time.monotonic()
        if self.report is None or (now - self.last < PAUSE and done != self.total):
            return
        self.last = now
        rate = done / max(now - self.began, 1e-9)
        shown = f"{rate:,.{0 if rate >= 10 else 1}f} {self.unit}/s" if self.unit and self.scale == 1 else ""
        self.report(Progress(self.what, done, self.total, self.unit, self.scale, shown))


def inform(report: Report | None, line: str) -> None:
    """Report a line, if there is a reporter."""
    if report is not None:
        report(line)


def warn(report: Report | None, line: str) -> None:
    """Report a line that must be seen (data were left out); without a reporter it is a Python warning."""
    if report is None:
        warnings.warn(line, stacklevel=3)
    else:
        report(line)


def few(names: list[str], limit: int = 10) -> str:
    """'a, b, c and 7 more': the first `limit` names and the count of the rest."""
    rest = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


def _count(amount: int, scale: int) -> str:
    return f"{amount / scale:,.1f}" if scale > 1 else f"{amount:,}"
