"""From a file of vectors to a page: seconds and memory of `nearkin explore`, on clustered vectors that are made here.

    python -m bench.vectors --out docs/bench-vectors.json                      60,000 x 384
    python -m bench.vectors --out docs/bench-vectors.json --points 1000000     the larger size: 15 minutes, 8 GB

Run it twice for a figure without the seconds in which numba compiles its loops, which it keeps for the next time.

The page is ready when its map by PCA and the exact neighbors of all points on it are there; t-SNE follows while it is used.
"""

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import nearkin
from nearkin.cli import main as command
from nearkin.serve.atlas.model_maps import Indexed, build_maps
from nearkin.serve.atlas.page_data import header

CLASSES = 100


def write_vectors(folder: Path, n: int, d: int) -> Path:
    """Vectors of length 1 around a hundred centers, with labels, in two files."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, n)
    centers = rng.normal(size=(CLASSES, d)).astype(np.float32)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, 65_536):
        some = centers[labels[start : start + 65_536]] + 1.5 * rng.standard_normal((min(65_536, n - start), d), dtype=np.float32)
        vectors[start : start + 65_536] = some / np.linalg.norm(some, axis=1, keepdims=True)
    vectors.flush()
    (folder / "labels.csv").write_text("label\n" + "".join(f"class {number}\n" for number in labels))
    return folder / "vectors.npy"


def measure(n: int, d: int) -> dict[str, object]:
    """Seconds of each step."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        source, out = write_vectors(folder, n, d), folder / "out"
        steps, busy, began, used = {}, {}, time.perf_counter(), time.process_time()

        def step(name: str) -> None:
            steps[name] = time.perf_counter() - began - sum(steps.values())
            busy[name] = time.process_time() - used - sum(busy.values())

        arguments = ["--labels", str(folder / "labels.csv"), "--out", str(out), "--no-serve"]
        assert command(["explore", str(source), *arguments, "--no-evaluation"]) == 0
        step("index")
        assert command(["explore", str(out), "--no-serve"]) == 0
        step("evaluation")
        collection = nearkin.open_index(out)
        maps = next(build_maps([Indexed(collection.folder, collection.index)], "pca", lambda line: print(line, file=sys.stderr)))
        size = len(json.dumps(header(maps)))
        step("neighbors and map")
    return {
        "points": n,
        "dimensions": d,
        "shown": len(maps[0].table),
        "seconds": {name: round(value, 1) for name, value in steps.items()},
        "page ready": round(sum(steps.values()), 1),
        "processor seconds by step": {name: round(value, 1) for name, value in busy.items()},
        "processor seconds": round(sum(busy.values()), 1),
        "page megabytes": round(size / 1e6, 1),
        "peak gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "threads": torch.get_num_threads(),
        "load": [round(one, 1) for one in os.getloadavg()],
        "machine": platform.machine(),
    }


def main() -> None:
    """Print the figures as JSON, and add them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--out", type=Path, help="a JSON file whose row of this size is replaced")
    arguments = parser.parse_args()
    made = measure(arguments.points, arguments.dimensions)
    print(json.dumps(made, indent=1))
    if arguments.out:
        rows = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"] if arguments.out.exists() else []
        kept = [row for row in rows if (row["points"], row["dimensions"]) != (made["points"], made["dimensions"])]
        rows = sorted([*kept, made], key=lambda row: (row["points"], row["dimensions"]))
        arguments.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
