"""What should be near: costs and candidates by hand, and identity by id wherever a point meets itself."""

import math

import pytest
import torch
from torch import Tensor

from nearkin.compose.points import Points, encode_labels, fresh_ids, same_point
from nearkin.compose.relation import LabelDistance, LabelOverlap, ListedNeighbors, SameId, SameLabel, SameLabelApart, squared_distance
from nearkin.objectives import NCA


def points(labels: object, ids: list[int] | None, dtype: torch.dtype = torch.float32) -> Points:
    tensor = None if labels is None else torch.as_tensor(labels)
    n = len(ids) if tensor is None else len(tensor)
    return Points(torch.zeros(n, 2, dtype=dtype), tensor, None if ids is None else torch.tensor(ids))


QUERIES = points([0, 1, 1], [10, 11, 12])
REFERENCES = points([1, 0, 1, 0], [12, 13, 14, 10])  # holds two of the queries, at other positions


def rows(x: Tensor) -> list[list[float]]:
    return x.to(torch.float64).tolist()


def test_same_label_costs_and_candidates() -> None:
    cost, candidate = SameLabel()(QUERIES, REFERENCES)
    assert rows(cost) == [[1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 1]]  # a query's own copy costs 1
    assert candidate.tolist() == [[True, True, True, False], [True] * 4, [False, True, True, True]]
    assert candidate.dtype == torch.bool and cost.dtype == torch.float32
    assert SameLabel()(points([0, 1], None, torch.float64), REFERENCES).cost.dtype == torch.float64


def test_without_ids_nobody_is_left_out() -> None:
    for queries, references in ((points([0, 1], None), REFERENCES), (QUERIES, points([0, 1], None))):
        assert same_point(queries, references) is None
        assert SameLabel()(queries, references).candidate.all()


def test_same_label_apart_leaves_the_right_answer_out_of_the_choice() -> None:
    cost, candidate = SameLabelApart()(QUERIES, REFERENCES)
    assert torch.equal(cost, SameLabel()(QUERIES, REFERENCES).cost)
    assert candidate.tolist() == [[True, False, True, False], [False, True, False, True], [False, True, False, True]]


def test_label_distance_is_squared_euclidean_unless_told() -> None:
    queries, references = points([[0.0, 1.0], [2.0, 3.0]], [0, 1]), points([[0.0, 0.0], [2.0, 5.0], [2.0, 3.0]], [7, 8, 1])
    cost, candidate = LabelDistance()(queries, references)
    assert rows(cost) == [[1, 20, 8], [13, 4, 1]]
    assert candidate.tolist() == [[True] * 3, [True, True, False]]
    manhattan = LabelDistance(lambda a, b: (a[:, None] - b).abs().sum(2))
    assert rows(manhattan(queries, references).cost) == [[1, 6, 4], [5, 2, 1]]


def test_label_distance_of_plain_numbers_and_of_truth_values() -> None:
    queries, references = points([1, 4], None), points([0, 2, 8], None)
    assert rows(LabelDistance()(queries, references).cost) == [[1, 1, 49], [16, 4, 16]]
    assert torch.equal(squared_distance(torch.tensor([[1.0], [4.0]]), torch.tensor([[0.0]])), torch.tensor([[1.0], [16.0]]))
    unequal = LabelDistance(lambda a, b: a != b.T)(queries, references).cost
    assert unequal.dtype == torch.float32 and unequal.all(), "a cost is a number, whatever the caller's function returns"
    with pytest.raises(ValueError, match=r"the given label distance returned shape \(2, 2\); it must be \(2, 3\)"):
        LabelDistance(lambda a, b: (a - a.T) * b[0])(queries, references)


def test_label_overlap_is_one_minus_jaccard() -> None:
    sets = [[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]]
    cost, candidate = LabelOverlap()(points(sets, [0, 1, 2, 3], torch.float64), points(sets, [4, 5, 6, 3], torch.float64))
    third = 1 / 3
    expected = [[0, 0.5, 1, third], [0.5, 0, 1, 2 * third], [1, 1, 1, 1], [third, 2 * third, 1, 1]]
    torch.testing.assert_close(cost, torch.tensor(expected, dtype=torch.float64))
    assert (~candidate).nonzero().tolist() == [[3, 3]]


def test_same_id_makes_oneself_the_only_right_answer() -> None:
    cost, candidate = SameId()(QUERIES, REFERENCES)
    assert rows(cost) == [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1]] and candidate.all()
    with pytest.raises(ValueError, match="ids are missing: this objective knows a point by its id; pass ids="):
        SameId()(points([0], None), REFERENCES)


def test_listed_neighbors_are_looked_up_by_id_where_trusted() -> None:
    relation = ListedNeighbors(5, 2)
    queries, references = points(None, [3, 0]), points(None, [4, 3, 2, 1, 0])
    assert rows(relation(queries, references).cost) == [[1, 0, 1, 1, 1], [1, 1, 1, 1, 0]]  # at first, oneself
    relation.update(torch.tensor([[1, 2], [0, 0], [0, 1], [4, 1], [2, 3]]), torch.tensor([False, True, True, True, True]))
    cost, candidate = relation(queries, references)
    assert rows(cost) == [[0, 0, 1, 0, 1], [1, 1, 1, 1, 0]] and candidate.all()
    assert relation.right_ids(queries).tolist() == [[3, 4, 1], [0, 0, 0]]
    relation.update(relation.table)
    assert relation.trusted.all() and rows(relation(queries, references).cost)[1] == [1, 1, 0, 0, 0]


def test_listed_neighbors_refuse_what_they_cannot_look_up() -> None:
    relation = ListedNeighbors(5)
    assert relation.table.shape == (5, 1)
    with pytest.raises(ValueError, match="ids are missing: discovered neighbors are looked up by id; pass ids="):
        relation(points([0], None), REFERENCES)
    for ids in ([-1, 2], [2, 5]):
        with pytest.raises(ValueError, match=rf"ids run from {ids[0]} to {ids[1]}, but the table has the rows 0 to 4"):
            relation(points(None, ids), REFERENCES)


@pytest.mark.parametrize("relation", [SameLabel(), SameLabelApart(), LabelDistance(), LabelOverlap()])
def test_missing_labels_are_named(relation: SameLabel) -> None:
    with pytest.raises(ValueError, match="labels are missing: this relation compares them; pass labels to queries and references"):
        relation(points(None, [1]), points([[1]], [2]))


def test_what_each_relation_reads() -> None:
    kinds = {SameLabel: "classes", SameLabelApart: "classes", LabelDistance: "numbers", LabelOverlap: "sets", SameId: "ids"}
    assert {kind: kind().supervision for kind in kinds} == kinds
    assert ListedNeighbors(2).supervision == "ids"


def test_strangers_meet_nobody() -> None:
    assert fresh_ids(3).tolist() == [-1, -2, -3] and fresh_ids(0).tolist() == []
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    others = Points(x.flip(0) + 0.1, y, fresh_ids(8))
    near = -(x[:, None] - others.embeddings).square().sum(2)
    positives = y[:, None] == y
    expected = torch.logsumexp(near, 1) - torch.logsumexp(near.masked_fill(~positives, -math.inf), 1)
    torch.testing.assert_close(NCA()(x, y, ids=torch.arange(8), references=others, reduction="none"), expected)


@pytest.mark.parametrize("names", [["dog", "cat", "dog"], [30, -5, 30], [2.5, 0.5, 2.5], [True, False, True]])
def test_names_of_any_kind_become_codes(names: list[object]) -> None:
    codes, classes = encode_labels(names)
    assert codes.tolist() == [1, 0, 1] and codes.dtype == torch.int64
    assert [classes[c] for c in codes] == names
