"""What contests with protocols of their own share: rows that are saved one by one, and mean and spread over seeds."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from traceback import print_exception
from typing import Any

import numpy as np

from nearkin.data.disk import replacing
from nearkin.train.reporter import Silence


class Printing(Silence):
    """Prints messages."""

    def message(self, line: str) -> None:
        print(line, flush=True)


class Rows(dict[str, Any]):
    """Finished rows by name, read from a JSON file if there is one; `keep` saves another."""

    def __init__(self, target: Path) -> None:
        super().__init__(json.loads(target.read_text(encoding="utf-8")) if target.exists() else {})
        self.target = target

    def keep(self, key: str, row: dict[str, Any]) -> None:
        """Save a row."""
        self[key] = row
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.target) as file:
            file.write((json.dumps(self, indent=1, sort_keys=True) + "\n").encode())
        print(key, row, flush=True)

    def write_page(self, text: str) -> None:
        """Write the page of the rows, in the folder papers next to that of the results."""
        page = self.target.parent.parent / "papers" / f"{self.target.stem}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page}")


def run_rows(
    saved: Rows, keys: Iterable[str], row: Callable[..., dict[str, Any]], *given: Any, at_once: int = 1, seconds: float = float("inf")
) -> int:
    """Compute `row(key, *given)` for the keys that are not saved, each in a process of its own, and start none after so many seconds.

    A row that fails is reported and does not stop the others. Returns how many failed.
    """
    wanted, began, failed = [key for key in keys if key not in saved], time.monotonic(), 0
    with ProcessPoolExecutor(at_once, get_context("spawn")) as pool:
        waiting: dict[Future[dict[str, Any]], str] = {}
        while True:
            while wanted and len(waiting) < at_once and time.monotonic() - began < seconds:
                key = wanted.pop(0)
                waiting[pool.submit(row, key, *given)] = key
            if not waiting:
                return failed
            for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                key = waiting.pop(done)
                try:
                    saved.keep(key, done.result())
                except Exception as error:  # whatever it was: the other rows can be had
                    failed += 1
                    print(f"{key} failed: {type(error).__name__}: {error}", flush=True)
                    print_exception(error)


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation in percent."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return ""
    return f"{np.mean(known):.1f}" + (f" ± {np.std(known, ddof=1):.1f}" if len(known) > 1 else "")
