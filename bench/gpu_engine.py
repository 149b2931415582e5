"""Check and tune the Triton engine on a GPU: PYTHONPATH=src python -m bench.gpu_engine --out tune.json [--minutes 4]

Compiling takes longer than running, so worker processes, all on the same GPU, first go through a queue of jobs: checks
of every shape of work and precision against float64, then one run of every tile shape, which leaves it in Triton's
cache. When the queue is empty or half the time is spent the workers go, and this process times what was compiled.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.gpu_check import CHECKED, NUMERIC, bank, check_work, make, own
from nearkin.kernels.contract import Work
from nearkin.kernels.triton_engine import TritonEngine
from nearkin.kernels.triton_tuning import SCHEMES, Tile

SUMMARIES, GRADIENTS = "summaries", "gradients"


class Job(NamedTuple):
    kind: str  # check or warm
    scheme: str
    work: str  # a name that `make` knows
    d: int
    which: str = ""  # the pass to warm
    tile: Tile | None = None


# Tile shapes worth timing: rows, columns, warps, stages, parts (0: as many as fill the chip), most registers.
def _tiles(*shapes: tuple[int, ...], caps: Sequence[tuple[int, ...]] = ()) -> list[Tile]:
    return [Tile(*shape) for shape in shapes] + [Tile(*cap[:4], 0, cap[4]) for cap in caps]


_S, _G = SUMMARIES, GRADIENTS
GRID: dict[tuple[str, str, int, str], list[Tile]] = {
    ("fp16", "own-span", 64, _S): _tiles(
        (128, 64, 4, 3), (128, 64, 4, 2), (128, 64, 4, 4), (64, 128, 4, 3), (64, 64, 4, 3), (64, 64, 4, 4), (128, 128, 8, 3),
        (256, 64, 8, 3), (128, 128, 4, 2), caps=[(64, 128, 4, 3, 128), (128, 64, 4, 3, 128)],
    ),
    ("fp16", "own-span", 64, _G): _tiles(
        (64, 128, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3), (64, 64, 4, 2), (128, 64, 4, 3), (128, 64, 4, 2), (128, 64, 8, 3),
        (128, 128, 8, 2), (128, 128, 8, 3),
        caps=[(64, 128, 4, 3, 168), (64, 128, 4, 2, 168), (64, 64, 4, 3, 128), (128, 64, 8, 3, 128), (128, 32, 4, 3, 168)],
    ),
    ("fp16x3", "own-span", 64, _S): _tiles(
        (128, 64, 4, 3), (128, 64, 4, 2), (64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (128, 128, 8, 2), (128, 64, 8, 3),
        caps=[(128, 64, 4, 2, 128)],
    ),
    ("fp16x3", "own-span", 64, _G): _tiles(
        (64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (128, 64, 8, 3), (128, 64, 8, 2), (128, 128, 8, 2), (128, 64, 4, 2),
        caps=[(64, 64, 4, 2, 128)],
    ),
    ("fp16", "bank-span", 128, _S): _tiles((128, 64, 4, 3), (64, 64, 4, 3), (64, 128, 4, 2), (128, 64, 8, 3), (128, 128, 8, 2)),
    ("fp16", "bank-span", 128, _G): _tiles(
        (64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (128, 64, 8, 3), (128, 128, 8, 2), caps=[(64, 64, 4, 3, 168), (64, 128, 4, 2, 168)]
    ),
    ("fp16", "own-targets1", 64, _G): _tiles((64, 128, 4, 3), (64, 64, 4, 3), caps=[(64, 128, 4, 3, 168), (64, 64, 4, 3, 128)]),
    ("fp16", "own-targets3", 64, _G): _tiles((64, 128, 4, 3), (64, 64, 4, 3), caps=[(64, 128, 4, 3, 168)]),
    ("fp16", "bank-listed", 64, _G): _tiles((64, 64, 4, 3), (64, 128, 4, 3), caps=[(64, 64, 4, 3, 128)]),
    ("tf32", "own-span", 64, _S): _tiles((128, 64, 4, 3), (128, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2), (128, 128, 8, 2)),
    ("tf32", "own-span", 64, _G): _tiles((64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (128, 64, 8, 2), caps=[(64, 64, 4, 2, 168)]),
    ("fp16", "own-span", 128, _S): _tiles(
        (128, 64, 4, 3), (128, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2), (128, 128, 8, 2), (128, 64, 8, 3)
    ),
    ("fp16", "own-span", 128, _G): _tiles(
        (64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (128, 64, 8, 3), (128, 64, 8, 2), (128, 128, 8, 2), caps=[(64, 64, 4, 2, 168)]
    ),
    ("fp16x3", "own-span", 128, _S): _tiles((64, 64, 4, 2), (128, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2)),
    ("fp16x3", "own-span", 128, _G): _tiles((64, 64, 4, 2), (128, 64, 8, 2), (64, 32, 4, 3), (128, 32, 8, 2)),
    ("tf32", "own-span", 128, _S): _tiles((64, 64, 4, 3), (64, 64, 4, 2), (128, 64, 4, 2)),
    ("tf32", "own-span", 128, _G): _tiles((64, 32, 4, 2), (128, 32, 8, 2), (128, 64, 8, 1)),
}  # fmt: skip
OTHER_SCHEMES = ("bf16x3", "fp16x3-fp16", "tf32x3")
SHAPES = ("own-targets1", "own-targets3", "bank-listed", "both-span")  # timed with the default tiles


def jobs() -> list[Job]:
    """The queue, most wanted first."""
    named, passes = ("fp16", "fp16x3", "tf32"), (SUMMARIES, GRADIENTS)
    default = [Job("warm", s, "own-span", 64, which) for s in named for which in passes]
    checks = [Job("check", s, work, 64) for work in CHECKED for s in named]
    numeric = [Job("check", s, work, 64) for work in NUMERIC for s in named]
    grid = [Job("warm", s, work, d, which, tile) for (s, work, d, which), tiles in GRID.items() for tile in tiles]
    shapes = [Job("warm", "fp16", work, 64, which) for work in SHAPES for which in passes]
    others = [Job("warm", s, "own-span", 64, which) for s in OTHER_SCHEMES for which in passes]
    odd = [Job("check", s, work, d) for work in ("own-span", "both-span") for d in (40, 128, 200, 300) for s in named]
    rest = [Job("check", s, work, 64) for work in ("own-span", "both-listed", "own-targets3") for s in OTHER_SCHEMES]
    urgent = [job for job in grid if (job.d == 64 and job.scheme != "tf32") or job.work == "bank-span"]
    later = [job for job in grid if job not in urgent]
    return default + checks[:12] + urgent + checks[12:] + numeric + shapes + others + later + odd + rest


def run_job(job: Job) -> dict[str, Any]:
    """In a worker: check, or compile by running once on a small set."""
    began = time.time()
    try:
        if job.kind == "check":
            result = check_work(job.work, job.scheme, job.d)
        else:
            engine = TritonEngine("fast", job.scheme, {} if job.tile is None else {job.which: job.tile})
            _passes(engine, make(job.work, 2048, job.d, seed=0))[job.which]()
            torch.cuda.synchronize()
            result = {"ok": True}
    except Exception as problem:
        result = {"ok": False, "error": f"{type(problem).__name__}: {problem}"[:300]}
        if "CUDA error" in str(problem) or "illegal" in str(problem):
            # The context is lost with it, and all later jobs of this process would fail too.
            print(f"CRASH {job}: {result['error']}", flush=True)
            os._exit(1)
    return {"job": job._asdict(), "seconds": round(time.time() - began, 1), **result}


def _passes(engine: TritonEngine, work: Work) -> dict[str, Callable[[], Any]]:
    """The two passes on work of any size, the gradient with summaries of about the right size."""
    first, second = engine.summaries(work)
    first, second = (torch.where(x.isfinite(), x, 0.0) for x in (first, second))
    pull = torch.full_like(first, 1 / len(first))
    return {SUMMARIES: lambda: engine.summaries(work), GRADIENTS: lambda: engine.gradients(work, first, second, pull)}


def _work_through(queue: Sequence[Job], workers: int, until: float) -> list[dict[str, Any]]:
    """Results of the jobs done by `until`; a job whose worker died has none."""
    context = multiprocessing.get_context("spawn")
    done: list[dict[str, Any]] = []
    with context.Pool(workers) as pool:
        waiting = [pool.apply_async(run_job, (job,)) for job in queue]
        moved = time.time()
        while waiting and time.time() < until and time.time() - moved < 60:
            ready = [one for one in waiting if one.ready()]
            for one in ready:
                waiting.remove(one)
                with contextlib.suppress(Exception):
                    done.append(one.get())
                moved = time.time()
            time.sleep(0.05)
        pool.terminate()
    return done


def milliseconds(call: Callable[[], Any], budget: float = 0.25) -> tuple[float, float]:
    """Best and median of runs between events, about `budget` seconds of them."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    began = time.time()
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(max(5, min(50, int(budget / max(time.time() - began, 1e-5))))):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    spans = [start.elapsed_time(end) for start, end in times]
    return min(spans), statistics.median(spans)


def _captured(call: Callable[[], Any]) -> tuple[float, float]:
    """The same as a CUDA graph: what the chip needs when the host is not in the way."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return milliseconds(graph.replay)


def _timed(engine: TritonEngine, work: Work, which: str, how: Callable[..., tuple[float, float]] = milliseconds) -> dict[str, Any]:
    try:
        torch.cuda.reset_peak_memory_stats()
        call = _passes(engine, work)[which]
        before = torch.cuda.memory_allocated()
        best, median = how(call)
        return {"best": best, "median": median, "peak_mb": (torch.cuda.max_memory_allocated() - before) / 2**20}
    except Exception as problem:
        torch.cuda.empty_cache()
        return {"error": f"{type(problem).__name__}: {problem}"[:200]}


def _warmed(done: Iterable[dict[str, Any]], key: tuple[str, str, int, str]) -> list[Tile]:
    """Tile shapes that compiled and ran."""
    found = [result["job"] for result in done if result["ok"] and result["job"]["kind"] == "warm" and result["job"]["tile"] is not None]
    return [Tile(*job["tile"]) for job in found if (job["scheme"], job["work"], job["d"], job["which"]) == key]


def _sizes(name: str) -> list[tuple[int, int, int]]:
    """Queries, references (0: the work's own number), and how many of the best tiles go on to that size."""
    if name == "own-span":
        return [(65536, 0, 99), (16384, 0, 3), (131072, 0, 2), (4096, 0, 2)]
    if name == "bank-span":
        return [(4096, 131072, 99), (512, 50000, 99), (128, 50000, 99)]
    return [(8192 if name.startswith("bank") else 65536, 0, 99)]


def time_grid(done: list[dict[str, Any]], until: float) -> list[dict[str, Any]]:
    """Every compiled tile shape at the first size; the best of them at other sizes and with other numbers of parts."""
    rows: list[dict[str, Any]] = []

    def note(key: tuple[str, str, int, str], n: int, m: int, tile: Tile, work: Work) -> float:
        scheme, name, d, which = key
        # Below this size launches would hide what the chip does.
        result = _timed(TritonEngine("fast", scheme, {which: tile}), work, which, _captured if n <= 4096 and m < 100000 else milliseconds)
        rows.append({"scheme": scheme, "work": name, "n": n, "m": m, "d": d, "which": which, "tile": list(tile), **result})
        return float(result.get("best", float("inf")))

    for key in GRID:
        _, name, d, _ = key
        ranked = _warmed(done, key)
        for n, m, best in _sizes(name) if ranked else []:
            if time.time() > until:
                return rows
            work = bank(n, m, d, seed=1) if m else make(name, n, d, seed=1)
            times = {tile: note(key, n, m, tile, work) for tile in ranked[:best]}
            ranked = sorted(times, key=times.__getitem__) + ranked[best:]
            for parts in (1, 2, 3, 4, 6, 8, 16, 32, 64, 128) if m else (1, 2, 3, 4, 8):
                if name in ("own-span", "bank-span"):
                    note(key, n, m, ranked[0]._replace(parts=parts), work)
    return rows


def time_shapes(until: float) -> list[dict[str, Any]]:
    """Targets, lists and gradients to both sides with the default tiles, beside the label form of the same size."""
    rows = []
    plans = [("fp16", name, 65536, 64) for name in ("own-span", "own-targets1", "own-targets3")]
    plans += [("fp16", name, 8192, 64) for name in ("bank-span", "bank-listed", "both-span")]
    plans += [(scheme, "own-span", 65536, 64) for scheme in (*SCHEMES,)]
    for scheme, name, n, d in plans:
        for which in (SUMMARIES, GRADIENTS):
            if time.time() < until:
                result = _timed(TritonEngine("fast", scheme), make(name, n, d, seed=1), which)
                rows.append({"scheme": scheme, "work": name, "n": n, "d": d, "which": which, "tile": "default", **result})
    return rows


def time_whole(until: float) -> list[dict[str, Any]]:
    """Loss and gradient through autograd, launches and all: events, and a host clock over back-to-back steps."""
    from nearkin.kernels.autograd import soft_neighbors

    rows = []
    for precision, n in itertools.product(("fast", "high", "highest"), (1000, 4096, 16384, 65536, 131072)):
        if time.time() > until:
            break
        work = own(n, 64, seed=2)
        leaf = work.queries.clone().requires_grad_()

        def step(work: Work = work, leaf: Tensor = leaf, precision: str = precision) -> None:
            leaf.grad = None
            soft_neighbors(work._replace(queries=leaf), "log", 1.0, engine="triton", precision=precision).values.mean().backward()

        try:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            best, median = milliseconds(step)
            began = time.time()
            for _ in range(10):
                step()
            torch.cuda.synchronize()
            wall = (time.time() - began) * 100
            peak = (torch.cuda.max_memory_allocated() - before) / 2**20
            rows.append({"precision": precision, "n": n, "best": best, "median": median, "wall": wall, "peak_mb": peak})
        except Exception as problem:
            rows.append({"precision": precision, "n": n, "error": f"{type(problem).__name__}: {problem}"[:200]})
    return rows


def _print_checks(done: list[dict[str, Any]]) -> None:
    checks = [result for result in done if result["job"]["kind"] == "check"]
    print(f"\nchecks: {sum(r['ok'] for r in checks)} of {len(checks)} pass (relative errors: first, second, to queries, to references)")
    for result in sorted(checks, key=lambda r: (r["ok"], str(r["job"]["work"]), r["job"]["scheme"])):
        job = result["job"]
        detail = result.get("error") or " ".join(f"{error:.0e}" for error in result["errors"]) + f" {result['note']}"
        print(f"{'PASS' if result['ok'] else 'FAIL'} {job['scheme']:12s} {job['work']:22s} d={job['d']:<4d} {detail}")
    failed = [result for result in done if result["job"]["kind"] == "warm" and not result["ok"]]
    for result in failed:
        job = result["job"]
        print(f"not compiled: {job['scheme']} d={job['d']} {job['which']} {job['tile']} {result['error'][:90]}")


def _print_times(grid: list[dict[str, Any]], shapes: list[dict[str, Any]], whole: list[dict[str, Any]]) -> None:
    print("\nbest tiles (ms, best / median, peak MB); tile = rows, columns, warps, stages, parts, registers")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in grid:
        groups.setdefault((row["scheme"], f"{row['work']} {row['m'] or ''}", row["n"], row["d"], row["which"]), []).append(row)
    for key, rows in groups.items():
        for row in sorted(rows, key=lambda r: r.get("best", float("inf")))[:2]:
            print(f"{key[0]:8s} {key[1]:17s} n={key[2]:<7d} d={key[3]:<4d} {key[4]:10s} {_ms(row)} {row['tile']}")
    print("\ndefault tiles")
    for row in shapes:
        print(f"{row['scheme']:12s} {row['work']:14s} n={row['n']:<7d} d={row['d']:<4d} {row['which']:10s} {_ms(row)}")
    print("\nloss and gradient through autograd, d = 64 (ms: best / median events, wall per step)")
    for row in whole:
        print(f"{row['precision']:8s} n={row['n']:<7d} {_ms(row)} wall {row.get('wall', 0):8.3f}")


def _ms(row: dict[str, Any]) -> str:
    return str(row["error"])[:80] if "error" in row else f"{row['best']:8.3f} / {row['median']:8.3f} {row['peak_mb']:7.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=min(14, (os.cpu_count() or 2) - 1))
    parser.add_argument("--only-time", action="store_true", help="skip checks and tuning: default tiles and whole steps")
    options = parser.parse_args()
    began = time.time()
    until = began + 60 * options.minutes
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    report: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}

    def keep(**found: Any) -> None:
        report.update(found, seconds=time.time() - began)
        options.out.write_text(json.dumps(report, indent=1))

    done: list[dict[str, Any]] = []
    grid: list[dict[str, Any]] = []
    if not options.only_time:
        done = _work_through(jobs(), options.workers, began + 0.6 * (until - began))
        print(f"{len(done)} of {len(jobs())} jobs by {time.time() - began:.0f} s", flush=True)
        keep(jobs=done)
        _print_checks(done)
    whole = time_whole(began + 0.75 * (until - began))
    keep(whole=whole)
    _print_times([], [], whole)
    if not options.only_time:
        grid = time_grid(done, until - 20)
        keep(grid=grid)
    shapes = time_shapes(until)
    keep(shapes=shapes)
    _print_times(grid, shapes, whole)


if __name__ == "__main__":
    main()
