"""Neighborhoods of a whole bank at once: `python -m bench.discovery [--out FILE.json] [--device cpu|cuda] [--points N ...]`.

The nearest other and the entropy of every one of N points of 128 numbers, as between two rounds of discovery. Points lie in clusters
of different tightness, so that neither is trivial. Wall seconds, best of the rounds; on CUDA also the largest memory beyond the bank.
Bars: 50,000 points within 20 s on two CPU cores and 1 s on an H200; a million on the H200 within its memory.
"""

import argparse
import json
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

from nearkin.compose.affinity import unit
from nearkin.train.discovery import discover

DIMENSION, CLUSTERS = 128, 1000
BARS = {("cpu", 50_000): 20.0, ("cuda", 50_000): 1.0}  # seconds


def bank(n: int, device: str) -> Tensor:
    """(n, 128) unit vectors around a thousand centers."""
    generator = torch.Generator().manual_seed(0)
    centers = unit(torch.randn(CLUSTERS, DIMENSION, generator=generator))
    spread = torch.rand(CLUSTERS, 1, generator=generator) * 0.1
    own = torch.randint(CLUSTERS, (n,), generator=generator)
    return unit(centers[own] + spread[own] * torch.randn(n, DIMENSION, generator=generator)).to(device)


def measured(n: int, device: str, rounds: int) -> dict[str, object]:
    """Seconds of `discover`, and what it took."""
    vectors, seconds = bank(n, device), []
    if device == "cuda":
        discover(vectors[:2000])  # libraries and kernels are loaded
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated() if device == "cuda" else 0
    for _ in range(rounds):
        started = time.perf_counter()
        found = discover(vectors)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    row: dict[str, object] = {"points": n, "device": device, "seconds": round(min(seconds), 3), "rounds": rounds}
    row["mean_entropy"] = round(float(found.entropy.double().mean()), 4)
    if device == "cuda":
        row["megabytes"] = round((torch.cuda.max_memory_allocated() - held) / 1e6)
    bar = BARS.get((device, n))
    return row if bar is None else {**row, "bar_seconds": bar, "met": min(seconds) <= bar}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--points", type=int, nargs="*", help="default: 50,000, and on CUDA a million, too")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts; a million points run once")
    arguments = parser.parse_args()
    cuda = arguments.device == "cuda"
    name = torch.cuda.get_device_name() if cuda else f"{platform.machine()}, {torch.get_num_threads()} threads"
    results: dict[str, object] = {"device": name, "date": datetime.now(UTC).isoformat(timespec="seconds"), "torch": torch.__version__}
    rows: list[dict[str, object]] = []
    for n in arguments.points or ((50_000, 1_000_000) if cuda else (50_000,)):
        rows.append(measured(n, arguments.device, arguments.rounds if n < 500_000 else 1))
        print(json.dumps(rows[-1]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps({**results, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
