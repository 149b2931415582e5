"""Moved digits: scikit-learn's handwritten digits, each somewhere on a larger black canvas. Nothing to download.

The plain digits are all but solved by raw pixels (1-NN 98.8 %), so they cannot show why anyone would learn an
embedding. Moved about, two images of one digit need share no pixel, and raw 1-NN falls to about 69 %.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

SIDE = 8  # of a digit
CANVAS = 16  # of the picture it is put on
TRAIN, TEST = 1297, 500
SPLIT_SEED, PLACE_SEED = 0, 0


class LabeledImages(NamedTuple):
    """n images and their classes; an image's id is its row."""

    images: Tensor  # (n, channels, height, width) float32 in [0, 1]
    labels: Tensor  # (n,) int64


class Split(NamedTuple):
    """What may be learned from, and what only tells how well it was learned."""

    train: LabeledImages
    test: LabeledImages


def moved_digits(canvas: int = CANVAS, seed: int = PLACE_SEED) -> Split:
    """1,797 digits at seeded random places on a `canvas` x `canvas` black square: 1,297 to learn from, 500 to test.

    The split is always the same, so that a new `seed` moves the digits about but never a test digit into training.
    """
    if canvas < SIDE:
        raise ValueError(f"canvas ({canvas}) must be at least {SIDE}: the digits are {SIDE} x {SIDE}")
    digits, labels = _digits()
    images = _placed(digits, canvas, np.random.default_rng(seed))
    order = torch.from_numpy(np.random.RandomState(SPLIT_SEED).permutation(len(labels)))
    images, labels = images[order], labels[order]
    return Split(LabeledImages(images[:TRAIN], labels[:TRAIN]), LabeledImages(images[TRAIN:], labels[TRAIN:]))


def hold_out(data: LabeledImages, share: float, seed: int) -> Split:
    """A seeded part of the training data set aside as `test`: for choosing settings without looking at the real one."""
    count = round(share * len(data.labels))
    if not 0 < count < len(data.labels):
        raise ValueError(f"share ({share}) must leave images on both sides of {len(data.labels)}; give a number between 0 and 1")
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
    held, kept = order[:count], order[count:]
    return Split(LabeledImages(data.images[kept], data.labels[kept]), LabeledImages(data.images[held], data.labels[held]))


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    loaded = load_digits()
    return torch.from_numpy(loaded.images).float() / 16, torch.from_numpy(loaded.target).long()  # (n, 8, 8) of 0..16, (n,)


def _placed(digits: Tensor, canvas: int, random: np.random.Generator) -> Tensor:
    """(n, 8, 8) to (n, 1, canvas, canvas)."""
    corners = random.integers(0, canvas - SIDE + 1, size=(len(digits), 2)).tolist()
    images = torch.zeros(len(digits), 1, canvas, canvas)
    for image, digit, (top, left) in zip(images, digits, corners, strict=True):
        image[0, top : top + SIDE, left : left + SIDE] = digit
    return images
