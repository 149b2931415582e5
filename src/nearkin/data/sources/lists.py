"""Sets whose authors publish lists of the images as text: CUB-200-2011 and Stanford Online Products."""

from pathlib import Path

import numpy as np
import torch

from nearkin.data.dataset import Dataset
from nearkin.data.files import folders, join, read_bytes
from nearkin.data.labels import class_numbers, split_name
from nearkin.data.sources.folder import open_folder
from nearkin.data.sources.local_files import LocalFiles
from nearkin.data.sources.options import ReadOptions


def read_cub(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read images.txt, image_class_labels.txt and train_test_split.txt; or train/ and test/ with a folder for each class."""
    sorted_already = next((place for place in local.places if place.is_dir() and _is_split(place)), None)
    if local.find_or_none("images.txt") is None and sorted_already is not None:
        return open_folder(sorted_already, options, local.name)
    at = local.find("images.txt")
    paths, labels, train = (_numbered(local.find(file)) for file in ("images.txt", "image_class_labels.txt", "train_test_split.txt"))
    names = _numbered(at.with_name("classes.txt")) if at.with_name("classes.txt").exists() else {}
    numbers = [int(labels[image]) for image in paths]
    return Dataset(
        local.name,
        options.files([join(at.parent / "images", path) for path in paths.values()]),
        labels=torch.tensor(numbers) - 1,
        classes=tuple(names.get(str(number), str(number)) for number in range(1, max(numbers) + 1)),
        split=np.asarray(["train" if train[image] == "1" else "test" for image in paths]),
    )


def read_products(local: LocalFiles, options: ReadOptions) -> Dataset:
    """Read Ebay_train.txt and Ebay_test.txt, whose classes do not overlap, from the folder or from the zip."""
    packed = local.find_or_none("Stanford_Online_Products.zip") if local.find_or_none("Ebay_train.txt") is None else None
    found = []
    for part in ("train", "test"):
        place = f"{packed}!/Stanford_Online_Products" if packed else str(local.find(f"Ebay_{part}.txt").parent)
        lines = read_bytes(f"{place}/Ebay_{part}.txt").decode().split("\n")[1:]  # rows: image_id class_id super_class_id path
        cells = [line.split() for line in lines if line.strip()]
        found += [(f"{place}/{path}", int(label), part) for _, label, _, path in cells]
    labels, classes = class_numbers([label for _, label, _ in found])
    files = options.files([path for path, _, _ in found])
    return Dataset(local.name, files, labels=labels, classes=classes, split=np.asarray([part for _, _, part in found]))


def _numbered(path: Path) -> dict[str, str]:
    """Lines of 'number value', in their order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number: value.strip() for number, _, value in (line.partition(" ") for line in lines if line.strip())}


def _is_split(place: Path) -> bool:
    return {split_name(folder) for folder in folders(place)} >= {"train", "test"}
