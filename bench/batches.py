"""A batch of everyday size: `python -m bench.batches [--out FILE.json]`.

NCA's loss and gradient as people call it, `NCA()(embeddings, labels)`, against pytorch-metric-learning's, 10 classes, d = 64. Points that
lie near together, as while something is learned, and points that lie far apart, of whose pairs most have exponentials that are too small
for a float. One thread's CPU seconds, best of interleaved rounds.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.contenders import differentiated, drawn, metric_learning
from bench.kernels import processor, versions
from bench.measure import interleaved
from nearkin import NCA

SIZES = (64, 128, 256, 512, 1024, 2048)
SPREADS = {"near": 0.3, "far": 1.0}  # standard deviations
DIMENSION, ROUNDS, PATIENCE = 64, 60, 20.0


def measured(n: int, spread: float, rounds: int) -> dict[str, Any]:
    """Milliseconds of both, and how many times ours the other's are."""
    embeddings, labels = drawn(n, DIMENSION)
    embeddings = spread * embeddings
    objective = NCA()
    tasks = {"nearkin": differentiated(lambda live: objective(live, labels), embeddings), "peer": metric_learning(embeddings, labels)}
    times = interleaved({name: (task, 1) for name, task in tasks.items()}, rounds, PATIENCE)
    ours, theirs = (1e3 * times[name]["cpu_s"] for name in tasks)
    return {"n": n, "ours_ms": round(ours, 3), "peer_ms": round(theirs, 3), "times": round(theirs / ours, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    about = {"command": "python -m bench.batches", "device": processor(), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    rows = []
    for name, spread in SPREADS.items():
        for n in SIZES:
            rows.append({"points": name, **measured(n, spread, arguments.rounds)})
            print(json.dumps(rows[-1]), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps({**about, "versions": versions(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
