"""The results of soak tests: one line of JSON each, in the folder that the environment variable NEARKIN_SOAK_RESULTS names."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Count:
    """What a soak test has done so far."""

    def __init__(self) -> None:
        self.count, self.outcome = 0, ""


@contextmanager
def counted(name: str) -> Iterator[Count]:
    """Time a soak test; its count and outcome are set inside, and written down only if it passes."""
    found, began = Count(), time.perf_counter()
    yield found
    folder = os.environ.get("NEARKIN_SOAK_RESULTS")
    if folder:
        line = {"name": name, "count": found.count, "outcome": found.outcome, "seconds": round(time.perf_counter() - began, 1)}
        Path(folder).mkdir(parents=True, exist_ok=True)
        with (Path(folder) / "disk.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
