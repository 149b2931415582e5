"""Data that break careless arithmetic, against float64: `python -m bench.numerics [--out FILE.json] [--peers DIR]`.

Relative errors of the mean loss (NCA, log form) and of its gradient. On a CPU the Triton kernels run under Triton's interpreter, which
multiplies as the GPU does but adds in its own order; on CUDA they run as they are. Peers are shown as they are.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.contenders import Evaluate, metric_learning, ours, plain
from bench.kernels import processor, versions

N, D, CLASSES = 200, 64, 10
Cases = dict[str, Tensor]
Make = Callable[[Tensor, Tensor], Evaluate]


def cases() -> Cases:
    """(N, D) float32 each."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, D, generator=generator)
    return {
        "plain": x,
        "far points (x 10)": 10 * x,
        "five copies of each": x[: N // 5].repeat(5, 1)[torch.randperm(N, generator=generator)],
        "two scales (0.1 and 20)": x * torch.where(torch.arange(N)[:, None] % 2 == 0, 0.1, 20.0),
        "offset (+ 100)": x + 100,
    }


def truth(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and gradient from all differences in float64."""
    live = embeddings.double().requires_grad_()
    affinity = -(live[:, None] - live).square().sum(2)
    affinity = affinity.masked_fill(torch.eye(len(live), dtype=torch.bool, device=live.device), -torch.inf)
    right = affinity.masked_fill(labels[:, None] != labels, -torch.inf)
    wrong = affinity.masked_fill(labels[:, None] == labels, -torch.inf)
    gap = torch.logsumexp(wrong, 1) - torch.logsumexp(right, 1)
    loss = torch.logaddexp(gap, torch.zeros_like(gap)).mean()  # softplus is a straight line above 20
    return loss.detach(), torch.autograd.grad(loss, live)[0]


def contenders(cuda: bool) -> dict[str, Make]:
    """Who is asked; a name that ends in float64 gets the same points in float64."""
    triton = {f"nearkin triton, {precision}": ours("triton", precision) for precision in ("highest", "high", "fast")}
    tiles = {"nearkin torch tiles": ours("torch"), "nearkin torch tiles, float64": ours("torch")}
    numba = {} if cuda else {"nearkin numba": ours("numba"), "nearkin numba, float64": ours("numba")}
    return {**triton, **numba, **tiles, "plain torch": plain, "pytorch-metric-learning NCALoss": metric_learning}


def measured(name: str, make: Make, case: str, embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    loss, gradient = make(embeddings.double() if name.endswith("float64") else embeddings, labels)()
    true_loss, true_gradient = truth(embeddings, labels)
    errors = {
        "value_error": float((loss.double() - true_loss).abs() / true_loss.abs()),
        "gradient_error": float((gradient.double() - true_gradient).norm() / true_gradient.norm()),
    }
    return {"name": name, "case": case, **{key: error if math.isfinite(error) else None for key, error in errors.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peers", type=Path, help="a folder of packages to put on the path")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    cuda = torch.cuda.is_available()
    if not cuda:
        os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are defined
    device = "cuda" if cuda else "cpu"
    labels = (torch.arange(N) * CLASSES // N).to(device)  # sorted, as objectives sort them
    rows = []
    for case, embeddings in cases().items():
        for name, make in contenders(cuda).items():
            rows.append(measured(name, make, case, embeddings.to(device), labels))
            print(rows[-1], flush=True)
    about = {"command": "python -m bench.numerics", "device": processor(), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    if options.out:
        options.out.write_text(json.dumps({**about, "versions": versions(), "n": N, "d": D, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
