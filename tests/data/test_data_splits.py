"""Splits: the right proportions, no overlap, the same for the same seed; leaks are listed."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearkin.data import Dataset, LeakError, Partition, by_group, check_leaks, partition, set_aside, stratified, unseen_classes
from nearkin.data import open as open_data
from tests.data.picture_files import save

FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}
HALVES = {"train": 0.5, "test": 0.5}


def counts(names, where=slice(None)):
    return {name: int((names[where] == name).sum()) for name in FRACTIONS}


def test_stratified_keeps_the_proportions_of_every_class():
    labels = torch.tensor([0] * 100 + [1] * 50 + [2] * 10)
    names = stratified(labels, FRACTIONS).names
    assert counts(names) == {"train": 128, "validation": 16, "test": 16}
    assert counts(names, labels.numpy() == 1) == {"train": 40, "validation": 5, "test": 5}


def test_small_classes_still_fill_every_split():
    labels = np.repeat(np.arange(100), 3)
    names = stratified(labels, FRACTIONS).names
    assert counts(names)["validation"] in range(28, 33) and counts(names)["test"] in range(28, 33)
    assert all((names[labels == label] == "train").any() for label in range(100))


@given(st.lists(st.integers(0, 6), min_size=8, max_size=60), st.integers(0, 3))
def test_stratified_names_every_point_and_trains_on_every_class(labels, seed):
    names = stratified(np.array(labels), FRACTIONS, seed).names
    assert set(names) <= set(FRACTIONS) and len(names) == len(labels)
    assert set(np.array(labels)[names == "train"]) == set(labels)


def test_groups_are_in_one_split():
    groups = np.random.default_rng(0).integers(0, 40, 500)
    names = by_group(torch.from_numpy(groups), FRACTIONS, seed=3).names
    assert all(len(set(names[groups == group])) == 1 for group in range(40))
    assert abs(counts(names)["train"] - 400) <= 15 and set(names) == set(FRACTIONS)


def test_one_giant_group_leaves_the_others_their_share():
    names = by_group(np.array([0] * 90 + [1, 2]), FRACTIONS).names
    assert set(names) == set(FRACTIONS)


def test_unseen_classes_share_no_class():
    labels = np.random.default_rng(0).integers(0, 20, 400)
    names = unseen_classes(labels, FRACTIONS, seed=1).names
    seen = {name: set(labels[names == name]) for name in FRACTIONS}
    assert [len(found) for found in seen.values()] == [16, 2, 2] and not seen["train"] & seen["test"]
    first = unseen_classes(labels, HALVES, seed=None).names
    assert set(labels[first == "train"]) == set(range(10))  # the first half of the classes, as for CUB


def test_points_of_unknown_class_are_in_the_first_split():
    labels = torch.where(torch.arange(400) % 10 < 8, -1, torch.arange(400) % 2)
    names = partition(Dataset("some", torch.zeros(400, 2), labels=labels, classes=("a", "b")), None, HALVES).names
    assert set(names[labels < 0]) == {"train"} and [int((names[labels >= 0] == name).sum()) for name in HALVES] == [40, 40]


@pytest.mark.parametrize("make", [stratified, by_group, unseen_classes])
def test_the_seed_decides(make):
    values = np.random.default_rng(0).integers(0, 30, 300)
    assert (make(values, FRACTIONS, 1).names == make(values, FRACTIONS, 1).names).all()
    assert (make(values, FRACTIONS, 1).names != make(values, FRACTIONS, 2).names).any()


def test_a_partition_survives_json():
    made = stratified(np.arange(30) % 3, HALVES, seed=7)
    again = Partition.from_dict(json.loads(json.dumps(made.as_dict())))
    assert (again.names == made.names).all() and (again.how, again.seed, again.fractions) == ("stratified", 7, HALVES)
    cut = made.as_dict() | {"rows": {"train": [0, 1]}}
    with pytest.raises(ValueError, match=r"rows of the saved split leave out row 2; the file was edited or cut"):
        Partition.from_dict(cut)


def test_the_default_method_depends_on_the_data():
    x, labels = torch.zeros(40, 2), torch.arange(40) % 4
    classes = Dataset("c", x, labels=labels, classes=("a", "b", "c", "d"))
    assert partition(classes).how == "stratified"
    assert partition(classes, "unseen classes", HALVES).how == "unseen classes"
    assert partition(Dataset("g", x, labels=labels, classes=("a",), groups=torch.arange(40) // 4)).how == "group"
    plain = partition(Dataset("n", x, targets=x))
    assert plain.how == "random" and counts(plain.names) == {"train": 32, "validation": 4, "test": 4}
    data = classes.with_split(partition(classes).names)
    assert data.parts == {"train": 32, "validation": 4, "test": 4}


def test_validation_is_set_aside_from_the_training_points_only():
    split = np.array(["train"] * 40 + ["test"] * 20)
    data = Dataset("s", torch.zeros(60, 2), labels=torch.arange(60) % 4, classes=("a", "b", "c", "d"), split=split)
    made = set_aside(data, 0.2)
    assert counts(made.names) == {"train": 32, "validation": 8, "test": 20} and set(made.names[40:]) == {"test"}
    again = Partition.from_dict(json.loads(json.dumps(made.as_dict())))
    assert (again.names == made.names).all() and again.how == "stratified"
    with pytest.raises(ValueError, match=r"s has a validation split of 8 points already; use that"):
        set_aside(data.with_split(made.names))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: stratified(np.zeros(9), {"train": 0.8, "test": 0.3}), r"fractions \(.*\) must be above 0 and add up to 1, not 1.1"),
        (lambda: stratified(np.zeros(9), {"train": 1.0, "test": 0.0}), r"must be above 0 and add up to 1"),
        (
            lambda: stratified(np.zeros(9), {"train": 0.5, "dev": 0.5}),
            r"fractions names train, dev; name at least two of train, validation",
        ),
        (lambda: stratified(np.zeros(2), FRACTIONS), r"2 points cannot fill 3 splits"),
        (lambda: by_group(np.zeros(9), HALVES), r"groups has 1 different ones for 2 splits; give fewer fractions, or split by class"),
        (lambda: unseen_classes(np.zeros(9), HALVES), r"labels has 1 classes for 2 splits; unseen classes need at least one class in each"),
        (lambda: partition(Dataset("p", torch.zeros(9, 1)), "group"), r"how='group' needs groups, and p has none; choose how='random'"),
        (lambda: partition(Dataset("p", torch.zeros(9, 1)), "stratified"), r"how='stratified' needs classes, and p has none"),
        (
            lambda: partition(Dataset("p", torch.zeros(9, 1)), "odd"),
            r"how 'odd' is unknown; choose one of stratified, group, unseen classes",
        ),
    ],
)
def test_errors_of_splits(make, error):
    with pytest.raises(ValueError, match=error):
        make()


def test_the_same_file_in_two_splits_is_listed(tmp_path):
    for number in range(6):
        save(tmp_path / "train" / "a" / f"{number}.png", number)
        save(tmp_path / "test" / "a" / f"{number}.png", number + 100)
    data = open_data(tmp_path)
    check_leaks(data)
    (tmp_path / "test" / "a" / "copy.png").write_bytes((tmp_path / "train" / "a" / "3.png").read_bytes())
    with pytest.raises(
        LeakError, match=r"in two splits 1 times; remove one of each, or split by group:\n  .*(a/3|copy).png \[t.* = .*png \[t"
    ):
        check_leaks(open_data(tmp_path))


def test_leaks_are_listed_up_to_ten_and_counted():
    points = torch.arange(13.0).repeat(2)[:, None]
    data = Dataset("twice", points, split=np.array(["train"] * 13 + ["test"] * 13))
    with pytest.raises(LeakError, match=r"twice: the same content is in two splits 13 times") as caught:
        check_leaks(data)
    text = str(caught.value)
    assert text.count(" = ") == 10 and "and 3 more\n`nearkin clean`" in text and "twice row 0 [train] = twice row 13 [test]" in text


def test_many_copies_of_one_content_are_listed_with_one_of_each_split_and_counted():
    data = Dataset("same", torch.zeros(300, 2), split=np.array(["train"] * 299 + ["test"]))
    with pytest.raises(
        LeakError, match=r"same row 9 \[train\] = same row 299 \[test\] and 289 more\n`nearkin clean` lists copies"
    ) as caught:
        check_leaks(data)
    assert str(caught.value).count(" = ") == 10


def test_the_same_content_in_one_split_is_no_leak():
    check_leaks(Dataset("d", torch.zeros(4, 2), split=np.array(["train"] * 4)))
    check_leaks(Dataset("e", torch.tensor([[0.0], [0.0], [1.0]]), split=np.array(["train", "train", "test"])))
