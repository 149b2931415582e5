"""BLAS never gets weights so small that products with them are subnormal: those are a hundred times slower on x86."""

import pytest
import torch
from torch import Tensor

from nearkin.kernels.contract import Engine, Work
from nearkin.kernels.numba_tiles import NumbaTiles
from nearkin.kernels.torch_tiles import TorchTiles

LEAST = 2.0**-100


def work() -> Work:
    """Points whose pairs span far more than float32's exponents, in two classes."""
    points = 1.2 * torch.randn(96, 64, generator=torch.Generator().manual_seed(0))
    span = torch.tensor([[0, 48]] * 48 + [[48, 96]] * 48)
    return Work(points, None, True, span=span, skip=torch.arange(96)[:, None])


def multiplied_weights(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """All weights that BLAS multiplies with points."""
    seen: list[Tensor] = []
    real = torch.Tensor.addmm_

    def addmm_(self: Tensor, first: Tensor, second: Tensor) -> Tensor:
        seen.extend(x.flatten().clone() for x in (first, second) if x.shape[0] == x.shape[1])
        return real(self, first, second)

    monkeypatch.setattr(torch.Tensor, "addmm_", addmm_)
    evaluation = work()
    first, second = engine.summaries(evaluation)
    engine.gradients(evaluation, first, second, torch.full((96,), 1e-3))
    return torch.cat(seen).abs()


@pytest.mark.parametrize("engine", [NumbaTiles(block=48, threads=1), TorchTiles(block=48)])
def test_weights_are_large_enough_or_zero(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = multiplied_weights(engine, monkeypatch)
    assert len(weights) >= 3 * 48 * 48  # the whole square, or half of it
    assert (weights == 0).any() and (weights[weights > 0] >= LEAST).all()
    assert weights.max() > 1e-3  # and the large weights are kept
