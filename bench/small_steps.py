"""What decides small and wide steps: `python -m bench.small_steps [--device cuda]`.

Three tables:

- a step of NCA, NCA regression and SupCon by the matrix and by the streaming kernels, at 128 to 1,536 points: where `compose/routes.py`
  turns to the kernels;
- on CUDA, the order of a batch by class by comparing all labels and by sorting them, at 1,024 to 16,384 points: up to where
  `kernels/class_order.py` compares;
- on CUDA, the relative error of "highest" gradients against float64, and their milliseconds, by the number of points that one product of
  the gradient adds up (`kernels/wide_engine.py`), at 8,192 points.

Milliseconds are medians of whole calls until the device is idle.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from nearkin import NCA, NCARegression, SupCon
from nearkin.kernels import class_order, cuda_graphs, wide_engine

OBJECTIVES = {"NCA": NCA, "NCARegression": NCARegression, "SupCon": SupCon}
STREAMED = {"cuda": "triton", "cpu": "numba"}
SIZES, WIDTHS = (128, 256, 512, 1024, 1536), (64, 384, 768)
LABELS, PIECES, WIDE = (1024, 4096, 8192, 16_384), (1 << 30, 4096, 2048, 1024), 8192


def points(n: int, d: int, each: int, device: str) -> tuple[Tensor, Tensor]:
    """Embeddings of length 3, and labels of about `each` points a class in no order."""
    generator = torch.Generator().manual_seed(n + d)
    embeddings = torch.randn(n, d, generator=generator) * (3 / d**0.5)
    return embeddings.to(device), torch.randint(max(4, n // each), (n,), generator=generator).to(device)


def milliseconds(call: Callable[[], object], device: str, turns: int = 25) -> float:
    """The median of some calls, after some that compile, warm up and record."""
    taken = []
    for turn in range(turns + 6):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        if turn >= 6:
            taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def gradient(objective: Callable[[Tensor, Tensor], Tensor], embeddings: Tensor, answers: Tensor) -> Tensor:
    live = embeddings.detach().requires_grad_()
    return torch.autograd.grad(objective(live, answers), live)[0]


def routes(device: str) -> None:
    for name, kind in OBJECTIVES.items():
        for d in WIDTHS:
            for n in SIZES:
                x, labels = points(n, d, 8, device)
                answers = torch.randn(n, 2, device=device) if kind is NCARegression else labels
                made = (kind(engine=engine) for engine in ("dense", STREAMED[device]))
                dense, streamed = (milliseconds(partial(gradient, one, x, answers), device) for one in made)
                print(f"{name:14} {n:6,} x {d:4}  matrix {dense:7.3f} ms  streamed {streamed:7.3f} ms", flush=True)


def orders() -> None:
    for n in LABELS:
        labels = points(n, 1, 100, "cuda")[1]
        found = {}
        for name, most in (("comparing", n), ("sorting", 0)):
            with patch.object(class_order, "MOST", most):
                class_order.by_class(labels)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for _ in range(10):
                        class_order.by_class(labels)
                found[name] = 100 * milliseconds(graph.replay, "cuda")
        print(f"{n:6,} labels  " + "  ".join(f"{name} {us:6.1f} us" for name, us in found.items()), flush=True)


def errors() -> None:
    for kind in (NCA, SupCon):
        for d in WIDTHS[1:]:
            x, labels = points(WIDE, d, 100, "cuda")
            exact = gradient(kind(), x.double(), labels)
            for piece in PIECES:
                cuda_graphs._seen.clear()  # what was recorded has another size
                with patch.object(wide_engine, "_PIECE", piece):
                    made = kind(precision="highest")
                    error = float((gradient(made, x, labels) - exact).norm() / exact.norm())
                    taken = milliseconds(partial(gradient, made, x, labels), "cuda")
                print(f"{kind.__name__:8} {WIDE:,} x {d}  sums of {min(piece, WIDE):5,}  error {error:.1e}  {taken:.3f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(STREAMED), default="cpu")
    given = parser.parse_args()
    routes(given.device)
    if given.device == "cuda":
        orders()
        errors()


if __name__ == "__main__":
    main()
