"""Embeddings of 16 bits: values and gradients are those of the same points in float64, and no float32 copy is made that is not needed."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nearkin import NCA, NCARegression, SupCon
from nearkin.compose import routes
from nearkin.kernels import autograd
from nearkin.kernels.contract import Work
from tests.kernels.full_matrix import CASES, draw

HALF = [torch.bfloat16, torch.float16]


def evaluated(work: Work, form: Any, engine: str) -> tuple[list[Tensor], list[torch.dtype]]:
    points = [work.queries, *([] if work.references is None else [work.references])]
    live = [point.detach().requires_grad_() for point in points]
    work = work._replace(queries=live[0], references=None if work.references is None else live[1])
    soft = autograd.soft_neighbors(work, form, 2.0, engine=engine)
    found = torch.autograd.grad(1000 * soft.values.double().sum(), live)
    return [soft.values.detach().double(), *[gradient.double() for gradient in found]], [soft.values.dtype, *[g.dtype for g in found]]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("engine", ["torch", "numba"])
@pytest.mark.parametrize(("relation", "form"), CASES)
@pytest.mark.parametrize("references", ["own", "separate"])
@pytest.mark.parametrize("squared", [True, False])
def test_kernels_read_points_of_16_bits(dtype: torch.dtype, engine: str, relation: str, form: Any, references: str, squared: bool) -> None:
    work = draw(relation, references, seed=1)._replace(squared=squared)
    half = work._replace(queries=work.queries.to(dtype), references=None if work.references is None else work.references.to(dtype))
    exact = half._replace(queries=half.queries.double(), references=None if half.references is None else half.references.double())
    found, kinds = evaluated(half, form, engine)
    expected, _ = evaluated(exact, form, "torch")
    assert kinds == [torch.float32, *[dtype] * (len(kinds) - 1)]
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for mine, true in zip(found[1:], expected[1:], strict=True):
        assert (mine - true).norm() <= torch.finfo(dtype).eps * true.norm()


MAKES = {"NCA": NCA, "expected": lambda: NCA("expected"), "cosine": lambda: NCA(temperature=0.1, metric="cosine"), "SupCon": SupCon}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", [*MAKES, "numbers"])
@pytest.mark.parametrize("many", [0, 2**40], ids=["streamed", "dense"])
def test_objectives_take_16_bits_and_return_them(dtype: torch.dtype, name: str, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MANY_ON_CPU", many)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 6, generator=generator).to(dtype), torch.arange(40) % 4
    labels = torch.randn(40, generator=generator) if name == "numbers" else y
    objective = NCARegression() if name == "numbers" else MAKES[name]()
    found = []
    for kind in (dtype, torch.float64):
        live = x.detach().to(kind).requires_grad_()
        loss = objective(live, labels.to(torch.float64) if name == "numbers" else labels)
        (64 * loss).backward()
        assert live.grad is not None and live.grad.dtype == kind
        found.append((loss.detach().double(), live.grad.double()))
    (loss, slope), (true, exact) = found
    torch.testing.assert_close(loss, true, rtol=1e-5, atol=1e-6)
    assert (slope - exact).norm() <= torch.finfo(dtype).eps * exact.norm()


class Copies(TorchDispatchMode):
    """Counts tensors of the size of the batch that operators make, by type."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shape, self.made = shape, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        known = {x.data_ptr() for x in args if isinstance(x, Tensor)}
        for x in found if isinstance(found, tuple | list) else [found]:
            if isinstance(x, Tensor) and tuple(x.shape) == self.shape and x.data_ptr() not in known:
                self.made.append(x.dtype)
        return found


COSINE = NCA(temperature=0.1, metric="cosine", engine="torch")


@pytest.mark.parametrize("objective", [NCA(engine="torch"), COSINE], ids=["NCA", "cosine"])
def test_the_kernels_own_copy_is_the_only_one_in_float32(objective: Any) -> None:
    """On a CPU: in base-2 units; the GPU's engines make none."""
    x, y = torch.randn(1200, 24).bfloat16().requires_grad_(), torch.arange(1200) % 7
    with Copies((1200, 24)) as copies:
        objective(x, y)
    assert Counter(copies.made) == {torch.float32: 1, torch.bfloat16: 1}, "the kernels' own, and the points sorted by class"


@pytest.mark.parametrize(("objective", "in_float32"), [(NCA(engine="torch"), 0), (COSINE, 0), (SupCon(engine="torch"), 2)])
def test_what_is_kept_for_the_gradient(objective: Any, in_float32: int) -> None:
    """The points in 16 bits. SupCon keeps its directions and the means of positives, whose gradient is added to that of the kernels."""
    x, y = torch.randn(1200, 24).bfloat16().requires_grad_(), torch.arange(1200) % 7
    kept: dict[int, torch.dtype] = {}

    def keep(t: Tensor) -> Tensor:
        if t.numel() >= x.numel():
            kept[t.data_ptr()] = t.dtype
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        objective(x, y)
    assert Counter(kept.values()) == {torch.bfloat16: 1} | ({torch.float32: in_float32} if in_float32 else {})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("metric", "temperature"), [("squared_euclidean", 1.0), ("cosine", 0.1)])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("d", "precision", "bytes_each"), [(64, "fast", 6), (64, "highest", 8), (512, "fast", 10), (512, "highest", 16)])
def test_memory_on_cuda(dtype: torch.dtype, d: int, precision: str, bytes_each: int, metric: str, temperature: float) -> None:
    """Points sorted by class and their gradient, 16 bits each; operands; where the matrix library multiplies, one float32 gradient."""
    n = 70_000
    x, y = torch.randn(n, d, device="cuda") / d**0.5, torch.randint(100, (n,), device="cuda")
    peaks, slopes = [], []
    for kind in (torch.float32, dtype):
        live, objective = x.to(dtype).to(kind).requires_grad_(), NCA(temperature=temperature, metric=metric, precision=precision)
        for _ in range(2):
            live.grad = None
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            (2**12 * objective(live, y)).backward()  # as a gradient scaler does: float16 ends at 6e-8
            peaks.append(torch.cuda.max_memory_allocated() - before)
        assert live.grad is not None and live.grad.dtype == kind
        slopes.append(live.grad.double())
    assert peaks[3] <= peaks[1]
    if d == 64:
        assert peaks[3] <= n * d * bytes_each + n * 300 + n * n // 4096
    assert (slopes[0] - slopes[1]).norm() <= 2 * torch.finfo(dtype).eps * slopes[0].norm()
