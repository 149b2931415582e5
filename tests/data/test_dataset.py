"""A data set: parts keep their ids, its description is right, and wrong arguments raise."""

import numpy as np
import pytest
import torch

from nearkin.data import Dataset
from nearkin.data.dataset import WHOLE

IMAGES = torch.arange(6 * 2 * 2, dtype=torch.uint8).reshape(6, 1, 2, 2)
LABELS = torch.tensor([0, 1, 0, 1, 0, 1])
SPLIT = np.array(["train", "train", "test", "train", "test", "train"])


def small(**changes):
    return Dataset("small", IMAGES, **{"labels": LABELS, "classes": ("cat", "dog"), "split": SPLIT, **changes})


def test_parts_keep_their_ids_and_never_share_one():
    data = small()
    train, test = data.part("train"), data.part("test")
    assert train.ids.tolist() == [0, 1, 3, 5] and test.ids.tolist() == [2, 4]
    assert test.labels.tolist() == [0, 0] and test.sources[1] == "small row 4"
    assert torch.equal(test.read([4, 2]), IMAGES[[4, 2]])
    assert data.parts == {"train": 4, "test": 2}


def test_a_part_of_a_part_is_still_read_by_the_ids_of_the_whole():
    some = small().part("train").subset([3, 0])
    assert some.ids.tolist() == [5, 0]
    assert torch.equal(some.read(torch.tensor([0])), IMAGES[[0]])
    assert some.renumbered().ids.tolist() == [0, 1]


def test_masks_and_rows_select_the_same():
    data = small()
    mask = torch.tensor([False, True, False, False, True, False])
    assert data.subset(mask).ids.tolist() == data.subset(np.array([1, 4])).ids.tolist() == data.subset([1, -2]).ids.tolist() == [1, 4]


def test_subsets_keep_all_columns():
    data = small(targets=torch.arange(6.0)[:, None], groups=torch.arange(6), target_names=("age",))
    some = data.subset([4])
    assert some.targets.tolist() == [[4.0]] and some.groups.tolist() == [4] and some.target_names == ("age",)


@pytest.mark.parametrize(
    ("changes", "supervision"),
    [
        ({}, "classes"),
        ({"labels": None, "targets": torch.zeros(6, 2)}, "numbers"),
        ({"labels": None, "sets": torch.zeros(6, 2, dtype=torch.bool)}, "sets"),
        ({"labels": None}, "ids"),
        ({"targets": torch.zeros(6, 1), "by": "numbers"}, "numbers"),
        ({"by": "ids"}, "ids"),
    ],
)
def test_supervision_by_default_and_by_choice(changes, supervision):
    assert small(**changes).supervision == supervision


def test_point_labels_are_the_labels_of_the_supervision():
    assert small().point_labels is LABELS
    assert small(by="ids").point_labels is None and small(by="ids").labels is LABELS  # kept, for evaluation


def test_describe():
    assert small().describe() == "small: 6 gray images 2 x 2; 2 classes (cat, dog); train 4, test 2; to learn from: classes"
    assert repr(small()) == f"<Dataset {small().describe()}>"  # not its arrays, nor thousands of paths
    vectors = Dataset("v", torch.zeros(3, 5), targets=torch.zeros(3, 2), target_names=("x", "y"))
    assert vectors.describe() == "v: 3 vectors of 5 numbers; 2 numbers (x, y); all 3; to learn from: numbers"
    assert vectors.kind == "vectors" and vectors.nbytes == 3 * 5 * 4


def test_data_without_splits_are_in_one_split():
    data = Dataset("bare", IMAGES)
    assert set(data.split) == {WHOLE} and data.ids.tolist() == list(range(6))
    assert data.with_split(SPLIT).part("test").ids.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: small(labels=LABELS[:5]), r"labels has 5 entries for 6 points of small; give one for each point"),
        (lambda: small(split=SPLIT[:2]), r"split has 2 entries for 6 points"),
        (lambda: small(by="numbers"), r"supervision 'numbers' is not in small, which has 2 classes \(cat, dog\); choose another, or ids"),
        (lambda: small().part("val"), r"split 'val' is not in small, which has train, test"),
        (lambda: Dataset("b", IMAGES).part("train"), r"split 'train' is not in b, which has all; make one with nearkin.data.partition"),
        (lambda: small().subset([6]), r"which selects row 6 of small, which has 6; rows count from 0"),
        (lambda: small().subset([]), r"which selects none of the 6 points of small"),
        (lambda: small().subset(torch.ones(4, dtype=torch.bool)), r"which is a mask of 4 for 6 points of small"),
        (lambda: small().part("test").read([3]), r"ids: 3 is not in small, whose ids run from 2 to 4"),
        (lambda: small().read([99]), r"ids: 99 is not in small"),
        (lambda: small().read([-1]), r"ids: -1 is not in small"),
        (lambda: Dataset("e", torch.zeros(0, 3)), r"e has no points"),
        (lambda: Dataset("f", torch.zeros(2, 1, 4, 4)), r"inputs of f is torch.float32 \(2, 1, 4, 4\); give images as uint8"),
    ],
)
def test_errors(make, text):
    with pytest.raises(ValueError, match=text):
        make()
