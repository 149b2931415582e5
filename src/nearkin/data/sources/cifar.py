"""CIFAR's binary version: records of one or two label bytes and 3 x 32 x 32 pixel bytes, in a folder or its tar.gz.

The Python version is a pickle, which can run any code when it is read, so it is never read.
"""

import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from nearkin.data.dataset import Dataset
from nearkin.data.sources.local_files import LocalFiles
from nearkin.data.sources.options import ReadOptions

PIXELS = 3 * 32 * 32


class Layout(NamedTuple):
    """Layout of one of the two sets."""

    archive: str
    folder: str
    parts: dict[str, tuple[str, ...]]  # the files of each split
    names_in: str  # the file of the class names
    label_bytes: int = 1
    label_at: int = 0  # which of a record's label bytes is the class


def read_cifar(local: LocalFiles, options: ReadOptions, *, layout: Layout) -> Dataset:
    """The records of all files, in their order."""
    held = local.find_or_none(layout.folder) or local.find(layout.archive, layout.folder)
    contents = _contents(local, held, [name for files in layout.parts.values() for name in files], layout.names_in)
    records, splits, sources = [], [], []
    for part, files in layout.parts.items():
        for file in files:
            some = _records(f"{held}: {file}", contents[file], layout.label_bytes)
            records.append(some)
            splits += [part] * len(some)
            sources += [f"{held} {file} row {row}" for row in range(len(some))]
    joined = np.concatenate(records)  # (n, label bytes + pixels)
    labels = joined[:, layout.label_at].astype(np.int64)
    classes = _classes(contents.get(layout.names_in), int(labels.max()) + 1)
    if labels.max() >= len(classes):
        raise ValueError(f"{held} holds class {labels.max()} but {layout.names_in} has {len(classes)} names; it is damaged, fetch it again")
    pixels = np.ascontiguousarray(joined[:, layout.label_bytes :]).reshape(-1, 3, 32, 32)
    images = options.fit(torch.from_numpy(pixels))
    return Dataset(local.name, images, labels=torch.from_numpy(labels), classes=classes, split=np.asarray(splits), sources=sources)


def _contents(local: LocalFiles, held: Path, needed: list[str], names_in: str) -> dict[str, bytes]:
    """The needed files by name, and the class names if they are there."""
    if held.is_dir():
        found = {name: (held / name).read_bytes() for name in [*needed, names_in] if (held / name).exists()}
    else:
        found = _from_tar(held, {*needed, names_in})
    missing = [name for name in needed if name not in found]
    if missing:
        raise ValueError(f"{held} holds no {', '.join(missing)}; it is not the whole binary version, which is at {local.home}")
    return found


def _from_tar(archive: Path, names: set[str]) -> dict[str, bytes]:
    found = {}
    try:
        with tarfile.open(archive, "r|gz") as archived:
            for member in archived:
                content = archived.extractfile(member) if Path(member.name).name in names else None
                if content is not None:
                    found[Path(member.name).name] = content.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{archive} is damaged ({error}); remove it and fetch it again") from error
    return found


def _records(where: str, raw: bytes, label_bytes: int) -> np.ndarray:
    length = label_bytes + PIXELS
    if len(raw) == 0 or len(raw) % length:
        raise ValueError(f"{where} has {len(raw):,} bytes, which are not whole records of {length}; it is damaged, fetch it again")
    return np.frombuffer(raw, dtype=np.uint8).reshape(-1, length)


def _classes(text: bytes | None, count: int) -> tuple[str, ...]:
    """Class names from the file next to the records; numbers if there is none."""
    return tuple(text.decode().split()) if text is not None else tuple(str(number) for number in range(count))
