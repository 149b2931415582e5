"""The work of one shard: read, encode and write its points."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nearkin.data.corrections import source_names
from nearkin.data.dataset import Dataset
from nearkin.data.labels import SET_SEPARATOR
from nearkin.data.loader import MIN_FILES_FOR_WORKERS, Loader
from nearkin.data.progress import Report
from nearkin.data.shards import Shard, write_shard
from nearkin.models.folder import Model

CHUNK = 512  # points read and encoded together; the same everywhere, for the same results


class Piece(NamedTuple):
    """The points of one shard."""

    number: int
    data: Dataset


def pieces(data: Dataset, rows: int, numbers: list[int]) -> Iterator[Piece]:
    """The shards with these numbers: `rows` points each, in the order of the data."""
    for number in numbers:
        yield Piece(number, data.subset(np.arange(number * rows, min((number + 1) * rows, len(data)))))


def write_piece(folder: Path, model: Model | None, piece: Piece, *, workers: int | None = 0) -> dict[str, Any]:
    """Encode a piece and write its shard; returns its record for the manifest, which also lists skipped points and why.

    Without a model the points are written as they are.
    """
    shard, damaged = encoded(model, piece.data, workers=workers)
    return {**write_shard(folder, piece.number, shard), "damaged": damaged}


def encoded(model: Model | None, data: Dataset, *, workers: int | None = 0) -> tuple[Shard, list[list[str]]]:
    """The shard of the points, and [source, reason] of those that cannot be decoded or have no finite embedding."""
    many = workers if len(data) > MIN_FILES_FOR_WORKERS else 0
    loader = Loader(data, device="cpu" if model is None else model.device, resident_bytes=-1, workers=many, report=_ignore)
    rows, kept = [_empty(model, data)], [torch.empty(0, dtype=torch.int64)]
    for inputs, ids in loader(torch.split(data.ids, CHUNK)):
        rows.append(inputs.flatten(1).numpy() if model is None else torch.as_tensor(model.encode(inputs)).float().cpu().numpy())
        kept.append(ids.cpu())
    vectors, at = np.concatenate(rows), data.rows(torch.cat(kept)) if len(rows) > 1 else torch.empty(0, dtype=torch.int64)
    finite, places = np.isfinite(vectors).all(1), source_names(data)
    damaged = [[places[int(data.rows([point])[0])], reason] for point, reason in loader.skipped.items()]
    damaged += [[places[row], "its embedding is not finite"] for row in at[torch.from_numpy(~finite)].tolist()]
    at, vectors = at[torch.from_numpy(finite)], vectors[finite]
    sources = np.array([places[row] for row in at.tolist()], dtype=object)
    return Shard(data.ids[at].numpy(), vectors, _labels(data, at.numpy()), sources), damaged


def _empty(model: Model | None, data: Dataset) -> np.ndarray:
    """(0, d), of the type of the vectors that follow."""
    if model is not None:
        return np.empty((0, int(model.about["network"]["dimension"])), np.float32)
    return np.empty((0, int(np.prod(data.shape))), np.uint8 if data.kind == "images" else np.float32)


def _labels(data: Dataset, rows: np.ndarray) -> np.ndarray | None:
    """Class names, joined names of sets, or numbers."""
    answers = data.point_labels
    if answers is None:
        return None
    if data.supervision == "numbers":
        return answers[rows].float().numpy().reshape(len(rows), -1)
    if data.supervision == "classes":
        return np.array([data.classes[code] if code >= 0 else None for code in answers[rows].tolist()], dtype=object)
    held = answers[rows].tolist()
    return np.array(
        [SET_SEPARATOR.join(name for name, there in zip(data.classes, row, strict=True) if there) for row in held], dtype=object
    )


def _ignore(line: str) -> None:
    """Skipped points are reported once, from the records."""


def report_damaged(record: dict[str, Any], report: Report | None, before: int, most: int) -> None:
    """Report the skipped points of a shard, up to `most` in all."""
    for source, reason in record["damaged"][: max(most - before, 0)]:
        if report is not None:
            report(f"skipped: {reason if Path(source).name in reason else f'{source}: {reason}'}")
