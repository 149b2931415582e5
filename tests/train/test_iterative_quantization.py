"""Iterative quantization: a rotation, a loss that never rises, and codes that need the rotation."""

import pytest
import torch

from nearkin.compose.affinity import signs
from nearkin.train.iterative_quantization import IterativeQuantization


def draw(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_rotation_is_one_and_the_loss_never_rises() -> None:
    x = draw(400, 12) @ draw(12, 12, 1)
    made = IterativeQuantization(8).fit(x)
    assert torch.allclose(made.rotation_.T @ made.rotation_, torch.eye(8, dtype=torch.float64), atol=1e-10)
    assert all(b <= a + 1e-12 for a, b in zip(made.losses_, made.losses_[1:], strict=False)) and made.losses_[-1] < made.losses_[0]
    after = made.transform(x)
    assert float((signs(after) - after).square().mean()) <= made.losses_[-1] + 1e-12


def test_the_loss_is_that_of_the_definition() -> None:
    x = draw(30, 5)
    made = IterativeQuantization(5, iterations=1, seed=3).fit(x)
    again = IterativeQuantization(5, iterations=2, seed=3).fit(x)
    turned = (x - x.mean(0)) @ again.directions_ @ made.rotation_
    total = sum(((1 if value >= 0 else -1) - value) ** 2 for row in turned.tolist() for value in row)
    assert again.losses_[1] == pytest.approx(total / turned.numel())


def test_distances_are_kept_where_nothing_is_projected_away() -> None:
    x = draw(40, 6)
    turned = IterativeQuantization(6).fit(x).transform(x)
    assert torch.allclose(torch.cdist(turned, turned), torch.cdist(x, x), atol=1e-6)


def test_a_rotated_cube_is_recovered() -> None:
    corners = signs(draw(500, 4))
    turn = torch.linalg.qr(draw(4, 4, 5)).Q
    found = min((IterativeQuantization(4, seed=seed).fit(corners @ turn) for seed in range(4)), key=lambda made: made.losses_[-1])
    assert found.losses_[-1] < 0.02  # but for the mean, which is not quite 0
    code = signs(found.transform(corners @ turn))
    agree = code.T @ corners / len(corners)  # (4, 4): a signed permutation
    assert torch.equal(agree.abs().round(), (agree.abs() > 0.5).double()) and float(agree.abs().max(1).values.min()) == 1


def test_the_same_seed_gives_the_same_and_a_shift_changes_nothing() -> None:
    x = draw(60, 6)
    a, b, moved = (IterativeQuantization(4).fit(data).transform(data) for data in (x, x, x + 100))
    assert torch.equal(a, b) and torch.equal(signs(a), signs(moved))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: IterativeQuantization(0), r"bits \(0\) must be a whole number"),
        (lambda: IterativeQuantization(2, 0), r"iterations \(0\) must be a whole number of at least 1"),
        (lambda: IterativeQuantization(9).fit(draw(5, 4)), r"bits \(9\) must be at most the dimension of x \(4\)"),
        (lambda: IterativeQuantization(2).fit(draw(1, 4)), "x has one row"),
        (lambda: IterativeQuantization(2).fit(draw(5, 4)[0]), r"x has shape \(4,\)"),
        (lambda: IterativeQuantization(2).fit(draw(5, 4) * float("nan")), "x hold NaN or infinity"),
        (lambda: IterativeQuantization(2).transform(draw(5, 4)), r"call fit before transform"),
        (lambda: IterativeQuantization(2).fit(draw(5, 4)).transform(draw(5, 3)), "x has 3 dimensions, and fit saw 4"),
    ],
)
def test_bad_calls_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
