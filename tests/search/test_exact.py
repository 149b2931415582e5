"""Exact search equals a float64 loop, ties go to the earlier reference, and no answer depends on how it was blocked."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nearkin.affinity import Affinity, Euclidean, InnerProduct, Normalised, SquaredEuclidean, cosine
from nearkin.points import Points
from nearkin.search import Neighbours, nearest
from nearkin.search import exact as module

AFFINITIES: dict[str, Affinity] = {
    "squared": SquaredEuclidean(),
    "squared warm": SquaredEuclidean(0.3),
    "euclidean": Euclidean(),
    "cosine": cosine(0.1),
    "inner": InnerProduct(),
    "unit squared": Normalised(SquaredEuclidean()),
}
everywhere = pytest.mark.parametrize("name", AFFINITIES)


def drawn(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def loop(q: Tensor, r: Tensor, k: int, name: str, same: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sorted lists in float64, from the definitions, earlier first among equals."""
    q, r = q.double(), r.double()
    positions, values = [], []
    for i in range(len(q)):
        scores = {}
        for j in range(len(r)):
            a, b = (v / v.norm() for v in (q[i], r[j])) if name in ("cosine", "unit squared") else (q[i], r[j])
            square, inner = (a - b).square().sum(), a @ b
            near = {"squared": -square, "squared warm": -square / 0.3, "euclidean": -square.sqrt(), "cosine": inner / 0.1}
            scores[j] = float((near | {"inner": inner, "unit squared": -square})[name])
        order = sorted((j for j in scores if same is None or not same[i, j]), key=lambda j: (-scores[j], j))[:k]
        positions.append(order)
        values.append([scores[j] for j in order])
    return torch.tensor(positions), torch.tensor(values, dtype=torch.float64)


@everywhere
@pytest.mark.parametrize("block", [4096, 11, 4])
def test_equals_the_loop(name: str, block: int) -> None:
    q, r = drawn(9, 5, 0), drawn(31, 5, 1)
    positions, values = loop(q, r, 6, name)
    found = nearest(q, r, 6, AFFINITIES[name], block=block)
    assert torch.equal(found.positions, positions) and found.positions.dtype == torch.int64
    torch.testing.assert_close(found.affinity.double(), values, rtol=1e-5, atol=1e-5)


def test_the_metric_is_squared_euclidean_unless_told() -> None:
    q, r = drawn(4, 3, 0), drawn(7, 3, 1)
    found = nearest(q, r, 2)
    assert isinstance(found, Neighbours) and torch.equal(found.affinity, nearest(q, r, 2, SquaredEuclidean()).affinity)
    assert module.BLOCK == 4096


@everywhere
@pytest.mark.parametrize("block", [4096, 64, 17])
def test_all_equal_references_come_in_order(name: str, block: int) -> None:
    found = nearest(drawn(3, 8, 0), drawn(1, 8, 1).repeat(130, 1), 7, AFFINITIES[name], block=block)
    assert found.positions.tolist() == [list(range(7))] * 3


@everywhere
@pytest.mark.parametrize(("m", "block"), [(7, 5), (50, 64), (50, 17), (43, 7), (40, 33)])
def test_copies_across_block_borders_are_tied(name: str, m: int, block: int) -> None:
    base, q = drawn(m, 9, 0) + 3, drawn(12, 9, 1)
    once = nearest(q, base, 2, AFFINITIES[name]).positions
    expected = torch.stack([once[:, i // 3] + m * (i % 3) for i in range(6)], 1)
    assert torch.equal(nearest(q, base.repeat(3, 1), 6, AFFINITIES[name], block=block).positions, expected)
    assert torch.equal(nearest(q, base.repeat(3, 1), 2, AFFINITIES[name], block=block).positions, expected[:, :2])


def test_ties_on_a_small_lattice_equal_the_loop() -> None:
    g = torch.Generator().manual_seed(2)
    q, r = torch.randint(-1, 2, (20, 2), generator=g), torch.randint(-1, 2, (60, 2), generator=g)
    for k in (1, 3, 8, 60):
        for block in (4096, 16):
            assert torch.equal(nearest(q, r, k, block=block).positions, loop(q, r, k, "squared")[0]), (k, block)


@pytest.mark.parametrize("block", [4096, 6, 1])
def test_self_is_passed_over_by_id_wherever_it_stands(block: int) -> None:
    x = drawn(10, 4, 0)
    references = torch.cat([x, x, x])  # triplicates: dropping rank 0 would leave two copies
    ids, labels = torch.arange(10), torch.arange(30)
    found = nearest(Points(x, None, ids), Points(references, labels, ids.repeat(3)), 4, exclude_same_id=True, block=block)
    assert not (found.positions % 10 == ids[:, None]).any()
    same = ids[:, None] == ids.repeat(3)
    assert torch.equal(found.positions, loop(x, references, 4, "squared", same)[0])
    kept = nearest(Points(x, None, ids), Points(references, labels, ids.repeat(3)), 3, block=block)
    assert torch.equal(kept.positions, torch.stack([ids, ids + 10, ids + 20], 1)), "unless asked, everybody is a neighbour"


@pytest.mark.parametrize("block", [4096, 2])
def test_what_exclusion_leaves_short_is_marked(block: int) -> None:
    x = drawn(3, 2, 0)
    found = nearest(
        Points(x, None, torch.zeros(3, dtype=torch.long)), Points(x, None, torch.tensor([0, 5, 0])), 2, exclude_same_id=True, block=block
    )
    assert found.positions.tolist() == [[1, -1]] * 3 and (found.affinity[:, 1] == -torch.inf).all()


@pytest.mark.parametrize("block", [4096, 4])
def test_k_is_lowered_to_the_number_of_references(block: int) -> None:
    q, r = drawn(5, 3, 0), drawn(6, 3, 1)
    found = nearest(q, r, 50, block=block)
    assert found.positions.shape == (5, 6) and torch.equal(found.positions, loop(q, r, 6, "squared")[0])
    assert nearest(q, r, 6, block=block).positions.tolist() == found.positions.tolist()


@everywhere
def test_block_size_changes_nothing(name: str) -> None:
    q, r = drawn(40, 6, 0) + 2, drawn(150, 6, 1) + 2
    whole = nearest(q, r, 9, AFFINITIES[name])
    for block in (9, 50, 149, 150, 151):
        found = nearest(q, r, 9, AFFINITIES[name], block=block)
        assert torch.equal(found.positions, whole.positions), block
        torch.testing.assert_close(found.affinity, whole.affinity, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("queries", [10, 300])
def test_trap_36_recall_far_from_the_origin(queries: int) -> None:
    r = drawn(2000, 32, 0) + 1000  # mean / sd = 1000
    q = drawn(queries, 32, 1) + 1000
    exact = torch.cdist(q.double(), r.double()).topk(5, largest=False).indices
    for block in (4096, 128):
        found = nearest(q, r, 5, block=block).positions
        assert float((found[:, :, None] == exact[:, None]).any(2).double().mean()) == 1.0


def test_other_types_are_lifted() -> None:
    q, r = drawn(4, 3, 0), drawn(9, 3, 1)
    half = nearest(q.half(), r.half(), 3)
    assert half.affinity.dtype == torch.float32
    assert torch.equal(half.positions, nearest(q.half().float(), r.half().float(), 3).positions)
    whole = nearest((4 * q).long(), (4 * r).long(), 3)
    assert whole.affinity.dtype == torch.float32 and torch.equal(whole.affinity, whole.affinity.round())
    assert nearest(q.double(), r.double(), 3).affinity.dtype == torch.float64
    for affinity in (None, cosine()):
        for a, b in ((q, r.double()), (q.double(), r), (q.half(), r.double())):
            assert nearest(a, b, 3, affinity).affinity.dtype == torch.float64


def test_no_graph_is_built() -> None:
    x = drawn(4, 2, 0).requires_grad_()
    assert not nearest(x, x, 2).affinity.requires_grad


X, IDS = drawn(4, 2, 0), torch.arange(4)
ERRORS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (X, X, {"k": 0}, r"k \(0\) must be a whole number above 0"),
    (X, X, {"k": -3}, r"k \(-3\) must be a whole number above 0"),
    (X, X, {"k": True}, r"k \(True\) must be a whole number above 0"),
    (X, X, {"k": 1.5}, r"k \(1.5\) must be a whole number above 0"),
    (X, X, {"block": 0}, r"block \(0\) must be above 0"),
    (X[0], X, {}, r"queries must be a tensor \(n, d\) with at least one row, not \(2,\)"),
    (X, X[:0], {}, r"references must be a tensor \(n, d\) with at least one row, not \(0, 2\)"),
    ([[1.0]], X, {}, r"queries must be a tensor \(n, d\) with at least one row, not list"),
    (X, drawn(4, 3, 0), {}, "queries have 2 dimensions and references 3; both must come from the same network"),
    (X, X * torch.nan, {}, r"references hold NaN or infinity, first in rows \[0, 1, 2, 3\]; nothing is near to those: drop them"),
    (X / 0, X, {}, "queries hold NaN or infinity"),
    (X, Points(X, None, IDS), {"exclude_same_id": True}, "exclude_same_id needs ids on both sides; pass Points"),
    (Points(X, None, IDS), X, {"exclude_same_id": True}, "exclude_same_id needs ids on both sides"),
    (Points(X, None, IDS[:1]), X, {}, r"queries.ids have shape \(1,\) for 4 embeddings; give one integer for each"),
    (X, Points(X, None, IDS[:, None]), {}, r"references.ids have shape \(4, 1\) for 4 embeddings"),
]


@pytest.mark.parametrize(("queries", "references", "options", "match"), ERRORS, ids=[e[-1][:34] for e in ERRORS])
def test_errors(queries: Any, references: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        nearest(queries, references, **({"k": 2} | options))
