"""Sets whose authors publish MATLAB files: SVHN (images and labels), Stanford Cars and Stanford Dogs (lists of files).

A .mat file holds data only: SciPy reads numbers and text from it and runs no code.
"""

from pathlib import Path

import numpy as np
import torch

from nearkin.data.dataset import Dataset
from nearkin.data.files import join
from nearkin.data.images import Files
from nearkin.data.sources.local_files import LocalFiles
from nearkin.data.sources.options import ReadOptions

SVHN_PARTS = {"train": "train_32x32.mat", "test": "test_32x32.mat", "extra": "extra_32x32.mat"}
CAR_LISTS = {
    "train": ("devkit/cars_train_annos.mat", "cars_train_annos.mat"),
    "test": ("cars_test_annos_withlabels.mat", "devkit/cars_test_annos_withlabels.mat"),
}


def read_svhn(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read the cropped digits; the 531,131 easy ones of `extra` only for split='extra'."""
    images, labels, splits, sources = [], [], [], []
    for part in SVHN_PARTS if options.split == "extra" else ("train", "test"):
        at = local.find(SVHN_PARTS[part])
        held = _load(at, "X", "y")
        images.append(held["X"].transpose(3, 2, 0, 1))  # (h, w, c, n) to (n, c, h, w)
        labels.append(held["y"].reshape(-1).astype(np.int64) % 10)  # the digit 0 is written as 10
        splits += [part] * len(labels[-1])
        sources += [f"{at} row {row}" for row in range(len(labels[-1]))]
    return Dataset(
        local.name,
        options.fit(torch.from_numpy(np.concatenate(images))),
        labels=torch.from_numpy(np.concatenate(labels)),
        classes=tuple("0123456789"),
        split=np.asarray(splits),
        sources=sources,
    )


def read_cars(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read either official form: one list (cars_annos.mat, car_ims/), or a devkit with cars_train/ and cars_test/."""
    one = local.find_or_none("cars_annos.mat")
    if one is not None:
        held = _load(one, "annotations", "class_names")
        classes = [str(text) for text in held["class_names"]]
        found = [
            (join(one.parent, str(a["relative_im_path"])), int(a["class"]), "test" if a["test"] else "train") for a in held["annotations"]
        ]
    else:
        classes = [str(text) for text in _load(local.find("devkit/cars_meta.mat", "cars_meta.mat"), "class_names")["class_names"]]
        found = []
        for part, lists in CAR_LISTS.items():
            folder = local.find(f"cars_{part}")
            held = _load(local.find(*lists), "annotations")
            found += [(join(folder, str(a["fname"])), int(a["class"]), part) for a in held["annotations"]]
    return _listed(local.name, found, tuple(classes), options.files([path for path, _, _ in found]))


def read_dogs(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read the lists of files in Images/, one folder for each breed."""
    folder = local.find("Images", "images")
    found: list[tuple[str, int, str]] = []
    names: dict[int, str] = {}
    for part in ("train", "test"):
        held = _load(local.find(f"{part}_list.mat", f"lists/{part}_list.mat"), "file_list", "labels")
        for file, label in zip(held["file_list"].reshape(-1), held["labels"].reshape(-1), strict=True):
            found.append((join(folder, str(file)), int(label), part))
            names[int(label)] = str(file).split("/")[0].partition("-")[2]  # n02085620-Chihuahua/...
    classes = tuple(names.get(number, str(number)) for number in range(1, max(names) + 1))
    return _listed(local.name, found, classes, options.files([path for path, _, _ in found]))


def _listed(name: str, found: list[tuple[str, int, str]], classes: tuple[str, ...], files: Files) -> Dataset:
    """The data set of a list; MATLAB counts classes from 1."""
    labels = torch.tensor([label - 1 for _, label, _ in found])
    return Dataset(name, files, labels=labels, classes=classes, split=np.asarray([split for _, _, split in found]))


def _load(path: Path, *variables: str) -> dict[str, np.ndarray]:
    from scipy.io import loadmat

    try:
        held = loadmat(path, squeeze_me=variables != ("X", "y"), variable_names=variables)
    except (ValueError, TypeError, OSError, NotImplementedError, IndexError) as error:
        raise ValueError(f"{path} cannot be read as a MATLAB file ({error}); it is damaged, fetch it again") from error
    missing = [name for name in variables if name not in held]
    if missing:
        raise ValueError(f"{path} holds no {', '.join(missing)}; it is not the official file")
    return {name: np.atleast_1d(held[name]) for name in variables}
