"""A simulated billion: synthetic shards streamed through the real sharded search for as long as there is time; is the cost of a point flat?

    python -m bench.shards --minutes 15 --out docs/bench-shards.json

Every shard is made, written as Parquet, opened, searched exactly, joined with what was found so far, and removed. Copies of the queries
are planted in some shards: at the end each must be its query's nearest.
"""

import argparse
import json
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearkin.data.shards import About, Shard, open_shards, write_manifest, write_shard
from nearkin.search.exact import Scored, merge_scored, round_scored, score_nearest

D, K = 64, 10
BILLION = 10**9
WINDOWS = 20  # of the curve
EVERY = 5  # shards between two that hold a planted copy


class Stream:
    """Shards of `rows` points each, all different, and the positions of copies of the queries in them."""

    def __init__(self, rows: int, queries: np.ndarray) -> None:
        self.rows, self.queries = rows, queries
        self.drawn = np.random.default_rng(0).normal(size=(rows, D)).astype(np.float32)
        self.planted: dict[int, int] = {}  # query -> position

    def shard(self, number: int) -> Shard:
        """The drawn block turned by the number: cheaper than new random numbers, and as far from the queries."""
        draw = np.random.default_rng(number + 1)
        vectors = self.drawn[:, draw.permutation(D)] * draw.choice(np.array([-1, 1], np.float32), D)
        query = number // EVERY
        if number % EVERY == 0 and query < len(self.queries):
            row = int(draw.integers(self.rows))
            vectors[row] = self.queries[query]
            self.planted[query] = number * self.rows + row
        first = number * self.rows
        return Shard(np.arange(first, first + self.rows), vectors, None)


def streamed(minutes: float, rows: int, queries: int) -> dict[str, Any]:
    """Search shard after shard until the time is up; where it went, and whether what was planted was found."""
    chosen = np.random.default_rng(-1 % 2**32).normal(size=(queries, D)).astype(np.float32)
    stream, q = Stream(rows, chosen), torch.from_numpy(chosen)
    found: Scored | None = None
    took: list[dict[str, float]] = []
    score_nearest(q, stream.drawn[:1000], K)  # compiled before the clock runs
    until = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as place:
        while time.monotonic() < until:
            folder = Path(place)
            shard = stream.shard(len(took))
            began = time.perf_counter()
            write_manifest(folder, About("", D, "squared_euclidean"), [write_shard(folder, 0, shard)])
            written, cpu = time.perf_counter(), time.process_time()
            part = score_nearest(q, open_shards(folder), K)
            found = part if found is None else merge_scored(found, part, K)
            took.append({"write_s": written - began, "search_s": time.perf_counter() - written, "search_cpu_s": time.process_time() - cpu})
    assert found is not None
    nearest = round_scored(found).positions[:, 0]
    missed = [query for query, position in stream.planted.items() if int(nearest[query]) != position]
    return summary(took, rows, queries, found.references) | {"planted": len(stream.planted), "planted_missed": len(missed)}


def summary(took: list[dict[str, float]], rows: int, queries: int, points: int) -> dict[str, Any]:
    """The curve, its slope, and the billion."""
    own = [row["search_s"] for row in took]
    cpu = [row["search_cpu_s"] for row in took]
    curve = []
    for part in np.array_split(np.arange(len(took)), min(WINDOWS, len(took))):
        curve.append(
            {
                "points": int((part[-1] + 1) * rows),
                "search_us_per_point": 1e6 * float(np.median([own[i] for i in part])) / rows,
                "search_cpu_us_per_point": 1e6 * float(np.median([cpu[i] for i in part])) / rows,
            }
        )
    quarter = max(len(took) // 4, 1)
    wall, mean = float(np.median(own)), float(np.mean(own))
    return {
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "dimension": D,
        "k": K,
        "queries": queries,
        "rows_of_a_shard": rows,
        "shards": len(took),
        "points": points,
        "curve": curve,
        "search_s": sum(own),
        "write_s": sum(row["write_s"] for row in took),
        "search_ns_per_pair": 1e9 * wall / rows / queries,
        "search_cpu_ns_per_pair": 1e9 * float(np.median(cpu)) / rows / queries,
        "last_quarter_over_first": float(np.median(own[-quarter:]) / np.median(own[:quarter])),
        "last_quarter_over_first_cpu": float(np.median(cpu[-quarter:]) / np.median(cpu[:quarter])),
        "billion_s": {"by_the_median_shard": BILLION / rows * wall, "by_the_mean_shard": BILLION / rows * mean},
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = {"minutes": given.minutes, **streamed(given.minutes, given.rows, given.queries)}
    print(
        f"{found['points']:,} points in {found['shards']:,} shards, {found['queries']} queries: "
        f"{found['search_ns_per_pair']:.2f} ns a pair, "
        f"the last quarter costs {found['last_quarter_over_first']:.2f} of the first ({found['last_quarter_over_first_cpu']:.2f} by CPU "
        f"time); a billion would take {found['billion_s']['by_the_median_shard'] / 60:.0f} minutes; "
        f"{found['planted'] - found['planted_missed']} of {found['planted']} planted copies found; {found['peak_memory_mb']:.0f} MB"
    )
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
