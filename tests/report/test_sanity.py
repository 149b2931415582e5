"""Sanity checks: each finds what was planted, finds nothing where nothing is, and equals a literal loop."""

import csv
import io
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from nearkin.data.cells import restored
from nearkin.report.sanity import (
    IMAGE_DISTANCE,
    VECTOR_DISTANCE,
    Suspect,
    changed_by_lengths,
    digests,
    fingerprints,
    length_spread,
    near_duplicates,
    near_duplicates_among,
    off_center,
    same_content,
    scaled_columns,
    suspects_table,
)


def pictures(n: int, side: int = 40, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 6, 6, generator=generator)
    return (torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear") * 200 + 20).to(torch.uint8)


def test_planted_near_duplicates_are_found_and_nothing_else() -> None:
    queries, references = pictures(20, seed=0), pictures(30, seed=1)
    queries[3] = references[7]
    queries[5] = (references[9].float() * 0.7 + 40).to(torch.uint8)  # darker, less contrast
    noise = torch.randint(-4, 5, references[11].shape, generator=torch.Generator().manual_seed(2))
    queries[8] = (references[11].int() + noise).clamp(0, 255).to(torch.uint8)  # saved again
    found = near_duplicates(fingerprints(queries), fingerprints(references), IMAGE_DISTANCE)
    assert dict(zip(found.queries.tolist(), found.references.tolist(), strict=True)) == {3: 7, 5: 9, 8: 11}
    assert found.queries[0] == 3 and found.distance[0] == 0 and (found.distance[1:] > 0).all()  # the nearest first
    exact = same_content(digests(queries), digests(references))
    assert (exact.queries.tolist(), exact.references.tolist()) == ([3], [7])


def test_planted_near_duplicates_in_one_set_are_returned_once_and_never_with_themselves() -> None:
    some = pictures(20, seed=0)
    some[9] = some[4]
    some[15] = (some[2].float() * 0.7 + 40).to(torch.uint8)
    found = near_duplicates_among(fingerprints(some), np.arange(20), IMAGE_DISTANCE)
    assert list(zip(found.queries.tolist(), found.references.tolist(), strict=True)) == [(9, 4), (15, 2)] and found.distance[0] == 0
    part = near_duplicates_among(fingerprints(some), np.array([0, 2, 5]), IMAGE_DISTANCE)  # only these are asked
    assert (part.queries.tolist(), part.references.tolist()) == ([15], [2])
    assert len(near_duplicates_among(fingerprints(some[:1]), np.arange(1), IMAGE_DISTANCE).queries) == 0


def test_a_resized_copy_is_found() -> None:
    large, small = pictures(5, side=80), pictures(5, side=64)
    found = near_duplicates(fingerprints(large), fingerprints(small), IMAGE_DISTANCE)
    assert found.queries.tolist() and (found.queries == found.references).all() and len(found.queries) == 5


def test_rows_with_missing_cells_are_copies_only_if_the_other_cells_are_equal() -> None:
    nan = math.nan
    references = torch.tensor([[1.0, 5.0, 0.0], [2.0, nan, 1.0], [3.0, 9.0, 0.0], [4.0, 2.0, 0.0]])
    queries = torch.tensor([[1.0, 9.0, 0.0], [2.0, nan, 1.0], [3.0, nan, 1.0]])
    found = near_duplicates(*scaled_columns(queries, references), VECTOR_DISTANCE)
    assert list(zip(found.queries.tolist(), found.references.tolist(), strict=True)) == [(1, 1)]


def test_duplicates_of_vectors_by_a_literal_loop() -> None:
    torch.manual_seed(0)
    queries, references = torch.randn(15, 4), torch.randn(12, 4) * torch.tensor([1.0, 100.0, 0.01, 0.0]) + 3
    queries[2] = references[4] * (1 + 1e-6)
    a, b = scaled_columns(queries, references)
    assert a.shape == (15, 3)  # the constant column says nothing
    found = near_duplicates(a, b, VECTOR_DISTANCE)
    expected = []
    for i in range(len(a)):
        j = min(range(len(b)), key=lambda j: math.dist(a[i].tolist(), b[j].tolist()))
        if math.dist(a[i].tolist(), b[j].tolist()) < VECTOR_DISTANCE * max(a[i].norm(), b[j].norm()):
            expected.append((i, j))
    assert list(zip(found.queries.tolist(), found.references.tolist(), strict=True)) == expected == [(2, 4)]


def test_flat_pictures_are_no_duplicates_of_others_but_of_one_another() -> None:
    flat, some = torch.full((2, 1, 8, 8), 7, dtype=torch.uint8), pictures(4)[:, :1, :8, :8]
    assert len(near_duplicates(fingerprints(flat), fingerprints(some), IMAGE_DISTANCE).queries) == 0
    assert len(near_duplicates(fingerprints(flat), fingerprints(flat), IMAGE_DISTANCE).queries) == 2


def test_lengths() -> None:
    directions = torch.nn.functional.normalize(torch.randn(50, 6, generator=torch.Generator().manual_seed(0)))
    assert length_spread(directions) == pytest.approx(0, abs=1e-6)
    assert length_spread(torch.tensor([[3.0, 4.0], [0.0, 15.0]])) == pytest.approx(0.5)  # 5 and 15
    assert length_spread(torch.zeros(3, 2)) == 0
    assert changed_by_lengths(directions, directions * 2) == 0
    query, references = torch.tensor([[1.0, 0.0]]), torch.tensor([[9.0, 0.0], [0.9, 0.3]])
    assert changed_by_lengths(query, references) == 1  # the angle names the first, the distance the second


def test_off_center_by_hand() -> None:
    points = torch.tensor([[9.0, 0.0], [11.0, 0.0]])  # mean 10, variance 1 + 0
    assert off_center(points) == pytest.approx(10)
    assert off_center(points - points.mean(0)) == 0
    assert off_center(torch.ones(3, 2)) == math.inf and off_center(torch.zeros(3, 2)) == 0


def test_the_csv_of_suspects() -> None:
    text = suspects_table([("train", "a, b.png", Suspect(3, 1, 0, 0.875))], ["cat", "dog"])
    assert list(csv.DictReader(text.splitlines())) == [
        {"path": "a, b.png", "label": "dog", "neighbors_say": "cat", "confidence": "0.88", "part": "train"}
    ]


def test_no_cell_of_the_csv_is_a_formula() -> None:
    """A label or a path of others must not run in a spreadsheet; as corrected labels they are read back unchanged."""
    names = ['=HYPERLINK("http://evil")', "+1+1", "@x", "-2-3", "-1", "\tx", "plain", "'quoted"]
    text = suspects_table([("train", name, Suspect(0, at, at, 1.0)) for at, name in enumerate(names)], names)
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["label"] for row in rows] == ["'" + name for name in names[:4]] + ["-1", "'\tx", "plain", "'quoted"]
    assert [restored(row["path"]) for row in rows] == names


def test_errors_of_sanity_checks() -> None:
    with pytest.raises(ValueError, match=r"inputs have shape \(3,\)"):
        fingerprints(torch.zeros(3))
    with pytest.raises(ValueError, match=r"max_distance \(0\) must be above 0"):
        near_duplicates(torch.zeros(2, 2), torch.zeros(2, 2), 0)
