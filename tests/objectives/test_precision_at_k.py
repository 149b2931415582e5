"""Prec@k beyond its equations: the example of figure 1, references of earlier batches, and the fast way to the k largest."""

import math

import pytest
import torch
from torch import Tensor

from nearkin.compose.criterion import STRIP, by_strips
from nearkin.compose.points import Points
from nearkin.evaluate import retrieval
from nearkin.objectives import Angular, PrecisionAtK
from tests import oracles


def circle(degrees: list[float]) -> Tensor:
    angle = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return torch.stack([angle.cos(), angle.sin()], 1)


def test_the_example_of_figure_1() -> None:
    """Three of the five nearest are positives. Only A, B (positives outside) and C, D (negatives inside) move; then all five are."""
    names = ["query", "positive", "positive", "positive", "C", "D", "A", "B", "far positive", "negative", "negative"]
    z = circle([0, 5, -8, 12, 20, -25, 40, -45, 100, 80, -120]).requires_grad_()
    labels = torch.tensor([int(name in ("positive", "A", "B", "far positive", "query")) for name in names])
    ids = torch.arange(len(names))

    def precision() -> float:
        found = retrieval(Points(z[:1].detach(), labels[:1], ids[:1]), Points(z.detach(), labels, ids), ks=(5,), draws=0)
        return found["precision@5"].value

    objective = PrecisionAtK(k=5, margin=0.1)
    assert precision() == pytest.approx(3 / 5)
    for step in range(60):
        loss = objective(z[:1], labels[:1], ids=ids[:1], references=Points(z, labels, ids))
        (slope,) = torch.autograd.grad(loss, z)
        if step == 0:
            moved = {names[i] for i in range(len(names)) if slope[i].norm() > 1e-12}
            assert moved == {"query", "A", "B", "C", "D"} and objective.last is not None and objective.last.active == 2
        with torch.no_grad():
            z[1:] -= 0.05 * slope[1:]  # the query stays in place
    assert precision() == 1.0 and loss.item() == pytest.approx(0.0, abs=1e-9)


def test_against_a_memory_the_loss_is_that_of_batch_and_earlier_embeddings() -> None:
    generator = torch.Generator().manual_seed(3)
    objective = PrecisionAtK(k=2, margin=0.2, memory=7, dimension=3).double()
    batches = [torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(3)]
    labels = [torch.tensor(y) for y in ([0, 1, 0, 2, 1], [0, 0, 2, 2, 1], [1, 2, 0, 0, 1])]
    ids = [torch.tensor(who) for who in ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [1, 10, 2, 11, 12])]  # 1 and 2 come again
    for z, y, who in zip(batches, labels, ids, strict=True):
        alive = z.clone().requires_grad_()
        found = objective(alive, y, ids=who, reduction="none")
        memory = objective.references
        filled = memory.labels > -1
        held = [row.unbind() for row in memory.vectors[filled]]
        crowd = oracles.Crowd([*(row.unbind() for row in alive), *held], [*y.tolist(), *memory.labels[filled].tolist()], [])
        crowd = crowd._replace(ids=[*who.tolist(), *memory.ids[filled].tolist()])
        expected = oracles.precision_at_k(crowd, 2, 0.2)[: len(z)]
        torch.testing.assert_close(found, torch.stack([torch.as_tensor(value, dtype=torch.float64) for value, _ in expected]))
        objective.update(z, y, ids=who)
    assert int((objective.references.labels > -1).sum()) == 7


@pytest.mark.parametrize("wide", [5 * STRIP, 700])
def test_the_k_largest_by_strips(wide: int) -> None:
    x = torch.randn(20, wide, generator=torch.Generator().manual_seed(0)).masked_fill(torch.arange(wide) % 7 == 4, -torch.inf)
    assert torch.equal(by_strips(x, 5)[1], x.topk(5).indices)
    x[:, 9:] = -torch.inf  # next to each other, as the positives of a sorted batch are
    assert torch.equal(by_strips(x, 5)[1], x.topk(5).indices)
    x[:, 3:] = -torch.inf
    few = by_strips(x, 5)[1]
    assert torch.equal(few[:, :3], x.topk(3).indices) and int(few.max()) < wide


def test_by_strips_the_loss_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA: wide rows, positives side by side, and a class of fewer than k."""
    generator = torch.Generator().manual_seed(1)
    z, labels = torch.randn(700, 8, generator=generator, dtype=torch.float64), torch.arange(700) // 11
    objective = PrecisionAtK(5, 0.1, log_sum_exp=True)
    found = []
    for short in (False, True):
        if short:
            monkeypatch.setattr("nearkin.compose.criterion._worth_strips", lambda *_: True)
        alive = z.clone().requires_grad_()
        loss = objective(alive, labels)
        found.append((loss.detach(), *torch.autograd.grad(loss, alive)))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Angular(choice="hard"), "choice 'hard' is unknown; choose one of all, misplaced"),
        (lambda: Angular(k=0), r"k \(0\) must be a whole number of at least 1"),
        (lambda: Angular(margin=-1.0), r"margin \(-1.0\) must be a finite number above 0"),
    ],
)
def test_angular_rejects_wrong_arguments(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]
