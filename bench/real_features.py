"""Features of real images that no label has touched, for benchmarks of functions that take embeddings: computed once and kept.

fashion-mnist   3,000 images, 50 principal components of their pixels
flowers20       800 photographs of 20 kinds, a frozen MobileNetV2 (a folder for each kind)
cifar10         3,000 images enlarged to 96 x 96, a frozen MobileNetV2
cifar-100       4,000 images drawn at random, the same
cub200          all photographs of 200 kinds of birds, a frozen MobileNetV2 (a folder for each kind)
"""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from nearkin.data import open as open_data
from nearkin.data.preprocess import IMAGENET
from nearkin.models import build
from nearkin.models.encoders import find_encoder

SETS = ("fashion-mnist", "flowers20", "cifar10")
COUNT, DRAWN = 3000, 4000
FOLDERS = {"flowers20": 0.875, "cub200": 1.0}  # the share of the short side that is kept; the images of cub200 are cut already
ENLARGED = 96


def real_features(name: str, data: Path, cache: Path, weights: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(n, d) float32 features and (n,) classes; read from the cache if they are there."""
    target = cache / f"{name}.npz"
    if not target.exists():
        x, y = _photographs(data / name, weights, FOLDERS[name]) if name in FOLDERS else _known(name, data, weights)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(target, x=x, y=y)
    with np.load(target) as held:
        return held["x"], held["y"]


def _known(name: str, root: Path, weights: str | None) -> tuple[np.ndarray, np.ndarray]:
    data = open_data(name, data_root=root).part("train")
    assert isinstance(data.inputs, torch.Tensor) and data.labels is not None
    rows = torch.arange(len(data))[:COUNT]
    if name == "cifar-100":  # files may be sorted by class
        rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:DRAWN]
    images, y = data.inputs[rows], data.labels[rows].numpy()
    if name in ("cifar10", "cifar-100"):
        return _encoded(images, weights), y
    from sklearn.decomposition import PCA

    return PCA(50, random_state=0).fit_transform(images.flatten(1).numpy() / np.float32(255)).astype(np.float32), y


def _photographs(folder: Path, weights: str | None, crop: float) -> tuple[np.ndarray, np.ndarray]:
    data = open_data(folder, size=224, crop=crop, channels=3)
    assert data.labels is not None
    rows = [_encoded(data.read(ids), weights) for ids in torch.split(data.ids, 64)]
    return np.concatenate(rows), data.labels.numpy()


@torch.no_grad()
def _encoded(images: torch.Tensor, weights: str | None) -> np.ndarray:
    network = build("mobilenet-v2", image_shape=(3, 224, 224), weights=find_encoder("mobilenet-v2", weights).weights).eval()
    rows = []
    for part in torch.split(images, 64):
        x = part if part.shape[-1] > ENLARGED else functional.interpolate(part.float(), ENLARGED, mode="bilinear").round().byte()
        rows.append(network.body(IMAGENET(x)).flatten(1))  # type: ignore[operator]
    return torch.cat(rows).numpy()
