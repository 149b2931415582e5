"""The four data sets of the contest of losses, each packed into one small file: small enough to travel to a machine with a GPU.

CUB-200-2011 is stored as frozen features of MobileNetV2 (8 bits, one scale for each column), Omniglot as bits, CIFAR-100 as lossless WebP,
COIL-20 as gray pixels. Every image is in one of three parts: for training, of the training classes but held out (seen), or of other
classes (unseen). Tuning has parts of the same kinds, all of them cut from the training part.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nearkin.data import Dataset
from nearkin.data import open as open_data
from papers.encoders import features_of

TRAIN, SEEN, UNSEEN = 0, 1, 2
HELD_OUT = 0.2  # of the training classes, and of the images of the other classes, for tuning
CIFAR_IMAGES = (200, 50, 60)  # of each class: for training, seen, unseen
COIL_PIXELS, COIL_VIEWS = 32, 48  # of the 72 views around an object, the last 24 are held out: another side of it
OMNIGLOT_HELD = 5  # of the 20 drawings of a character
Arrays = dict[str, np.ndarray]


class Parts(NamedTuple):
    """A data set of the contest, or what tuning sees of it."""

    train: Dataset
    seen: Dataset
    unseen: Dataset


def pack(arguments: Namespace) -> None:
    """Write the files that do not exist yet."""
    folder = Path(arguments.data)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, _) in SETS.items():
        if not (folder / f"{name}.npz").exists():
            arrays = make(arguments)
            np.savez_compressed(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
            print(f"packed {name}: {len(arrays['labels']):,} points", flush=True)


def parts_of(name: str, folder: Path, device: torch.device, *, tuning: bool) -> Parts:
    """The parts of a set on the device; for tuning, held-out classes and images of the training part alone."""
    path = folder / f"{name}.npz"
    if not path.exists():
        raise ValueError(f"{path} does not exist; pack the data first: python -m papers which-loss --pack --data {folder} --data-root DATA")
    with np.load(path, allow_pickle=False) as packed:
        arrays = dict(packed)
    inputs, labels = SETS[name][1](arrays), arrays["labels"].astype(np.int64)
    parts, groups = arrays["part"], arrays.get("groups", labels)
    if tuning:
        parts = tuning_parts(parts, labels, groups)
    return Parts(*(_dataset(name, inputs, labels, parts == part, device) for part in (TRAIN, SEEN, UNSEEN)))


def tuning_parts(parts: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(n,) parts for tuning: a fifth of the training groups is unseen, a fifth of every other class is seen; -1 is not used."""
    draw, found = np.random.default_rng(0), np.full(len(parts), -1)
    train = parts == TRAIN
    known = np.unique(groups[train])
    held = draw.permutation(known)[: max(2, round(HELD_OUT * len(known)))]
    outside = train & np.isin(groups, held)
    found[outside] = UNSEEN
    for label in np.unique(labels[train & ~outside]):
        rows = draw.permutation(np.flatnonzero(train & (labels == label)))
        count = max(1, round(HELD_OUT * len(rows)))
        found[rows[:count]], found[rows[count:]] = SEEN, TRAIN
    return found


def _dataset(name: str, inputs: Tensor, labels: np.ndarray, which: np.ndarray, device: torch.device) -> Dataset:
    rows = torch.from_numpy(np.flatnonzero(which))
    numbers = torch.from_numpy(labels)
    found, own = torch.unique(numbers[rows], return_inverse=True)
    return Dataset(name, inputs[rows].to(device), labels=own, classes=tuple(map(str, found.tolist())))


def _halves(labels: np.ndarray, split: np.ndarray) -> np.ndarray:
    """(n,) parts: the first half of the classes with its given split, and all images of the second half."""
    first = labels < (labels.max() + 2) // 2
    return np.where(first, np.where(split == "train", TRAIN, SEEN), UNSEEN).astype(np.int8)


def _cub(arguments: Namespace) -> Arrays:
    folder = Path(arguments.data_root) / "cub200"
    arguments.crop = None
    features = features_of(folder, arguments)
    assert features.labels is not None and isinstance(features.inputs, Tensor)
    x, labels = features.inputs.numpy(), features.labels.numpy()
    scale = np.maximum(x.max(0), 1e-6) / 255  # the features are averages of a ReLU6: none is negative
    pixels = np.rint(x / scale).astype(np.uint8)
    return {"x": pixels, "scale": scale.astype(np.float32), "labels": labels, "part": _halves(labels, features.split)}


def _unpack_cub(arrays: Arrays) -> Tensor:
    return torch.from_numpy(arrays["x"].astype(np.float32) * arrays["scale"])


def _omniglot(arguments: Namespace) -> Arrays:
    data = open_data("omniglot", data_root=arguments.data_root)
    assert data.labels is not None and isinstance(data.inputs, Tensor)
    labels, draw = data.labels.numpy(), np.random.default_rng(0)
    part = np.where(data.split == "train", TRAIN, UNSEEN).astype(np.int8)
    for label in np.unique(labels[part == TRAIN]):
        part[draw.permutation(np.flatnonzero(labels == label))[:OMNIGLOT_HELD]] = SEEN
    alphabets = np.unique([name.rpartition("/")[0] for name in data.classes], return_inverse=True)[1]
    bits = np.packbits(data.inputs.numpy().reshape(len(labels), -1) > 127, axis=1)
    return {"bits": bits, "labels": labels, "part": part, "groups": alphabets[labels]}


def _unpack_omniglot(arrays: Arrays) -> Tensor:
    bits = np.unpackbits(arrays["bits"], axis=1)[:, : 28 * 28]
    return torch.from_numpy(255 * bits.reshape(-1, 1, 28, 28))


def _cifar(arguments: Namespace) -> Arrays:
    data = open_data("cifar-100", data_root=arguments.data_root)
    assert data.labels is not None and isinstance(data.inputs, Tensor)
    labels, images = data.labels.numpy(), data.inputs.numpy()
    part = np.where((data.split == "train") & (labels >= 50), -1, _halves(labels, data.split))
    kept: list[int] = []
    for label in range(100):
        for number, count in enumerate(CIFAR_IMAGES):
            kept += np.flatnonzero((labels == label) & (part == number))[:count].tolist()
    rows, files = np.asarray(kept), []
    for label in range(100):  # the images of a class below each other
        strip = images[rows[labels[rows] == label]].transpose(0, 2, 3, 1).reshape(-1, 32, 3)
        file = BytesIO()
        Image.fromarray(strip).save(file, "webp", lossless=True)
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    ends = np.cumsum([len(file) for file in files])
    return {"webp": np.concatenate(files), "ends": ends, "labels": labels[rows], "part": part[rows].astype(np.int8)}


def _unpack_cifar(arrays: Arrays) -> Tensor:
    strips = [Image.open(BytesIO(file.tobytes())) for file in np.split(arrays["webp"], arrays["ends"][:-1])]
    pixels = np.concatenate([np.asarray(strip.convert("RGB")).reshape(-1, 32, 32, 3) for strip in strips])
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def _coil(arguments: Namespace) -> Arrays:
    data = open_data("coil-20", data_root=arguments.data_root, size=COIL_PIXELS)
    assert data.labels is not None
    labels = data.labels.numpy()
    turns = np.concatenate([np.arange(int((labels == label).sum())) for label in np.unique(labels)])  # sorted by object and angle
    split = np.where(turns < COIL_VIEWS, "train", "test")
    return {"x": data.read(data.ids).numpy(), "labels": labels, "part": _halves(labels, split)}


SETS: Mapping[str, tuple[Callable[[Namespace], Arrays], Callable[[Arrays], Tensor]]] = {
    "cub": (_cub, _unpack_cub),
    "omniglot": (_omniglot, _unpack_omniglot),
    "cifar": (_cifar, _unpack_cifar),
    "coil": (_coil, lambda arrays: torch.from_numpy(arrays["x"])),
}
