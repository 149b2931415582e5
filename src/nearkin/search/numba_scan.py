"""The search on a CPU, compiled: a tile of products is read once, and only products above the threshold of a row are read again.

BLAS fills a tile that stays in cache; every product is compared with the threshold of its row, and the few that pass are noted. When a row
has noted about twice as many as it needs, the best are selected, and the last of them is the new threshold: for 200 neighbors this takes
half of the time of a heap. Threads own whole rows, so nothing is merged. Where the queries are the references, a tile serves its rows and
its columns, so that half of the tiles are enough, and a lock guards what a block has noted.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, cast

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearkin.search.exclusion import Exclusion
from nearkin.search.measure import PAIRED, Factors, Measure
from nearkin.search.threads import run_in_threads

Array = NDArray[Any]
ROWS, COLUMNS = 512, 1024
SIDE = 1024  # of a tile that serves both sides
ROOM = 8  # at least so many products are noted between two selections
_ORDERED = {"nnan", "nsz", "contract"}  # infinities are used


def compiled(fastmath: set[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile without the GIL; cached on disk where a cache folder is writable."""

    def compile_it(function: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {"fastmath": fastmath, "nogil": True, "error_model": "numpy"}
        try:
            return cast(Callable[..., Any], numba.njit(cache=True, **options)(function))
        except RuntimeError:  # no writable cache folder: a read-only install
            return cast(Callable[..., Any], numba.njit(**options)(function))

    return compile_it


@compiled(_ORDERED)
def keep(values: Array, columns: Array, size: int, kept: int, scratch: Array) -> float:
    """Bring the `kept` largest of the first `size` values to the front with their columns, and return the smallest of them.

    Hoare's selection with two ends in `scratch` (2, size or more): every number is written to both, and only one of them moves on, which is
    faster than a condition that nobody can predict.
    """
    larger, smaller = scratch[0], scratch[1]
    for i in range(size):
        smaller[i] = values[i]
    n, rank = size, kept  # the one that is looked for is the rank-th largest of smaller[:n]
    while True:
        a, b, c = smaller[0], smaller[n // 2], smaller[n - 1]
        middle: float = max(min(a, b), min(max(a, b), c))
        above, below = 0, 0
        for i in range(n):
            value = smaller[i]
            larger[above], smaller[below] = value, value
            above += value > middle
            below += value < middle
        if rank <= above:
            n = above
            for i in range(n):
                smaller[i] = larger[i]
        elif rank <= n - below:
            break
        else:
            rank -= n - below
            n = below
    end, equals = 0, rank - above  # so many of those that equal the smallest are kept
    for i in range(size):
        value, column = values[i], columns[i]
        values[end], columns[end] = value, column
        same = value == middle
        end += (value > middle) | (same & (equals > 0))
        equals -= same
    return middle


@compiled(_ORDERED)
def marked(passes: Array, at: Array) -> int:
    """Write the columns that are marked to `at`, and return how many; most rows have none, and most eights of columns."""
    eights, some, count = passes.view(np.uint64), np.uint64(0), 0
    for eight in range(eights.size):
        some |= eights[eight]
    if some == 0:
        return 0
    for eight in range(eights.size):
        if eights[eight] != 0:
            for j in range(8 * eight, 8 * eight + 8):
                at[count] = j
                count += passes[j]
    return count


@compiled(_ORDERED)
def scan(
    tile: Array,
    minus: Array,
    left: int,
    best: Array,
    columns: Array,
    held: Array,
    least: Array,
    count: int,
    query_ids: Array,
    reference_ids: Array,
    query_groups: Array,
    reference_groups: Array,
) -> None:
    """Note products above the threshold `least` (r,) of their rows in `best` and `columns` (r, room), of which `held` (r,) are used.

    `query_ids` (r, 1) or (r, 0) and `reference_ids` (m, 1) or (m, 0): equal ids are excluded; width 0 excludes nothing. Groups likewise.
    """
    width = tile.shape[1]
    passes, at = np.zeros((width + 7) // 8 * 8, np.uint8), np.empty(width + 8, np.int64)
    scratch = np.empty((2, best.shape[1]), best.dtype)
    for i in range(tile.shape[0]):
        row, some, where, size, bound = tile[i], best[i], columns[i], held[i], least[i]
        for j in range(width):
            passes[j] = row[j] + minus[j] > bound
        for place in range(marked(passes, at)):
            j = at[place]
            value = row[j] + minus[j]
            if value <= bound:  # the threshold may have risen since
                continue
            if query_ids.shape[1] and query_ids[i, 0] == reference_ids[left + j, 0]:
                continue
            if query_groups.shape[1] and query_groups[i, 0] == reference_groups[left + j, 0]:
                continue
            some[size], where[size] = value, left + j
            size += 1
            if size == some.size:
                size, bound = count, keep(some, where, size, count, scratch)
        held[i], least[i] = size, bound


@compiled(_ORDERED)
def scan_down(
    tile: Array,
    minus: Array,
    top: int,
    best: Array,
    columns: Array,
    held: Array,
    least: Array,
    count: int,
    query_ids: Array,
    reference_ids: Array,
    query_groups: Array,
    reference_groups: Array,
) -> None:
    """The same for the columns of a tile (r, c) as queries, and its rows as references, the first of which is `top`.

    The tile is read row by row, as it lies in memory.
    """
    width = tile.shape[1]
    passes, at = np.zeros((width + 7) // 8 * 8, np.uint8), np.empty(width + 8, np.int64)
    scratch = np.empty((2, best.shape[1]), best.dtype)
    for i in range(tile.shape[0]):
        row, less = tile[i], minus[i]
        for j in range(width):
            passes[j] = row[j] + less > least[j]
        for place in range(marked(passes, at)):
            j = at[place]
            if query_ids.shape[1] and query_ids[j, 0] == reference_ids[top + i, 0]:
                continue
            if query_groups.shape[1] and query_groups[j, 0] == reference_groups[top + i, 0]:
                continue
            size = held[j]
            best[j, size], columns[j, size] = row[j] + less, top + i
            held[j] = size + 1
            if size + 1 == best.shape[1]:
                held[j], least[j] = count, keep(best[j], columns[j], size + 1, count, scratch)


@compiled(_ORDERED)
def finish(best: Array, columns: Array, held: Array, least: Array, found: Array) -> None:
    """Store the columns of the largest in `found` (r, K), -1 where there are fewer, and the smallest of K, or -inf, in `least`."""
    count, scratch = found.shape[1], np.empty((2, best.shape[1]), best.dtype)
    for i in range(found.shape[0]):
        if held[i] >= count:
            least[i] = keep(best[i], columns[i], held[i], count, scratch)
        for c in range(count):
            found[i, c] = columns[i, c] if c < held[i] else -1


@compiled({"nnan", "nsz", "contract", "reassoc"})
def score(
    queries: Array, references: Array, q_unit: Array, r_unit: Array, squared: bool, step: float, columns: Array, scores: Array
) -> None:
    """Exact scores (r, K) of the columns, each summed in float64 and rounded to a multiple of `step` unless 0; -inf for column -1."""
    for i in range(columns.shape[0]):
        query = queries[i]
        for c in range(columns.shape[1]):
            column = columns[i, c]
            if column < 0:
                scores[i, c] = -np.inf
                continue
            reference, mine, theirs = references[column], q_unit[i], r_unit[column]
            total = 0.0
            if squared:
                for k in range(query.size):
                    gap = np.float64(query[k]) * mine - np.float64(reference[k]) * theirs
                    total -= gap * gap
            else:
                for k in range(query.size):
                    total += (np.float64(query[k]) * mine) * (np.float64(reference[k]) * theirs)
            scores[i, c] = np.rint(total / step) * step + 0.0 if step > 0.0 else total  # not -0


def order(scores: Array, columns: Array) -> None:
    """Sort each row by score, largest first, then by column; -1 comes last.

    In numpy, which is as fast for up to about 60 entries: numba takes 7 s to compile a sort, twice as long as everything else here.
    """
    by = np.lexsort((columns, -scores))
    scores[:], columns[:] = np.take_along_axis(scores, by, 1), np.take_along_axis(columns, by, 1)


def all_scores(how: Measure, queries: Tensor, references: Tensor, to_unit: tuple[Tensor, Tensor]) -> Tensor:
    """(n, m) float64: the exact score of every pair."""
    n, m = len(queries), len(references)
    scores, columns = np.empty((n, m)), np.broadcast_to(np.arange(m), (n, m))
    q_unit, r_unit = (x.numpy() for x in to_unit)
    score(queries.numpy(), references.numpy(), q_unit, r_unit, how.squared, how.step, np.ascontiguousarray(columns), scores)
    return torch.from_numpy(scores)


def scores_of(how: Measure, queries: Tensor, references: Tensor, to_unit: tuple[Tensor, Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """(p,) float64: the exact scores of pairs, by the loop that scores candidates."""
    scores, r = np.empty((len(rows), 1)), references.contiguous().numpy()
    step = max(PAIRED // queries.shape[1], 1)
    for start in range(0, len(rows), step):
        at, some = slice(start, start + step), rows[start : start + step]
        mine, q_unit = queries[some].contiguous().numpy(), to_unit[0][some].numpy()
        score(mine, r, q_unit, to_unit[1].numpy(), how.squared, how.step, columns[at, None].contiguous().numpy(), scores[at])
    return torch.from_numpy(scores[:, 0])


def _as_columns(mine: Tensor | None, theirs: Tensor | None, n: int, m: int) -> tuple[Array, Array]:
    """Both sides as columns, (n, 1) and (m, 1); (n, 0) and (m, 0) when nothing is excluded."""
    if mine is None or theirs is None:
        return np.empty((n, 0), np.int64), np.empty((m, 0), np.int64)
    return mine.long()[:, None].numpy(), theirs.long()[:, None].numpy()


def _noted(n: int, count: int) -> tuple[Array, Array, Array]:
    """Room for the products of n rows and their columns, and how many are noted in each."""
    room = (n, count + max(count, ROOM))
    return np.empty(room, np.float32), np.empty(room, np.int32), np.zeros(n, np.int64)


def candidates(
    how: Measure, queries: Tensor, references: Tensor, to_unit: tuple[Tensor, Tensor], made: Factors, count: int, excluded: Exclusion
) -> tuple[Tensor, Tensor, Tensor]:
    """Return exact scores and columns (n, count), in order, and the smallest product among them (n,): no other product is larger."""
    n, m = len(queries), len(references)
    size = min(count, m)
    scores, columns, least = np.empty((n, size)), np.empty((n, size), np.int64), np.full(n, -np.inf, np.float32)
    turned = [part.T.contiguous() for part in torch.split(made.references, COLUMNS)]
    minus, q, r = made.minus.numpy(), queries.contiguous().numpy(), references.contiguous().numpy()
    q_unit, r_unit = (x.numpy() for x in to_unit)
    query_ids, reference_ids = _as_columns(excluded.ids, excluded.reference_ids, n, m)
    query_groups, reference_groups = _as_columns(excluded.groups, excluded.reference_groups, n, m)

    def work(rows: slice) -> None:
        mine, found = made.queries[rows], columns[rows]
        noted = (*_noted(len(mine), size), least[rows])
        buffer = torch.empty(len(mine) * COLUMNS)
        for number, part in enumerate(turned):
            tile = buffer[: len(mine) * part.shape[1]].view(len(mine), -1)
            torch.mm(mine, part, out=tile)
            left = number * COLUMNS
            scan(
                tile.numpy(),
                minus[left : left + part.shape[1]],
                left,
                *noted,
                size,
                query_ids[rows],
                reference_ids,
                query_groups[rows],
                reference_groups,
            )
        finish(*noted, found)
        score(q[rows], r, q_unit[rows], r_unit, how.squared, how.step, found, scores[rows])
        order(scores[rows], found)

    run_in_threads(work, n, ROWS)
    return torch.from_numpy(scores), torch.from_numpy(columns), torch.from_numpy(least)


def candidates_among(
    how: Measure, points: Tensor, to_unit: Tensor, made: Factors, count: int, excluded: Exclusion
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `candidates` returns for points that are queries and references, from half of the products."""
    n = len(points)
    size = min(count, n)
    scores, columns, noted = np.empty((n, size)), np.empty((n, size), np.int64), (*_noted(n, size), np.full(n, -np.inf, np.float32))
    blocks = [slice(start, min(start + SIDE, n)) for start in range(0, n, SIDE)]
    locks = [Lock() for _ in blocks]
    # along the diagonals: thresholds rise early, and two threads seldom need the same block
    pairs = [(row, row + offset) for offset in range(len(blocks)) for row in range(len(blocks) - offset)]
    minus, x, unit = made.minus.numpy(), points.contiguous().numpy(), to_unit.numpy()
    ids, reference_ids = _as_columns(excluded.ids, excluded.reference_ids, n, n)
    groups, reference_groups = _as_columns(excluded.groups, excluded.reference_groups, n, n)

    def work(some: slice) -> None:
        row, column = pairs[some.start]
        tile = torch.mm(made.queries[blocks[row]], made.references[blocks[column]].T).numpy()
        for mine, theirs, fill in ((row, column, scan), (column, row, scan_down))[: 1 + (row != column)]:
            at, others = blocks[mine], blocks[theirs]
            less = minus[others]
            with locks[mine]:
                some_noted = (one[at] for one in noted)
                fill(tile, less, others.start, *some_noted, size, ids[at], reference_ids, groups[at], reference_groups)

    def end(rows: slice) -> None:
        finish(*(one[rows] for one in noted), columns[rows])
        score(x[rows], x, unit[rows], unit, how.squared, how.step, columns[rows], scores[rows])
        order(scores[rows], columns[rows])

    run_in_threads(work, len(pairs), 1)
    run_in_threads(end, n, ROWS)
    return torch.from_numpy(scores), torch.from_numpy(columns), torch.from_numpy(noted[3])
