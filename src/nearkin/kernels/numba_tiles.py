"""The CPU engine: BLAS tiles, compiled loops, a share of the tiles for every thread.

Dot products of one tile at a time come from torch's BLAS into a buffer that stays in cache; a numba loop turns them
into sums (first pass) or into gradient weights (second pass); BLAS again turns weights into gradients. Each thread
owns a fixed share of the tiles and its own accumulators, added in order, so that a result never depends on timing.
"""

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nearkin.kernels import apart
from nearkin.kernels.layout import FAR, Apart, Tile, as_two_sets, longest, lopsided, nowhere, set_apart, square_lengths, tiles
from nearkin.kernels.numba_loops import HOLE, PARTS, Array, merge_columns, summarise, weigh
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


class _Side(NamedTuple):
    """Queries or references as the loops want them."""

    points: Tensor  # (n, d) float32
    factors: Tensor  # (n, d): the points, in float64 where float32 dots would be too coarse
    turned: Tensor  # (d, n): the factors transposed; oneDNN on ARM loses half a millisecond a call on a transposed view
    minus: Array  # (n,) negated square lengths in the type of the factors; zeros for an inner product


class _Job(NamedTuple):
    work: Work
    special: Apart
    rows: _Side
    columns: _Side
    scale: np.floating[Any]  # of the factors' type
    spans: Array  # (n, 2); 0, 0 where nothing is right but what is set apart
    targets: tuple[Array, Array] | None  # (n, t) and (t, m) float32
    finite: bool


def _prepared(work: Work) -> _Job:
    references = work.queries if work.references is None else work.references
    lengths = [square_lengths(work.queries)]
    lengths.append(lengths[0] if work.references is None else square_lengths(references))
    furthest = longest(*lengths)
    kind = torch.float64 if furthest > FAR else torch.float32
    rows, columns = (_side(points, length, kind, work.squared) for points, length in zip((work.queries, references), lengths, strict=True))
    spans = torch.zeros(len(work.queries), 2, dtype=torch.int64) if work.span is None else work.span
    scale = (np.float64 if kind is torch.float64 else np.float32)(2 if work.squared else 1)
    return _Job(work, set_apart(work), rows, columns, scale, spans.contiguous().numpy(), _centred_targets(work), math.isfinite(furthest))


def _side(points: Tensor, lengths: Tensor, kind: torch.dtype, squared: bool) -> _Side:
    points = points.contiguous()
    minus = -lengths if squared else torch.zeros_like(lengths)
    factors = points.to(kind)
    return _Side(points, factors, factors.T.contiguous(), minus.to(kind).numpy())


def _centred_targets(work: Work) -> tuple[Array, Array] | None:
    """Targets around zero, so that years or timestamps keep their digits in float32."""
    if work.targets is None:
        return None
    queries, references = (targets.double() for targets in work.targets)
    centre = references.mean(0)
    return (queries - centre).float().contiguous().numpy(), (references - centre).float().T.contiguous().numpy()


def _dots(job: _Job, tile: Tile, buffer: Tensor) -> Tensor:
    """(rows, columns) dot products of one tile, with HOLE where a pair is set apart."""
    height, width = tile.bottom - tile.top, tile.right - tile.left
    out = buffer[: height * width].view(height, width)  # contiguous at the edges too: one compiled signature
    torch.mm(job.rows.factors[tile.top : tile.bottom], job.columns.turned[:, tile.left : tile.right], out=out)
    if len(tile.hole_rows):
        out[tile.hole_rows, tile.hole_columns] = HOLE
    return out


def _facing(job: _Job, tile: Tile) -> tuple[Array | None, Array | None]:
    """The targets of a tile's rows (r, t) and columns (t, c)."""
    if job.targets is None:
        return None, None
    return job.targets[0][tile.top : tile.bottom], np.ascontiguousarray(job.targets[1][:, tile.left : tile.right])


def _turned(targets: tuple[Array | None, Array | None]) -> tuple[Array | None, Array | None]:
    rows, columns = targets
    return (None, None) if rows is None or columns is None else (np.ascontiguousarray(columns.T), np.ascontiguousarray(rows.T))


def _summed(job: _Job, share: list[Tile], block: int) -> Array:
    """(n, 2, 3) running sums over a share of the tiles."""
    sums, shifts = np.zeros((len(job.rows.points), 2, 3)), np.zeros(2)
    buffer = torch.empty(block * block, dtype=job.rows.factors.dtype)
    redone = seen = 0
    for tile in share:
        own, across = slice(tile.top, tile.bottom), slice(tile.left, tile.right)
        dots, targets = _dots(job, tile, buffer).numpy(), _facing(job, tile)
        above, beside = job.rows.minus[own], job.columns.minus[across]
        down = np.zeros((2, 2, dots.shape[1]), np.float32)
        shared = 4 * redone <= seen  # where the shared shift fails too often, do not try it
        redone += summarise(dots, job.scale, above, beside, job.spans[own], PARTS, tile.left, *targets, shared, sums[own], shifts, down)
        seen += len(dots)
        if not tile.mirrored:
            continue
        if not shared or not merge_columns(down, shifts, job.spans[across], tile.top, len(dots), sums[across]):
            turned = np.ascontiguousarray(dots.T)
            down = np.zeros((2, 2, len(dots)), np.float32)
            summarise(
                turned, job.scale, beside, above, job.spans[across], PARTS, tile.top, *_turned(targets), False, sums[across], shifts, down
            )
    return sums


class _Push(NamedTuple):
    """What the second pass gathers: H Z and the row sums of H, for either side."""

    rows: Tensor  # (n, d)
    columns: Tensor | None  # (m, d); None when the two sides are one, or the references take no gradient
    row_sums: Array
    column_sums: Array


class _Slopes(NamedTuple):
    """What the second pass reads of one side: log-sums (2, n), pulls (n,) and mean costs (n,)."""

    lse: Array
    pull: Array
    mean: Array


def _slopes(work: Work, first: Tensor, second: Tensor, pull: Tensor) -> _Slopes:
    first, second = first.double(), second.double()
    sums = torch.stack([first, first if work.targets is not None else second])
    sums = torch.where(pull == 0, -HOLE, sums)
    return _Slopes(sums.numpy(), pull.float().numpy(), second.float().numpy())


def _nothing(m: int) -> _Slopes:
    """References of their own choose nobody."""
    return _Slopes(np.full((2, m), -HOLE), np.zeros(m, np.float32), np.zeros(m, np.float32))


def _pushed(job: _Job, rows: _Slopes, columns: _Slopes, share: list[Tile], block: int) -> _Push:
    n, m, d = sizes(job.work)
    own = job.work.references is None
    push = _Push(torch.zeros(n, d), torch.zeros(m, d) if job.work.reference_gradient and not own else None, np.zeros(n), np.zeros(m))
    unused = np.zeros(m)
    there, there_sums = (push.rows, push.row_sums) if own else (push.columns, push.column_sums)
    buffer = torch.empty(block * block, dtype=job.rows.factors.dtype)
    for tile in share:
        here, across = slice(tile.top, tile.bottom), slice(tile.left, tile.right)
        both = tile.mirrored or (not own and job.work.reference_gradient)
        weights = _dots(job, tile, buffer)
        weigh(
            weights.numpy(), job.scale, job.rows.minus[here], job.columns.minus[across], job.spans[here], PARTS, tile.left,
            *_facing(job, tile), np.ascontiguousarray(rows.lse[:, here]), np.ascontiguousarray(columns.lse[:, across]),
            rows.pull[here], columns.pull[across],
            rows.mean[here], columns.mean[across], push.row_sums[here], there_sums[across] if both else unused[across],
        )  # fmt: skip
        weights = weights.float()
        push.rows[here].addmm_(weights, job.columns.points[across])
        if both and there is not None:
            there[across].addmm_(weights.T, job.rows.points[here])
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
        job = _prepared(work)
        if not job.finite:
            return nowhere(work)
        parts = self._shared_out(job, lambda share, block: _summed(job, share, block))
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
        job = _prepared(work)
        size = float(pull.abs().max()) or 1.0  # pulls of a mean over many, well placed queries would underflow
        pull = pull.double() / size
        rows = _slopes(work, first, second, pull)
        columns = rows if work.references is None else _nothing(len(work.references))
        parts = self._shared_out(job, lambda share, block: _pushed(job, rows, columns, share, block))
        total = parts[0]
        for part in parts[1:]:
            _add(total, part)
        to_queries = _finished(work.squared, total.rows, total.row_sums, job.rows.points, size)
        to_references = None
        if total.columns is not None:
            to_references = _finished(work.squared, total.columns, total.column_sums, job.columns.points, size)
        _push_pairs(job, (first.double(), second.double(), pull * size), to_queries, to_references)
        return to_queries, to_references

    def _shared_out(self, job: _Job, task: Callable[[list[Tile], int], T]) -> list[T]:
        """Every thread's result, in the order of the threads."""
        with _one_at_a_time:
            n, m, _ = sizes(job.work)
            block = min(self.block, max(n, m))
            everything = tiles(job.work, job.special, block)
            threads = min(self.threads or torch.get_num_threads(), len(everything))
            with _single_threaded_blas():
                if threads == 1:
                    return [task(everything, block)]
                # OpenMP keeps the number of threads by thread: a new one has to be told, or its BLAS brings a team of its own
                with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                    return list(pool.map(task, [everything[k::threads] for k in range(threads)], [block] * threads))


def _log_sums(sums: Array, work: Work) -> tuple[Tensor, Tensor]:
    shift, total, costly = torch.from_numpy(sums).unbind(2)  # (n, 2) each, right and wrong
    logs = torch.where(total > 0, shift + torch.log2(total), -torch.inf)
    if work.targets is None:
        return logs[:, 0], logs[:, 1]
    return logs[:, 1], torch.where(total > 0, costly / total, 0.0)[:, 1]


def _pair_affinities(job: _Job, pairs: Apart) -> Tensor:
    out = torch.empty(len(pairs.rows), dtype=torch.float64)
    if len(out):
        points = job.rows.points.numpy(), job.columns.points.numpy()
        pair_affinities(*points, job.work.squared, pairs.rows.numpy(), pairs.columns.numpy(), out.numpy())
    return out


def _push_pairs(job: _Job, summary: tuple[Tensor, Tensor, Tensor], to_queries: Tensor, to_references: Tensor | None) -> None:
    """Add the gradients of the pairs set apart to the tiles'."""
    pairs = apart.candidates(job.special)
    if len(pairs.rows) == 0:
        return
    weight = apart.weights(job.work, pairs, _pair_affinities(job, pairs), *summary)
    target = to_queries if job.work.references is None else to_references
    out = to_queries.numpy(), to_queries[:0].numpy() if target is None else target.numpy()
    points = job.rows.points.numpy(), job.columns.points.numpy()
    push_pairs(*points, job.work.squared, pairs.rows.numpy(), pairs.columns.numpy(), weight.numpy(), *out)


def _add(total: _Push, part: _Push) -> None:
    total.rows.add_(part.rows)
    total.row_sums.__iadd__(part.row_sums)
    total.column_sums.__iadd__(part.column_sums)
    if total.columns is not None and part.columns is not None:
        total.columns.add_(part.columns)
