"""MNIST's idx files, packed (.gz) or not: a magic number, the sizes as big-endian 32-bit numbers, then the bytes."""

import gzip
import struct
from pathlib import Path

import numpy as np
import torch

from nearkin.data.dataset import Dataset
from nearkin.data.sources.local_files import Shelf
from nearkin.data.sources.options import Wanted

PARTS = {"train": "train", "test": "t10k"}


def read_idx_set(shelf: Shelf, wanted: Wanted, *, classes: tuple[str, ...]) -> Dataset:
    """A pair of files, images and labels, for each split."""
    images, labels, splits, sources = [], [], [], []
    for part, stem in PARTS.items():
        at = _find(shelf, f"{stem}-images", "idx3-ubyte")
        some, known = read_idx(at, 3), read_idx(_find(shelf, f"{stem}-labels", "idx1-ubyte"), 1)
        if len(some) != len(known):
            raise ValueError(f"{at} holds {len(some):,} images but {len(known):,} labels lie beside it; the files do not belong together")
        images.append(some[:, None])
        labels.append(known)
        splits += [part] * len(some)
        sources += [f"{at} row {row}" for row in range(len(some))]
    return Dataset(
        shelf.name,
        wanted.fit(torch.from_numpy(np.concatenate(images))),
        labels=torch.from_numpy(np.concatenate(labels).astype(np.int64)),
        classes=classes,
        split=np.asarray(splits),
        sources=sources,
    )


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An array of bytes with so many dimensions."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove it and fetch it again") from error
    head = 4 + 4 * dimensions
    if len(raw) < head or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(f"{path} does not begin as an idx file of bytes in {dimensions} dimensions; it is another file, or damaged")
    shape = struct.unpack(f">{dimensions}I", raw[4:head])
    if len(raw) - head != int(np.prod(shape)):
        raise ValueError(f"{path} announces {shape} bytes but holds {len(raw) - head:,}; it is damaged, fetch it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=head).reshape(shape)


def _find(shelf: Shelf, stem: str, kind: str) -> Path:
    """The official name with .gz or without, or with the dot that some unpackers leave."""
    return shelf.find(f"{stem}-{kind}.gz", f"{stem}-{kind}", f"{stem}.{kind}")
