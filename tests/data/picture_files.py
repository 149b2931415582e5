"""Small images for tests: all different, with known pixels."""

from pathlib import Path

import numpy as np
from PIL import Image


def pixels(seed: int, height: int = 8, width: int = 8, channels: int = 3) -> np.ndarray:
    """(h, w, c) uint8, or (h, w) for one channel."""
    array = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return array[:, :, 0] if channels == 1 else array


def save(path: Path, seed: int = 0, height: int = 8, width: int = 8, channels: int = 3) -> np.ndarray:
    """Save an image (PNG, or what the suffix says) and return its pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = pixels(seed, height, width, channels)
    Image.fromarray(array).save(path)
    return array


def save_tree(root: Path, *names: str, **how: int) -> None:
    """Save one image for each name below `root`."""
    for seed, name in enumerate(names):
        save(root / name, seed, **how)


def channels_first(array: np.ndarray) -> np.ndarray:
    """(c, h, w) as the data sets hold it."""
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
