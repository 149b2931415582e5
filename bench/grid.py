"""NCA's loss and gradient over a grid of sizes and widths, against torch.compile of the dense form and pytorch-metric-learning.

    python -m bench.grid --out docs/bench-grid-cpu.json
    python -m bench.grid --device cuda --out docs/bench-grid-cuda.json

Ours is the objective as users call it, `NCA(precision=...)(embeddings, labels)`: argument checks, the sort by label and the choice of an
engine are in its time. Everybody's best call counts: seconds until the device is idle or, on the CPU, the process's CPU seconds on one
thread, which do not depend on who else uses the machine. A run that was stopped goes on with the cells that are missing in the file. A peer
that runs out of memory or patience is left out of larger cells, and the table says so. `docs/performance.py` draws the ratios.
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.contenders import differentiated, metric_learning, plain_loss
from bench.measure import threads
from nearkin import NCA

WIDTHS = (16, 64, 128, 256, 384, 512, 768, 1024, 2048)
SIZES = {"cpu": (1024, 4096), "cuda": (1024, 4096, 16_384, 65_536)}
ODD = {"cpu": ((3001, 300), (1023, 1023), (16_384, 64), (16_384, 256)), "cuda": ((3001, 300), (30_011, 1023), (65_537, 17))}
PRECISIONS = {"cpu": ("highest",), "cuda": ("highest", "high", "fast")}
EXACT = 8192  # points up to which float64 is computed, for the errors
PATIENCE = 10.0  # seconds of one call above which a contender is not asked for larger cells
COMPILED, LIBRARY = "torch.compile of the dense form", "pytorch-metric-learning"

_compiled: Callable[[Tensor, Tensor], Tensor] = torch.compile(plain_loss)


def points(n: int, d: int, device: str) -> tuple[Tensor, Tensor]:
    """Embeddings of length 3, whose neighborhoods hold many points, and labels in no order."""
    generator = torch.Generator().manual_seed(n + d)
    embeddings = torch.randn(n, d, generator=generator) * (3 / math.sqrt(d))
    return embeddings.to(device), torch.randint(max(10, n // 100), (n,), generator=generator).to(device)


def contenders(
    embeddings: Tensor, labels: Tensor, device: str, without: Sequence[str] = (LIBRARY,)
) -> dict[str, Callable[[], tuple[Tensor, Tensor]]]:
    made = {}
    for precision in PRECISIONS[device]:
        objective = NCA(precision=precision)
        made[precision] = differentiated(lambda live, objective=objective: objective(live, labels), embeddings)  # type: ignore[misc]
    made[COMPILED] = differentiated(lambda live: _compiled(live, labels), embeddings)
    if LIBRARY not in without:
        made[LIBRARY] = metric_learning(embeddings, labels)
    return {name: evaluate for name, evaluate in made.items() if name not in without}


def milliseconds(evaluate: Callable[[], object], device: str) -> float:
    """One call: to the end of the device's work by the wall clock, or CPU time on one thread."""
    if device == "cpu":
        with threads(1):
            start = time.process_time()
            evaluate()
            return 1e3 * (time.process_time() - start)
    torch.cuda.synchronize()
    start = time.perf_counter()
    evaluate()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


class GivenUp(NamedTuple):
    """Why a contender is not asked for larger cells, and where that began."""

    why: str
    n: int
    d: int
    memory: bool

    def covers(self, n: int, d: int) -> bool:
        """Whether a cell takes at least as much memory, or at least as long."""
        return n >= self.n if self.memory else n * n * d >= self.n * self.n * self.d


def cell(n: int, d: int, device: str, given_up: dict[str, GivenUp], without: Sequence[str] = ()) -> dict[str, Any]:
    """Milliseconds of everybody, and the errors of ours against float64 where it fits."""
    embeddings, labels = points(n, d, device)
    best: dict[str, float] = {}
    for name, evaluate in contenders(embeddings, labels, device, without).items():
        if name in given_up and given_up[name].covers(n, d):
            continue
        try:
            milliseconds(evaluate, device)  # compiles
            warm = milliseconds(evaluate, device)
            turns = max(2, min(25, int(600 / max(warm, 1))))
            best[name] = min([warm, *(milliseconds(evaluate, device) for _ in range(turns))])
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if "memory" not in str(error):
                raise
            given_up[name] = GivenUp(f"out of memory at {n:,} x {d:,}", n, d, True)
        if best.get(name, 0) > 1e3 * PATIENCE:
            given_up[name] = GivenUp(f"{best[name] / 1e3:.1f} s at {n:,} x {d:,}", n, d, False)
        if device == "cuda":
            torch.cuda.empty_cache()
    left_out = {name: reason.why for name, reason in given_up.items() if name not in best}
    row: dict[str, Any] = {"n": n, "d": d, "ms": best, "left_out": left_out}
    if n <= EXACT:
        live = embeddings.double().requires_grad_()
        exact = torch.autograd.grad(plain_loss(live, labels), live)[0]
        made = contenders(embeddings, labels, device)
        row["gradient_error"] = {
            name: float((made[name]()[1].double() - exact).norm() / exact.norm()) for name in PRECISIONS[device] if name in best
        }
    return row


def ratio(row: dict[str, Any], precision: str) -> float:
    """How many times as fast as the best peer."""
    peers = [row["ms"][name] for name in (COMPILED, LIBRARY) if name in row["ms"]]
    return min(peers) / row["ms"][precision] if peers and precision in row["ms"] else math.nan


def about(device: str, dates: str = "") -> dict[str, str]:
    """Dates, also those of cells that were measured before, machine and versions."""
    days = sorted({*filter(None, dates.split(", ")), f"{datetime.now(UTC):%Y-%m-%d}"})
    found = {"date": ", ".join(days), "machine": platform.machine(), "python": platform.python_version()}
    for package in ("torch", "triton", "numba", "pytorch-metric-learning"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cells", nargs="+", metavar="NxD", help="measure these alone, such as 16384x384")
    parser.add_argument("--without", nargs="+", default=[], metavar="CONTENDER", help="contenders to leave out")
    parser.add_argument("--out", type=Path, help="the JSON file; cells that it holds are not measured again")
    args = parser.parse_args()
    saved = json.loads(args.out.read_text()) if args.out and args.out.exists() else {"about": {}, "cells": []}
    rows, dates = saved["cells"], saved["about"].get("date", "")
    known = {(row["n"], row["d"]) for row in rows}
    given_up: dict[str, GivenUp] = {}
    sizes = [(n, d) for n in SIZES[args.device] for d in WIDTHS] + list(ODD[args.device])
    if args.cells:
        sizes = [(int(n), int(d)) for n, d in (one.split("x") for one in args.cells)]
    for n, d in sizes:
        if (n, d) in known:
            continue
        rows.append(cell(n, d, args.device, given_up, args.without))
        shown = "  ".join(f"{name} {ms:.2f}" for name, ms in rows[-1]["ms"].items())
        print(f"{n:>6,} x {d:>5,}  {shown}  errors {rows[-1].get('gradient_error', {})}", flush=True)
        if args.out:
            args.out.write_text(json.dumps({"about": about(args.device, dates), "cells": rows}, indent=1) + "\n")
    for precision in PRECISIONS[args.device]:
        slower = [f"{row['n']:,} x {row['d']:,} ({ratio(row, precision):.2f})" for row in rows if ratio(row, precision) < 1]
        print(f"{precision}: slower than the best peer in {len(slower)} of {len(rows)} cells: {', '.join(slower) or 'none'}")


if __name__ == "__main__":
    main()
