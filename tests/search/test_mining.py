"""Hard negatives from all stored points: honest ones only."""

from pathlib import Path

import pytest
import torch

from nearkin import NCA, Points, index_vectors
from nearkin.compose import cosine
from nearkin.search import hard_negatives, suspected_labels

X = torch.tensor([[0.0, 1.0], [0.1, 1.0], [0.2, 1.0], [0.3, 1.0], [0.0, 1.0], [5.0, 1.0], [5.1, 1.0]])
Y = torch.tensor([0, 0, 1, 1, 1, 1, 2])
IDS = torch.tensor([10, 11, 12, 13, 14, 15, 16])
STORED = Points(X, Y, IDS)


def query(*rows: int) -> Points:
    return Points(X[list(rows)], Y[list(rows)], IDS[list(rows)])


def test_ids_classes_duplicates_and_suspects_are_left_out() -> None:
    found = hard_negatives(query(0), STORED, k=2)
    assert found.points.ids.tolist() == [12, 13], "14 is a copy of the query under another label"
    assert found.positions.tolist() == [[2, 3]]
    assert hard_negatives(query(0), STORED, k=2, duplicates=0).points.ids.tolist() == [12, 13], "an exact copy is never one"
    assert hard_negatives(query(0), STORED, k=2, suspects=torch.tensor([12])).points.ids.tolist() == [13, 15]
    assert hard_negatives(query(0), STORED, k=9, duplicates=0.15).points.ids.tolist() == [12, 13, 15, 16]
    assert hard_negatives(query(0), STORED, k=9, duplicates=0.25).points.ids.tolist() == [13, 15, 16]


def test_many_duplicates_hide_no_negative() -> None:
    copies = Points(torch.cat([X[:1].repeat(40, 1), X]), torch.cat([torch.ones(40, dtype=torch.int64), Y]), torch.arange(-33, 14) + 10)
    found = hard_negatives(Points(X[:1], Y[:1], torch.tensor([99])), copies, k=3)
    assert found.points.embeddings.tolist() == X[[2, 3, 5]].tolist()


def test_the_points_of_an_index_are_mined(tmp_path: Path) -> None:
    labels = ["cat", "cat", "dog", "dog", "dog", "dog", "owl"]
    index = index_vectors(X.numpy(), tmp_path / "v", labels=labels).index
    stored = index.read_all().labeled(["cat", "dog", "owl"])
    assert stored.labels.tolist() == Y.tolist()
    assert hard_negatives(Points(X[:1], Y[:1], stored.ids[:1]), stored, k=2).positions.tolist() == [[2, 3]]


def test_a_query_with_few_negatives_gets_those_there_are() -> None:
    few = hard_negatives(query(2, 6), STORED, k=4)
    assert few.positions.shape == (2, 4) and few.positions[0].tolist() == [1, 0, 6, -1]
    assert set(few.points.ids.tolist()) == {10, 11, 12, 13, 15, 16}


def test_they_go_into_an_objective_as_references() -> None:
    batch = query(0, 1, 5, 6)
    mined = hard_negatives(batch, STORED, k=1, affinity=cosine()).points
    both = Points(*(torch.cat([a, b]) for a, b in zip(batch, mined, strict=True)))
    loss = NCA()(batch.embeddings, batch.labels, ids=batch.ids, references=both)
    assert loss.isfinite() and loss > NCA()(batch.embeddings, batch.labels, ids=batch.ids)


def test_a_label_against_its_neighbors_is_suspected() -> None:
    x = torch.cat([torch.randn(20, 3), torch.randn(20, 3) + 9])
    y = torch.arange(2).repeat_interleave(20)
    y[3] = 1
    assert suspected_labels(Points(x, y, torch.arange(40) + 100), k=5).tolist() == [103]
    for function in (lambda: hard_negatives(Points(x), STORED), lambda: suspected_labels(Points(x))):
        with pytest.raises(ValueError, match="need labels and ids"):
            function()
