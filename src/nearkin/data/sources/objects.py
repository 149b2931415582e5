"""Sets whose labels are in the file names (Omniglot, COIL-20), scikit-learn's digits, and ImageNet's folders."""

import re
from pathlib import Path

import numpy as np
import torch

from nearkin.data.dataset import Dataset
from nearkin.data.files import listing
from nearkin.data.labels import class_numbers
from nearkin.data.sources.arrays import read_arrays
from nearkin.data.sources.folder import open_folder
from nearkin.data.sources.local_files import LocalFiles
from nearkin.data.sources.options import ReadOptions
from nearkin.data.sources.table import Columns, open_table

OMNIGLOT_PARTS = {"train": "images_background", "test": "images_evaluation"}
COIL_FILE = re.compile(r"obj(\d+)__(\d+)\.png$")
COIL_STEP = 5.0  # degrees between two images


def read_omniglot(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read alphabet/character/drawing.png of the background (train) and evaluation (test) sets, from zips or folders; or one .npz.

    The alphabets of the evaluation set are not in the background set, so the test classes are unseen.
    """
    arrays = local.glob("omniglot*.npz")
    if arrays is not None and local.find_or_none(*OMNIGLOT_PARTS.values(), *(f"{part}.zip" for part in OMNIGLOT_PARTS.values())) is None:
        return _omniglot_arrays(arrays, local, options)
    paths: list[str] = []
    splits: list[str] = []
    for part, stem in OMNIGLOT_PARTS.items():
        found = listing(local.find(f"{stem}.zip", stem))
        paths += found
        splits += [part] * len(found)
    labels, classes = class_numbers(["/".join(path.replace("\\", "/").split("/")[-3:-1]) for path in paths])
    return Dataset(local.name, options.files(paths), labels=labels, classes=classes, split=np.asarray(splits))


def _omniglot_arrays(path: Path, local: LocalFiles, options: ReadOptions) -> Dataset:
    """x (n, h, w), y (n,), classes (C,) and is_eval (C,), which marks the classes of the evaluation set."""
    held = read_arrays(path)
    missing = [key for key in ("x", "y", "classes", "is_eval") if key not in held]
    if missing:
        raise ValueError(f"{path} holds no {', '.join(missing)}; an Omniglot .npz has x, y, classes and is_eval")
    labels, classes = class_numbers(held["y"], held["classes"].tolist())
    images = torch.from_numpy(held["x"])[:, None]
    split = np.where(held["is_eval"][held["y"]], "test", "train")
    sources = [f"{path} row {row}" for row in range(len(images))]
    return Dataset(local.name, options.fit(images), labels=labels, classes=classes, split=split, sources=sources)


def read_coil(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read obj1__0.png to obj20__71.png (object, rotation in steps of 5 degrees) from a zip or folder; or a manifest.csv."""
    manifest = local.find_or_none("manifest.csv")
    if manifest is not None:
        columns = Columns(label="object", targets=("degrees",))
        return open_table(manifest, columns, options, local.name)
    place = local.find("coil-20-proc.zip", "coil-20-proc", "obj1__0.png")
    paths = listing(place if place.suffix != ".png" else place.parent)
    found = sorted((int(match[1]), int(match[2]), path) for path in paths if (match := COIL_FILE.search(path)))
    if not found:
        raise ValueError(f"{place} holds no files named obj1__0.png and so on; it is not the official processed set")
    labels, classes = class_numbers([number for number, _, _ in found])
    degrees = torch.tensor([[turn * COIL_STEP] for _, turn, _ in found])
    files = options.files([path for _, _, path in found])
    return Dataset(
        local.name, files, labels=labels, classes=tuple(f"obj{one}" for one in classes), targets=degrees, target_names=("degrees",)
    )


def read_digits(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read scikit-learn's copy: 1,797 digits of 8 x 8 with 17 levels of gray, scaled to 0..255, without splits."""
    from sklearn.datasets import load_digits

    held = load_digits()
    images = torch.from_numpy(np.rint(held.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = torch.from_numpy(held.target.astype(np.int64))
    return Dataset(local.name, options.fit(images), labels=labels, classes=tuple("0123456789"))


def read_imagenet(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read train/ and val/ with a folder for each class (n01440764 and so on)."""
    folder = local.find("train").parent
    return open_folder(folder, options._replace(channels=options.channels or 3), local.name)
