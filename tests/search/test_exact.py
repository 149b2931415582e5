"""Exact search equals a float64 loop, ties go to the earlier reference, and no result depends on the block size."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, Euclidean, InnerProduct, Normalized, SquaredEuclidean, cosine
from nearkin.compose.points import Points
from nearkin.search import Neighbors, nearest
from nearkin.search import exact as module

AFFINITIES: dict[str, Affinity] = {
    "squared": SquaredEuclidean(),
    "squared warm": SquaredEuclidean(0.3),
    "euclidean": Euclidean(),
    "cosine": cosine(0.1),
    "inner": InnerProduct(),
    "unit squared": Normalized(SquaredEuclidean()),
}
everywhere = pytest.mark.parametrize("name", AFFINITIES)


@pytest.fixture(autouse=True, params=["compiled", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test with the compiled search, and with the torch search for machines without numba and for CUDA."""
    if request.param == "torch":
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    else:
        pytest.importorskip("numba")
    return str(request.param)


def drawn(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def loop(q: Tensor, r: Tensor, k: int, name: str, same: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sorted lists in float64, from the definitions, earlier first among equals."""
    mine, theirs = ([unit(row) if name in ("cosine", "unit squared") else row for row in x.double().tolist()] for x in (q, r))
    hidden = None if same is None else same.tolist()
    positions, values = [], []
    for i, a in enumerate(mine):
        scores = {}
        for j, b in enumerate(theirs):
            if hidden is not None and hidden[i][j]:
                continue
            square, inner = sum((x - y) ** 2 for x, y in zip(a, b, strict=True)), sum(x * y for x, y in zip(a, b, strict=True))
            near = {"squared": -square, "squared warm": -square / 0.3, "euclidean": -math.sqrt(square), "cosine": inner / 0.1}
            scores[j] = (near | {"inner": inner, "unit squared": -square})[name]
        order = sorted(scores, key=lambda j: (-scores[j], j))[:k]
        positions.append(order)
        values.append([scores[j] for j in order])
    return torch.tensor(positions), torch.tensor(values, dtype=torch.float64)


def unit(row: list[float]) -> list[float]:
    return [x / math.hypot(*row) for x in row]


@everywhere
@pytest.mark.parametrize("block", [4096, 11, 4])
def test_equals_the_loop(name: str, block: int) -> None:
    q, r = drawn(9, 5, 0), drawn(31, 5, 1)
    positions, values = loop(q, r, 6, name)
    found = nearest(q, r, 6, AFFINITIES[name], block=block)
    assert torch.equal(found.positions, positions) and found.positions.dtype == torch.int64
    torch.testing.assert_close(found.affinity.double(), values, rtol=1e-5, atol=1e-5)


def test_the_default_metric_is_squared_euclidean() -> None:
    q, r = drawn(4, 3, 0), drawn(7, 3, 1)
    found = nearest(q, r, 2)
    assert isinstance(found, Neighbors) and torch.equal(found.affinity, nearest(q, r, 2, SquaredEuclidean()).affinity)


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
def test_self_is_excluded_by_id_wherever_it_is(block: int) -> None:
    x = drawn(10, 4, 0)
    references = torch.cat([x, x, x])  # triplicates: dropping rank 0 would leave two copies
    ids, labels = torch.arange(10), torch.arange(30)
    found = nearest(Points(x, None, ids), Points(references, labels, ids.repeat(3)), 4, exclude_same_id=True, block=block)
    assert not (found.positions % 10 == ids[:, None]).any()
    same = ids[:, None] == ids.repeat(3)
    assert torch.equal(found.positions, loop(x, references, 4, "squared", same)[0])
    kept = nearest(Points(x, None, ids), Points(references, labels, ids.repeat(3)), 3, block=block)
    assert torch.equal(kept.positions, torch.stack([ids, ids + 10, ids + 20], 1)), "by default every reference is a candidate"


@pytest.mark.parametrize("block", [4096, 2])
def test_queries_with_fewer_than_k_left_are_padded(block: int) -> None:
    x = drawn(3, 2, 0)
    found = nearest(
        Points(x, None, torch.zeros(3, dtype=torch.long)), Points(x, None, torch.tensor([0, 5, 0])), 2, exclude_same_id=True, block=block
    )
    assert found.positions.tolist() == [[1, -1]] * 3 and (found.affinity[:, 1] == -torch.inf).all()


@pytest.mark.parametrize("block", [4096, 4])
def test_k_is_clamped_to_the_number_of_references(block: int) -> None:
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


def test_trap_37_the_distance_to_itself_is_zero_and_near_duplicates_keep_their_distance() -> None:
    x = torch.nn.functional.normalize(drawn(300, 64, 0))
    far = 1000 * x
    found = nearest(far, far, 1, Euclidean())
    assert torch.equal(found.positions[:, 0], torch.arange(300)) and bool((found.affinity == 0).all())
    moved = x + 1e-5 * drawn(300, 64, 1)  # about 1e-4 away on the unit sphere
    expected = -(moved.double() - x.double()).norm(dim=1, keepdim=True)
    torch.testing.assert_close(nearest(moved, x, 1, Euclidean()).affinity.double(), expected, rtol=1e-6, atol=0)


def test_other_types_are_converted() -> None:
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


@everywhere
@pytest.mark.parametrize("block", [None, 7])
def test_groups_are_excluded(name: str, block: int | None) -> None:
    q, r = drawn(12, 4, 0), drawn(50, 4, 1)
    mine, theirs = torch.arange(12) % 5, torch.arange(50) % 6
    same = mine[:, None] == theirs
    found = nearest(q, r, 5, AFFINITIES[name], groups=(mine, theirs), block=block)
    assert torch.equal(found.positions, loop(q, r, 5, name, same)[0])
    ids, other = torch.arange(12), torch.arange(50) % 13
    both = nearest(
        Points(q, None, ids), Points(r, None, other), 5, AFFINITIES[name], exclude_same_id=True, groups=(mine, theirs), block=block
    )
    assert torch.equal(both.positions, loop(q, r, 5, name, same | (ids[:, None] == other))[0])


def test_references_may_come_from_a_file_or_in_pieces(tmp_path: Path) -> None:
    q, r, ids = drawn(20, 6, 0), drawn(301, 6, 1), torch.arange(301)
    expected = nearest(q, r, 8)
    np.save(tmp_path / "r.npy", r.numpy())
    mapped = np.load(tmp_path / "r.npy", mmap_mode="r")
    pieces = (r[start : start + 45] for start in range(0, 301, 45))
    queries = Points(q, None, ids[:20])
    whole = nearest(queries, Points(r, None, ids), 8, exclude_same_id=True)
    with_ids = [Points(mapped[start : start + 100], None, ids[start : start + 100]) for start in range(0, 301, 100)]
    for found in (nearest(q, mapped, 8), nearest(q, mapped, 8, block=33), nearest(q, pieces, 8), nearest(q, r, 8, block=3)):
        assert torch.equal(found.positions, expected.positions) and torch.equal(found.affinity, expected.affinity)
    parts = nearest(queries, with_ids, 8, exclude_same_id=True)
    assert torch.equal(parts.positions, whole.positions)
    halves = nearest(q, (r[start : start + 45].half().numpy() for start in range(0, 301, 45)), 8)
    assert torch.equal(halves.positions, nearest(q, r.half(), 8).positions)
    groups = torch.arange(20) % 4, torch.arange(301) % 4
    assert torch.equal(nearest(q, mapped, 8, groups=groups, block=50).positions, nearest(q, r, 8, groups=groups).positions)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("name", ["squared", "euclidean"])
def test_the_ranking_is_that_of_float64_at_any_offset(name: str, offset: float) -> None:
    q, r = drawn(64, 24, 0) + offset, drawn(1500, 24, 1) + offset
    assert torch.equal(nearest(q, r, 10, AFFINITIES[name]).positions, nearest(q.double(), r.double(), 10).positions)
    every = torch.cat([nearest(q[i : i + 1], r, 10, AFFINITIES[name]).positions for i in range(64)])
    assert torch.equal(every, nearest(q, r, 10, AFFINITIES[name]).positions), "one query at a time"


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_no_scale_is_too_small_or_too_large(scale: float) -> None:
    q, r = drawn(20, 8, 0), drawn(400, 8, 1)
    expected = nearest(q.double() * scale, r.double() * scale, 5)
    for name in ("squared", "cosine", "euclidean"):
        found = nearest(q * scale, r * scale, 5, AFFINITIES[name])
        assert torch.equal(found.positions, nearest(q.double() * scale, r.double() * scale, 5, AFFINITIES[name]).positions), name
    assert torch.equal(nearest(q * scale, r * scale, 5).positions, expected.positions)


def test_an_outlier_changes_nothing() -> None:
    q, r = drawn(50, 8, 0), drawn(3000, 8, 1)
    r[7] = 1e7
    assert torch.equal(nearest(q, r, 6).positions, nearest(q.double(), r.double(), 6).positions)


@everywhere
def test_many_copies_and_many_queries_are_still_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 100)  # so that duplicates are removed first
    base, q = drawn(5, 6, 0), drawn(10, 6, 1)
    r = base.repeat(80, 1)
    ids = torch.arange(400) % 90
    found = nearest(Points(q, None, torch.arange(10)), Points(r, None, ids), 9, AFFINITIES[name], exclude_same_id=True)
    assert torch.equal(found.positions, loop(q, r, 9, name, torch.arange(10)[:, None] == ids)[0])


def test_nearly_equal_rows_are_ranked_correctly() -> None:
    r = 1 + torch.arange(500)[:, None] * torch.tensor([[2.0**-23, 0.0, 0.0]])  # neighbors in float32
    found = nearest(r[[0, 250, 499]], r, 3).positions
    assert found.tolist() == [[0, 1, 2], [250, 249, 251], [499, 498, 497]]


def test_threads_change_nothing() -> None:
    q, r, before = drawn(1300, 16, 0), drawn(2100, 16, 1), torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(nearest(q, r, 4))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0].positions, other.positions) and torch.equal(found[0].affinity, other.affinity) for other in found[1:])


def test_a_large_k_and_wide_rows() -> None:
    q, r = drawn(30, 5, 0), drawn(9000, 5, 1)
    exact = torch.cdist(q.double(), r.double()).sort(dim=1, stable=True).indices[:, :300]
    assert torch.equal(nearest(q, r, 300).positions, exact)


def test_a_custom_affinity() -> None:
    q, r = drawn(9, 5, 0), drawn(5000, 5, 1)

    def manhattan(a: Tensor, b: Tensor) -> Tensor:
        return -torch.cdist(a, b, p=1)

    found = nearest(q, r, 4, manhattan)
    assert torch.equal(found.positions, manhattan(q, r).topk(4).indices)
    ids = torch.arange(5000)
    kept = nearest(Points(q, None, found.positions[:, 0]), Points(r, None, ids), 3, manhattan, exclude_same_id=True)
    assert torch.equal(kept.positions, found.positions[:, 1:])
    same = nearest(q, r[:1].repeat(5000, 1), 4, manhattan).positions
    assert same.tolist() == [[0, 1, 2, 3]] * 9
    assert nearest(q, r[:3], 7, manhattan).positions.shape == (9, 3)
    assert torch.equal(nearest(q, r, 4, manhattan, block=1700).positions, found.positions)


@pytest.mark.parametrize("engine", ["compiled"], indirect=True)
@pytest.mark.parametrize("size", [1, 7, 60])
def test_candidates_are_ordered_by_score_and_then_by_column(size: int) -> None:
    from nearkin.search import numba_scan

    g = np.random.default_rng(size)
    scores = -g.integers(0, 5, (40, size)).astype(np.float64)
    columns = g.permuted(np.tile(np.arange(size), (40, 1)), axis=1)
    scores[:, : size // 3], columns[:, : size // 3] = -np.inf, -1  # places left empty by exclusion
    expected = [sorted(zip(-s, c, strict=True)) for s, c in zip(scores, columns, strict=True)]
    numba_scan.order(scores, columns)
    assert [list(zip(-s, c, strict=True)) for s, c in zip(scores, columns, strict=True)] == expected


@pytest.mark.parametrize("engine", ["compiled"], indirect=True)
@pytest.mark.parametrize("different", [1, 4, 1000])
def test_the_largest_are_kept_with_their_columns_also_among_equals(different: int) -> None:
    from nearkin.search import numba_scan

    g = np.random.default_rng(different)
    for _ in range(200):
        size = int(g.integers(1, 60))
        kept = int(g.integers(1, size + 1))
        values, columns = g.integers(0, different, size).astype(np.float32), np.arange(size, dtype=np.int32)
        before, ranked = values.copy(), np.sort(values)[::-1]
        least = numba_scan.keep(values, columns, size, kept, np.empty((2, size), np.float32))
        assert least == ranked[kept - 1] and np.array_equal(np.sort(values[:kept])[::-1], ranked[:kept])
        assert np.array_equal(before[columns[:kept]], values[:kept]) and len(set(columns[:kept])) == kept


@everywhere
@pytest.mark.parametrize("k", [1, 30, 150])
def test_references_in_rising_order_each_pass_the_threshold(name: str, k: int, engine: str) -> None:
    angle, length = torch.linspace(1.5, 0.3, 2100), torch.linspace(3, 1, 2100)
    far = torch.stack([length * angle.cos(), length * angle.sin()], 1)
    q, r = drawn(5, 2, 0) / 100 + torch.tensor([1.0, 0.1]), torch.cat([far, far.flip(0), far[:7]])
    positions, _ = loop(q, r, k, name)
    assert torch.equal(nearest(q, r, k, AFFINITIES[name]).positions, positions)


def test_the_tf32_setting_is_restored() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    nearest(drawn(3, 2, 0), drawn(4, 2, 1), 1)
    assert torch.backends.cuda.matmul.allow_tf32 == before


X, IDS = drawn(4, 2, 0), torch.arange(4)
ERRORS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (X, X, {"k": 0}, r"k \(0\) must be a whole number of at least 1"),
    (X, X, {"k": -3}, r"k \(-3\) must be a whole number of at least 1"),
    (X, X, {"k": True}, r"k \(True\) must be a whole number of at least 1"),
    (X, X, {"k": 1.5}, r"k \(1.5\) must be a whole number of at least 1"),
    (X, X, {"block": 0}, r"block \(0\) must be a whole number of at least 1"),
    (X[0], X, {}, r"queries must be a tensor \(n, d\) with at least one row, not \(2,\)"),
    (X, X[:0], {}, r"references must be a tensor \(n, d\) with at least one row, not \(0, 2\)"),
    ([[1.0]], X, {}, r"queries must be a tensor \(n, d\) with at least one row, not list; convert it with torch.as_tensor\(...\)"),
    (X, drawn(4, 3, 0), {}, "queries have 2 dimensions and references 3; both must come from the same network"),
    (X, X * torch.nan, {}, r"references hold NaN or infinity in [0-9,]+ rows, first in \[0, 1, 2, 3\]; remove these rows"),
    (X / 0, X, {}, "queries hold NaN or infinity"),
    (X, Points(X, None, IDS), {"exclude_same_id": True}, "exclude_same_id needs ids on both sides; pass Points"),
    (Points(X, None, IDS), X, {"exclude_same_id": True}, "exclude_same_id needs ids on both sides"),
    (Points(X, None, IDS[:1]), X, {}, r"queries.ids have shape \(1,\) for 4 embeddings; give one integer for each"),
    (X, Points(X, None, IDS[:, None]), {}, r"references.ids have shape \(4, 1\) for 4 embeddings"),
    (X, [], {}, r"references must hold at least one row \(m, d\), but the iterable is empty"),
    (X, "gallery", {}, "references must be a tensor .* not str"),
    (X, 7, {}, "references must be a tensor .* not int"),
    (X, [X, X[:, :1]], {}, "queries have 2 dimensions and references 1"),
    (X, np.zeros((0, 2)), {}, r"references must be a tensor \(n, d\) with at least one row, not \(0, 2\)"),
    (X, X, {"groups": IDS}, "groups must be two tensors of whole numbers"),
    (X, X, {"groups": (IDS[:3], IDS)}, "groups hold 3 numbers for 4 queries; give one for each"),
    (X, X, {"groups": (IDS, IDS[:3])}, "groups hold 3 numbers for more references; give one for each"),
    (X, X[:3], {"groups": (IDS, IDS)}, "groups hold 4 numbers for 3 references; give one for each"),
]


@pytest.mark.parametrize(("queries", "references", "options", "match"), ERRORS, ids=[e[-1][:34] for e in ERRORS])
def test_errors(queries: Any, references: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        nearest(queries, references, **({"k": 2} | options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [2, 9])
def test_parallel_vectors_tie_and_stay_in_order(count: int, dtype: torch.dtype) -> None:
    """But for a score in a thousand, which is between two multiples of 2^-42."""
    generator, wrong = torch.Generator().manual_seed(0), 0
    for _ in range(100):
        one = torch.randint(1, 9, (1, 5), generator=generator).to(dtype)
        queries, among = torch.randint(-4, 5, (count, 5), generator=generator).to(dtype), torch.cat([3 * one, one, 5 * one, 7 * one])
        for affinity in (cosine(), Normalized(SquaredEuclidean())):
            for k in (2, 4):
                wrong += int((nearest(queries, among, k, affinity).positions != torch.arange(k)).any(1).sum())
    assert wrong <= 0.002 * 400 * count


@pytest.mark.parametrize("count", [1, 9])
def test_equal_cosines_of_different_directions_tie(count: int) -> None:
    queries, among = torch.tensor([[2.0, 0.0, 1.0]] * count), torch.tensor([[2.0, 1.0, 2.0], [1.0, 0.0, 0.0]])
    assert nearest(queries, among, 2, cosine()).positions.tolist() == [[0, 1]] * count


def test_ids_are_whole_numbers_in_any_container() -> None:
    names = np.array(list("abcd"))
    listed = Points(X, None, IDS.tolist())  # type: ignore[arg-type]
    assert nearest(listed, Points(X, None, IDS.numpy()), 1, exclude_same_id=True).positions.shape == (4, 1)
    with pytest.raises(ValueError, match=r"queries.ids must be whole numbers, not <U1; number the samples 0, 1, 2, ... and keep their"):
        nearest(Points(X, None, names), X, 1)
    with pytest.raises(TypeError, match=r"affinity must be a function of .* such as nearkin.compose.cosine\(\), not 'cosine'"):
        nearest(X, X, 1, "cosine")  # type: ignore[arg-type]


@everywhere
def test_a_set_among_itself_computes_each_pair_once_and_finds_the_same(name: str, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    x = torch.cat([drawn(60, 5, 0), drawn(37, 5, 1) / 8, drawn(9, 5, 0)])  # some of them copies
    ids, groups = torch.arange(len(x)) % 101, torch.arange(len(x)) // 4
    made = list[int]()
    if engine == "compiled":
        from nearkin.search import numba_scan

        monkeypatch.setattr(numba_scan, "SIDE", 16)
        multiply = torch.mm
        monkeypatch.setattr(torch, "mm", lambda a, b, **how: (made.append(len(a) * b.shape[1]), multiply(a, b, **how))[1])
    found = nearest(Points(x, ids=ids), Points(x, ids=ids), 6, AFFINITIES[name], exclude_same_id=True, groups=(groups, groups))
    once = sum(made)
    apart = nearest(Points(x, ids=ids), Points(x.clone(), ids=ids), 6, AFFINITIES[name], exclude_same_id=True, groups=(groups, groups))
    assert torch.equal(found.positions, apart.positions) and torch.equal(found.affinity, apart.affinity)
    same = (ids[:, None] == ids) | (groups[:, None] == groups)
    positions, _ = loop(x, x, 6, name, same)
    assert torch.equal(found.positions, positions)
    assert engine == "torch" or (once < 0.6 * len(x) ** 2 and sum(made) - once == len(x) ** 2)
