"""One Prec@k step, loss and gradient: `python -m bench.precision [--out FILE.json]`.

On a CPU at B = 64, 11 a class, d = 64, k = 5: ours against Python loops in the shape of the authors' released code (class by class, row by
row, a look at every entry of the label matrix), and against pytorch-metric-learning's nearest positives, its losses of rank. One thread's
CPU seconds, best of interleaved rounds. On CUDA at B = 4,096: ours against what it cannot do without, the similarity matrix and its
topk, each with its gradient; called from Python, and recorded as a graph, as in training. FILE keeps both machines' parts.
"""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.contenders import Evaluate, differentiated
from bench.kernels import processor, versions
from bench.measure import interleaved
from nearkin import PrecisionAtK
from nearkin.compose.affinity import unit

K, MARGIN, PER_CLASS, DIMENSION = 5, 0.05, 11, 64
SMALL, LARGE = 64, 4096
WANTED = {"cpu": 20.0, "cuda": 2.0}


def batch(n: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Embeddings (n, d) of classes that overlap, 11 images each but for the last, and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) // PER_CLASS
    centers = torch.randn(int(labels[-1]) + 1, DIMENSION, generator=generator)
    z = centers[labels] + 1.5 * torch.randn(n, DIMENSION, generator=generator)
    return z.to(device, dtype), labels.to(device)


def released() -> PrecisionAtK:
    """With the terms of the released code, but for the covariance, which has no loops."""
    return PrecisionAtK(K, MARGIN, log_sum_exp=True, class_balanced=True)


def looped(z: Tensor, labels: Tensor) -> Tensor:
    """The same value by loops over elements: which are of a class, which entries of a row are positives, then two top-k sums a class."""
    s = unit(z) @ unit(z).T
    positives = (labels[:, None] == labels).float()
    helped = s + MARGIN * (1 - positives)
    total = torch.zeros(())
    for rows in _classes(labels):
        if len(rows) == 1:
            continue
        everybody, right = [], []
        for i in rows:
            others = [j for j in range(len(labels)) if j != i]
            own = [j for j in others if positives[i][j] != 0]  # a look at every entry, twice, as released
            rest = [j for j in others if positives[i][j] == 0]
            everybody.append(torch.cat([helped[i][own], helped[i][rest]]))
            right.append(helped[i][own])
        total = total + (_top(torch.stack(everybody)) - _top(torch.stack(right))).mean()
    return total


def _classes(labels: Tensor) -> list[list[int]]:
    seen: list[Tensor] = []
    rows: list[list[int]] = []
    for i in range(len(labels)):
        if labels[i] not in seen:
            seen.append(labels[i])
            rows.append([])
        rows[-1].append(i)
    return rows


def _top(x: Tensor) -> Tensor:
    top = x.topk(K, dim=1).values
    return top.sum(1) + 2 / 40 * torch.log(1 + (40 * (top - 0.5)).exp().sum(1))


def floor(z: Tensor) -> Tensor:
    """Similarities and their topk: what no Prec@k can do without."""
    directions = unit(z)
    return (directions @ directions.T).topk(K, dim=1).values.sum()


def on_cpu(rounds: int) -> dict[str, Any]:
    z, labels = batch(SMALL)
    objectives = {"nearkin, as printed": PrecisionAtK(K, MARGIN), "nearkin, as released": released()}
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        name: (lambda live, one=one: one(live, labels, reduction="sum")) for name, one in objectives.items()
    }
    losses["loops in the shape of the released code"] = lambda live: looped(live, labels)
    losses |= _peers(labels)
    found = interleaved({name: (differentiated(one, z), 1) for name, one in losses.items()}, rounds, patience=60.0)
    ours = found["nearkin, as released"]["cpu_s"]
    rows = [{"name": name, "ms": 1e3 * row["cpu_s"], "times_ours": row["cpu_s"] / ours} for name, row in found.items()]
    return {"n": SMALL, "rows": rows, "error": agreement(), "wanted": WANTED["cpu"]}


def _peers(labels: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """PML has no Prec@k; these look at ranks or at what stands before a right one."""
    from pytorch_metric_learning.losses import FastAPLoss, RankedListLoss, TripletMarginLoss  # type: ignore[import-untyped]

    made = {"FastAPLoss": FastAPLoss(), "RankedListLoss": RankedListLoss(0.4, 10), "TripletMarginLoss": TripletMarginLoss(MARGIN)}
    return {f"pytorch-metric-learning {name}": (lambda live, one=one: one(live, labels)) for name, one in made.items()}


def agreement() -> float:
    """The largest difference of the gradients of loops and ours, in float64."""
    z, labels = batch(SMALL, dtype=torch.float64)
    _, mine = differentiated(lambda live: released()(live, labels, reduction="sum"), z)()
    _, theirs = differentiated(lambda live: looped(live, labels), z)()
    return float((mine - theirs).abs().max())


def on_cuda(rounds: int) -> dict[str, Any]:
    z, labels = batch(LARGE, "cuda")
    objective = PrecisionAtK(K, MARGIN)
    tasks = {"nearkin, as printed": lambda live: objective(live, labels), "similarities and topk": floor}
    rows = []
    for name, task in tasks.items():
        called = differentiated(task, z)
        rows.append({"name": name, "ms": _milliseconds(called, rounds), "recorded_ms": _milliseconds(_recorded(called), rounds)})
    base = rows[-1]
    for row in rows:
        row |= {"times_floor": row["ms"] / base["ms"], "recorded_times_floor": row["recorded_ms"] / base["recorded_ms"]}
    exact, labels = batch(LARGE, dtype=torch.float64)
    truth = differentiated(lambda live: objective(live, labels), exact)()[1]
    error = float((called_gradient(objective).double().cpu() - truth).norm() / truth.norm())
    return {"n": LARGE, "rows": rows, "error": error, "wanted": WANTED["cuda"]}


def called_gradient(objective: PrecisionAtK) -> Tensor:
    z, labels = batch(LARGE, "cuda")
    return differentiated(lambda live: objective(live, labels), z)()[1]


def _recorded(task: Evaluate) -> Callable[[], Any]:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            task()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        task()
    return graph.replay


def _milliseconds(task: Callable[[], Any], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        task()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end))
    return best


def told(part: str, found: dict[str, Any]) -> None:
    print(f"B = {found['n']:,}, {found['device']}")
    for row in found["rows"]:
        print("    " + "   ".join(f"{key} {value:.3f}" if isinstance(value, float) else f"{value:45s}" for key, value in row.items()))
    against = "loops and ours in float64, largest" if part == "cpu" else "ours in float64 on the CPU, relative"
    print(f"    gradient error against {against}: {found['error']:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    part = "cuda" if torch.cuda.is_available() else "cpu"
    about = {"command": "python -m bench.precision", "device": processor(), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    measured = on_cuda(options.rounds) if part == "cuda" else on_cpu(options.rounds)
    found = {**about, "versions": versions(), **measured}
    told(part, found)
    if options.out:
        kept = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**kept, part: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
