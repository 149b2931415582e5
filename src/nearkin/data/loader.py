"""The loader: batches of ids in, batches of images on the device out.

A small set is decoded once and lives on the device as one uint8 tensor, so that a batch is one indexing. A larger one is
decoded batch by batch, ahead of use, in worker processes (threads were measured: with 16 they are a fifth as fast). Either way:

    loader = Loader(data, device="cuda")
    for images, ids in loader(sampler): ...        # uint8 (b, c, h, w) or float32 (b, d), and int64 (b,), on the device
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from nearkin.data.dataset import Dataset
from nearkin.data.images import DamagedImageError, Files, must_be_whole
from nearkin.data.progress import Report, Ticker, caution
from nearkin.data.sources.sharded import ShardRows

RESIDENT_BYTES = 4 << 30
PREFETCH = 2  # batches decoded ahead by each worker
CHUNK = 128  # images of a chunk while the whole set is decoded
WORTH_WORKERS = 1000  # images; below, starting the workers takes longer than their work
NAMED = 10  # damaged files named one by one; of the others only the number is told
MOST_WORKERS = 16

Ids = Tensor | Sequence[int]
Batch = tuple[Tensor, Tensor]


class Loader:
    """Serves a data set to a device. `skipped` says which ids were left out as damaged, and why."""

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
            raise ValueError(f"workers ({workers}) must be 0 (decode in this process) or more; leave it out for one on each core")
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
            # An id that is not there leads past the end, which is an error on any device; -1 would be the last image.
            self._row_of = torch.where(data.row_of < 0, len(data), data.row_of).to(self.device)

    def __call__(self, batches: Iterable[Ids]) -> Iterator[Batch]:
        """Each batch of ids as (points, ids) on the device. Skipped ids are missing from both; an empty batch is left out.

        A set that streams takes batches of ids ahead of use: whoever keeps count of them for a checkpoint counts those that come out,
        not those that went in.
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
                self.data.rows(ids)  # names an unknown id; on the device that check would make the host wait
            ids = self._unskipped(ids).to(self.device)
            yield resident[self._row_of[ids]], ids

    def _sliced(self, batches: Iterable[Ids]) -> Iterator[Batch]:
        """A tensor too large for the device, or shards on disk: only the batches travel."""
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
            caution(self.report, f"{self.data.name}: {len(self.skipped):,} of {len(self.data):,} images are damaged and left out")

    def _with_rows(self, batches: Iterable[Ids]) -> Iterator[tuple[Tensor, list[int]]]:
        for batch in batches:
            ids = self._unskipped(torch.as_tensor(batch, dtype=torch.int64).cpu())
            yield ids, self.data.rows(ids).tolist()

    def _sent(self, points: Tensor, ids: Tensor, device: torch.device) -> Batch:
        if device.type == "cuda":
            points = points.pin_memory()  # so that the copy runs beside the work
        return points.to(device, non_blocking=True), ids.to(device, non_blocking=True)

    def _whole(self) -> Tensor:
        """The set as one tensor; rows of damaged files stay black and are never served."""
        if isinstance(self.data.inputs, Tensor):
            return self.data.inputs
        if isinstance(self.data.inputs, ShardRows):
            return self.data.read(self.data.ids)
        whole = torch.zeros(len(self.data), *self.data.shape, dtype=torch.uint8)
        ticker = Ticker(self.report, f"decoding {self.data.name}", len(self.data), "images")
        workers = self.workers if len(self.data) > WORTH_WORKERS else 0
        done = 0
        for images, ids in self._decoded(self.data.inputs, torch.split(self.data.ids, CHUNK), torch.device("cpu"), workers):
            whole[self.data.row_of[ids]] = images
            done += len(ids)
            ticker.update(done)
        return whole

    def _skip(self, point: int, reason: str, files: Files) -> None:
        if files.on_error == "raise":
            raise must_be_whole(reason)
        if point not in self.skipped and len(self.skipped) < NAMED:
            caution(self.report, f"left out: {reason}")
        self.skipped[point] = reason

    def _unskipped(self, ids: Tensor) -> Tensor:
        """Known damaged files are not tried again."""
        if not self.skipped:
            return ids
        return ids[~torch.isin(ids, torch.tensor(list(self.skipped), device=ids.device))]


def without_damaged(data: Dataset, report: Report | None = None, workers: int | None = None) -> Dataset:
    """The same set without the files that cannot be decoded, which are named and counted; every file is tried once.

    Only for sets opened with on_error="skip": no sampler, split or mean then ever meets them.
    """
    if not isinstance(data.inputs, Files) or data.inputs.on_error != "skip":
        return data
    skipped = try_files(data, report, workers)
    if not skipped:
        return data
    if len(skipped) == len(data):
        raise DamagedImageError(
            f"none of the {len(data):,} files of {data.name} can be decoded", "give a folder or a table of readable images"
        )
    return data.subset(~torch.isin(data.ids, torch.tensor(list(skipped)))).renumbered()


def try_files(data: Dataset, report: Report | None = None, workers: int | None = None) -> dict[int, str]:
    """Decode every file once and keep none: a wrong size is an error now, not hours later. Which ids were skipped as damaged."""
    if not isinstance(data.inputs, Files):
        return {}
    loader = Loader(data, resident_bytes=-1, workers=workers if len(data) > WORTH_WORKERS else 0, report=report)
    for _ in loader(torch.split(data.ids, CHUNK)):
        pass
    return loader.skipped


class _Decoded(NamedTuple):
    images: Tensor
    ids: Tensor
    damaged: dict[int, str]  # id to reason: words, since an exception does not cross processes unchanged


class _Decoder:
    """What a worker is given: the files, and batches as (ids, rows)."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def __getitem__(self, batch: tuple[Tensor, list[int]]) -> _Decoded | str:
        images, kept, damaged = [], [], {}
        for place, row in enumerate(batch[1]):
            try:
                images.append(self.files.read(row))
                kept.append(place)
            except DamagedImageError as error:
                damaged[int(batch[0][place])] = str(error)
            except ValueError as error:
                return str(error)  # sizes or channels that do not fit: nothing that skipping would mend
        found = torch.stack(images) if images else torch.empty(0, *self.files.shape, dtype=torch.uint8)
        return _Decoded(found, batch[0][kept], damaged)


def _cores() -> int:
    """Those this process may use, which a container or a scheduler can make fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def _read_ahead(files: Files, batches: Iterator[tuple[Tensor, list[int]]], workers: int, prefetch: int, pinned: bool) -> Iterator[_Decoded]:
    """Batches in their order, decoded by worker processes, or by this one if there are none."""
    decoder = _Decoder(files)
    served: Iterable[_Decoded | str] = map(decoder.__getitem__, batches)
    if workers:
        # A generator of its own: the loader would otherwise draw from the global one, and training would differ by how it is fed.
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
