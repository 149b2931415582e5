"""Cleaning: planted copies, leaks and outliers are listed, once each, with a reason; the CSV can be read back."""

import csv
import io

import numpy as np
import pytest
import torch

from nearkin.compose import cosine
from nearkin.evaluate import Problem, clean


def cloud(n: int = 120, d: int = 8) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0)) + 5 * torch.eye(d)[torch.arange(n) % 2]


def test_copies_leaks_and_outliers_are_listed_with_reasons() -> None:
    x = cloud()
    x[50], x[60], x[70] = x[10], x[10], x[20] + 0.01
    x[80] = x[30]
    x[90] = 40.0
    split = np.array(["train"] * 75 + ["test"] * 45)
    found = {(one.row, one.kind): one for one in clean(x, split=split).rows}
    assert set(found) == {(50, "duplicate"), (60, "duplicate"), (70, "near duplicate"), (80, "leak"), (90, "outlier")}
    assert found[50, "duplicate"].other == found[60, "duplicate"].other == 10 and found[50, "duplicate"].score == 1
    assert found[70, "near duplicate"].reason == "nearly the same as row 20" and 0.5 < found[70, "near duplicate"].score < 1
    assert found[80, "leak"].reason == "the same as row 30 of the train part"
    assert found[90, "outlier"].score > 0.8


def test_copies_with_other_labels_are_told() -> None:
    x, y = cloud(), torch.arange(120) % 2
    x[50] = x[11]
    found = [one for one in clean(x, y, classes=("cat", "dog")).rows if one.kind == "duplicate"]
    assert [one.reason for one in found] == ["the same as row 11, but labeled cat instead of dog"]


def test_scaled_copies_are_copies_by_cosine_only() -> None:
    x = cloud()
    x[50] = 3 * x[10]
    assert [one.row for one in clean(x, affinity=cosine()).rows if "duplicate" in one.kind] == [50]
    assert not [one for one in clean(x).rows if "duplicate" in one.kind]


def test_a_clean_cloud_has_no_problems() -> None:
    assert clean(cloud(300), torch.arange(300) % 2).rows == []


def test_all_points_the_same() -> None:
    found = clean(torch.ones(30, 3))
    assert found.counts == {"duplicate": 29} and {one.other for one in found.rows} == {0}


def test_the_csv_has_the_columns_of_corrections() -> None:
    x, y = cloud(), torch.arange(120) % 2
    y[7] = 0
    names = [f"=run {row}.png" for row in range(120)]
    found = clean(x, y, classes=("cat", "dog"), names=names, split=["train"] * 120)
    (row,) = csv.DictReader(io.StringIO(found.to_csv()))
    assert row["path"] == "'=run 7.png" and (row["label"], row["suggested"], row["accept"], row["kind"]) == ("cat", "dog", "", "label")
    assert row["reason"] == "other points say dog, not cat" and row["part"] == "train" and float(row["score"]) > 0.9
    assert "<td" in found._repr_html_() and "<b>" not in clean(x, names=["<b>"] * 120)._repr_html_()


def test_labels_that_cannot_be_judged_are_noted() -> None:
    assert "No label was judged" in clean(cloud(20), torch.zeros(20, dtype=torch.int64)).notes[0]


def test_wrong_sizes_raise() -> None:
    with pytest.raises(ValueError, match="split has 2 entries for 120 embeddings"):
        clean(cloud(), split=["train", "test"])
    with pytest.raises(ValueError, match="near .2. must be between 0 and 1"):
        clean(cloud(), near=2)


def test_one_point() -> None:
    assert clean(torch.zeros(1, 2)).rows == [] and Problem(0, "outlier", 0.5, "far").suggested == -1
