"""Retrieval equals the enumeration of all tie orders, does not depend on rows, blocks or engines, and counts what it leaves out."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, Euclidean, InnerProduct, Normalized, SquaredEuclidean, cosine
from nearkin.compose.points import Points
from nearkin.evaluate import Score, consistency, retrieval
from nearkin.evaluate import comparison as comparing
from tests.evaluate.metric_oracles import expected

KS = (1, 2, 3, 5)


@pytest.fixture(autouse=True, params=["compiled", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(sys.modules["nearkin.evaluate.retrieval"], "find_spec", lambda _: None)
    else:
        pytest.importorskip("numba")
        monkeypatch.setattr(sys.modules["nearkin.evaluate.retrieval"], "SMALL", 0)
    return str(request.param)


def lattice(n: int, classes: int, seed: int, d: int = 2) -> Points:
    """Whole numbers, which tie."""
    g = torch.Generator().manual_seed(seed)
    return Points(torch.randint(-1, 2, (n, d), generator=g).float(), torch.randint(classes, (n,), generator=g), torch.arange(n))


def near_of(affinity: Affinity | None, q: Tensor, r: Tensor) -> list[float]:
    """The definition, on whole numbers: exact."""
    if isinstance(affinity, InnerProduct):
        return (r @ q).tolist()
    if isinstance(affinity, Normalized):  # a cosine of zero may come out as 1e-17: it is a tie with zero
        lengths = (r.double().norm(dim=1) * q.double().norm()).tolist()
        return [round(dot / length, 9) if length else 0.0 for dot, length in zip((r @ q).tolist(), lengths, strict=True)]
    return (-(r - q).square().sum(1)).tolist()


def check(found: dict[str, Score], queries: Points, gallery: Points, hidden: Tensor, affinity: Affinity | None = None) -> None:
    left, per_query = 0, {name: [] for name in found}
    for i in range(len(queries.embeddings)):
        seen = (~hidden[i]).nonzero()[:, 0]
        near = near_of(affinity, queries.embeddings[i], gallery.embeddings[seen])
        positives = (gallery.labels[seen] == queries.labels[i]).tolist()
        values = expected(near, positives, KS)
        left += values is None
        for name in found:
            per_query[name].append(math.nan if values is None else values[name])
    assert set(found) == set(per_query)
    for name, score in found.items():
        torch.testing.assert_close(
            score.per_query, torch.tensor(per_query[name], dtype=torch.float64), rtol=1e-9, atol=1e-9, equal_nan=True
        )
        known = [value for value in per_query[name] if not math.isnan(value)]
        assert score.counted == len(known) and score.left_out == ({"no positive in the gallery": left} if left else {})
        if known:
            assert (
                score.value == pytest.approx(sum(known) / len(known))
                and score.low <= score.value + 1e-9
                and score.value <= score.high + 1e-9
            )


@pytest.mark.parametrize("seed", range(12))
def test_queries_among_themselves_equal_the_enumeration(seed: int) -> None:
    points = lattice(6, 3, seed)
    check(retrieval(points, ks=KS, draws=50), points, points, torch.eye(6, dtype=torch.bool))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("affinity", [None, InnerProduct(0.5), Euclidean(), cosine(0.1)])
def test_separate_sets_equal_the_enumeration(seed: int, affinity: Affinity | None) -> None:
    queries, gallery = lattice(7, 3, seed, d=3)._replace(ids=None), lattice(5, 3, seed + 100, d=3)
    check(retrieval(queries, gallery, affinity, KS, draws=20), queries, gallery, torch.zeros(7, 5, dtype=torch.bool), affinity)


@pytest.mark.parametrize("seed", range(8))
def test_ids_and_groups_are_excluded(seed: int) -> None:
    queries, gallery = lattice(5, 2, seed), lattice(7, 2, seed + 50)
    gallery = gallery._replace(ids=torch.tensor([3, 3, 1, 9, 8, 0, 7]))
    mine, theirs = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([5, 0, 1, 1, 6, 6, 2])
    hidden = (queries.ids[:, None] == gallery.ids) | (mine[:, None] == theirs)
    check(retrieval(queries, gallery, ks=KS, groups=(mine, theirs), draws=20), queries, gallery, hidden)
    own = torch.arange(7) // 2
    alone = own[:, None] == own
    check(retrieval(gallery._replace(ids=None), ks=KS, groups=own, draws=20), gallery, gallery, alone | torch.eye(7, dtype=torch.bool))


def drawn(n: int, d: int, classes: int, seed: int = 0) -> Points:
    g = torch.Generator().manual_seed(seed)
    return Points(torch.randn(n, d, generator=g), torch.randint(classes, (n,), generator=g))


def values(found: dict[str, Score]) -> Tensor:
    return torch.tensor([score.value for score in found.values()], dtype=torch.float64)


def test_trap_26_a_constant_embedding_scores_chance_for_any_order() -> None:
    labels = torch.tensor([0] * 4 + [1] * 9 + [2] * 30 + [3])
    for seed in range(3):
        order = torch.randperm(44, generator=torch.Generator().manual_seed(seed))
        found = retrieval(Points(torch.full((44, 5), 7.3), labels[order]), draws=0)
        for score in found.values():
            assert score.value == pytest.approx(score.chance, rel=1e-9) and math.isnan(score.low), score.name
    assert found["precision@1"].value == pytest.approx(sum(n * (n - 1) / 43 for n in (4, 9, 30)) / 43)
    assert found["precision@1"].left_out == {"no positive in the gallery": 1} and found["precision@1"].counted == 43


def test_chance_is_what_random_embeddings_get() -> None:
    total, times = torch.zeros(19, dtype=torch.float64), 40
    for seed in range(times):
        found = retrieval(drawn(60, 8, 4, seed)._replace(labels=torch.arange(60) % 4), draws=0)
        total += values(found) / times
    chance = torch.tensor([score.chance for score in found.values()], dtype=torch.float64)
    torch.testing.assert_close(total, chance, rtol=0, atol=0.025)


@pytest.mark.parametrize("affinity", [None, cosine(0.1), InnerProduct(), Euclidean(2.0)])
def test_order_of_rows_blocks_and_threads_change_nothing(affinity: Affinity | None, monkeypatch: pytest.MonkeyPatch) -> None:
    points = drawn(150, 6, 5)
    whole = values(retrieval(points, None, affinity, draws=0))
    order = torch.randperm(150, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(values(retrieval(Points(points.embeddings[order], points.labels[order]), None, affinity, draws=0)), whole)
    monkeypatch.setattr(comparing, "NUMBERS", 1000)
    torch.testing.assert_close(values(retrieval(points, None, affinity, draws=0)), whole, rtol=1e-12, atol=1e-12)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.testing.assert_close(values(retrieval(points, None, affinity, draws=0)), whole, rtol=1e-12, atol=1e-12)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("engine", ["compiled"], indirect=True)  # the compiled one; torch has no tiles
@pytest.mark.parametrize("held", [0, 1 << 27])
@pytest.mark.parametrize("affinity", [None, cosine(0.1), InnerProduct(), Normalized(SquaredEuclidean(), references=False)])
def test_tiles_of_any_size_equal_float64(affinity: Affinity | None, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers tie, the rest does not; every product is placed by the tiles, among themselves and against a gallery."""
    from nearkin.evaluate import rank_tiles

    mixed = torch.cat([lattice(70, 7, 1, d=3).embeddings, drawn(63, 3, 7).embeddings])
    points = Points(mixed, torch.randint(7, (133,), generator=torch.Generator().manual_seed(2)), torch.randperm(133))
    gallery = Points(mixed[20:] + 0, (points.labels[20:] + (torch.arange(113) % 9 == 0)) % 7, points.ids[20:])  # some ids changed class
    found = {}
    for compiled in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(rank_tiles, "HELD", held), patch.setattr(rank_tiles, "MANY_OPEN", 1.0)
            patch.setattr(rank_tiles, "SIDE", 16)
            if not compiled:
                patch.setattr(sys.modules["nearkin.evaluate.retrieval"], "find_spec", lambda _: None)
            alone, against = retrieval(points, None, affinity, draws=0), retrieval(points, gallery, affinity, draws=0)
            found[compiled] = torch.stack([torch.stack([s.per_query for s in one.values()]) for one in (alone, against)])
    torch.testing.assert_close(found[True], found[False], rtol=1e-9, atol=1e-12, equal_nan=True)


FIRST_CALL = """
import sys, torch
from nearkin.evaluate import retrieval
from nearkin.compose.points import Points
g = torch.Generator().manual_seed(0)
retrieval(Points(torch.randn(500, 8, generator=g), torch.randint(5, (500,), generator=g)))
print("numba" in sys.modules)
retrieval(Points(torch.randn(1100, 8, generator=g), torch.randint(5, (1100,), generator=g)))
print("numba" in sys.modules)
"""


@pytest.mark.parametrize("engine", ["compiled"], indirect=True)
def test_a_first_call_with_few_points_compiles_nothing() -> None:
    printed = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "True"]


@pytest.mark.parametrize("affinity", [None, cosine(0.1), InnerProduct(), Euclidean(2.0), Normalized(SquaredEuclidean(), references=False)])
def test_consistency_by_the_nearest_is_that_of_the_whole_ranking(affinity: Affinity | None) -> None:
    """With many ties, with few and with none; with a class of one; with ids in any order."""
    whole, fine = lattice(140, 4, 5, d=3), drawn(140, 6, 4)
    for x in (whole.embeddings, fine.embeddings, torch.cat([whole.embeddings[:70], fine.embeddings[:70, :3]]), fine.embeddings + 1000):
        labels = whole.labels.clone()
        labels[9] = 77
        for ids in (None, torch.randperm(140, generator=torch.Generator().manual_seed(1))):
            points = Points(x, labels, ids)
            found, ranked = consistency(points, affinity, (1, 2, 5), draws=0), retrieval(points, None, affinity, (1, 2, 5), draws=0)
            for name, score in found.items():
                torch.testing.assert_close(score.per_query, ranked[name].per_query, rtol=1e-9, atol=1e-12, equal_nan=True)
                assert score.chance == ranked[name].chance and score.counted == ranked[name].counted
                assert score.left_out == ranked[name].left_out and score.notes == ranked[name].notes
            assert list(found) == ["consistency@1", "consistency@2", "consistency@5"]


def test_copies_leave_the_tiles_to_float64() -> None:
    points = drawn(40, 3, 4)
    copies = Points(points.embeddings.repeat(30, 1), points.labels.repeat(30))
    alone, against = retrieval(copies, draws=0), retrieval(copies, copies._replace(embeddings=copies.embeddings + 0), draws=0)
    assert alone["precision@5"].value == pytest.approx(1.0) and against["precision@5"].value == pytest.approx(1.0)
    assert alone["map"].value < 1.0


def test_trap_36_an_offset_changes_nothing() -> None:
    points = drawn(300, 16, 10)
    whole = torch.round(points.embeddings * 2**10) / 2**10
    near = retrieval(points._replace(embeddings=whole), draws=0)
    far = retrieval(points._replace(embeddings=whole + 1024), draws=0)
    torch.testing.assert_close(values(far), values(near), rtol=1e-12, atol=1e-12)


def test_trap_24_copies_are_excluded_by_id_and_tie_otherwise() -> None:
    unique = Points(drawn(12, 4, 1).embeddings.repeat(3, 1), torch.arange(12).repeat(3), torch.arange(12).repeat(3))
    found = retrieval(unique, draws=0)["precision@1"]
    assert math.isnan(found.value) and found.counted == 0 and found.left_out == {"no positive in the gallery": 36}
    distinct = retrieval(unique._replace(ids=torch.arange(36), labels=torch.arange(36)), draws=0)["precision@1"]
    assert distinct.counted == 0
    labels = torch.cat([torch.arange(12), torch.arange(12), torch.arange(12) + 50])
    mixed = Points(drawn(12, 4, 1).embeddings.repeat(3, 1), labels)
    assert retrieval(mixed, draws=0)["precision@1"].value == pytest.approx(0.5), "a copy of its own class and one of another are tied"


def test_trap_27_labels_beyond_float_precision_stay_distinct() -> None:
    x = torch.tensor([[0.0], [1.0], [0.1], [1.1]])
    labels = torch.tensor([2**24, 2**24 + 1, 2**24 + 1, 2**24])
    assert retrieval(Points(x, labels), draws=0)["precision@1"].value == 0.0
    assert retrieval(Points(x, torch.tensor([-5, 7, -5, 7])), draws=0)["precision@1"].value == 1.0


def test_trap_28_the_divisor_of_map_at_k() -> None:
    x = torch.cat([torch.zeros(1), torch.ones(1), 2 + torch.arange(9.0), 20 + torch.arange(9.0)])[:, None]
    labels = torch.tensor([0] + [0] + [1] * 9 + [0] * 9)
    found = retrieval(Points(x[:1], labels[:1]), Points(x[1:], labels[1:]), ks=(10,), draws=0)
    assert found["map@10"].value == pytest.approx(0.1), "one hit at rank 1, R = 10, k = 10: divided by min(R, k)"
    perfect = Points(torch.arange(4).repeat_interleave(50)[:, None].float(), torch.arange(4).repeat_interleave(50))
    found = retrieval(perfect, ks=(5,), draws=0)
    assert all(found[name].value == pytest.approx(1.0) for name in ("map@5", "map@r", "r_precision", "map", "precision@5", "mrr"))


def test_trap_29_queries_without_a_positive_do_not_change_the_mean() -> None:
    queries = Points(torch.tensor([[0.0], [5.0], [9.0]]), torch.tensor([0, 7, 1]))
    found = retrieval(queries, Points(torch.tensor([[0.1], [9.1]]), torch.tensor([0, 1])), ks=(1, 4), draws=0)
    assert found["precision@1"].value == 1.0 and found["precision@1"].counted == 2
    assert found["precision@1"].left_out == {"no positive in the gallery": 1} and found["precision@1"].per_query.isnan().tolist() == [
        False,
        True,
        False,
    ]
    assert found["precision@4"].value == 0.5, "k is clamped to the two candidates"
    assert found["precision@4"].notes == ("k was clamped to the number of candidates (at least 2) for 2 queries",)


def test_trap_31_the_mean_is_over_queries_not_over_places() -> None:
    x = torch.cat([torch.randn(200, 2, generator=torch.Generator().manual_seed(0)) * 0.01, torch.tensor([[50.0, 0], [-50.0, 0]])])
    x = torch.cat([x, torch.tensor([[50.1, 0], [-50.1, 0]])])
    labels = torch.tensor([0] * 200 + [1, 1] + [2, 3])
    found = retrieval(Points(x, labels), draws=0)["r_precision"]
    assert found.per_query[200:202].tolist() == [0.0, 0.0] and found.value == pytest.approx(200 / 202)


def test_trap_35_a_query_in_its_own_gallery_is_noted() -> None:
    points = drawn(20, 4, 3)
    found = retrieval(points, points, draws=0)["precision@1"]
    assert found.value == 1.0 and found.notes == (
        "20 queries have an equal row in the gallery; if they are the same samples, give ids on both sides",
    )
    known = points._replace(ids=torch.arange(20))
    assert retrieval(known, known, draws=0)["precision@1"].notes == ()
    assert retrieval(known, known, draws=0)["map"].value == retrieval(points, draws=0)["map"].value
    assert retrieval(points, drawn(20, 4, 3, 1), draws=0)["precision@1"].notes == ()


def test_precision_at_1_equals_recall_at_1_and_recall_is_never_below_precision() -> None:
    found = retrieval(drawn(200, 3, 6), ks=(1, 5, 10))
    assert found["precision@1"].value == pytest.approx(found["recall@1"].value) == pytest.approx(found["consistency@1"].value)
    assert all(found[f"recall@{k}"].value >= found[f"precision@{k}"].value >= found[f"consistency@{k}"].value for k in (5, 10))
    assert all(score.low <= score.value <= score.high and score.split is None for score in found.values())
    assert found["map"].low < found["map"].value < found["map"].high


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    inside, g = 0, torch.Generator().manual_seed(1)
    for _ in range(60):
        labels = torch.randint(2, (80,), generator=g)
        fixed = Points(torch.linspace(-2, 3, 400)[:, None], (torch.linspace(-2, 3, 400) > 0.5).long())
        queries = Points(torch.randn(80, 1, generator=g) + labels[:, None], labels)
        score = retrieval(queries, fixed, ks=(1,), draws=300)["precision@1"]
        truth = float(torch.special.ndtr(torch.tensor(0.5)))
        inside += score.low <= truth <= score.high
    assert inside >= 50


def test_consistency_and_selection() -> None:
    points = drawn(60, 3, 3)
    whole = retrieval(points, ks=(1, 4), draws=0)
    found = consistency(points, ks=(1, 4), draws=0)
    assert list(found) == ["consistency@1", "consistency@4"]
    assert all(found[name].value == pytest.approx(whole[name].value) for name in found)
    selected = torch.arange(60) < 20
    part = consistency(points, ks=(4,), selected=selected, draws=0)["consistency@4"]
    assert part.value == pytest.approx(float(whole["consistency@4"].per_query[:20].mean())) and part.counted == 20
    assert part.left_out == {"not selected": 40}


def test_float64_and_half_are_accepted() -> None:
    points = drawn(50, 4, 3)
    expected_values = values(retrieval(points, draws=0))
    torch.testing.assert_close(values(retrieval(points._replace(embeddings=points.embeddings.double()), draws=0)), expected_values)
    half = points._replace(embeddings=points.embeddings.half())
    torch.testing.assert_close(
        values(retrieval(half, draws=0)), values(retrieval(half._replace(embeddings=half.embeddings.float()), draws=0))
    )


def test_a_custom_affinity() -> None:
    points = drawn(50, 4, 3)
    own = retrieval(points, None, lambda a, b: -torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), draws=0)
    torch.testing.assert_close(values(own), values(retrieval(points, draws=0)))
    copies = Points(points.embeddings.repeat(2, 1), points.labels.repeat(2))
    copied = retrieval(copies, None, lambda a, b: -torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), draws=0)
    torch.testing.assert_close(values(copied), values(retrieval(copies, None, SquaredEuclidean(), draws=0)))


P = drawn(6, 2, 2)
ERRORS: list[tuple[Any, dict[str, Any], str]] = [
    (P, {"ks": (0,)}, r"k \(0\) must be a whole number of at least 1"),
    (P, {"ks": (1, -2)}, r"k \(-2\) must be a whole number of at least 1"),
    (P, {"ks": (True,)}, r"k \(True\) must be a whole number of at least 1"),
    (
        P,
        {"gallery": Points(torch.zeros(0, 2), torch.zeros(0).long())},
        r"gallery must be a tensor \(n, d\) with at least one row, not \(0, 2\)",
    ),
    (P, {"gallery": drawn(4, 3, 2)}, "queries have 2 dimensions and the gallery 3; both must come from the same network"),
    (P._replace(labels=None), {}, r"queries.labels are missing; .* Points\(embeddings, labels\)"),
    (
        P._replace(labels=P.labels[:3]),
        {},
        r"queries.labels have shape \(3,\) for 6 embeddings; give one class for each, and remove points without a class",
    ),
    (
        P._replace(labels=["cat"] * 6),
        {},
        r"queries.labels hold str, not a tensor of classes; convert them with codes, names =",
    ),
    (P._replace(labels=P.labels.float()), {}, r"queries.labels are torch.float32; classes are whole numbers: use nearkin.encode_labels"),
    (P, {"gallery": P._replace(labels=["cat", "dog"])}, "gallery.labels hold str"),
    (P._replace(embeddings=P.embeddings / 0), {}, r"queries hold NaN or infinity in 6 rows, first in \[0, 1, 2, 3, 4\]; remove these rows"),
    (P._replace(ids=torch.arange(3)), {}, r"queries.ids have shape \(3,\) for 6 embeddings; give one integer for each"),
    (P.embeddings, {}, r"queries must be Points\(embeddings, labels\), not Tensor"),
    (P, {"groups": torch.arange(3)}, r"groups have shape \(3,\) for 6 queries; give one number for each"),
    (P, {"gallery": P, "groups": torch.arange(6)}, r"groups must be a pair, \(n,\) for the queries and \(m,\) for the gallery"),
    (P, {"gallery": P, "groups": (torch.arange(6), torch.arange(2))}, r"groups have shape \(2,\) for 6 gallery points"),
]


@pytest.mark.parametrize(("queries", "options", "match"), ERRORS, ids=[e[-1][:34] for e in ERRORS])
def test_errors(queries: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        retrieval(queries, **options)


def test_trap_25_precision_and_recall_at_k_look_at_the_same_k_places() -> None:
    """With the query left out by its id, both count k places, not k - 1."""
    points = Points(torch.tensor([[0.0], [1.0], [2.5], [4.5]]), torch.tensor([0, 1, 0, 1]), torch.arange(4))
    found = retrieval(points, points, ks=(1, 2, 3), draws=0)
    first = {name: found[name].per_query[0].item() for name in ("precision@1", "precision@2", "precision@3", "recall@1", "recall@2")}
    assert first == pytest.approx({"precision@1": 0, "precision@2": 1 / 2, "precision@3": 1 / 3, "recall@1": 0, "recall@2": 1})


def test_trap_30_the_reciprocal_rank_needs_no_other_metric() -> None:
    points = Points(torch.tensor([[0.0], [1.0], [1.5], [9.0]]), torch.tensor([0, 1, 0, 1]))
    assert retrieval(points, ks=(), draws=0)["mrr"].per_query.tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 2, 1 / 2])
