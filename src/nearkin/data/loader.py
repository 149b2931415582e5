"""The loader: batches of ids in, batches of images or vectors on the device out.

A small set is decoded once and stays on the device as one uint8 tensor, so that a batch is one indexing. A larger one is decoded batch by
batch, ahead of use, in worker processes; 16 threads were a fifth as fast.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from nearkin.data.dataset import Dataset
from nearkin.data.images import DamagedImageError, Files, damaged_file_error, damaged_files_error
from nearkin.data.progress import Report, Ticker, warn
from nearkin.data.sources.sharded import ShardRows
from nearkin.data.texts import Texts

RESIDENT_BYTES = 4 << 30
PREFETCH = 2  # batches decoded ahead by each worker
CHUNK = 128  # images decoded at a time while the whole set is read
MIN_FILES_FOR_WORKERS = 1000  # starting workers for fewer takes longer than their work
NAMED = 10  # damaged files reported by name; of others only the number is reported
MOST_WORKERS = 16

Ids = Tensor | Sequence[int]
Batch = tuple[Tensor, Tensor]


class Loader:
    """Load batches of a data set to a device.

    Parameters
    ----------
    data : Dataset
        The data.
    device : torch.device or str, default="cpu"
        Where the batches go.
    resident_bytes : int, default=4 GiB
        Sets up to this size are read once and stay on the device. -1 always streams.
    workers : int, optional
        Processes that decode image files; 0 decodes in this process. By default one for each core, at most 16.
    prefetch : int, default=2
        Batches that each worker decodes ahead.
    report : callable, optional
        Called with each line of progress, such as `print`.

    Attributes
    ----------
    skipped : dict of int to str
        Ids of images left out as damaged, with the reason (for data opened with `on_error="skip"`).
    resident : Tensor or None
        The whole set on the device, if it stays there.

    Raises
    ------
    ValueError
        If `workers` or `prefetch` is out of range.

    Examples
    --------
    >>> from nearkin import data
    >>> from nearkin.data.samplers import Shuffled
    >>> digits = data.open("digits")
    >>> loader = data.Loader(digits)
    >>> images, ids = next(loader(Shuffled(len(digits), 64, seed=0)))
    >>> images.shape, images.dtype, ids.shape
    (torch.Size([64, 1, 8, 8]), torch.uint8, torch.Size([64]))
    """

    def __init__(
        self,
        data: Dataset,
        *,
        device: torch.device | str = "cpu",
        resident_bytes: int = RESIDENT_BYTES,
        workers: int | None = None,
        prefetch: int = PREFETCH,
        report: Report | None = None,
    ) -> None:
        if workers is not None and workers < 0:
            raise ValueError(f"workers ({workers}) must be 0 (decode in this process) or more; leave it out for one for each core")
        if prefetch < 1:
            raise ValueError(f"prefetch ({prefetch}) must be at least 1 batch for each worker")
        self.data = data
        self.device = torch.device(device)
        self.workers = min(_cores(), MOST_WORKERS) if workers is None else workers
        self.prefetch = prefetch
        self.report = report
        self.skipped: dict[int, str] = {}
        self.resident: Tensor | None = None  # (n, ...) on the device, row by row as in the data set
        if data.nbytes <= resident_bytes:
            self.resident = self._whole().to(self.device)
            # An unknown id becomes a row past the end, which is an error on any device; -1 would be the last image.
            self._row_of = torch.where(data.row_of < 0, len(data), data.row_of).to(self.device)

    def __call__(self, batches: Iterable[Ids]) -> Iterator[Batch]:
        """Load batches.

        A set that streams takes batches of ids ahead of use, so for a checkpoint count the batches that come out, not those that went in.

        Parameters
        ----------
        batches : iterable of Tensor or sequence of int
            The ids of each batch, such as a sampler.

        Yields
        ------
        points : Tensor
            Images (b, c, h, w) uint8 or vectors (b, d) float32, on the device.
        ids : Tensor
            (b,) int64 ids, on the device. Skipped ids are missing from both; empty batches are left out.
        """
        if self.resident is not None:
            served = self._held(self.resident, batches)
        elif isinstance(self.data.inputs, Files):
            served = self._decoded(self.data.inputs, batches, self.device, self.workers)
        else:
            served = self._sliced(batches)
        return (batch for batch in served if len(batch[1]))

    def _held(self, resident: Tensor, batches: Iterable[Ids]) -> Iterator[Batch]:
        for batch in batches:
            ids = torch.as_tensor(batch, dtype=torch.int64)
            if ids.device.type == "cpu":
                self.data.rows(ids)  # raises for an unknown id; on the device this check would make the host wait
            ids = self._unskipped(ids).to(self.device)
            yield resident[self._row_of[ids]], ids

    def _sliced(self, batches: Iterable[Ids]) -> Iterator[Batch]:
        """A tensor too large for the device, or shards on disk: only the batches are sent."""
        for batch in batches:
            ids = torch.as_tensor(batch, dtype=torch.int64).cpu()
            yield self._sent(self.data.read(ids), ids, self.device)

    def _decoded(self, files: Files, batches: Iterable[Ids], device: torch.device, workers: int) -> Iterator[Batch]:
        before = len(self.skipped)
        for points, ids, damaged in _read_ahead(files, self._with_rows(batches), workers, self.prefetch, device.type == "cuda"):
            for point, reason in damaged.items():
                self._skip(point, reason, files)
            yield points.to(device, non_blocking=True), ids.to(device, non_blocking=True)
        if len(self.skipped) > before:
            warn(self.report, f"{self.data.name}: {len(self.skipped):,} of {len(self.data):,} images are damaged and left out")

    def _with_rows(self, batches: Iterable[Ids]) -> Iterator[tuple[Tensor, list[int]]]:
        for batch in batches:
            ids = self._unskipped(torch.as_tensor(batch, dtype=torch.int64).cpu())
            yield ids, self.data.rows(ids).tolist()

    def _sent(self, points: Tensor, ids: Tensor, device: torch.device) -> Batch:
        if device.type == "cuda":
            points = points.pin_memory()  # so that the copy overlaps with computation
        return points.to(device, non_blocking=True), ids.to(device, non_blocking=True)

    def _whole(self) -> Tensor:
        """The set as one tensor; rows of damaged files are black and never returned."""
        if isinstance(self.data.inputs, Tensor):
            return self.data.inputs
        if isinstance(self.data.inputs, ShardRows | Texts):
            return self.data.read(self.data.ids)
        if self.data.inputs.decoded is not None:
            return self.data.inputs.decoded
        whole = torch.zeros(len(self.data), *self.data.shape, dtype=torch.uint8)
        ticker = Ticker(self.report, f"decoding {self.data.name}", len(self.data), "images")
        workers = self.workers if len(self.data) > MIN_FILES_FOR_WORKERS else 0
        done = 0
        for images, ids in self._decoded(self.data.inputs, torch.split(self.data.ids, CHUNK), torch.device("cpu"), workers):
            whole[self.data.row_of[ids]] = images
            done += len(ids)
            ticker.update(done)
        return whole

    def _skip(self, point: int, reason: str, files: Files) -> None:
        if files.on_error == "raise":
            raise damaged_file_error(reason)
        if point not in self.skipped and len(self.skipped) < NAMED:
            warn(self.report, f"left out: {reason}")
        self.skipped[point] = reason

    def _unskipped(self, ids: Tensor) -> Tensor:
        """The ids without known damaged files, which are not tried again."""
        if not self.skipped:
            return ids
        return ids[~torch.isin(ids, torch.tensor(list(self.skipped), device=ids.device))]


def without_damaged(data: Dataset, report: Report | None = None, workers: int | None = None) -> Dataset:
    """The same set without the files that cannot be decoded, which are reported; every file is tried once.

    Only for sets opened with on_error="skip". Do this before samplers, splits and means are made.
    """
    if not isinstance(data.inputs, Files) or data.inputs.on_error != "skip":
        return data
    skipped = try_files(data, report, workers)
    return without_points(data, skipped)


def decoded_once(data: Dataset, most_bytes: int, report: Report | None = None) -> Dataset:
    """The same set with its image files decoded in memory, if they need at most `most_bytes`; otherwise they are only tried.

    All damaged files are named in one error; those of sets opened with on_error="skip" are reported and left out. Do this before
    samplers, splits and means are made.
    """
    if not isinstance(data.inputs, Files) or data.inputs.decoded is not None:
        return data
    trial = replace(data, inputs=replace(data.inputs, on_error="skip"))
    holds = data.nbytes <= most_bytes
    quiet = data.inputs.on_error == "raise"
    loader = Loader(trial, resident_bytes=-1, report=(lambda _: None) if quiet else report)
    whole = torch.zeros(len(data), *data.shape, dtype=torch.uint8) if holds else None
    ticker = Ticker(report, f"decoding {data.name}", len(data), "images")
    workers, done = loader.workers if len(data) > MIN_FILES_FOR_WORKERS else 0, 0
    for images, ids in loader._decoded(trial.inputs, torch.split(data.ids, CHUNK), torch.device("cpu"), workers):  # type: ignore[arg-type]
        if whole is not None:
            whole[data.row_of[ids]] = images
        done += len(ids)
        ticker.update(done)
    kept = replace(data, inputs=replace(data.inputs, decoded=whole))
    return without_points(kept, loader.skipped)


def without_points(data: Dataset, damaged: Mapping[int, str]) -> Dataset:
    """The data without these ids of damaged files, given with their reasons; an error that names them if they must not be left out."""
    if not damaged:
        return data
    if len(damaged) == len(data):
        first = next(iter(damaged.values()))
        raise DamagedImageError(
            f"none of the {len(data):,} files of {data.name} can be decoded ({first})", "give a folder or a table of readable images"
        )
    if isinstance(data.inputs, Files) and data.inputs.on_error == "raise":
        raise damaged_files_error(list(damaged.values()), len(data))
    return data.subset(~torch.isin(data.ids, torch.tensor(list(damaged)))).renumbered()


def try_files(data: Dataset, report: Report | None = None, workers: int | None = None) -> dict[int, str]:
    """Decode every file once, so that a wrong size is an error now and not hours later; ids of damaged files with the reason."""
    if not isinstance(data.inputs, Files):
        return {}
    loader = Loader(data, resident_bytes=-1, workers=workers if len(data) > MIN_FILES_FOR_WORKERS else 0, report=report)
    for _ in loader(torch.split(data.ids, CHUNK)):
        pass
    return loader.skipped


class _Decoded(NamedTuple):
    images: Tensor
    ids: Tensor
    damaged: dict[int, str]  # id to reason; a text, since an exception does not cross processes unchanged


class _Decoder:
    """Decodes batches of (ids, rows) in a worker."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def __getitem__(self, batch: tuple[Tensor, list[int]]) -> _Decoded | str:
        images, kept, damaged = [], [], {}
        for at, row in enumerate(batch[1]):
            try:
                images.append(self.files.read(row))
                kept.append(at)
            except DamagedImageError as error:
                damaged[int(batch[0][at])] = str(error)
            except ValueError as error:
                return str(error)  # wrong sizes or channels, which skipping would not fix
        found = torch.stack(images) if images else torch.empty(0, *self.files.shape, dtype=torch.uint8)
        return _Decoded(found, batch[0][kept], damaged)


def _cores() -> int:
    """Cores that this process may use; in a container they can be fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def _read_ahead(files: Files, batches: Iterator[tuple[Tensor, list[int]]], workers: int, prefetch: int, pinned: bool) -> Iterator[_Decoded]:
    """Batches in their order, decoded by worker processes, or by this one if there are none."""
    decoder = _Decoder(files)
    served: Iterable[_Decoded | str] = map(decoder.__getitem__, batches)
    if workers:
        # With its own generator: DataLoader would draw from the global one, and training would depend on the number of workers.
        served = DataLoader(
            decoder,  # type: ignore[arg-type]
            batch_size=None,
            sampler=batches,
            num_workers=workers,
            prefetch_factor=prefetch,
            pin_memory=pinned,
            generator=torch.Generator(),
        )
    for batch in served:
        if isinstance(batch, str):
            raise ValueError(batch)
        yield batch
