"""Embeddings of 16 bits: values and gradients are those of the same points in float64, and the kernels make the only float32 copy."""

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


def test_the_kernels_own_copy_is_the_only_one_in_float32() -> None:
    x, y = torch.randn(1200, 24).bfloat16().requires_grad_(), torch.arange(1200) % 7
    objective = NCA(engine="torch")
    with Copies((1200, 24)) as copies:
        objective(x, y)
    assert copies.made.count(torch.float32) == 1, "centered and scaled, for the kernels"
    assert copies.made.count(torch.bfloat16) == 1, "sorted by class"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("d", [64, 512])
def test_memory_on_cuda(dtype: torch.dtype, d: int) -> None:
    n = 20_000
    x, y = torch.randn(n, d, device="cuda") / d**0.5, torch.randint(100, (n,), device="cuda")
    peaks, slopes = [], []
    for kind in (torch.float32, dtype):
        live, objective = x.to(dtype).to(kind).requires_grad_(), NCA()
        for _ in range(2):
            live.grad = None
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            (2**12 * objective(live, y)).backward()  # as a gradient scaler does: float16 ends at 6e-8
            peaks.append(torch.cuda.max_memory_allocated() - before)
        assert live.grad is not None and live.grad.dtype == kind
        slopes.append(live.grad.double())
    assert peaks[3] <= peaks[1] + n * d * dtype.itemsize, "no float32 copy beside what float32 takes, too; only the gradient in 16 bits"
    assert (slopes[0] - slopes[1]).norm() <= 2 * torch.finfo(dtype).eps * slopes[0].norm()
