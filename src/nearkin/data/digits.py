"""Moved digits: scikit-learn's handwritten digits at random places on a larger black canvas. Nothing is downloaded.

Raw pixels classify the plain digits almost perfectly (1-NN 98.8 %), so an embedding has nothing to improve. At random places two images
of one digit may share no pixel, and raw 1-NN falls to about 69 %.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

SIDE = 8  # of a digit
CANVAS = 16  # side of the image
TRAIN, TEST = 1297, 500
SPLIT_SEED, PLACE_SEED = 0, 0


class LabeledImages(NamedTuple):
    """Images and their classes; the id of an image is its row.

    Parameters
    ----------
    images : Tensor
        (n, channels, height, width) float32 in [0, 1].
    labels : Tensor
        (n,) int64 classes.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import LabeledImages
    >>> data = LabeledImages(torch.zeros(2, 1, 8, 8), torch.tensor([0, 1]))
    >>> len(data.labels)
    2
    """

    images: Tensor
    labels: Tensor


class Split(NamedTuple):
    """A training part and a test part.

    Parameters
    ----------
    train : LabeledImages
        Images to learn from.
    test : LabeledImages
        Images to measure on.

    Examples
    --------
    >>> from nearkin.data import moved_digits
    >>> train, test = moved_digits()
    >>> len(train.labels), len(test.labels)
    (1297, 500)
    """

    train: LabeledImages
    test: LabeledImages


def moved_digits(canvas: int = CANVAS, seed: int = PLACE_SEED) -> Split:
    """Return 1,797 digits at random places of a black canvas: 1,297 for training, 500 for testing.

    The split is always the same, so another `seed` moves the digits, but never a test digit into the training part.

    Parameters
    ----------
    canvas : int, default=16
        Side of the images; at least 8, the side of a digit.
    seed : int, default=0
        Seed of the places.

    Returns
    -------
    Split

    Raises
    ------
    ValueError
        If `canvas` is below 8.

    Examples
    --------
    >>> from nearkin.data import moved_digits
    >>> moved_digits().train.images.shape
    torch.Size([1297, 1, 16, 16])
    """
    if canvas < SIDE:
        raise ValueError(f"canvas ({canvas}) must be at least {SIDE}: the digits are {SIDE} x {SIDE}")
    digits, labels = _digits()
    images = _placed(digits, canvas, np.random.default_rng(seed))
    order = torch.from_numpy(np.random.RandomState(SPLIT_SEED).permutation(len(labels)))
    images, labels = images[order], labels[order]
    return Split(LabeledImages(images[:TRAIN], labels[:TRAIN]), LabeledImages(images[TRAIN:], labels[TRAIN:]))


def hold_out(data: LabeledImages, share: float, seed: int) -> Split:
    """Split off a random part of the training images, to choose settings without the real test part.

    Parameters
    ----------
    data : LabeledImages
        Training images.
    share : float
        Share to split off, between 0 and 1.
    seed : int
        Seed of the random choice.

    Returns
    -------
    Split
        The remaining images as `train`, the others as `test`.

    Raises
    ------
    ValueError
        If `share` leaves one of the parts empty.

    Examples
    --------
    >>> from nearkin.data import hold_out, moved_digits
    >>> kept, held = hold_out(moved_digits().train, 0.2, seed=0)
    >>> len(kept.labels), len(held.labels)
    (1038, 259)
    """
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
