"""Our engines against their peers: `python -m bench.kernels [--quick] [--out FILE.json] [--peers DIR] [--without NAME ...]`.

NCA loss and gradient, d = 64, 10 classes. On a CPU: CPU seconds of one thread (wall seconds for two), best of several
interleaved rounds. On CUDA: see `bench.kernels_cuda`. `--peers` names a folder of packages for a machine that cannot
install any. A peer that is not installed ends the run, unless `--without` names it: then the table says that it is absent.
"""

import argparse
import importlib.metadata
import json
import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.contenders import CPU, CUDA, INSTALL, Contender, drawn, evaluated, left_out, missing, siblings, spans
from bench.measure import cpu_floor_s, cpu_rates, errors, in_a_child, interleaved
from nearkin.kernels.contract import Work

Row = dict[str, Any]
OURS = "nearkin numba"
ERRORS_AT = 2048  # points up to which errors are measured: the truth is all pairs in float64


class Effort(NamedTuple):
    """How much of everything a run does."""

    sizes: tuple[int, ...]
    rounds: int
    patience: float  # seconds
    at_once: int  # processes that measure first calls and memory side by side


FULL, QUICK = Effort((2048, 8192, 16384), 5, 60, 1), Effort((2048,), 3, 5, 2)
COLUMNS = ("name", "n", "ns_per_pair", "times_ours", "share_of_floor", "peak_mb", "first_call_s", "value_error", "gradient_error")


def compared(n: int, d: int, contenders: dict[str, Contender], rates: dict[str, float], effort: Effort) -> list[Row]:
    """One row per contender at one size."""
    here = {name: c for name, c in contenders.items() if n <= c.largest}
    data = drawn(n, d)
    times = interleaved({name: (c.make(*data), c.threads) for name, c in here.items()}, effort.rounds, effort.patience)
    with ThreadPoolExecutor(effort.at_once) as pool:
        apart = dict(zip(here, pool.map(lambda name: in_a_child(name, n, d), here), strict=True))
    rows = []
    for name, contender in here.items():
        seconds = times[name]["cpu_s" if contender.threads == 1 else "wall_s"]
        row = {"name": name, "n": n, "d": d, **times[name], "ns_per_pair": seconds / n**2 * 1e9}
        row["times_ours"] = seconds / times[OURS]["cpu_s"]
        row["share_of_floor"] = cpu_floor_s(n, d, rates) / contender.threads / seconds
        rows.append({**row, **apart[name], **(errors(contender, n, d) if n <= ERRORS_AT else {})})
        show(rows[-1:])
    return rows


def _bank(embeddings: Tensor, labels: Tensor) -> Work:
    """The points against a frozen copy of themselves: the whole square, not half of it."""
    return Work(embeddings, embeddings.clone(), True, span=spans(labels), skip=torch.arange(len(labels))[:, None])


def relatives(n: int, d: int, rounds: int) -> list[Row]:
    """Each sibling's time over that of the label form."""
    tasks = {name: evaluated(work, form, "numba") for name, (work, form) in siblings(n, d).items()}
    tasks["separate references"] = evaluated(_bank(*drawn(n, d)), "log", "numba")
    times = interleaved({name: (task, 1) for name, task in tasks.items()}, rounds, 60)
    base = times["classes"]["cpu_s"]
    return [
        {"name": name, "n": n, "ns_per_pair": t["cpu_s"] / n**2 * 1e9, "times_ours": t["cpu_s"] / base, **t} for name, t in times.items()
    ]


def on_cpu(contenders: dict[str, Contender], quick: bool) -> dict[str, Any]:
    rates = cpu_rates()
    print(f"floor: sgemm {rates['flop_per_s'] / 1e9:.1f} GFLOP/s, exp2 {rates['exp_per_s'] / 1e9:.2f} G/s, one core")
    rows: list[Row] = []
    print(" ".join([f"{'name':34}", f"{'n':>7}", *(f"{key:>15}" for key in COLUMNS[2:])]))
    effort = QUICK if quick else FULL
    for n in effort.sizes:
        rows += compared(n, 64, contenders, rates, effort)
    if not quick:
        name = "nearkin numba, 2 threads"
        rows += [{"name": name, "n": 60_000, "d": 64, **in_a_child(name, 60_000, 64)}]
        show(rows[-1:])
    positives = relatives(2048 if quick else 8192, 64, 3)
    show(positives)
    return {"rates": rates, "rows": rows, "relatives": positives}


def show(rows: Sequence[Row]) -> None:
    """A line per row, aligned with the heading that `on_cpu` prints."""
    for row in rows:
        cells = [f"{row.get('name', ''):34}", f"{row.get('n', ''):>7}"]
        for key in COLUMNS[2:]:
            value = row.get(key)
            cells.append(f"{'' if value is None else f'{value:.3g}':>15}")
        print(" ".join(cells), flush=True)


def versions() -> dict[str, str]:
    names = ("torch", "numpy", "numba", "scikit-learn", "pytorch-metric-learning", "pykeops", "triton")
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = getattr(sys.modules.get(name.replace("-", "_")), "__version__", "absent")  # one that came in a folder
    return found


def processor() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = [line.split(":")[1].strip() for line in lines if line.startswith(("model name", "CPU part"))]
    return f"{platform.machine()} {named[0] if named else ''} x{len(named)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, within a minute")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    parser.add_argument("--peers", type=Path, help="a folder of packages to put on the path")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="peers that this machine cannot have; the table says so")
    options = parser.parse_args(arguments)
    if options.peers:
        sys.path.append(str(options.peers))
    cuda = torch.cuda.is_available()
    everybody = CUDA if cuda else CPU
    absent = left_out(everybody, options.without, options.quick)
    contenders = {name: contender for name, contender in everybody.items() if name not in absent}
    if lacking := missing(contenders):
        raise SystemExit(f"not installed: {', '.join(lacking)}. The comparison needs every peer: {INSTALL} (or say --without its name)")
    for name, why in absent.items():
        print(f"absent: {name}, {why}")
    if cuda:
        from bench.kernels_cuda import on_cuda

        found = on_cuda(contenders, options.quick)
    else:
        found = on_cpu(contenders, options.quick)
    said = [*(["--quick"] if options.quick else []), *(["--without", *options.without] if options.without else [])]
    about = {"command": " ".join(["python -m bench.kernels", *said]), "device": processor()}
    about |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "python": platform.python_version()}
    if options.out:
        options.out.write_text(json.dumps({**about, "versions": versions(), "absent": absent, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
