"""Memory and seconds of a large table: 500,000 rows of 30 mixed columns are fitted, and 10,000 others predicted.

    python -m bench.tables_large --out docs/bench-tables-large.json

The table is made here: this is a statement about memory. Numbers with missing cells, categories, booleans and dates; the class depends on
some of each. Few epochs are enough, because each needs as much memory as the last.
"""

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from nearkin.estimators import TabularNCAClassifier

NUMBERS, CATEGORIES, BOOLEANS, DATES = 20, (3, 5, 12, 40, 200, 900), 2, 2
COLUMNS = NUMBERS + len(CATEGORIES) + BOOLEANS + DATES


def made_table(n: int, seed: int) -> tuple[pl.DataFrame, np.ndarray]:
    """n rows of 30 columns and their classes 0..4."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((n, NUMBERS), dtype=np.float32)
    codes = [rng.integers(0, count, n) for count in CATEGORIES]
    flags = rng.random((n, BOOLEANS)) < 0.3
    days = rng.integers(0, 7000, (n, DATES))
    score = numbers[:, 0] * numbers[:, 1] + np.abs(numbers[:, 2]) + np.isin(codes[2], (1, 4, 7)) + flags[:, 0] + np.sin(days[:, 0] / 365)
    classes = np.digitize(score, np.quantile(score, (0.2, 0.4, 0.6, 0.8)))
    missing = rng.random((n, NUMBERS)) < 0.02
    columns: dict[str, Any] = {f"number {i}": np.where(missing[:, i], np.nan, numbers[:, i]) for i in range(NUMBERS)}
    columns |= {f"category {i}": np.char.add("kind ", code.astype(str)) for i, code in enumerate(codes)}
    columns |= {f"flag {i}": flags[:, i] for i in range(BOOLEANS)}
    columns |= {f"date {i}": np.datetime64("2005-01-01") + days[:, i] for i in range(DATES)}
    return pl.DataFrame(columns), classes


def peak() -> float:
    """Gigabytes that the process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def measure(rows: int, queries: int, epochs: int) -> dict[str, object]:
    """Processor seconds and peak memory of each step."""
    table, classes = made_table(rows + queries, 0)
    seconds, memory = dict[str, float](), {"with the table": peak()}
    model = TabularNCAClassifier(epochs=epochs, random_state=0)

    def step(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        seconds[name], memory[f"after {name}"] = time.process_time() - began, peak()
        return found

    step("fit", lambda: model.fit(table[:rows], classes[:rows]))
    found = step("predict", lambda: model.predict(table[rows:]))
    return {
        "rows": rows,
        "columns": COLUMNS,
        "queries": queries,
        "epochs": epochs,
        "processor seconds": {name: round(value, 1) for name, value in seconds.items()},
        "peak gigabytes": {name: round(value, 2) for name, value in memory.items()},
        "accuracy": round(float((found == classes[rows:]).mean()), 4),
        "chance": 0.2,
        "threads": torch.get_num_threads(),
        "load": [round(one, 1) for one in os.getloadavg()],
        "machine": platform.machine(),
        "torch": torch.__version__,
    }


def main() -> None:
    """Print the figures as JSON, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    made = measure(arguments.rows, arguments.queries, arguments.epochs)
    text = json.dumps(made, indent=1) + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
