"""Predictions from neighbors: the vote, its ties, and the accuracy against a loop."""

from collections import Counter

import pytest
import torch

from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.evaluate import knn_accuracy, knn_predict, vote


def drawn(n: int, seed: int) -> Points:
    g = torch.Generator().manual_seed(seed)
    return Points(torch.randn(n, 3, generator=g), torch.randint(4, (n,), generator=g), torch.arange(n))


def elected(labels: list[int]) -> int:
    """Most votes, then the nearest member."""
    counts = Counter(labels)
    return max(counts, key=lambda c: (counts[c], -labels.index(c)))


@pytest.mark.parametrize(
    ("labels", "winner"),
    [
        ([7], 7),
        ([1, 2], 1),
        ([2, 1, 1], 1),
        ([3, 1, 1, 3], 3),
        ([5, 1, 2, 1, 2], 1),
        ([5, 2, 1, 1, 2], 2),
        ([4, 3, 2, 1], 4),
        ([-9, 2**40, -9], -9),
    ],
)
def test_the_majority_and_among_equals_the_nearest(labels: list[int], winner: int) -> None:
    assert vote(torch.tensor([labels])).tolist() == [winner] == [elected(labels)]


@pytest.mark.parametrize("k", [1, 2, 3, 6, 11])
def test_votes_equal_the_loop(k: int) -> None:
    labels = torch.randint(4, (200, k), generator=torch.Generator().manual_seed(k))
    assert vote(labels).tolist() == [elected(row) for row in labels.tolist()]
    assert vote(labels.int()).dtype == torch.int32


@pytest.mark.parametrize("k", [1, 4, 9])
@pytest.mark.parametrize("exclude", [False, True])
def test_predictions_and_accuracy_equal_the_loop(k: int, exclude: bool) -> None:
    queries, references = drawn(30, 0), drawn(40, 1)
    references = references._replace(embeddings=torch.cat([queries.embeddings[:15], references.embeddings[15:]]))
    expected = []
    for i in range(30):
        square = (references.embeddings.double() - queries.embeddings[i].double()).square().sum(1)
        order = [j for j in square.argsort(stable=True).tolist() if not (exclude and j == i)]
        expected.append(elected(references.labels[order[:k]].tolist()))
    assert knn_predict(queries, references, k, exclude_same_id=exclude).tolist() == expected
    hits = sum(a == b for a, b in zip(expected, queries.labels.tolist(), strict=True))
    assert knn_accuracy(queries, references, k, exclude_same_id=exclude) == pytest.approx(hits / 30)


def test_trap_24_copies_of_a_query_are_excluded_by_id() -> None:
    unique = Points(drawn(12, 0).embeddings.repeat(3, 1), torch.arange(12).repeat(3), torch.arange(12).repeat(3))
    assert knn_accuracy(unique, unique, 1, exclude_same_id=True) == 0.0
    assert knn_accuracy(unique, unique, 1) == 1.0


def test_trap_27_labels_beyond_float_precision_stay_distinct() -> None:
    x = torch.tensor([[0.0], [1.0]])
    assert knn_accuracy(Points(x, torch.tensor([2**24, 2**24 + 1])), Points(x, torch.tensor([2**24 + 1, 2**24])), 1) == 0.0


def test_trap_38_places_without_a_neighbor_never_vote() -> None:
    """-1 as an index would be the last point, whose class would vote."""
    known = Points(torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([4, 4, 7]), torch.arange(3))
    with pytest.raises(ValueError, match="fewer than k neighbors left after exclusion; lower k or add references"):
        knn_predict(known, known, 5, exclude_same_id=True)
    assert knn_predict(known, known, 5).tolist() == [4, 4, 4]  # k is lowered to the three there are


def test_the_affinity_is_used() -> None:
    references = Points(torch.tensor([[10.0, 0.0], [0.0, 0.5]]), torch.tensor([0, 1]))
    queries = torch.tensor([[1.0, 0.1]])
    assert knn_predict(queries, references, 1).tolist() == [1] and knn_predict(queries, references, 1, cosine()).tolist() == [0]


def test_errors() -> None:
    p = drawn(6, 0)
    with pytest.raises(
        ValueError, match=r"labels have shape \(3,\) and type torch.int64; give integer classes \(n, k\) of neighbors, k >= 1"
    ):
        vote(torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"labels have shape \(3, 0\)"):
        vote(torch.zeros(3, 0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"type torch.float32; give integer classes"):
        vote(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"references.labels are missing; a vote needs them"):
        knn_predict(p, p._replace(labels=None), 1)
    with pytest.raises(ValueError, match=r"queries.labels are missing; accuracy needs them"):
        knn_accuracy(p._replace(labels=None), p, 1)
    with pytest.raises(ValueError, match=r"queries.labels have shape \(6, 1\) for 6 embeddings; give one class for each"):
        knn_accuracy(p._replace(labels=p.labels[:, None]), p, 1)
    with pytest.raises(ValueError, match=r"references.labels have shape \(7,\) for 6 embeddings; give one class for each"):
        knn_predict(p, p._replace(labels=torch.arange(7)), 1)
    with pytest.raises(ValueError, match="some queries have fewer than k neighbors left after exclusion; lower k or add references"):
        knn_predict(p, p, 6, exclude_same_id=True)
    with pytest.raises(ValueError, match=r"k \(0\) must be a whole number of at least 1"):
        knn_accuracy(p, p, 0)
