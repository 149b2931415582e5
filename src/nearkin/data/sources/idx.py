"""MNIST's idx files, compressed (.gz) or not: a magic number, the sizes as big-endian 32-bit numbers, then the bytes."""

import gzip
import struct
from pathlib import Path

import numpy as np
import torch

from nearkin.data.dataset import Dataset
from nearkin.data.sources.local_files import LocalFiles
from nearkin.data.sources.options import ReadOptions

PARTS = {"train": "train", "test": "t10k"}


def read_idx_set(local: LocalFiles, options: ReadOptions, *, classes: tuple[str, ...]) -> Dataset:
    """Read a file of images and a file of labels for each split."""
    images, labels, splits, sources = [], [], [], []
    for part, stem in PARTS.items():
        at = _find(local, f"{stem}-images", "idx3-ubyte")
        some, known = read_idx(at, 3), read_idx(_find(local, f"{stem}-labels", "idx1-ubyte"), 1)
        if len(some) != len(known):
            raise ValueError(
                f"{at} holds {len(some):,} images but its labels are {len(known):,}; the two files do not belong together, fetch both again"
            )
        images.append(some[:, None])
        labels.append(known)
        splits += [part] * len(some)
        sources += [f"{at} row {row}" for row in range(len(some))]
    return Dataset(
        local.name,
        options.fit(torch.from_numpy(np.concatenate(images))),
        labels=torch.from_numpy(np.concatenate(labels).astype(np.int64)),
        classes=classes,
        split=np.asarray(splits),
        sources=sources,
    )


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an array of bytes with so many dimensions."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove it and fetch it again") from error
    head = 4 + 4 * dimensions
    if len(raw) < head or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(
            f"{path} does not begin as an idx file of bytes in {dimensions} dimensions; it is another file, or damaged: fetch it again"
        )
    shape = struct.unpack(f">{dimensions}I", raw[4:head])
    if len(raw) - head != int(np.prod(shape)):
        raise ValueError(f"{path} announces {shape} bytes but holds {len(raw) - head:,}; it is damaged, fetch it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=head).reshape(shape)


def _find(local: LocalFiles, stem: str, kind: str) -> Path:
    """Find the file by its official name, with or without .gz, or with the dot that some unpacking tools write."""
    return local.find(f"{stem}-{kind}.gz", f"{stem}-{kind}", f"{stem}.{kind}")
