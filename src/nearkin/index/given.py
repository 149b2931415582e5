"""Vectors that are given become a model folder without a network, which every verb and function opens like any other.

model.json             the metric, the dimension, the classes, and "given": where the vectors are from
weights.safetensors    of a network without weights: it returns vectors as they are
index/                 the vectors with their labels, sources, metadata and thumbnails
given.json             written last: the state of the file when it was read. Without it, the folder was not finished
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from nearkin.compose.metrics import METRICS
from nearkin.compose.points import encode_labels
from nearkin.compose.validation import check_choice
from nearkin.data.checksums import CHECKSUMS, forget, write_json, write_recorded
from nearkin.data.corrections import corrected, is_corrections
from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.disk import explain_full_disk, read_json
from nearkin.data.lock import owned
from nearkin.data.progress import Report, few, inform
from nearkin.data.sources.vector_tables import VectorColumns
from nearkin.data.sources.vectors import open_vectors
from nearkin.index.collection import Collection, build_index, open_index
from nearkin.index.contract import Entry
from nearkin.models.folder import about_of

UNIT = 1e-2  # how far a length may be from 1
PART = 65_536
STATE = "given.json"
NOT_OURS = ("model.json", "run.json")


def index_vectors(
    what: Any,
    out: str | os.PathLike[str],
    *,
    labels: Any = None,
    images: str | os.PathLike[str] | Sequence[str] | None = None,
    columns: VectorColumns | None = None,
    corrections: Sequence[str | os.PathLike[str]] = (),
    metric: str | None = None,
    on_error: str = "raise",
    replace: bool = False,
    backend: str = "exact",
    report: Report | None = None,
) -> Collection:
    """Index vectors that any encoder has computed: a model folder without a network, for every function and verb of nearkin.

    Parameters
    ----------
    what : path, array, tensor, frame or mapping
        As of `nearkin.data.open_vectors`: a .parquet, .npz or .npy file, shards, an array or tensor (n, d), or a frame.
    out : path
        The folder to write. If it was made from the same file, and the file has not changed since, it is opened as it is.
    labels, images, columns
        As of `nearkin.data.open_vectors`.
    corrections : sequence of path, default=()
        Tables with the columns path and label, such as `nearkin clean` and the explorer write: these labels replace the others.
    metric : {"cosine", "squared_euclidean", "inner_product", "hamming"}, optional
        How vectors are compared. By default cosine for vectors of length 1, hamming for vectors of -1 and 1, otherwise squared_euclidean.
    on_error : {"raise", "skip"}, default="raise"
        "skip" leaves out vectors that are missing or not finite, and reports how many.
    replace : bool, default=False
        Build the folder again from the vectors; changes that were made to its index are lost.
    backend : {"exact", "hnsw", "ivf_pq"}, default="exact"
        How the index is searched.
    report : callable, optional
        Called with each line of progress, such as `print`.

    Returns
    -------
    Collection

    Raises
    ------
    FileExistsError
        If `out` holds something else, or vectors that have changed since, and `replace` is False.
    ValueError
        If the vectors cannot be used; the message names the rows and the fix.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import nearkin
    >>> vectors = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> with TemporaryDirectory() as folder:
    ...     collection = nearkin.index_vectors(vectors, folder + "/v", labels=["cat", "cat", "dog"])
    ...     [hit.label for hit in collection.search(np.array([0.9, 0.1]), k=2).hits]
    ['cat', 'cat']
    """
    folder = Path(out)
    if metric is not None:
        check_choice("metric", metric, METRICS)
    state = _state(what, labels, images, metric, columns, corrections)
    if _finished(folder, state, replace):
        inform(report, f"{folder} was made from these vectors already, and is used as it is")
        return open_index(folder)
    if is_corrections(labels):
        labels, corrections = None, (labels, *corrections)
    data = open_vectors(what, labels=labels, images=images, columns=columns, on_error=on_error, report=report)
    for table in corrections:
        data = corrected(data, os.fspath(table), report)
    chosen = metric or _guessed(data, report)
    _report_zeros(data, chosen, report)
    folder.mkdir(parents=True, exist_ok=True)
    with owned(folder), explain_full_disk(folder, "run the same command again"):
        forget(folder / STATE, folder)
        (folder / STATE).unlink(missing_ok=True)
        write_json(folder / "model.json", _about(data, chosen, str(state.get("source", ""))))  # first: it says whose folder this is
        write_recorded(folder / "weights.safetensors", save({}), folder)
        there = (folder / "index" / "manifest.json").exists()
        collection, _ = build_index(folder, data, backend=backend, replace=there, report=report)
        write_json(folder / STATE, state)
    return collection


def made_from(folder: Path, source: str | os.PathLike[str]) -> bool:
    """Whether a folder was made from this file of vectors as it is now, with any options."""
    if not (folder / STATE).exists():
        return False
    state = made_with(folder)
    return (
        bool(state) and state["source"] == os.path.abspath(source) and state["files"][os.path.abspath(source)] == _file_state(Path(source))
    )


def made_with(folder: Path) -> dict[str, Any]:
    """What a complete folder was made from, and how: source, labels, corrections, images, metric and columns; {} for vectors in memory."""
    state: dict[str, Any] = read_json(folder / STATE, "pass --replace to build the folder again")
    return state


def source_of(folder: Path) -> str | None:
    """The file that a folder was made from, whether or not it is complete; "" if it holds something else, None if it holds nothing."""
    if not folder.is_dir():
        return "" if folder.exists() else None
    if not (folder / "model.json").exists():
        return "" if _others(folder) else None
    return str(about_of(folder).get("given", ""))


def is_given(folder: Path) -> bool:
    """Whether a model folder holds vectors that were given, instead of a trained network."""
    return "given" in about_of(folder)


def given_points(folder: Path, *, verify: bool = True) -> Dataset:
    """The points of a folder of given vectors as data, as its index has them now."""
    about, collection = about_of(folder), open_index(folder, verify=verify)
    stored = collection.index.read_all()
    entries = stored.entries
    return Dataset(
        name=folder.resolve().name,
        inputs=torch.from_numpy(np.ascontiguousarray(stored.vectors)),
        **_labels_of(entries, about, collection.index.labels),
        split=np.asarray([str(entry.metadata.get("split", WHOLE)) for entry in entries], dtype=np.str_),
        groups=encode_labels([str(e.metadata["group"]) for e in entries])[0] if all("group" in e.metadata for e in entries) else None,
        sources=[entry.source for entry in entries],
        columns={"text": texts} if any(texts := [entry.metadata.get("text") for entry in entries]) else {},
    )


def _labels_of(entries: Sequence[Entry], about: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The labels of stored points: classes by name, numbers and sets from their metadata."""
    found: dict[str, Any] = {}
    if any(entry.label is not None for entry in entries):
        used = {entry.label for entry in entries}
        classes = [name for name in known if name in used] or sorted(name for name in used if name is not None)
        number = {name: at for at, name in enumerate(classes)}
        found = {"labels": torch.tensor([number.get(entry.label or "", -1) for entry in entries]), "classes": tuple(classes)}
    elif all("set" in entry.metadata for entry in entries):
        classes = sorted({name for entry in entries for name in entry.metadata["set"]})
        rows = [[name in entry.metadata["set"] for name in classes] for entry in entries]
        found = {"sets": torch.tensor(rows, dtype=torch.bool), "classes": tuple(classes)}
    names = [name for name in about["targets"] if all(isinstance(entry.metadata.get(name), float) for entry in entries)]
    if names:
        numbers = [[entry.metadata[name] for name in names] for entry in entries]
        found |= {"targets": torch.tensor(numbers, dtype=torch.float32), "target_names": tuple(names)}
    return found


def _state(
    what: Any, labels: Any, images: Any, metric: str | None, columns: VectorColumns | None, corrections: Sequence[str | os.PathLike[str]]
) -> dict[str, Any]:
    """What tells whether the same vectors are given again; empty for vectors in memory, which are always read."""
    if not isinstance(what, str | os.PathLike) or not all(isinstance(one, str | os.PathLike | None) for one in (labels, images)):
        return {}
    files = {os.path.abspath(name): _file_state(Path(name)) for name in (what, labels, *corrections) if name is not None}
    chosen = None if columns is None else {name: value for name, value in vars(columns).items() if value is not None}
    images = None if images is None else os.path.abspath(images)
    tables = {"labels": labels and os.path.abspath(labels), "corrections": [os.path.abspath(name) for name in corrections]}
    return {"source": os.path.abspath(what), "files": files, "images": images, "metric": metric, "columns": chosen or None, **tables}


def _file_state(path: Path) -> list[int]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give a file of vectors, or a folder of shards")
    found = (path / "shards.json" if path.is_dir() else path).stat()
    return [found.st_size, found.st_mtime_ns]


def _finished(folder: Path, state: dict[str, Any], replace: bool) -> bool:
    """Whether the folder is complete and of this state; raise if it is of another one and must not be replaced."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name a folder to write with --out")
    ours = (folder / "model.json").exists() and is_given(folder)
    others = [] if ours else _others(folder)
    if others:
        what = "a training" if set(NOT_OURS) & set(others) else "other files"
        raise FileExistsError(f"{folder} holds {what}; name a new folder with --out (out)")
    if replace or not (folder / STATE).exists():
        return False
    found = made_with(folder)
    if state and found == state:
        return True
    raise FileExistsError(
        f"{folder} {_difference(found, state)}; `nearkin explore VECTORS --replace` (replace=True) builds it again, "
        "`nearkin explore VECTORS --out FOLDER` (out) makes another folder, which every verb opens in place of the file"
    )


def _difference(found: dict[str, Any], state: dict[str, Any]) -> str:
    """How the vectors of a folder differ from those that are given now."""
    if not found or not state:
        return "holds vectors already; whether these differ is not known"
    if found["source"] != state["source"]:
        return f"holds the vectors of {found['source']}"
    changed = [name for name, was in found["files"].items() if state["files"].get(name, was) != was]
    if changed:
        return f"was made before {few(changed)} changed"
    return "was made with other options"


def _others(folder: Path) -> list[str]:
    """The files of a folder, but for those that its writer leaves when it stops at once."""
    return [path.name for path in folder.iterdir() if path.name != CHECKSUMS and not path.name.startswith(".")]


def _about(data: Dataset, metric: str, source: str) -> dict[str, Any]:
    """The content of model.json."""
    return {
        "format": 1,
        "kind": "vectors",
        "shape": list(data.shape),
        "classes": list(data.classes),
        "targets": list(data.target_names),
        "supervision": data.supervision,
        "objective": "none",
        "why": "the vectors were given",
        "metric": metric,
        "given": source or data.name,
        "network": {"name": "identity", "dimension": data.shape[0], "normalize": False, "options": {}},
        "prepare": [],
    }


def _parts(data: Dataset) -> Any:
    """The vectors, some rows at a time."""
    return (data.read(ids).numpy() for ids in torch.split(data.ids, PART))


def _guessed(data: Dataset, report: Report | None) -> str:
    """The metric by the lengths of the vectors, and a line that says so."""
    shortest, longest, signs, zeros = np.inf, 0.0, True, False
    for part in _parts(data):
        lengths = np.linalg.norm(part.astype(np.float64), axis=1)
        shortest, longest = min(shortest, float(lengths[lengths > 0].min(initial=np.inf))), max(longest, float(lengths.max()))
        signs, zeros = signs and bool((np.abs(part) == 1).all()), zeros or not lengths.all()
    if signs:
        metric, why = "hamming", "all numbers are -1 or 1"
    elif max(abs(shortest - 1), abs(longest - 1)) < UNIT:
        metric, why = "cosine", "all vectors that are not zero have length 1" if zeros else "all vectors have length 1"
    else:
        metric, why = "squared_euclidean", f"the lengths of the vectors differ, from {shortest:.3g} to {longest:.3g}"
    other = "; if their encoder was trained with cosines, pass --metric cosine (metric='cosine')" if metric == "squared_euclidean" else ""
    inform(report, f"metric: {metric}, since {why}{other}")
    return metric


def _report_zeros(data: Dataset, metric: str, report: Report | None) -> None:
    zeros = np.concatenate([~part.any(1) for part in _parts(data)])
    if zeros.any():
        effect = "a cosine with them is 0, so they are near nothing" if metric == "cosine" else "they are at the origin"
        first = int(np.flatnonzero(zeros)[0])
        text = f"{int(zeros.sum()):,} of {len(zeros):,} vectors are zero, first {data.sources[first]}: {effect}"
        inform(
            report,
            f"{text}; they are kept. Check how they were computed, or delete them by id, as in nearkin index FOLDER --delete {first}",
        )
