"""Objectives under torch.compile beside the same losses written by hand: `python -m bench.compiled [--device cuda] [--out FILE]`.

A hand-written loss is what one types without a library: a matrix product, masks, a reduction, no checks of any argument. Both are compiled
for fixed shapes, take turns in one process, in an order drawn anew each time, and are asked for loss and gradient, of the embeddings and of
class vectors where there are any, as a training step asks for them. The median of the turns counts: on a CPU seconds of CPU time on one
thread, on CUDA seconds until the device is idle. The values of both are compared first. `eager` is our objective without torch.compile.
"""

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, softplus

from bench.contenders import plain_loss
from bench.measure import threads
from nearkin import NCA, Contrastive, NormalizedSoftmax, ProxyAnchor, SupCon, Triplet

SIZES, WIDTHS, CLASSES = (64, 256, 1024), (128, 768), 16
WARM, TARGET = 5, 1.2


def supcon(z: Tensor, y: Tensor, temperature: float = 0.1) -> Tensor:
    """Mean over the positives of minus the log of their probability, on cosines."""
    z = normalize(z)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    logits = (z @ z.T / temperature).masked_fill(itself, -torch.inf)
    right = (y[:, None] == y) & ~itself
    log_p = (logits - logits.logsumexp(1, keepdim=True)).masked_fill(~right, 0.0)
    return -(log_p.sum(1) / right.sum(1)).mean()


def contrastive(z: Tensor, y: Tensor, margin: float = 1.0) -> Tensor:
    """Squared distances of positives, squared hinges of negatives, of unit vectors; the mean over all pairs."""
    z = normalize(z)
    squared = (2 - 2 * z @ z.T).clamp_min(1e-12)
    same = y[:, None] == y
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    cost = torch.where(same, squared, (margin - squared.sqrt()).clamp_min(0).square())
    return cost.masked_fill(itself, 0.0).sum() / (len(z) * (len(z) - 1))


def triplet(z: Tensor, y: Tensor, margin: float = 0.2) -> Tensor:
    """The farthest positive and the nearest negative of each query, on cosines."""
    z = normalize(z)
    cosines, same = z @ z.T, y[:, None] == y
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    farthest = cosines.masked_fill(~same | itself, torch.inf).amin(1)
    nearest = cosines.masked_fill(same, -torch.inf).amax(1)
    return (nearest - farthest + margin).clamp_min(0).mean()


class Softmax(torch.nn.Module):
    """Cross-entropy of cosines to class vectors."""

    def __init__(self, vectors: Tensor, temperature: float) -> None:
        super().__init__()
        self.vectors, self.temperature = torch.nn.Parameter(vectors.detach().clone()), temperature

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(normalize(z) @ normalize(self.vectors).T / self.temperature, y)


class Anchors(torch.nn.Module):
    """ProxyAnchor: every class vector against the samples of the batch."""

    def __init__(self, vectors: Tensor, margin: float, scale: float) -> None:
        super().__init__()
        self.vectors, self.margin, self.scale = torch.nn.Parameter(vectors.detach().clone()), margin, scale

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        cosines = normalize(z) @ normalize(self.vectors).T
        right = y[:, None] == torch.arange(len(self.vectors), device=z.device)
        toward = (self.scale * (self.margin - cosines)).masked_fill(~right, -torch.inf)
        away = (self.scale * (self.margin + cosines)).masked_fill(right, -torch.inf)
        return softplus(toward.logsumexp(0)).sum() / right.any(0).sum() + softplus(away.logsumexp(0)).mean()


def _softmax(d: int) -> tuple[Any, Any]:
    ours = NormalizedSoftmax(CLASSES, d)
    return ours, Softmax(ours.references.vectors, float(ours.affinity.temperature))


def _anchors(d: int) -> tuple[Any, Any]:
    ours = ProxyAnchor(CLASSES, d)
    return ours, Anchors(ours.references.vectors, ours.criterion.margin, 1 / ours.criterion.temperature)


LOSSES: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "NCA": lambda _: (NCA(), plain_loss),
    "SupCon": lambda _: (SupCon(0.1), supcon),
    "Contrastive": lambda _: (Contrastive(1.0), contrastive),
    "Triplet, hard": lambda _: (Triplet("hard", 0.2), triplet),
    "NormalizedSoftmax": _softmax,
    "ProxyAnchor": _anchors,
}


class Pair(NamedTuple):
    """Ours and theirs on the same points."""

    z: Tensor
    labels: Tensor
    objective: Any
    by_hand: Any


def pair(name: str, n: int, d: int, device: str) -> Pair:
    """Points of length 3 with classes in no order; class vectors are the same on both sides."""
    generator = torch.Generator().manual_seed(n + d)
    z = torch.randn(n, d, generator=generator) * (3 / d**0.5)
    labels = torch.arange(n)[torch.randperm(n, generator=generator)] % CLASSES
    sides = [side.to(device) if isinstance(side, torch.nn.Module) else side for side in LOSSES[name](d)]
    return Pair(z.to(device), labels.to(device), *sides)


def step(loss: Any, some: Pair, learned: list[Tensor]) -> tuple[Tensor, ...]:
    """Loss and gradients, of class vectors, too, which are listed once and for all, as an optimizer lists them."""
    live = some.z.detach().requires_grad_()
    found = loss(live, some.labels)
    return found.detach(), *torch.autograd.grad(found, [live, *learned])


def parameters(loss: Any) -> list[Tensor]:
    """The learned class vectors of a loss; a function has none."""
    return list(loss.parameters()) if isinstance(loss, torch.nn.Module) else []


def timed(call: Callable[[], object], device: str) -> float:
    """Milliseconds of one call."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    if device == "cuda":
        torch.cuda.synchronize()
    start = clock()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (clock() - start)


def measured(name: str, n: int, d: int, device: str, turns: int) -> dict[str, Any]:
    """Milliseconds of ours and theirs, compiled, of ours eager, and the ratio of the first two."""
    some = pair(name, n, d, device)
    torch._dynamo.reset()
    ours = torch.compile(some.objective, fullgraph=True)
    theirs = torch.compile(some.by_hand, fullgraph=True)
    mine, other = parameters(some.objective), parameters(some.by_hand)
    calls = {
        "ours": lambda: step(ours, some, mine),
        "by hand": lambda: step(theirs, some, other),
        "eager": lambda: step(some.objective, some, mine),
    }
    (value, *slopes), (expected, *others) = calls["ours"](), calls["by hand"]()
    error = max(float((a - b).norm() / b.norm()) for a, b in zip([value, *slopes], [expected, *others], strict=True))
    for call in list(calls.values()) * WARM:
        call()
    taken: dict[str, list[float]] = {key: [] for key in calls}
    order = random.Random(0)
    for _ in range(turns):
        for key in order.sample(list(calls), len(calls)):  # what ran before leaves the caches warm for its like, and cold for others
            taken[key].append(timed(calls[key], device))
    ratio = statistics.median(a / b for a, b in zip(taken["ours"], taken["by hand"], strict=True))
    return {
        "loss": name,
        "n": n,
        "d": d,
        "ms": {key: round(statistics.median(some), 4) for key, some in taken.items()},
        "ratio": round(ratio, 3),
        "difference": error,
    }


def main() -> None:
    """Measure, print and, with --out, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--only", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    with threads(1 if given.device == "cpu" else torch.get_num_threads()):
        for name in given.only:
            for n in given.sizes:
                for d in given.widths:
                    row = measured(name, n, d, given.device, given.turns)
                    rows.append(row)
                    times = "  ".join(f"{key} {value:8.3f}" for key, value in row["ms"].items())
                    print(
                        f"{name:20} {n:6,} x {d:5,}  {times} ms  ratio {row['ratio']:.2f}  difference {row['difference']:.1e}", flush=True
                    )
                    if given.out:
                        given.out.write_text(json.dumps({**about(given.device), "rows": rows}, indent=1) + "\n")
    slow = [row for row in rows if row["ratio"] > TARGET]
    print(f"within {TARGET} times of the hand-written loss in {len(rows) - len(slow)} of {len(rows)} cells")


def about(device: str) -> dict[str, str]:
    """Date, machine and versions."""
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU ({platform.machine()}), one thread"
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "device": where, "torch": torch.__version__}


if __name__ == "__main__":
    main()
