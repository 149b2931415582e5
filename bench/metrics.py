"""All retrieval metrics of ours against one of pytorch-metric-learning's: `python -m bench.metrics [--threads N]`.

10,000 x 64, 100 classes: every retrieval metric with intervals, chance levels and per-query values, beside PML's `AccuracyCalculator`
asked for precision_at_1 with k = 1 only. Each has a process of its own. `--whole` adds PML's full ranking and its figures, `--large`
50,000 x 128 and its peak memory.
"""

import argparse
import logging
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from nearkin.compose.points import Points
from nearkin.evaluate import retrieval


def drawn(n: int, d: int, classes: int, seed: int = 0) -> Points:
    """Classes that overlap: precision@1 of about one half."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    return Points(torch.randn(n, d, generator=g) + 0.62 * torch.randn(classes, d, generator=g)[labels], labels)


def peer(points: Points, include: tuple[str, ...], k: int | None) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(include=include, k=k, device=torch.device("cpu"))
    assert points.labels is not None
    found: dict[str, float] = calculator.get_accuracy(points.embeddings, points.labels)
    return found


TASKS: dict[str, Callable[[Points], object]] = {
    "nearkin, all 16 metrics with intervals": retrieval,
    "PML precision_at_1, k = 1": lambda points: peer(points, ("precision_at_1",), 1),
}


def alone(name: str, rounds: int) -> None:
    """In a process of its own: seconds of the first call, and the best of the following, wall and CPU."""
    points, task = drawn(10_000, 64, 100), TASKS[name]
    times = []
    for _ in range(rounds + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        task(points)
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    (first, _), wall, cpu = times[0], min(t[0] for t in times[1:]), min(t[1] for t in times[1:])
    print(f"{first} {wall} {cpu}")


def side_by_side(count: int, rounds: int, whole: bool) -> None:
    found: dict[str, list[float]] = {}
    for name in TASKS:
        command = [sys.executable, "-W", "ignore", "-m", "bench.metrics", "--alone", name, "--threads", str(count), "--rounds", str(rounds)]
        found[name] = [float(x) for x in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-3:]]
    ours, theirs = found.values()
    print(f"10000 x 64, 100 classes, threads {count}")
    for name, (first, wall, cpu) in found.items():
        print(f"    {name:40s} first call {first:6.2f} s   then {wall:6.2f} s   CPU {cpu:6.2f} s")
    print(f"    ours / theirs: first call {ours[0] / theirs[0]:.2f}, then {ours[1] / theirs[1]:.2f}, CPU {ours[2] / theirs[2]:.2f}")
    if whole:
        agreement()


def agreement() -> None:
    """PML's own full ranking, and its figures beside ours."""
    points = drawn(10_000, 64, 100)
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision", "mean_reciprocal_rank")
    start = time.perf_counter()
    other = peer(points, names, None)
    print(f"    PML all retrieval metrics, k = None  {time.perf_counter() - start:.2f} s")
    found = retrieval(points, draws=0)
    for mine, their in zip(("precision@1", "r_precision", "map@r", "map", "mrr"), names, strict=True):
        print(f"    {mine:12s} {found[mine].value:.6f}   {their} {other[their]:.6f}")


def large() -> None:
    """In a process of its own, so that its peak is its own."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    points = drawn(50_000, 128, 100)
    start = time.perf_counter()
    found = retrieval(points, draws=200)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"50000 x 128, 100 classes, threads {torch.get_num_threads()}: {time.perf_counter() - start:.1f} s,", end=" ")
    print(f"peak {peak / 1024:.0f} MB ({before / 1024:.0f} MB of it before), map {found['map'].value:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="also PML's own full ranking: about a minute and 4 GB")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only-large", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", choices=TASKS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    torch.set_num_threads(given.threads)
    if given.only_large:
        large()
        return
    if given.alone:
        alone(given.alone, given.rounds)
        return
    side_by_side(given.threads, given.rounds, given.whole)
    if given.large:
        subprocess.run([sys.executable, "-m", "bench.metrics", "--only-large", "--threads", str(given.threads)], check=True)


if __name__ == "__main__":
    main()
