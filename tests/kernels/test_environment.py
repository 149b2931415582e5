"""The environment of the CPU engines changes nothing: a fresh process, defaults of torch, autocast, torch.compile."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from nearkin.kernels import autograd
from nearkin.kernels.contract import Form
from tests.kernels.full_matrix import BOTH, CASES, agree, draw, evaluated, found

PROGRAM = """
import resource, torch
from nearkin.kernels.autograd import soft_neighbors
from nearkin.kernels.contract import Work

print([name for name in ("numba", "triton") if name in sys.modules])

def step(n):
    x, edge = torch.randn(n, 64, requires_grad=True), torch.arange(n) // 1000 * 1000
    span = torch.stack([edge, (edge + 1000).clamp(max=n)], 1)
    soft_neighbors(Work(x, None, True, span=span, skip=torch.arange(n)[:, None]), "log", 1.0, engine="numba").values.mean().backward()
    return x.grad.isfinite().all()

step(1500)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert step(16_384)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """The output of a separate process: the modules imported too early, and the megabytes used by a step."""
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    return subprocess.run([sys.executable, "-c", path + PROGRAM], check=True, capture_output=True, text=True).stdout.splitlines()


def test_numba_and_triton_are_imported_late(printed: list[str]) -> None:
    assert printed[0] == "[]"


def test_memory_grows_with_points_not_pairs(printed: list[str]) -> None:
    assert float(printed[1]) < 120  # the full matrix would be 1,024


@BOTH
@pytest.mark.parametrize("other", [torch.float64, "meta"])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_defaults_of_torch_do_not_matter(kind: type, relation: str, form: Form, other: Any) -> None:
    """A caller may have changed the default type or the default device of torch."""
    work = draw(relation, "separate")
    before = evaluated(kind(block=8), work, form)
    (torch.set_default_dtype if other is torch.float64 else torch.set_default_device)(other)
    try:
        after = evaluated(kind(block=8), work, form)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_autocast_around_either_pass_costs_no_digits(kind: type, relation: str, form: Form) -> None:
    work = draw(relation, "separate")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mine = found(kind(block=8), work, form)
    agree(mine, found(None, work, form), 1e-5)


@pytest.mark.parametrize("engine", ["torch", "numba"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch.compile's own
def test_torch_compile_leaves_the_engines_alone(engine: str) -> None:
    """Without operators of their own, torch.compile would follow numba into its own compiler and fail."""
    work = draw("span", "own")

    def step(queries: Tensor) -> Tensor:
        return autograd.soft_neighbors(work._replace(queries=queries), "log", 1.0, engine=engine).values.sum()

    slopes = []
    for run in (step, torch.compile(step, backend="eager", fullgraph=True)):
        queries = work.queries.clone().requires_grad_()
        slopes += torch.autograd.grad(run(queries), queries)
    assert torch.equal(*slopes)
