"""The long tests say what they counted: one JSON line each, in the folder that NEARKIN_SOAK_RESULTS names."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def record(name: str, count: int, outcome: str, seconds: float) -> None:
    """Write one line; `python docs/promises.py --collect FOLDER` puts it on the page of promises."""
    folder = os.environ.get("NEARKIN_SOAK_RESULTS")
    if folder:
        path = Path(folder) / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = {"name": name, "count": count, "outcome": outcome, "seconds": round(seconds, 1)}
        path.write_text(json.dumps(line) + "\n", encoding="utf-8")


class Count:
    """What a long test has done so far."""

    def __init__(self) -> None:
        self.count, self.outcome = 0, ""


@contextmanager
def counted(name: str) -> Iterator[Count]:
    """Time a long test; its count and outcome are set inside, and recorded only if it passes."""
    found, began = Count(), time.perf_counter()
    yield found
    record(name, found.count, found.outcome, time.perf_counter() - began)
