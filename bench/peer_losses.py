"""Time of every loss that pytorch-metric-learning has, too: loss and gradient, with equal values, for 64 to 1,024 points.

python -m bench.peer_losses [--sizes 64 256 1024] [--device cpu] [--out docs/bench-peer-losses.json]

The pairs are those of docs/migration_table.py, with 128 dimensions in float32. Both take turns, in one process, and the median of the
ratios is reported; on a CPU it is CPU time. Larger sizes are left out for a pair that took more than 0.05 s on their side: some of theirs
grow with the fourth power.
"""

import argparse
import json
import platform
import statistics
import sys
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "docs"))
import migration_table as table

FIXED = ("AngularLoss", "NPairsLoss", "SelfSupervisedLoss", "VICRegLoss", "CrossBatchMemory")  # their rows are made for 24 points
HEADED = ("Face", "Softmax", "Proxy", "SoftTriple")  # with vectors of a few classes; the others get four points of each class
TURNS, WARM = 15, 5  # on CUDA the third call of a size is recorded
table.DIMENSION, table.CLASSES, table.DTYPE = 128, 64, torch.float32


class NotMeasuredError(Exception):
    """Their loss does not run on this device."""


def timed(loss: Any, z: torch.Tensor) -> float:
    """Seconds of one loss and its gradients, of the embeddings and of class vectors where there are any, as a training step takes them."""
    live = z.clone().requires_grad_()
    if z.is_cuda:
        torch.cuda.synchronize()
    clock = time.perf_counter if z.is_cuda else time.process_time
    start = clock()
    loss(live).backward()
    if z.is_cuda:
        torch.cuda.synchronize()
    return clock() - start


def measured(entry: table.Entry, n: int, device: str) -> dict[str, float]:
    """Milliseconds of theirs and ours, and how many times longer theirs takes."""
    assert entry.check is not None
    headed = any(word in entry.theirs for word in HEADED)
    labels = torch.arange(n, device=device) % table.CLASSES if headed else torch.arange(n, device=device) // 4
    z = torch.randn(n, table.DIMENSION, device=device)
    try:
        theirs, ours = entry.check(table.Batch(z, labels, labels))
        timed(theirs, z)
    except (TypeError, RuntimeError, ValueError) as error:
        raise NotMeasuredError(f"{str(error).splitlines()[0]}") from error
    for loss in (theirs, ours) * WARM:
        timed(loss, z)
    turns = [(timed(theirs, z), timed(ours, z)) for _ in range(TURNS)]
    their, mine = (1000 * statistics.median(some) for some in zip(*turns, strict=True))
    return {"theirs ms": round(their, 3), "ours ms": round(mine, 3), "ratio": round(statistics.median(a / b for a, b in turns), 2)}


def main() -> None:
    """Measure, print and, with --out, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of every row, of which the middle one counts")
    parser.add_argument("--only", nargs="+", metavar="LOSS", help="measure these again, and keep the other rows of --out")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = bool(arguments.only and arguments.out and arguments.out.exists())
    found: dict[str, dict[str, dict[str, float]]] = json.loads(arguments.out.read_text())["losses"] if kept else {}
    for entry in table.LOSSES:
        if entry.check is None or entry.theirs in FIXED or (arguments.only and entry.theirs not in arguments.only):
            continue
        for n in arguments.sizes:
            try:
                rounds = [measured(entry, n, arguments.device) for _ in range(arguments.rounds)]
            except NotMeasuredError as error:
                print(f"{entry.theirs:36}{n:6}  not measured: {error}", flush=True)
                continue
            row = sorted(rounds, key=lambda one: one["ratio"])[arguments.rounds // 2]
            found.setdefault(entry.theirs, {})[str(n)] = row
            times = f"theirs {row['theirs ms']:10.3f} ms  ours {row['ours ms']:9.3f} ms  ratio {row['ratio']:.2f}"
            print(f"{entry.theirs:36}{n:6}  {times}", flush=True)
            if arguments.out:  # after every row: a run that is stopped has measured something
                arguments.out.write_text(json.dumps({**about(arguments.device), "losses": found}, indent=1) + "\n")
            if row["theirs ms"] > 50:
                break


def about(device: str) -> dict[str, Any]:
    """Machine, date and versions."""
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU ({platform.machine()}), one thread"
    return {
        "device": where,
        "date": date.today().isoformat(),
        "versions": {"torch": torch.__version__, "pytorch-metric-learning": table.pml().__version__},
    }


if __name__ == "__main__":
    main()
