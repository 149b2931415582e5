"""Class names to class numbers, for folders, tables and arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import encode_labels
from nearkin.data.dataset import SPLITS, SYNONYMS

SET_SEPARATOR = "|"  # separates the classes of one image in a table


def class_numbers(values: Sequence[Any] | np.ndarray, classes: Sequence[str] | None = None) -> tuple[Tensor, tuple[str, ...]]:
    """(n,) int64 and the names in the order of their numbers: sorted, and whole numbers by value, so that 10 comes after 9.

    A name that begins with 0, such as 007, is kept, and all are sorted as texts.

    With `classes` the values are positions in it already.
    """
    array = np.asarray(values)
    if classes is not None:
        return _numbered(array, classes)
    if array.dtype.kind in "UOS" and all(_is_whole(str(value)) for value in array.tolist()):
        array = np.asarray([int(value) for value in array.tolist()])
    codes, names = encode_labels(array)
    return codes, tuple(str(name) for name in names.tolist())


def partly_numbered(values: Sequence[Any] | np.ndarray, missing: Sequence[bool] | np.ndarray) -> tuple[Tensor, tuple[str, ...]]:
    """As `class_numbers`, with -1 for values that are `missing` (n,)."""
    gone = np.asarray(missing, dtype=np.bool_)
    numbers, classes = class_numbers(np.asarray(values)[~gone])
    labels = torch.full((len(gone),), -1)
    labels[torch.from_numpy(~gone)] = numbers
    return labels, classes


def multi_hot(cells: Sequence[str]) -> tuple[Tensor, tuple[str, ...]]:
    """(n, C) bool and the names: 'a|b' is the set of a and b, an empty cell the empty set."""
    members = [[name.strip() for name in cell.split(SET_SEPARATOR) if name.strip()] for cell in cells]
    classes = sorted({name for some in members for name in some})
    column = {name: at for at, name in enumerate(classes)}
    sets = torch.zeros(len(cells), len(classes), dtype=torch.bool)
    for row, some in enumerate(members):
        sets[row, [column[name] for name in some]] = True
    return sets, tuple(classes)


def split_name(name: str) -> str | None:
    """train, validation or test, for any of their usual names; None for other names."""
    plain = name.strip().lower()
    plain = SYNONYMS.get(plain, plain)
    return plain if plain in SPLITS else None


def _numbered(array: np.ndarray, classes: Sequence[str]) -> tuple[Tensor, tuple[str, ...]]:
    if array.dtype.kind not in "iu":
        raise ValueError(f"labels are {array.dtype}; together with classes they must be whole numbers, positions in classes")
    if array.min() < 0 or array.max() >= len(classes):
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"labels holds {wrong}, but classes has {len(classes)} names; labels must run from 0 to {len(classes) - 1}")
    return torch.from_numpy(array.astype(np.int64)), tuple(str(name) for name in classes)


def _is_whole(text: str) -> bool:
    return text.isdecimal() and text.isascii() and (text == "0" or not text.startswith("0"))
