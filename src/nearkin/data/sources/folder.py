"""Folders of images: a folder for each class, or no classes, with or without train/, val/ and test/ above them."""

import os
from pathlib import Path

from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.files import IMAGE_SUFFIXES, UNREAD_SUFFIXES, folders, is_image, listing
from nearkin.data.images import SKIP
from nearkin.data.labels import class_numbers, split_name
from nearkin.data.progress import Report, few, inform, warn
from nearkin.data.sources.options import ReadOptions


def open_folder(folder: Path, options: ReadOptions, name: str | None = None) -> Dataset:
    """The images of a folder. Folders in it named train, val, validation or test are splits; any others are classes."""
    report_unread(folder, options.report)
    inside = folders(folder)
    splits = {sub: split for sub in inside if (split := split_name(sub))}
    others = [sub for sub in inside if splits and sub not in splits and listing(folder / sub)]
    if others:
        raise ValueError(
            f"{folder} has split folders ({few(list(splits))}) and other folders with images ({few(others)}) next to them; "
            "move the others away, or into the splits"
        )
    found: list[tuple[str, str | None, str]] = []  # path, class, split
    for sub, split in splits.items() or {"": WHOLE}.items():
        found += [(path, label, split) for path, label in _images(folder / sub, options)]
    if not found:
        raise ValueError(f"{folder} holds no images; looked for {', '.join(IMAGE_SUFFIXES)} in it and in its folders")
    return _dataset(name or folder.resolve().name, found, folder, options)


def report_unread(folder: str | Path, report: Report | None) -> None:
    """Warn of photographs in formats that cannot be read."""
    unread = [os.path.basename(path) for path in listing(folder, UNREAD_SUFFIXES)]
    if unread:
        warn(
            report,
            f"{folder}: left out {len(unread):,} files in a format that cannot be read ({few(unread, 3)}); convert them to JPEG or PNG",
        )


def _dataset(name: str, found: list[tuple[str, str | None, str]], folder: Path, options: ReadOptions) -> Dataset:
    paths, names, splits = [path for path, _, _ in found], [label for _, label, _ in found], [split for _, _, split in found]
    without = sorted({split for _, label, split in found if label is None})
    if without and any(label is not None for label in names):
        raise ValueError(
            f"{folder}: {few(without)} has no class folders, and the other splits have; use class folders in all splits, or in none"
        )
    if without:
        return Dataset(name, options.files(paths)).with_split(splits)
    labels, classes = class_numbers([str(label) for label in names])
    if len(classes) == 1:
        inform(
            options.report, f"{folder} has one class only ({classes[0]}), so there are no negatives; one folder for each class is expected"
        )
    return Dataset(name, options.files(paths), labels=labels, classes=classes, from_folders=True).with_split(splits)


def _images(folder: Path, options: ReadOptions) -> list[tuple[str, str | None]]:
    """Each image with its class, the top folder that it is in; None if there are no class folders."""
    classes = folders(folder)
    here = sorted(entry.path for entry in os.scandir(folder) if not entry.is_dir() and is_image(entry.name))
    found = {label: listing(folder / label) for label in classes}
    if not any(found.values()):
        return [(path, None) for path in here]
    if here:
        raise ValueError(
            f"{folder} has {len(here):,} images ({few([os.path.basename(path) for path in here], 3)}) next to its class folders "
            f"({few(classes, 3)}); move them into one of these, or elsewhere; if the folders are not classes, "
            "list all files in a table with the single column `path`"
        )
    empty = [label for label, paths in found.items() if not paths]
    if empty and options.on_error == "raise":
        raise ValueError(f"{folder}: no images in {few(empty)}; remove the empty folders, or pass {SKIP} to leave them out")
    if empty:
        warn(options.report, f"{folder}: left out {len(empty)} folders without images: {few(empty)}")
    return [(path, label) for label, paths in found.items() for path in paths]
