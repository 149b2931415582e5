"""Seconds to predict 10,000 rows of a table from 50,000 by soft neighbors, and by LightGBM.

    python -m bench.tables_prediction --out docs/bench-tables-prediction.json

Two threads for both. The table is made here, and the encoder is trained for one epoch, because neither changes the work of a prediction.
The shares are compared with those in float64 of the same embeddings.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearkin.estimators import TabularNCAClassifier

THREADS, COLUMNS, REPEATS = 2, 20, 7
CHECKED = 500  # queries whose shares are compared


def made_table(n: int) -> tuple[np.ndarray, np.ndarray]:
    """n rows of numbers and their classes 0 and 1."""
    x = np.random.default_rng(0).standard_normal((n, COLUMNS), dtype=np.float32)
    return x, (x[:, 0] * x[:, 1] + np.abs(x[:, 2]) + x[:, 3] / 2 > 0.7).astype(np.int64)


def seconds(work: Callable[[], Any]) -> dict[str, float]:
    """The least wall seconds and processor seconds of some calls."""
    work()
    walls, used = [], []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        used.append(time.process_time() - cpu)
    return {"wall": round(min(walls), 3), "processor": round(min(used), 3)}


def largest_error(model: TabularNCAClassifier, training: tuple[np.ndarray, np.ndarray], queries: np.ndarray) -> float:
    """The largest difference of a share from that in float64, of the same float32 embeddings."""
    asked, known = (torch.from_numpy(model.embed(rows)).double() for rows in (queries, training[0]))
    shares = torch.softmax(-torch.cdist(asked, known) / model.temperatures_[0], 1)
    exact = shares @ torch.nn.functional.one_hot(torch.from_numpy(training[1])).double()
    return float((exact - torch.from_numpy(model.predict_proba(queries))).abs().max())


def measure(rows: int, queries: int) -> dict[str, object]:
    """The seconds of both, and the error of the shares."""
    torch.set_num_threads(THREADS)
    x, y = made_table(rows + queries)
    model = TabularNCAClassifier(epochs=1, random_state=0).fit(x[:rows], y[:rows])
    boosting = import_module("lightgbm").LGBMClassifier(n_jobs=THREADS, verbose=-1).fit(x[:rows], y[:rows])
    return {
        "rows": rows,
        "queries": queries,
        "columns": COLUMNS,
        "threads": THREADS,
        "TabularNCA seconds": seconds(lambda: model.predict(x[rows:])),
        "LightGBM seconds": seconds(lambda: boosting.predict(x[rows:])),
        "largest error of a share": largest_error(model, (x[:rows], y[:rows]), x[rows : rows + CHECKED]),
        "load": [round(one, 1) for one in os.getloadavg()],
        "machine": platform.machine(),
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    made = argparse.ArgumentParser("python -m bench.tables_prediction")
    made.add_argument("--rows", type=int, default=50_000, metavar="N")
    made.add_argument("--queries", type=int, default=10_000, metavar="N")
    made.add_argument("--out", metavar="FILE")
    arguments = made.parse_args()
    text = json.dumps(measure(arguments.rows, arguments.queries), indent=1)
    print(text)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")
