"""Time, memory, floors and errors, measured the same way for everybody."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor

from bench.contenders import CPU, Contender, Evaluate, drawn, plain_loss

ROOT = Path(__file__).parents[1]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Every BLAS and OpenMP of the process limited alike."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def interleaved(tasks: Mapping[str, tuple[Evaluate, int]], rounds: int, patience: float) -> dict[str, dict[str, float]]:
    """Best CPU and wall seconds of each task (evaluate, threads) over rounds in turn, so that a busy spell hits all alike.

    A task that has had `patience` seconds is left out of further rounds, but not before the second: the first may compile.
    """
    best = {name: {"cpu_s": float("inf"), "wall_s": float("inf"), "rounds": 0.0} for name in tasks}
    spent = dict.fromkeys(tasks, 0.0)
    for _ in range(rounds):
        for name, (evaluate, count) in tasks.items():
            if spent[name] > patience and best[name]["rounds"] > 1:
                continue
            with threads(count):
                cpu, wall = time.process_time(), time.perf_counter()
                evaluate()
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            spent[name] += wall
            row = best[name]
            best[name] = {"cpu_s": min(row["cpu_s"], cpu), "wall_s": min(row["wall_s"], wall), "rounds": row["rounds"] + 1}
    return best


def best_seconds(task: Callable[[], object], repeats: int = 7, clock: Callable[[], float] = time.process_time) -> float:
    task()
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        task()
        best = min(best, clock() - start)
    return best


def cpu_rates() -> dict[str, float]:
    """sgemm flop/s and polynomial exp2 per second of one core: the two things the work cannot do without."""
    import numba
    import numpy as np

    from nearkin.kernels.numba_loops import exp2

    @numba.njit(fastmath=True)
    def exponentials(x: np.ndarray, out: np.ndarray) -> None:
        for _ in range(200):
            for j in range(x.size):
                out[j] = exp2(x[j])

    x, out = np.linspace(-100, 0, 4096, dtype=np.float32), np.empty(4096, np.float32)
    with threads(1):
        square, tall, wide = torch.randn(1024, 1024), torch.randn(1024, 64), torch.randn(64, 1024)
        products = [(square, square), (tall, wide), (square, tall)]
        flops = [2 * a.shape[0] * a.shape[1] * b.shape[1] / best_seconds(partial(torch.mm, a, b)) for a, b in products]
        exps = 200 * 4096 / best_seconds(lambda: exponentials(x, out))
        return {"flop_per_s": max(flops), "exp_per_s": exps, "two_threads": _two_threads(tall, wide)}


def _two_threads(tall: Tensor, wide: Tensor) -> float:
    """How many times the products of one thread two of them make side by side: cores may share more than they seem to."""
    rooms = [torch.empty(len(tall), wide.shape[1]) for _ in range(2)]

    def products(room: Tensor) -> None:
        for _ in range(100):
            torch.mm(tall, wide, out=room)

    with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        alone = best_seconds(lambda: list(pool.map(products, rooms[:1])), clock=time.perf_counter)
        return 2 * alone / best_seconds(lambda: list(pool.map(products, rooms)), clock=time.perf_counter)


def cpu_floor_s(n: int, d: int, rates: Mapping[str, float]) -> float:
    """Two symmetric passes: 4 n^2 d flop and n^2 exponentials on one core."""
    return 4 * n * n * d / rates["flop_per_s"] + n * n / rates["exp_per_s"]


def errors(contender: Contender, n: int, d: int, device: str = "cpu") -> dict[str, float]:
    """Relative errors of value and gradient against the plain formula in float64."""
    embeddings, labels = drawn(n, d, device=device)
    loss, gradient = contender.make(embeddings, labels)()
    true_loss, true_gradient = reference(n, d, device, contender.form)
    if gradient.shape != true_gradient.shape:  # scikit-learn's is in the transformation
        true_gradient = (true_gradient.T @ embeddings.double()).ravel()
    return {
        "value_error": float((loss.double() - true_loss).abs() / true_loss.abs()),
        "gradient_error": float((gradient.double() - true_gradient).norm() / true_gradient.norm()),
    }


@lru_cache(2)
def reference(n: int, d: int, device: str, form: str) -> tuple[Tensor, Tensor]:
    """Value and gradient of the points that `drawn` gives, in float64."""
    embeddings, labels = drawn(n, d, device=device)
    live = embeddings.double().requires_grad_()
    if form == "log":
        loss = plain_loss(live, labels)
    else:
        affinity = -torch.cdist(live, live, compute_mode="donot_use_mm_for_euclid_dist").square()
        affinity = affinity.masked_fill(torch.eye(len(live), dtype=torch.bool), -torch.inf)
        loss = 1 - (torch.softmax(affinity, 1) * (labels[:, None] == labels)).sum(1).mean()
    return loss.detach(), torch.autograd.grad(loss, live)[0]


def in_a_child(name: str, n: int, d: int) -> dict[str, float]:
    """First-call seconds with empty caches and peak extra memory of one CPU contender, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        caches = dict.fromkeys(("NUMBA_CACHE_DIR", "KEOPS_CACHE_FOLDER", "TORCHINDUCTOR_CACHE_DIR"), folder)
        # Fixed thresholds: glibc would otherwise keep freed matrices, and hide or double what a call takes.
        fixed = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
        environment = {**os.environ, **caches, **fixed, "OMP_NUM_THREADS": str(CPU[name].threads)}
        command = [sys.executable, "-m", "bench.measure", name, str(n), str(d)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed in its own process:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _resident(field: str) -> float:
    """VmRSS or VmHWM in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{field} is not in /proc/self/status")


def _child(name: str, n: int, d: int) -> dict[str, float]:
    contender = CPU[name]
    with threads(contender.threads):
        start = time.perf_counter()
        contender.make(*drawn(600, d))()
        first = time.perf_counter() - start
        if "compile" in name:
            contender.make(*drawn(700, d))()  # a second size compiles for any: the compiler's own memory is not the loss's
        evaluate = contender.make(*drawn(n, d))
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        before = _resident("VmRSS")
        evaluate()
    return {"first_call_s": first, "peak_mb": _resident("VmHWM") - before}


if __name__ == "__main__":
    print(json.dumps(_child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
