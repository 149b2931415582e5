"""Stick figures: the same from the same seed, parts that do not depend on one another, and targets at the right places."""

import numpy as np
import pytest
import torch

from nearkin.data import open as open_data
from nearkin.data.sources import stick_figures as s
from nearkin.data.sources.stick_figures import Pose, drawn_look, drawn_pose, rendered, stick_figures


def plain_look(count: int) -> s.Look:
    """White figures on black, without distractors."""
    look = drawn_look(count, np.random.default_rng(0))
    zero = np.zeros(count)
    strokes, blobs = look.strokes.copy(), look.blobs.copy()
    strokes[:, :, :2], blobs[:, :, :2] = 5, 5  # outside of the image
    return look._replace(
        cloth=zero + 0.4,
        skin=zero + 1,
        background=zero,
        grid=0 * look.grid,
        stripes=0 * look.stripes,
        strokes=strokes,
        blobs=blobs,
        contrast=np.stack([zero + 1, zero], axis=1),
    )


def test_the_same_seed_gives_the_same_images_and_another_seed_others() -> None:
    one, same, other = (stick_figures(6, 4, 64, seed) for seed in (0, 0, 1))
    assert torch.equal(one.inputs, same.inputs) and torch.equal(one.targets, same.targets)
    assert not torch.equal(one.inputs, other.inputs) and not torch.equal(one.targets, other.targets)


def test_shapes_targets_and_splits() -> None:
    data = stick_figures(5, 3, 48)
    assert data.shape == (1, 48, 48) and data.inputs.dtype == torch.uint8 and data.parts == {"train": 5, "test": 3}
    assert data.targets.shape == (8, 6) and data.target_names == s.TARGETS and data.supervision == "numbers"


def test_parts_do_not_depend_on_one_another() -> None:
    few, many = stick_figures(3, 4, 32), stick_figures(7, 4, 32)
    assert torch.equal(few.part("test").inputs, many.part("test").inputs)
    apart = stick_figures(4, 4, 32)
    assert not torch.equal(apart.part("train").inputs, apart.part("test").inputs)
    assert not torch.equal(apart.part("train").targets, apart.part("test").targets)


def test_poses_do_not_depend_on_the_size() -> None:
    small, large = stick_figures(4, 2, 32), stick_figures(4, 2, 64)
    torch.testing.assert_close(2 * small.targets, large.targets)


def test_images_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stick_figures(7, 1, 32)
    monkeypatch.setattr(s, "CHUNK", 3)
    assert torch.equal(stick_figures(7, 1, 32).inputs, whole.inputs)


def test_every_target_is_inside_the_image() -> None:
    pose = drawn_pose(5000, np.random.default_rng(3))
    targets = pose.targets(100)
    assert targets.min() > 0 and targets.max() < 100 and targets.std(0).min() > 2


def test_arms_keep_their_lengths_and_sides() -> None:
    pose = drawn_pose(500, np.random.default_rng(1))
    for shoulder, elbow, hand in zip(pose.shoulders, pose.elbows, pose.hands, strict=True):
        np.testing.assert_allclose(np.linalg.norm(elbow - shoulder, axis=1), 0.15)
        np.testing.assert_allclose(np.linalg.norm(hand - elbow, axis=1), 0.13)
    assert (pose.shoulders[0][:, 0] < pose.shoulders[1][:, 0]).all() and (pose.head[:, 1] < pose.neck[:, 1]).all()


def test_head_and_hands_are_drawn_where_the_targets_say() -> None:
    """In a plain image the three brightest discs are head and hands: their pixels, and no others, are white."""
    pose = drawn_pose(40, np.random.default_rng(2))
    images = rendered(pose, plain_look(40), 128)[:, 0].float() / 255
    targets = torch.from_numpy(pose.targets(128)).reshape(40, 3, 2)
    middles = torch.arange(128) + 0.5
    radius = 128 * torch.tensor([0.065, 0.03, 0.03])
    for image, places in zip(images, targets, strict=True):
        away = ((middles - places[:, :1])[:, None, :] ** 2 + (middles - places[:, 1:])[:, :, None] ** 2).sqrt()  # (3, rows, columns)
        deep, outside = (away < (radius - 3)[:, None, None]).any(0), (away > (radius + 1)[:, None, None]).all(0)
        # An arm may cross the head, and the other arm a hand: most of a disc is white, and nothing beyond it.
        assert (image[deep] > 0.8).float().mean() > 0.5 and image[outside].max() < 0.75


def test_a_stroke_equals_its_distances_pixel_by_pixel() -> None:
    start, end, radius = np.array([0.2, 0.3]), np.array([0.7, 0.55]), 0.06
    size, canvas = 16, torch.zeros(1, 16, 16)
    stroke = s.Stroke(*(torch.tensor([p.tolist()]) for p in (start, end)), torch.tensor([radius]), torch.tensor([0.8]))
    s._draw(canvas, stroke, torch.zeros(1, size, size), size)
    for row in range(size):
        for column in range(size):
            point = np.array([column + 0.5, row + 0.5]) / size
            share = min(max(np.dot(point - start, end - start) / np.dot(end - start, end - start), 0), 1)
            distance = np.linalg.norm(point - start - share * (end - start))
            cover = min(max((radius - distance) * size + 0.5, 0), 1)
            assert float(canvas[0, row, column]) == pytest.approx(0.8 * cover, abs=1e-5)


def test_clothes_and_skin_differ_from_the_background_and_looks_vary() -> None:
    look = drawn_look(2000, np.random.default_rng(0))
    for gray in (look.cloth, look.skin):
        assert np.abs(gray - look.background).min() >= 0.25 - 1e-12 and gray.min() >= 0 and gray.max() <= 1
        assert 0.2 < (gray > look.background).mean() < 0.8
    assert look.limb.std() > 0.004 and look.contrast[:, 0].std() > 0.1


def test_looks_do_not_change_the_targets() -> None:
    """The same pose in other clothes has the same targets and another image."""
    pose = drawn_pose(3, np.random.default_rng(0))
    first, second = (rendered(pose, drawn_look(3, np.random.default_rng(seed)), 64) for seed in (1, 2))
    assert float((first.float() - second.float()).abs().mean()) > 10


def test_open_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(s, "TRAIN", 4)
    monkeypatch.setattr(s, "TEST", 2)
    data = open_data("stick_figures", data_root=str(tmp_path), size=32, channels=3)
    assert data.name == "stick-figures" and data.shape == (3, 32, 32) and data.parts == {"train": 4, "test": 2}
    assert open_data("stick-figures", size=32, split="test").parts == {"test": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 31}, r"size \(31\) must be at least 32 pixels; in smaller images the arms"),
        ({"train": 0}, r"train \(0\) must be at least 1 image"),
        ({"test": -1}, r"test \(-1\) must be at least 1 image"),
    ],
)
def test_errors_name_the_fix(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stick_figures(**options)


def test_targets_are_the_joints() -> None:
    joint = np.array([[0.25, 0.5]])
    pose = Pose(joint, joint, joint, (joint, joint), (joint, joint), (joint + 0.25, joint - 0.25))
    assert pose.targets(64).tolist() == [[16.0, 32.0, 32.0, 48.0, 0.0, 16.0]]
