"""Picking: typical points of every group first, then those near uncertain ones; never a labeled point, never one twice."""

import numpy as np
import pytest
import torch

from nearkin.compose import cosine
from nearkin.evaluate import pick, picking


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
    assert all(reason.startswith("typical of ") and reason.endswith(" points without a label") for reason in found.reasons)
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
    assert "uncertain between" in found.reasons[0] and "left" in found.reasons[0] and "without a label" in found.reasons[0]


def test_the_budget_is_kept_and_no_point_is_chosen_twice() -> None:
    x, y = groups(30)
    labels = torch.full_like(y, -1)
    labels[:10] = y[:10]
    found = pick(x, labels, 100, cosine())
    assert sorted(found.rows.tolist()) == list(range(10, 30)) and len(found.reasons) == 20


def literal_herding(x: torch.Tensor, labeled: list[int], budget: int) -> list[int]:
    """Each time the point with the largest gain of cover, all gains computed anew."""
    free = [row for row in range(len(x)) if row not in labeled]
    apart = [[float(((x[a] - x[b]).double() ** 2).sum()) for b in range(len(x))] for a in range(len(x))]
    reach = max(2, round(len(free) / (len(labeled) + budget))) + 1
    width = 0.5 * float(np.median([sorted(apart[a][b] for b in free)[reach - 1] for a in free]))
    kernel = [[np.exp(-value / width) for value in row] for row in apart]
    told = list(labeled)
    for _ in range(budget):
        cover = [max((kernel[a][b] for b in told), default=0.0) for a in range(len(x))]
        told.append(max((b for b in free if b not in told), key=lambda b: sum(max(kernel[a][b] - cover[a], 0) for a in free)))
    return told[len(labeled) :]


def test_picks_are_those_of_a_literal_loop() -> None:
    x, _ = groups(41)
    labels = torch.full((41,), -1)
    labels[[3, 30]] = torch.tensor([0, 1])
    assert pick(x, labels, 9).rows.tolist() == literal_herding(x, [3, 30], 9)


def test_many_points_are_chosen_from_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picking, "MOST_COMPARED", 40)
    x, y = groups(300)
    found = pick(x, torch.where(torch.arange(300) < 5, y, -1), 110)
    assert len(set(found.rows.tolist())) == len(found.reasons) == 110 and int(found.rows.min()) >= 5


def test_equal_points_and_errors() -> None:
    assert len(pick(torch.ones(10, 3), budget=4).rows) == 4
    with pytest.raises(ValueError, match="budget .0. must be a whole number of at least 1"):
        pick(torch.ones(10, 3), budget=0)
    with pytest.raises(ValueError, match="all 10 points have one, so there is nothing to choose"):
        pick(torch.ones(10, 3), torch.zeros(10, dtype=torch.int64))
