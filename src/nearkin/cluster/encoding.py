"""One shard's worth of work: the points of a piece read, encoded, and written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nearkin.data.corrections import points_of
from nearkin.data.dataset import Dataset
from nearkin.data.labels import BETWEEN
from nearkin.data.loader import WORTH_WORKERS, Loader
from nearkin.data.report import Report
from nearkin.model import Model
from nearkin.shards import Shard, write_shard

CHUNK = 512  # points read and encoded together; the same everywhere, so that the same numbers come out


class Piece(NamedTuple):
    """The points of one shard."""

    number: int
    data: Dataset


def pieces(data: Dataset, rows: int, numbers: list[int]) -> Iterator[Piece]:
    """The shards with these numbers: `rows` points each, in the order of the data."""
    for number in numbers:
        yield Piece(number, data.subset(np.arange(number * rows, min((number + 1) * rows, len(data)))))


def write_piece(folder: Path, model: Model, piece: Piece, *, workers: int | None = 0) -> dict[str, Any]:
    """Embed a piece and write its shard; the record for the manifest, which also names what was left out, and why."""
    shard, damaged = encoded(model, piece.data, workers=workers)
    return {**write_shard(folder, piece.number, shard), "damaged": damaged}


def encoded(model: Model, data: Dataset, *, workers: int | None = 0) -> tuple[Shard, list[list[str]]]:
    """Points with their embeddings, and [source, reason] of those that cannot be decoded or have no finite embedding."""
    many = workers if len(data) > WORTH_WORKERS else 0
    loader = Loader(data, device=model.device, resident_bytes=-1, workers=many, report=_silence)
    rows, kept = [np.empty((0, int(model.about["network"]["dimension"])), np.float32)], [torch.empty(0, dtype=torch.int64)]
    for inputs, ids in loader(torch.split(data.ids, CHUNK)):
        rows.append(torch.as_tensor(model.encode(inputs)).float().cpu().numpy())
        kept.append(ids.cpu())
    vectors, at = np.concatenate(rows), data.rows(torch.cat(kept)) if len(rows) > 1 else torch.empty(0, dtype=torch.int64)
    finite, places = np.isfinite(vectors).all(1), points_of(data)
    damaged = [[places[int(data.rows([point])[0])], reason] for point, reason in loader.skipped.items()]
    damaged += [[places[row], "its embedding is not finite"] for row in at[torch.from_numpy(~finite)].tolist()]
    at, vectors = at[torch.from_numpy(finite)], vectors[finite]
    sources = np.array([places[row] for row in at.tolist()], dtype=object)
    return Shard(data.ids[at].numpy(), vectors, _labels(data, at.numpy()), sources), damaged


def _labels(data: Dataset, rows: np.ndarray) -> np.ndarray | None:
    """Class names, joined names of sets, or numbers."""
    answers = data.answers
    if answers is None:
        return None
    if data.supervision == "numbers":
        return answers[rows].float().numpy().reshape(len(rows), -1)
    if data.supervision == "classes":
        return np.array([data.classes[code] for code in answers[rows].tolist()], dtype=object)
    held = answers[rows].tolist()
    return np.array([BETWEEN.join(name for name, there in zip(data.classes, row, strict=True) if there) for row in held], dtype=object)


def _silence(line: str) -> None:
    """What was left out is told once, by whoever reads the records."""


def named(record: dict[str, Any], report: Report | None, before: int, most: int) -> None:
    """Name what was left out of a shard, up to `most` in all."""
    for source, reason in record["damaged"][: max(most - before, 0)]:
        if report is not None:
            report(f"left out: {reason if source in reason else f'{source}: {reason}'}")
