"""What an objective sees of a code, by value and by law."""

import math

import torch

from nearkin.compose.affinity import Hamming, signs
from nearkin.train.relaxation import quantization_gap, relaxed


def test_the_gap_is_that_of_the_definition() -> None:
    z = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    b = relaxed(z)
    expected = sum((1 - abs(math.tanh(v))) ** 2 for v in z.flatten().tolist()) / z.numel()
    assert math.isclose(quantization_gap(b).item(), expected, rel_tol=1e-12)
    (gradient,) = torch.autograd.grad(quantization_gap(b), z)
    by_hand = [-2 * (1 - abs(math.tanh(v))) * math.copysign(1 - math.tanh(v) ** 2, v) / z.numel() for v in z.flatten().tolist()]
    assert torch.allclose(gradient.flatten(), torch.tensor(by_hand, dtype=torch.float64), rtol=1e-12)


def test_corners_cost_nothing_and_the_middle_costs_one() -> None:
    assert float(quantization_gap(signs(torch.randn(4, 6)))) == 0 and float(quantization_gap(torch.zeros(4, 6))) == 1


def test_following_the_pull_keeps_every_sign() -> None:
    z = torch.randn(30, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    before, start = signs(z.detach()), quantization_gap(relaxed(z)).item()
    for _ in range(200):
        (gradient,) = torch.autograd.grad(quantization_gap(relaxed(z)), z)
        z = (z - 20 * gradient).detach().requires_grad_()
    assert torch.equal(signs(z.detach()), before) and quantization_gap(relaxed(z)).item() < 0.2 * start


def test_between_codes_squared_distance_and_cosine_are_the_hamming_distance() -> None:
    x, y = (signs(torch.randn(n, 24, generator=torch.Generator().manual_seed(n))) for n in (6, 9))
    hamming = -Hamming()(x, y)
    assert torch.equal(torch.cdist(x, y).square().round(), 4 * hamming)
    assert torch.allclose(torch.nn.functional.cosine_similarity(x[:, None], y[None], dim=2), 1 - 2 * hamming / 24)
    for i in range(6):
        for j in range(9):
            assert int(hamming[i, j]) == sum(a != b for a, b in zip(x[i].tolist(), y[j].tolist(), strict=True))
