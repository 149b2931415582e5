"""By what a data set of training is known again: another one may have the same name and the same number of points."""

import hashlib
from pathlib import Path

import numpy as np
from torch import Tensor

from nearkin.data.dataset import Dataset
from nearkin.data.texts import Texts

POINTS = 32


def sample_of(data: Dataset) -> str:
    """A hash of some points, at even distances: of the content of vectors and texts, and of the names of others.

    Images have the names of their files and folders, for a training may hold them decoded, and somebody may move them.
    """
    found = hashlib.blake2b(digest_size=16)
    for row in np.unique(np.linspace(0, len(data) - 1, min(POINTS, len(data))).astype(np.int64)).tolist():
        found.update(_content(data, row))
    return found.hexdigest()


def _content(data: Dataset, row: int) -> bytes:
    if isinstance(data.inputs, Texts):
        return str(data.inputs.texts[row]).encode()
    if isinstance(data.inputs, Tensor) and data.kind == "vectors" and data.table is None:
        return data.inputs[row].contiguous().numpy().tobytes()
    if not len(data.sources):
        return b""
    return short_name(data.sources[row]).encode()


def short_name(source: str) -> str:
    """The name of a file and of its folder, which stay when somebody moves the data."""
    return "/".join(Path(source).parts[-2:])


def names_by_split(data: Dataset) -> dict[str, list[str]] | None:
    """The short names of the points of every split; None where two are the same."""
    names = [short_name(source) for source in data.sources]
    if not names or len(set(names)) < len(names):
        return None
    return {split: [name for name, own in zip(names, data.split, strict=True) if own == split] for split in data.parts}
