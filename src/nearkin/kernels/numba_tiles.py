"""The CPU engine: BLAS tiles, compiled loops, and a fixed share of the tiles for every thread.

BLAS writes the dot products of one tile into a buffer that stays in cache; a numba loop turns them into sums (first pass) or into
gradient weights (second pass); BLAS again turns weights into gradients. Each thread owns a fixed share of the tiles and its own
accumulators, which are added in order, so that a result never depends on timing.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nearkin.kernels import single_pairs
from nearkin.kernels.contract import Form, Values, Work, sizes
from nearkin.kernels.layout import SinglePairs, Tile, as_two_sets, asymmetric
from nearkin.kernels.numba_blocks import Block, Job, cut, prepare
from nearkin.kernels.numba_loops import MASKED, PARTS, SPREAD, Array, merge_columns, summarize, summarize_each, weigh, weigh_each
from nearkin.kernels.numba_single_pairs import add_pair_gradients, pair_affinities
from nearkin.kernels.torch_tiles import TorchTiles
from nearkin.kernels.values import values_of

T = TypeVar("T")
_one_at_a_time = threading.RLock()  # torch's number of threads is a setting of the whole process


@contextmanager
def single_threaded_blas() -> Iterator[int]:
    """Run torch products on one thread each, for one caller at a time; yield the previous number of threads."""
    with _one_at_a_time:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield threads
        finally:
            torch.set_num_threads(threads)


@lru_cache(1)
def _pool(threads: int, _process: int) -> ThreadPoolExecutor:
    """Threads that are kept, since BLAS allocates its buffers again in a new thread; one pool per process, as a fork copies no threads.

    OpenMP sets the number of threads per thread: without the initializer each would start its own team.
    """
    return ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))


class _Buffer:
    """Memory for one tile, and a view for every shape: creating views between tiles would be slow."""

    def __init__(self, job: Job) -> None:
        self.room = job.rows[0].factors.new_empty(job.block**2)
        self.views: dict[tuple[int, int], tuple[Tensor, Array]] = {}

    def dots(self, rows: Block, columns: Block, tile: Tile) -> tuple[Tensor, Array]:
        """(rows, columns) dot products of one tile, with MASKED at single pairs; as a tensor and as an array."""
        shape = tile.bottom - tile.top, tile.right - tile.left
        if shape not in self.views:  # contiguous at the edges too: one compiled signature
            view = self.room[: shape[0] * shape[1]].view(shape)
            self.views[shape] = view, view.numpy()
        tensor, array = self.views[shape]
        torch.mm(rows.factors, columns.turned, out=tensor)
        if tile.masked_rows.numel():
            array[tile.masked_rows.numpy(), tile.masked_columns.numpy()] = MASKED
        return tensor, array


def _tile_sums(job: Job, share: list[Tile]) -> Array:
    """Return (n, 2, 3) running sums over a share of the tiles."""
    sums, shifts, buffer = np.zeros((len(job.work.queries), 2, 3)), np.zeros(2), _Buffer(job)
    parts = cut(sums, job.block)
    failed = seen = 0
    for tile in share:
        row_block, column_block = job.rows[tile.row], job.columns[tile.column]
        _, dots = buffer.dots(row_block, column_block, tile)
        arguments = (
            dots, job.scale, row_block.minus, column_block.minus, row_block.spans, PARTS, tile.left,
            row_block.targets, column_block.turned_targets,
        )  # fmt: skip
        shared = not job.far and 4 * failed <= seen  # stop trying the shared shift where it fails too often
        bad, down = np.full((len(dots), 2), not shared), np.zeros((2, 2, dots.shape[1]), np.float32)
        if not shared or summarize(*arguments, parts[tile.row], bad, shifts, down):
            failed += summarize_each(*arguments, parts[tile.row], bad)
        seen += len(dots)
        if not tile.mirrored:
            continue
        across = parts[tile.column]
        if not (shared and merge_columns(down, shifts, column_block.spans, tile.top, len(dots), across)):
            turned = (np.ascontiguousarray(dots.T), job.scale, column_block.minus, row_block.minus, column_block.spans, PARTS, tile.top)
            summarize_each(*turned, column_block.targets, row_block.turned_targets, across, np.ones((len(across), 2), np.bool_))
    return sums


class _GradientSums(NamedTuple):
    """Sums of the second pass: H Z and the row sums of H, by rows and by columns."""

    rows: Tensor  # (n, d)
    columns: list[Tensor]  # (d, c) for each block of columns: transposed, so that BLAS reads the tile without copying
    row_sums: Array  # (n,)
    column_sums: Array  # (m,)


class _Slopes(NamedTuple):
    """What the second pass reads about a block."""

    lse: Array  # (2, r) log-sums over positives and negatives, -MASKED without a pull
    pull: Array  # (r,)
    mean: Array  # (r,) mean costs
    lowest: Array  # (2,) of the log-sums with a pull
    highest: Array  # (2,)


def _slopes(work: Work, first: Tensor, second: Tensor, pull: Tensor, block: int) -> list[_Slopes]:
    sums = torch.stack([first, first if work.targets is not None else second])
    weak, means, found = pull.float(), second.float(), []
    for start in range(0, len(pull), block):
        here, still = slice(start, start + block), pull[start : start + block] == 0
        part = torch.where(still, -MASKED, sums[:, here])
        highest = torch.where(still, MASKED, part).amax(1)
        found.append(_Slopes(part.numpy(), weak[here].numpy(), means[here].numpy(), part.amin(1).numpy(), highest.numpy()))
    return found


def _shared_shifts(mine: _Slopes, theirs: _Slopes) -> Array | None:
    """(2,) the middle of the log-sums of a tile over positives and negatives; None where their range is too wide to share it."""
    lowest, highest = np.minimum(mine.lowest, theirs.lowest), np.maximum(mine.highest, theirs.highest)
    if (highest - lowest > SPREAD).any():
        return None
    shifts: Array = (lowest + highest) / 2  # without a pull, the middle of MASKED and -MASKED is 0
    return shifts


def _gradient_sums(job: Job, rows: list[_Slopes], columns: list[_Slopes], share: list[Tile]) -> _GradientSums:
    n, m, d = sizes(job.work)
    both_sides = job.work.references is not None and job.work.reference_gradient
    zeros = job.work.queries.new_zeros  # the type and device of the caller, whatever the defaults of torch are
    push = _GradientSums(zeros(n, d), [zeros(d, len(block.minus)) for block in job.columns], np.zeros(n), np.zeros(m))
    parts, row_sums, column_sums = cut(push.rows, job.block), cut(push.row_sums, job.block), cut(push.column_sums, job.block)
    buffer, unused = _Buffer(job), np.zeros(job.block)
    for tile in share:
        row_block, column_block, mine, theirs = job.rows[tile.row], job.columns[tile.column], rows[tile.row], columns[tile.column]
        both = tile.mirrored or both_sides
        weights, array = buffer.dots(row_block, column_block, tile)
        arguments = (
            array, job.scale, row_block.minus, column_block.minus, row_block.spans, PARTS, tile.left,
            row_block.targets, column_block.turned_targets,
        )  # fmt: skip
        slopes = (mine.lse, theirs.lse, mine.pull, theirs.pull, mine.mean, theirs.mean)
        sums = row_sums[tile.row], column_sums[tile.column] if both else unused[: len(theirs.pull)]
        shifts = None if job.far else _shared_shifts(mine, theirs)
        if shifts is None:
            weigh_each(*arguments, *slopes, *sums)
        else:
            weigh(*arguments, *slopes, shifts, *sums)
        weights = weights.float()
        parts[tile.row].addmm_(weights, column_block.points)
        if both:
            push.columns[tile.column].addmm_(row_block.turned_points, weights)
    return push


def _joined_threads(parts: list[_GradientSums], work: Work) -> _GradientSums:
    """Add the sums of all threads into those of the first; with own references, add the columns to the rows."""
    total = parts[0]
    for part in parts[1:]:
        total.rows.add_(part.rows)
        np.add(total.row_sums, part.row_sums, out=total.row_sums)
        np.add(total.column_sums, part.column_sums, out=total.column_sums)
        for mine, theirs in zip(total.columns, part.columns, strict=True):
            mine.add_(theirs)
    if work.references is None:
        for here, block in zip(cut(total.rows, total.columns[0].shape[1]), total.columns, strict=True):
            here.add_(block.T)
        np.add(total.row_sums, total.column_sums, out=total.row_sums)
    return total


def _gradient(squared: bool, push: Tensor, sums: Array, points: Tensor, size: float) -> Tensor:
    """2 (H Z - rowsum(H) Z) for squared distances, H Z for inner products; in place."""
    if squared:
        push.sub_(points * torch.from_numpy(sums).float()[:, None]).mul_(2)
    return push.mul_(size)


@dataclass(frozen=True)
class NumbaTiles:
    """Tiles of at most block x block on `threads` threads (by default as many as torch uses).

    float64 points, and points too far from the center for float64 tiles, go to torch tiles.
    """

    block: int = 704  # twice the 352 rows that OpenBLAS packs at a time on ARM; between 500 and 1,000 it makes little difference
    threads: int | None = None

    def recordable(self, work: Work) -> bool:
        """See `Engine.recordable`."""
        return False

    def reads_points(self, work: Work) -> bool:
        """See `Engine.reads_points`."""
        return False

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        if work.queries.dtype != torch.float32:
            return TorchTiles().summaries(work)
        if asymmetric(work):
            return self.summaries(as_two_sets(work))
        job = prepare(work, self._side(work))
        if not job.near:
            return TorchTiles().summaries(work)
        parts = self._on_threads(job, partial(_tile_sums, job))
        first, second = _log_sums(parts[0], work)
        for part in parts[1:]:
            other = _log_sums(part, work)
            if work.targets is None:
                first, second = torch.logaddexp2(first, other[0]), torch.logaddexp2(second, other[1])
            else:
                first, second = single_pairs.join_summaries(first, second, *other)
        pairs = single_pairs.candidates(job.singles)
        return single_pairs.add_single_pairs(work, pairs, _pair_affinities(job, pairs), first, second)

    def values(self, work: Work, form: Form, first: Tensor, second: Tensor, slope: float) -> Values:
        """See `Engine.values`."""
        return values_of(work, form, first, second, slope)

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        if work.queries.dtype != torch.float32:
            return TorchTiles().gradients(work, first, second, pull)
        if asymmetric(work):
            to_queries, to_references = self.gradients(as_two_sets(work), first, second, pull)
            return to_queries if to_references is None else to_queries.add_(to_references), None
        job = prepare(work, self._side(work))
        if not job.near:
            return TorchTiles().gradients(work, first, second, pull)
        first, second = first.double(), second.double()
        size = float(pull.abs().max()) or 1.0  # the pulls of a mean over many well-placed queries would underflow
        pull = pull.double() / size
        rows = columns = _slopes(work, first, second, pull, job.block)
        if work.references is not None:  # separate references have no pull
            zeros = pull.new_zeros(len(work.references))
            columns = _slopes(work, zeros, zeros, zeros, job.block)
        total = _joined_threads(self._on_threads(job, partial(_gradient_sums, job, rows, columns)), work)
        to_queries = _gradient(work.squared, total.rows, total.row_sums, work.queries, size)
        to_references = None
        if work.references is not None and work.reference_gradient:
            push = torch.cat(total.columns, 1).T.contiguous()
            to_references = _gradient(work.squared, push, total.column_sums, work.references, size)
        _add_pair_gradients(job, (first, second, pull * size), to_queries, to_references)
        return to_queries, to_references

    def _side(self, work: Work) -> int:
        """Smaller tiles for few or wide points: more of them are mirrored, and the threads share them evenly (`bench/grid.py`)."""
        n, m, d = sizes(work)
        return min(self.block, 352) if d >= 256 or max(n, m) <= 2048 else self.block

    def _on_threads(self, job: Job, task: Callable[[list[Tile]], T]) -> list[T]:
        """Run the task on every share of the tiles; return the results in the order of the threads."""
        with single_threaded_blas() as there:
            threads = min(self.threads or there, len(job.tiles))
            if threads == 1:
                return [task(job.tiles)]
            return list(_pool(threads, os.getpid()).map(task, [job.tiles[k::threads] for k in range(threads)]))


def _log_sums(sums: Array, work: Work) -> tuple[Tensor, Tensor]:
    shift, total, costly = torch.from_numpy(sums).unbind(2)  # (n, 2) each, positives and negatives
    logs = torch.where(total > 0, shift + torch.log2(total), -torch.inf)
    if work.targets is None:
        return logs[:, 0], logs[:, 1]
    return logs[:, 1], torch.where(total > 0, costly / total, 0.0)[:, 1]


def _points(work: Work) -> tuple[Array, Array]:
    references = work.queries if work.references is None else work.references
    return work.queries.contiguous().numpy(), references.contiguous().numpy()


def _pair_affinities(job: Job, pairs: SinglePairs) -> Tensor:
    out = job.work.queries.new_empty(len(pairs.rows), dtype=torch.float64)
    if len(out):
        pair_affinities(*_points(job.work), job.work.squared, pairs.rows.numpy(), pairs.columns.numpy(), out.numpy())
    return out


def _add_pair_gradients(job: Job, summary: tuple[Tensor, Tensor, Tensor], to_queries: Tensor, to_references: Tensor | None) -> None:
    """Add the gradients of the single pairs to those of the tiles."""
    pairs = single_pairs.candidates(job.singles)
    if len(pairs.rows) == 0:
        return
    weight = single_pairs.weights(job.work, pairs, _pair_affinities(job, pairs), *summary)
    target = to_queries if job.work.references is None else to_references
    out = to_queries.numpy(), to_queries[:0].numpy() if target is None else target.numpy()
    add_pair_gradients(*_points(job.work), job.work.squared, pairs.rows.numpy(), pairs.columns.numpy(), weight.numpy(), *out)
