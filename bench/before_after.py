"""Two checkouts timed against each other: `python -m bench.before_after OTHER` prints this one's times over those of OTHER.

Forward and backward of losses on every route, one thread, best of interleaved rounds, each round in a fresh process.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TIMED = """import json
import time

import torch
torch.set_num_threads(1)
import nearkin as nk
from nearkin import *
normalized = next(getattr(nk, name) for name in dir(nk) if name.lower() in ("normalizedsoftmax", "normali" + "sedsoftmax"))
def timed(make, n, d, classes, reps):
    torch.manual_seed(0)
    o = make(); z = torch.randn(n, d); y = torch.arange(n) % classes
    best = 1e9
    for _ in range(reps + 2):
        x = z.clone().requires_grad_(); t = time.process_time(); l = o(x, y); l.backward(); best = min(best, time.process_time() - t)
    return best * 1e3
out = {}
for n in (64, 256, 1024):
    out[f"NCA {n}x128"] = timed(lambda: NCA(), n, 128, 16, 20 if n < 1024 else 8)
out["NCA streamed 6000x64"] = timed(lambda: NCA(), 6000, 64, 10, 2)
out["NCA torch tiles 4000x64"] = timed(lambda: NCA(engine="torch"), 4000, 64, 10, 2)
out["NCARegression streamed 4000x32"] = timed(lambda: NCARegression(), 4000, 32, 10, 2)
for n in (64, 256):
    out[f"Triplet {n}x128"] = timed(lambda: Triplet(), n, 128, 16, 10)
    out[f"Contrastive {n}x128"] = timed(lambda: Contrastive(), n, 128, 16, 10)
    out[f"NPair {n}x128"] = timed(lambda: NPair(), n, 128, n // 2, 10)
    out[f"Angular {n}x128"] = timed(lambda: Angular(), n, 128, n // 2, 10)
    out[f"Softmax 1000 classes {n}x128"] = timed(lambda: Softmax(1000, 128), n, 128, 16, 10)
    out[f"normalized softmax 1000 {n}x128"] = timed(lambda: normalized(1000, 128), n, 128, 16, 10)
out["PrecisionAtK 2500x64 (selected)"] = timed(lambda: PrecisionAtK(), 2500, 64, 50, 2)
print(json.dumps(out))
"""


def measured(checkout: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", TIMED], capture_output=True, text=True, check=True, env=environment)
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    best: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for at, checkout in enumerate((arguments.other, Path(__file__).parents[1])):
            for name, value in measured(checkout).items():
                times = best.setdefault(name, [float("inf")] * 2)
                times[at] = min(times[at], value)
    print("| case | other, ms | this, ms | this / other |\n|---|---:|---:|---:|")
    for name, (before, after) in best.items():
        print(f"| {name} | {before:.2f} | {after:.2f} | {after / before:.2f} |")


if __name__ == "__main__":
    main()
