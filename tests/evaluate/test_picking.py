"""Picking: typical points of every group first, then uncertain ones; never a labeled point, never one twice."""

import numpy as np
import pytest
import torch

from nearkin.compose import cosine
from nearkin.evaluate import pick


def groups(n: int = 200, count: int = 4, spread: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.arange(n) % count
    return spread * torch.randn(n, 5, generator=torch.Generator().manual_seed(0)) + 4 * torch.eye(5)[y], y


def test_without_labels_every_group_gives_a_point_near_its_middle() -> None:
    x, y = groups()
    found = pick(x, budget=4)
    assert sorted(y[found.rows].tolist()) == [0, 1, 2, 3]
    middle = torch.stack([x[y == c].mean(0) for c in range(4)])[y]
    apart = (x - middle).norm(dim=1)
    assert bool((apart[found.rows] < apart.median()).all())
    assert set(found.reasons) == {"typical of a group of 50 points without a label"}
    assert bool((found.uncertainty == 1).all())


def test_groups_with_a_label_come_last() -> None:
    x, y = groups()
    labels = torch.full_like(y, -1)
    labels[:2] = y[:2]
    assert sorted(y[pick(x, labels, 2).rows].tolist()) == [2, 3]


def test_with_labels_uncertain_points_are_chosen() -> None:
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.uniform(-3, 3, (400, 2)).astype(np.float32))
    y = (x[:, 0] > 0).long()
    labels = torch.full_like(y, -1)
    labels[:40] = y[:40]
    found = pick(x, labels, 20, classes=("left", "right"))
    assert float(x[found.rows[:8], 0].abs().mean()) < 0.3 * float(x[40:, 0].abs().mean())
    assert "uncertain between" in found.reasons[0] and "left" in found.reasons[0] and "a group of" in found.reasons[0]


def test_the_budget_is_kept_and_no_point_is_chosen_twice() -> None:
    x, y = groups(30)
    labels = torch.full_like(y, -1)
    labels[:10] = y[:10]
    found = pick(x, labels, 100, cosine())
    assert sorted(found.rows.tolist()) == list(range(10, 30)) and len(found.reasons) == 20


def test_equal_points_and_errors() -> None:
    assert len(pick(torch.ones(10, 3), budget=4).rows) == 4
    with pytest.raises(ValueError, match="budget .0. must be a whole number of at least 1"):
        pick(torch.ones(10, 3), budget=0)
    with pytest.raises(ValueError, match="all 10 points have one, so there is nothing to choose"):
        pick(torch.ones(10, 3), torch.zeros(10, dtype=torch.int64))
