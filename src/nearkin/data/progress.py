"""How the data speak: one line at a time, to whoever was handed in as `report`; nothing here prints.

`report=print` is enough. Work that takes long sends `Progress`, which reads as a line of text and also carries the
numbers, so that a terminal may draw a bar instead.
"""

import time
import warnings
from collections.abc import Callable

Report = Callable[[str], None]
PAUSE = 1.0  # seconds between two lines of progress: often enough to see, seldom enough to read


class Progress(str):
    """A line such as 'train.mat: 17 of 170 MB (10 %)' that knows `what`, `done` and `total` (None when unknown)."""

    what: str
    done: int
    total: int | None

    def __new__(cls, what: str, done: int, total: int | None, unit: str = "", scale: int = 1) -> "Progress":
        known = "" if total is None else f" of {_count(total, scale)}"
        share = f" ({100 * done // total} %)" if total else ""
        line = super().__new__(cls, f"{what}: {_count(done, scale)}{known}{unit and ' ' + unit}{share}")
        line.what, line.done, line.total = what, done, total
        return line


class Ticker:
    """Sends progress at most once in `PAUSE` seconds, and always when the total is reached."""

    def __init__(self, report: Report | None, what: str, total: int | None, unit: str = "", scale: int = 1) -> None:
        self.report, self.what, self.total, self.unit, self.scale = report, what, total, unit, scale
        self.last = time.monotonic()

    def update(self, done: int) -> None:
        now = time.monotonic()
        if self.report is None or (now - self.last < PAUSE and done != self.total):
            return
        self.last = now
        self.report(Progress(self.what, done, self.total, self.unit, self.scale))


def tell(report: Report | None, line: str) -> None:
    """Good to know: said when somebody listens."""
    if report is not None:
        report(line)


def caution(report: Report | None, line: str) -> None:
    """Must not go unseen (data left out): a Python warning when nobody listens."""
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
