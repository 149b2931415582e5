"""The CPU engine: BLAS tiles, compiled loops, a share of the tiles for every thread.

Dot products of one tile at a time come from torch's BLAS into a buffer that stays in cache; a numba loop turns them
into sums (first pass) or into gradient weights (second pass); BLAS again turns weights into gradients. Each thread
owns a fixed share of the tiles and its own accumulators, added in order, so that a result never depends on timing.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nearkin.kernels import apart
from nearkin.kernels.layout import Apart, Tile, as_two_sets, lopsided, nowhere
from nearkin.kernels.numba_job import Block, Job, prepared
from nearkin.kernels.numba_loops import HOLE, PARTS, SPREAD, Array, merge_columns, summarise, summarise_each, weigh, weigh_each
from nearkin.kernels.numba_pairs import pair_affinities, push_pairs
from nearkin.kernels.tiled import TorchTiles
from nearkin.kernels.work import Work, sizes

T = TypeVar("T")
_one_at_a_time = threading.RLock()  # torch's number of threads is a setting of the whole process


@contextmanager
def _single_threaded_blas() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _dots(rows: Block, columns: Block, tile: Tile, buffer: Tensor) -> Tensor:
    """(rows, columns) dot products of one tile, with HOLE where a pair is set apart."""
    height, width = tile.bottom - tile.top, tile.right - tile.left
    out = buffer[: height * width].view(height, width)  # contiguous at the edges too: one compiled signature
    torch.mm(rows.factors, columns.turned, out=out)
    if tile.hole_rows.numel():
        out[tile.hole_rows, tile.hole_columns] = HOLE
    return out


def _summed(job: Job, share: list[Tile]) -> Array:
    """(n, 2, 3) running sums over a share of the tiles."""
    sums, shifts = np.zeros((len(job.work.queries), 2, 3)), np.zeros(2)
    buffer = torch.empty(job.block**2, dtype=job.rows[0].factors.dtype)
    failed = seen = 0
    for tile in share:
        above, beside = job.facing(tile)
        dots, own, across = _dots(above, beside, tile, buffer).numpy(), sums[tile.top : tile.bottom], sums[tile.left : tile.right]
        facing = (dots, job.scale, above.minus, beside.minus, above.spans, PARTS, tile.left, above.targets, beside.turned_targets)
        shared = not job.far and 4 * failed <= seen  # where the shared shift fails too often, do not try it
        bad, down = np.full((len(dots), 2), not shared), np.zeros((2, 2, dots.shape[1]), np.float32)
        if not shared or summarise(*facing, own, bad, shifts, down):
            failed += summarise_each(*facing, own, bad)
        seen += len(dots)
        if tile.mirrored and not (shared and merge_columns(down, shifts, beside.spans, tile.top, len(dots), across)):
            turned = (np.ascontiguousarray(dots.T), job.scale, beside.minus, above.minus, beside.spans, PARTS, tile.top)
            summarise_each(*turned, beside.targets, above.turned_targets, across, np.ones((dots.shape[1], 2), np.bool_))
    return sums


class _Push(NamedTuple):
    """What the second pass gathers: H Z and the row sums of H, for either side."""

    rows: Tensor  # (n, d)
    columns: Tensor | None  # (m, d); None when the two sides are one, or the references take no gradient
    row_sums: Array
    column_sums: Array


class _Slopes(NamedTuple):
    """What the second pass reads of a block."""

    lse: Array  # (2, r) log-sums over right and wrong, -HOLE without a pull
    pull: Array  # (r,)
    mean: Array  # (r,) mean costs
    lowest: Array  # (2,) of the log-sums with a pull
    highest: Array  # (2,)


def _slopes(work: Work, first: Tensor, second: Tensor, pull: Tensor, block: int) -> list[_Slopes]:
    sums = torch.stack([first, first if work.targets is not None else second])
    weak, means, found = pull.float(), second.float(), []
    for start in range(0, len(pull), block):
        here, still = slice(start, start + block), pull[start : start + block] == 0
        part = torch.where(still, -HOLE, sums[:, here])
        highest = torch.where(still, HOLE, part).amax(1)
        found.append(_Slopes(part.numpy(), weak[here].numpy(), means[here].numpy(), part.amin(1).numpy(), highest.numpy()))
    return found


def _shared_shifts(mine: _Slopes, theirs: _Slopes) -> Array | None:
    """(2,) the middle of a tile's log-sums over right and wrong; None where they are too far apart to share it."""
    lowest, highest = np.minimum(mine.lowest, theirs.lowest), np.maximum(mine.highest, theirs.highest)
    if (highest - lowest > SPREAD).any():
        return None
    shifts: Array = (lowest + highest) / 2  # without a pull, the middle of HOLE and -HOLE is 0
    return shifts


def _pushed(job: Job, rows: list[_Slopes], columns: list[_Slopes], share: list[Tile]) -> _Push:
    n, m, d = sizes(job.work)
    own = job.work.references is None
    both_sides = job.work.reference_gradient and not own
    push = _Push(torch.zeros(n, d), torch.zeros(m, d) if both_sides else None, np.zeros(n), np.zeros(m))
    unused = np.zeros(m)
    there, there_sums = (push.rows, push.row_sums) if own else (push.columns, push.column_sums)
    buffer = torch.empty(job.block**2, dtype=job.rows[0].factors.dtype)
    for tile in share:
        here, across = slice(tile.top, tile.bottom), slice(tile.left, tile.right)
        above, beside = job.facing(tile)
        mine, theirs = rows[tile.top // job.block], columns[tile.left // job.block]
        both = tile.mirrored or both_sides
        weights = _dots(above, beside, tile, buffer)
        facing = (
            weights.numpy(),
            job.scale,
            above.minus,
            beside.minus,
            above.spans,
            PARTS,
            tile.left,
            above.targets,
            beside.turned_targets,
        )
        slopes = (mine.lse, theirs.lse, mine.pull, theirs.pull, mine.mean, theirs.mean)
        sums = push.row_sums[here], there_sums[across] if both else unused[across]
        shifts = None if job.far else _shared_shifts(mine, theirs)
        if shifts is None:
            weigh_each(*facing, *slopes, *sums)
        else:
            weigh(*facing, *slopes, shifts, *sums)
        weights = weights.float()
        push.rows[here].addmm_(weights, beside.points)
        if both and there is not None:
            there[across].addmm_(weights.T, above.points)
    return push


def _finished(squared: bool, push: Tensor, sums: Array, points: Tensor, size: float) -> Tensor:
    """2 (H Z - rowsum(H) Z) for squared distances, H Z for inner products; in place."""
    if squared:
        push.sub_(points * torch.from_numpy(sums).float()[:, None]).mul_(2)
    return push.mul_(size)


@dataclass(frozen=True)
class NumbaTiles:
    """Tiles of block x block on `threads` threads (torch's own number unless given). float64 goes to torch tiles."""

    block: int = 512
    threads: int | None = None

    def recordable(self, work: Work) -> bool:
        """See `Engine.recordable`."""
        return False

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        if work.queries.dtype != torch.float32:
            return TorchTiles().summaries(work)
        if lopsided(work):
            return self.summaries(as_two_sets(work))
        job = prepared(work, self.block)
        if not job.finite:
            return nowhere(work)
        parts = self._shared_out(job, partial(_summed, job))
        first, second = _log_sums(parts[0], work)
        for part in parts[1:]:
            other = _log_sums(part, work)
            if work.targets is None:
                first, second = torch.logaddexp2(first, other[0]), torch.logaddexp2(second, other[1])
            else:
                first, second = apart.joined(first, second, *other)
        pairs = apart.candidates(job.special)
        return apart.with_apart(work, pairs, _pair_affinities(job, pairs), first, second)

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        if work.queries.dtype != torch.float32:
            return TorchTiles().gradients(work, first, second, pull)
        if lopsided(work):
            to_queries, to_references = self.gradients(as_two_sets(work), first, second, pull)
            return to_queries if to_references is None else to_queries.add_(to_references), None
        job = prepared(work, self.block)
        first, second = first.double(), second.double()
        size = float(pull.abs().max()) or 1.0  # pulls of a mean over many, well placed queries would underflow
        pull = pull.double() / size
        rows = columns = _slopes(work, first, second, pull, job.block)
        if work.references is not None:  # references of their own choose nobody
            nobody = pull.new_zeros(len(work.references))
            columns = _slopes(work, nobody, nobody, nobody, job.block)
        parts = self._shared_out(job, partial(_pushed, job, rows, columns))
        total = parts[0]
        for part in parts[1:]:
            _add(total, part)
        to_queries = _finished(work.squared, total.rows, total.row_sums, work.queries, size)
        to_references = None
        if total.columns is not None and work.references is not None:
            to_references = _finished(work.squared, total.columns, total.column_sums, work.references, size)
        _push_pairs(job, (first, second, pull * size), to_queries, to_references)
        return to_queries, to_references

    def _shared_out(self, job: Job, task: Callable[[list[Tile]], T]) -> list[T]:
        """Every thread's result, in the order of the threads."""
        with _one_at_a_time:
            threads = min(self.threads or torch.get_num_threads(), len(job.tiles))
            with _single_threaded_blas():
                if threads == 1:
                    return [task(job.tiles)]
                # OpenMP keeps the number of threads by thread: a new one has to be told, or its BLAS brings a team of its own
                with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                    return list(pool.map(task, [job.tiles[k::threads] for k in range(threads)]))


def _log_sums(sums: Array, work: Work) -> tuple[Tensor, Tensor]:
    shift, total, costly = torch.from_numpy(sums).unbind(2)  # (n, 2) each, right and wrong
    logs = torch.where(total > 0, shift + torch.log2(total), -torch.inf)
    if work.targets is None:
        return logs[:, 0], logs[:, 1]
    return logs[:, 1], torch.where(total > 0, costly / total, 0.0)[:, 1]


def _points(work: Work) -> tuple[Array, Array]:
    references = work.queries if work.references is None else work.references
    return work.queries.contiguous().numpy(), references.contiguous().numpy()


def _pair_affinities(job: Job, pairs: Apart) -> Tensor:
    out = torch.empty(len(pairs.rows), dtype=torch.float64)
    if len(out):
        pair_affinities(*_points(job.work), job.work.squared, pairs.rows.numpy(), pairs.columns.numpy(), out.numpy())
    return out


def _push_pairs(job: Job, summary: tuple[Tensor, Tensor, Tensor], to_queries: Tensor, to_references: Tensor | None) -> None:
    """Add the gradients of the pairs set apart to the tiles'."""
    pairs = apart.candidates(job.special)
    if len(pairs.rows) == 0:
        return
    weight = apart.weights(job.work, pairs, _pair_affinities(job, pairs), *summary)
    target = to_queries if job.work.references is None else to_references
    out = to_queries.numpy(), to_queries[:0].numpy() if target is None else target.numpy()
    push_pairs(*_points(job.work), job.work.squared, pairs.rows.numpy(), pairs.columns.numpy(), weight.numpy(), *out)


def _add(total: _Push, part: _Push) -> None:
    total.rows.add_(part.rows)
    total.row_sums.__iadd__(part.row_sums)
    total.column_sums.__iadd__(part.column_sums)
    if total.columns is not None and part.columns is not None:
        total.columns.add_(part.columns)
