"""The best k of many pairs: chosen in blocks without a gradient, then valid alone, to the same values and gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nearkin import NeighborhoodObjective, PrecisionAtK
from nearkin.compose import routes
from nearkin.compose.affinity import Euclidean, InnerProduct, SquaredEuclidean, cosine
from nearkin.compose.criterion import BestK
from nearkin.compose.references import InBatch
from nearkin.compose.relation import LabelDistance, SameLabel
from nearkin.objectives import neighborhood, streaming
from nearkin.objectives.objective import Objective

N, D = 23, 4


def composed(affinity: object, relation: object = SameLabel(), k: int = 3) -> Callable[[], Objective]:
    return lambda: NeighborhoodObjective(InBatch(), affinity, relation, BestK(k, 0.2))  # type: ignore[arg-type]


MADE: dict[str, Callable[[], Objective]] = {
    "printed": lambda: PrecisionAtK(3, 0.1),
    "released": lambda: PrecisionAtK(5, 0.05, log_sum_exp=True, covariance=0.1, class_balanced=True),
    "k above a class and above everybody": lambda: PrecisionAtK(40, 0.3),
    "memory": lambda: PrecisionAtK(3, 0.1, memory=30, dimension=D),
    "squared Euclidean": composed(SquaredEuclidean(2.0)),
    "inner product": composed(InnerProduct(0.5)),
    "cosine, numbers": composed(cosine(), LabelDistance(), k=4),
}


def outcome(make: Callable[[], Objective], z: Tensor, labels: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, int]:
    objective, live = make(), z.clone().requires_grad_()
    objective.to(z.dtype)
    objective.update(z.flip(0), labels.flip(0), ids=ids.flip(0) + 100)  # somebody is in the memory
    values = objective(live, labels, ids=ids, reduction="none")
    values.square().sum().backward()
    assert live.grad is not None and objective.last is not None
    return values.detach(), live.grad, int(objective.last.active)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("block", [1, 100, 1 << 24])
def test_selected_is_dense(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(N, D, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 5, (N,), generator=generator)
    ids = torch.cat([torch.arange(N - 2), torch.tensor([3, 3])])  # one sample stands there three times
    expected = outcome(MADE[name], z, labels, ids)
    monkeypatch.setattr(routes, "MANY_PAIRS", 0)
    monkeypatch.setattr(streaming, "MOST_PAIRS", block)
    asked = []
    chosen = neighborhood.select
    monkeypatch.setattr(neighborhood, "select", lambda *given: asked.append(name) or chosen(*given))
    found = outcome(MADE[name], z, labels, ids)
    assert asked == [name]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_other_affinities_stay_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MANY_PAIRS", 0)
    monkeypatch.setattr(neighborhood, "select", lambda *_: pytest.fail("a distance is not made of products"))
    composed(Euclidean())()(torch.randn(N, D), torch.arange(N) % 4)


def test_no_matrix_of_all_pairs_waits_for_the_gradient() -> None:
    """What autograd keeps for Prec@5 of 3,000 points grows with the points, not with their pairs."""
    n, kept = 3000, []
    z = torch.randn(n, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        PrecisionAtK(5)(z, torch.arange(n) % 300).backward()
    assert max(kept) <= 100 * n
