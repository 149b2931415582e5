"""Moved digits: deterministic, and hard for raw pixels."""

import pytest
import torch

from nearkin.compose.points import Points
from nearkin.data.digits import SIDE, LabeledImages, hold_out, moved_digits
from nearkin.evaluate import knn_accuracy


def flat(part: LabeledImages) -> Points:
    return Points(part.images.flatten(1), part.labels)


def shape_of(image: torch.Tensor) -> torch.Tensor:
    """The digit without its black border, which does not change when it is moved."""
    lit = image[0] > 0
    rows, columns = lit.any(1).nonzero().flatten(), lit.any(0).nonzero().flatten()
    return image[0, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]


def test_sizes_and_range() -> None:
    train, test = moved_digits()
    assert train.images.shape == (1297, 1, 16, 16) and test.images.shape == (500, 1, 16, 16)
    assert train.images.dtype == torch.float32 and train.labels.dtype == torch.int64
    assert train.images.min() == 0 and train.images.max() == 1
    assert sorted(test.labels.unique().tolist()) == list(range(10))


def test_1_nn_accuracy_of_raw_pixels_is_about_69_percent() -> None:
    train, test = moved_digits()
    assert 0.66 < knn_accuracy(flat(test), flat(train), 1) < 0.72


def test_the_same_seed_is_the_same_data_and_another_moves_the_digits_only() -> None:
    first, again, other = moved_digits(), moved_digits(), moved_digits(seed=1)
    assert torch.equal(first.train.images, again.train.images)
    assert not torch.equal(first.test.images, other.test.images)
    assert torch.equal(first.test.labels, other.test.labels)
    assert all(torch.equal(shape_of(a), shape_of(b)) for a, b in zip(first.test.images[:50], other.test.images[:50], strict=True))


def test_digits_reach_every_edge_and_lie_within() -> None:
    train, _ = moved_digits(canvas=SIDE + 1)
    assert train.images.shape[2:] == (9, 9)
    lit = (train.images > 0).any(0)[0]
    assert lit[0].any() and lit[-1].any() and lit[:, 0].any() and lit[:, -1].any()
    unmoved, _ = moved_digits(canvas=SIDE)
    assert torch.allclose(train.images.sum((1, 2, 3)), unmoved.images.sum((1, 2, 3)))


def test_hold_out_cuts_the_training_part_in_two() -> None:
    data = moved_digits().train
    kept, held = hold_out(data, 0.25, seed=1)
    assert len(held.labels) == 324 and len(kept.labels) == 973
    assert torch.equal(torch.cat([kept.labels, held.labels]).bincount(), data.labels.bincount())
    assert torch.equal(hold_out(data, 0.25, seed=1).test.images, held.images)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"canvas \(7\) must be at least 8"):
        moved_digits(canvas=7)
    data = LabeledImages(torch.zeros(4, 1, 2, 2), torch.zeros(4, dtype=torch.int64))
    for share in (0.0, 1.0, -0.5):
        with pytest.raises(ValueError, match=r"share .* must leave images on both sides of 4"):
            hold_out(data, share, seed=0)
