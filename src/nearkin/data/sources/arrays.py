"""Arrays: images or vectors with their labels, in a .npz or .npy file or in memory.

    x, images or vectors     (or embeddings, features) uint8 (n, h, w), (n, h, w, c), (n, c, h, w), or any numbers (n, d)
    y                        whole numbers or names: classes (-1 or '': unknown); other numbers: targets; bool (n, C): sets
    labels, targets, sets    the same, by name
    sources, id              what each point is called
    classes, split, groups   names of the class numbers; train, validation or test; which points belong together

Pickles are never read: an array of Python objects is an error.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import encode_labels
from nearkin.data.dataset import Dataset
from nearkin.data.labels import class_numbers, partly_numbered, split_name
from nearkin.data.progress import few, warn
from nearkin.data.sources.options import ReadOptions

ARRAY_SUFFIXES = (".npz", ".npy")
VECTORS = ("embedding", "embeddings", "vector", "vectors", "features", "emb", "x")  # of several, the first
INPUTS = ("x", "images", "vectors", *(name for name in VECTORS if name not in ("x", "vectors")))
NAMES = ("sources", "id", "ids")
KNOWN = (*INPUTS, *NAMES, "y", "labels", "targets", "sets", "classes", "target_names", "split", "groups")
CHANNELS = (1, 3, 4)
Arrays = Mapping[str, Any] | Sequence[Any] | np.ndarray | Tensor


def open_array_file(path: Path, options: ReadOptions) -> Dataset:
    """A .npz of named arrays, or a .npy of images or vectors alone."""
    return open_arrays(read_arrays(path), options, name=path.stem, where=str(path))


def open_arrays(arrays: Arrays, options: ReadOptions, *, name: str = "arrays", where: str = "the arrays") -> Dataset:
    """x alone, a pair (x, y), or a mapping with the names above."""
    found = {key: _array(key, value) for key, value in _named(arrays).items()}
    unknown = sorted(set(found) - set(KNOWN))
    if unknown:
        warn(options.report, f"{where}: {few(unknown)} is ignored; known names are {', '.join(KNOWN)}")
    names = [key for key in INPUTS if key in found]
    if len(names) != 1:
        held = few(sorted(found)) or "nothing"
        raise ValueError(
            f"{where} must hold exactly one of x, images, vectors and embeddings, but hold {held}; name the array of images or vectors x"
        )
    inputs = _inputs(found[names[0]], names[0], where)
    if inputs.ndim == 4:
        inputs = options.fit(inputs)
    return Dataset(name, inputs, sources=_sources(found, len(inputs), where), **_labels(found, len(inputs), where))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, by name."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return {"x": loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path} holds Python objects (a pickle), which are never read; save names as np.array(names, dtype=str)"
            ) from None
        raise ValueError(f"{path} is damaged or not a NumPy file ({error}); save it again with np.savez") from None
    except (MemoryError, OverflowError) as error:  # a header may claim any shape
        raise ValueError(f"{path} claims to hold more than fits in memory ({error}); if it is not damaged, split it into parts") from None
    except Exception as error:  # of a damaged header, a zip file or a compressed stream: NumPy's reader raises any kind
        raise ValueError(f"{path} is damaged or not a NumPy file ({error}); save it again with np.savez") from None


def array_heads(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape of every array of a file and the kind of its values, without reading these."""
    heads = {}
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as held:
                for name in held.namelist():
                    with held.open(name) as file:
                        heads[name.removesuffix(".npy")] = _head(file)
        else:
            with path.open("rb") as file:
                heads["x"] = _head(file)
    except (ValueError, OSError, zipfile.BadZipFile, SyntaxError):
        read_arrays(path)  # which names what is wrong with it
        raise
    return heads


def _head(file: Any) -> tuple[tuple[int, ...], str]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    return tuple(shape), str(kind.kind)


def _named(arrays: Arrays) -> dict[str, Any]:
    if isinstance(arrays, Mapping):
        return dict(arrays)
    if isinstance(arrays, np.ndarray | Tensor):
        return {"x": arrays}
    if len(arrays) == 2:
        return {"x": arrays[0], "y": arrays[1]}
    raise ValueError(f"what has {len(arrays)} members; pass x, a pair (x, y), or a mapping with x, labels, split and so on")


def _sources(found: Mapping[str, np.ndarray], n: int, where: str) -> list[str]:
    """What each point is called: its source or id, if these are all different, or its row."""
    names: list[str] = next((found[key].astype(np.str_).tolist() for key in NAMES if key in found and found[key].shape == (n,)), [])
    return names if len(set(names)) == n else [f"{where} row {row}" for row in range(n)]


def _array(key: str, value: Any) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind == "O":
        raise ValueError(f"{key} holds Python objects; give names as np.array(names, dtype=str), numbers as numbers")
    return array


def _inputs(array: np.ndarray, key: str, where: str) -> Tensor:
    if 0 in array.shape:
        raise ValueError(f"{where}: {key} has shape {array.shape}, so that there are no points; give at least one, with a number")
    if array.dtype == np.uint8 and array.ndim in (3, 4) and key in ("x", "images"):
        return torch.from_numpy(np.ascontiguousarray(_channels_first(array, key, where)))
    if array.ndim == 2 and array.dtype.kind in "fiu" and key != "images":
        return torch.from_numpy(_finite(array, key, where))
    raise ValueError(
        f"{where}: {key} is {array.dtype} {array.shape}; give images as uint8 of (n, h, w), (n, h, w, c) or (n, c, h, w), "
        "or vectors as numbers (n, d). Images in [0, 1] become uint8 by (255 * x).round()"
    )


def _finite(array: np.ndarray, key: str, where: str) -> np.ndarray:
    """float32, or an error that names the first row that is not finite."""
    numbers = array.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1))
    if len(wrong):
        raise ValueError(f"{where}: {key} has numbers that are not finite in {len(wrong):,} rows, first row {wrong[0]}; remove or fix them")
    return numbers


def _channels_first(images: np.ndarray, key: str, where: str) -> np.ndarray:
    """(n, c, h, w), from channels first or last."""
    if images.ndim == 3:
        return images[:, None]
    first, last = images.shape[1] in CHANNELS, images.shape[3] in CHANNELS
    if first == last:
        raise ValueError(
            f"{where}: {key} is {images.shape}, so the axis of the channels (1, 3 or 4 of them) is not clear; "
            "construct nearkin.data.Dataset with (n, c, h, w) yourself"
        )
    return images if first else images.transpose(0, 3, 1, 2)


def _labels(found: Mapping[str, np.ndarray], n: int, where: str) -> dict[str, Any]:
    known = {key: found[key] for key in ("labels", "targets", "sets") if key in found}
    if "y" in found:
        known.setdefault(_kind(found["y"]), found["y"])
    for key, values in {**known, **{key: found[key] for key in ("split", "groups") if key in found}}.items():
        if len(values) != n:
            raise ValueError(f"{where}: {key} has {len(values)} entries for {n} points; give one for each")
    classes = found["classes"].tolist() if "classes" in found else None
    known_labels: dict[str, Any] = {}
    if "labels" in known:
        known_labels["labels"], known_labels["classes"] = _classes(known["labels"], classes)
    elif "sets" in known:
        known_labels["sets"] = torch.from_numpy(known["sets"].astype(np.bool_))
        known_labels["classes"] = tuple(map(str, classes or range(known["sets"].shape[1])))
    if "targets" in known:
        targets = torch.from_numpy(_finite(known["targets"], "targets", where))
        known_labels["targets"] = targets[:, None] if targets.ndim == 1 else targets  # (n, t)
    if "groups" in found:
        known_labels["groups"] = encode_labels(found["groups"])[0]
    if "split" in found:
        known_labels["split"] = _splits(found["split"], where)
    return known_labels


def _classes(labels: np.ndarray, classes: list[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Class numbers, -1 for missing labels."""
    missing = _missing(labels)
    if not missing.any():
        return class_numbers(labels, classes)
    if classes is None:
        return partly_numbered(labels, missing)
    numbers, names = class_numbers(np.where(missing, 0, labels), classes)
    return torch.where(torch.from_numpy(missing), -1, numbers), names


def _missing(labels: np.ndarray) -> np.ndarray:
    """Where a label is missing: an empty name, or -1 if there are two other classes (of -1 and +1 both are classes)."""
    missing = labels == ("" if labels.dtype.kind in "US" else -1)
    few_classes = labels.dtype.kind not in "US" and len(np.unique(labels)) < 3
    found: np.ndarray = missing & ~(missing.all() | few_classes)
    return found


def with_unknown(labels: np.ndarray) -> np.ndarray:
    """Class numbers (n,) as names, "" where a class is unknown."""
    return np.where(_missing(labels), "", labels.astype(np.str_))


def _kind(y: np.ndarray) -> str:
    if y.ndim == 2 and y.dtype == np.bool_:
        return "sets"
    return "targets" if y.dtype.kind == "f" or y.ndim == 2 else "labels"


def _splits(values: np.ndarray, where: str) -> np.ndarray:
    names = [split_name(str(value)) for value in values.tolist()]
    if None in names:
        at = names.index(None)
        raise ValueError(f"{where}: split of row {at} is {str(values[at])!r}; it must be train, validation or test")
    return np.asarray(names, dtype=np.str_)
