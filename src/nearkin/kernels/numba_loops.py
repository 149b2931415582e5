"""The loops over one tile, compiled by numba: exponentials, online sums, gradient weights.

A tile holds dot products; the affinity is s_ij = scale * tile_ij + minus_rows_i + minus_columns_j, where the two
"minus" terms are the negated square lengths (zeros for an inner product). A single pair holds MASKED. The positives of row i are
columns spans[i, 0] .. spans[i, 1] - 1 (counted from the first column of all; the tile starts at `left`); all other columns
are negatives, in both directions. Targets are None where pairs are positive or negative: numba then compiles no costs.

On a CPU the exponential costs more than the product. So each pass takes one exponential per pair, with a shift shared by the
tile, and both the row's and the column's sum use it (`summarize`, `weigh`). Where sums under the shared shift leave the range
in which float32 is exact to rounding, every row gets its own shift (`summarize_each`, `weigh_each`); so do the tiles of
far points, which are float64.

All in one file: numba's cache on disk checks the file of the compiled function, not the files of the functions it calls.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Scalar = Any  # float32 or float64, as the tile is

_ORDERED = {"nnan", "ninf", "nsz", "contract", "arcp"}  # all except reassociation, which would undo the rounding by _ROUND
_F = np.float32
_ROUND = _F(1.5 * 2**23 + 127)  # x + _ROUND holds round(x) + 127 in its last bits: the exponent of 2^round(x)
_C0, _C1, _C2, _C3, _C4, _C5 = (_F(c) for c in (1.0000001192, 0.693146944, 0.240221202, 0.0555071309, 0.00967554096, 0.00132764713))
_LOWEST, _HIGHEST = _F(-127), _F(100)  # 2^-127 comes out as 0; sums of 2^100 are still finite
_REACH = 86.0
_LEAST, _MOST = _F(2.0**-_REACH), _F(2.0**100)  # a sum in this range has lost nothing relevant to underflow or to the clamp
_TINY = _F(2.0**-100)  # weights below this become 0 (the largest is about 1), so that no product with a point is subnormal
SPREAD = 180.0  # bits between the largest and the smallest log-sum that one gradient shift can serve
MASKED = -1e30
_NEARLY_MASKED = -1e29
_POSITIVE, _NEGATIVE = 0, 1
PARTS = 3  # of a row: negatives, positives, negatives; an argument, so that LLVM does not unroll it as a constant


def inner(fastmath: bool | set[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for compiled callers only: it has no wrapper for Python, and is cached with its callers."""
    njit: Any = numba.njit
    options = {"fastmath": fastmath, "nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Callable[[Callable[..., Any]], Callable[..., Any]], njit(**options))


def outer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for Python; cached on disk where a cache folder is writable, else compiled in every process."""
    options: dict[str, Any] = {"fastmath": True, "nogil": True, "error_model": "numpy"}
    try:
        return cast(Callable[..., Any], numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no writable cache folder: a read-only install
        return cast(Callable[..., Any], numba.njit(**options)(function))


@inner(_ORDERED)
def exp2(x: Scalar) -> Scalar:
    """2^x in float32 for -127 <= x < 128 to 2.4e-7, and 0 below -126.5: a polynomial around the nearest integer."""
    y = _F(x + _ROUND)
    f = x - (y - _ROUND)
    g = f * f
    polynomial = (_C0 + f * _C1) + g * ((_C2 + f * _C3) + g * (_C4 + f * _C5))
    return polynomial * np.int32(y.view(np.int32) << np.int32(23)).view(_F)


@inner(True)
def _edge(spans: Array, i: int, number: int, parts: int, left: int, width: int) -> int:
    """The column at which part `number` of a row ends."""
    if number < 0:
        return 0
    if number == parts - 1:
        return width
    end = spans[i, 0] if number == 0 else max(spans[i, 0], spans[i, 1])
    return int(min(max(end - left, 0), width))


@inner(True)
def _costs(target: Array, targets: Array, out: Array) -> None:
    """Squared distances of one target (t,) to many (t, m)."""
    for j in range(out.size):
        out[j] = 0
    for t in range(target.size):
        here, there = target[t], targets[t]
        for j in range(out.size):
            out[j] += (there[j] - here) * (there[j] - here)


@inner(True)
def _top(tile: Array, i: int, scale: Scalar, minus: Array, spans: Array, parts: int, left: int, kind: int) -> Scalar:
    """The largest affinity of one kind in a row, without the term of the row; at most MASKED without candidates."""
    top = tile.dtype.type(MASKED)
    for number in range(parts):
        start, end = _edge(spans, i, number - 1, parts, left, minus.size), _edge(spans, i, number, parts, left, minus.size)
        if start < end and (kind == _POSITIVE) == (number == 1):
            row, its_minus = tile[i, start:end], minus[start:end]
            for j in range(row.size):
                top = max(top, its_minus[j] + scale * row[j])
    return top


@inner(True)
def _sum(
    tile: Array, i: int, start: int, end: int, scale: Scalar, base: Scalar, minus: Array, cost: Array | None, down: Array, kind: int
) -> tuple[Scalar, Scalar]:
    """Sum of 2^(base + minus_j + scale tile_ij) over columns, and of that times the cost; each term is also added `down` its column."""
    # Slice here, not in the caller: its reference counting would clear the registers of the loop.
    row, its_minus, out, costly_out = tile[i, start:end], minus[start:end], down[kind, 0, start:end], down[kind, 1, start:end]
    total, costly = _F(0), _F(0)
    if cost is None:
        for j in range(row.size):
            e = exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
            total += e
            out[j] += e
    else:
        its_cost = cost[start:end]
        for j in range(row.size):
            e = exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
            total += e
            out[j] += e
            costly += e * its_cost[j]
            costly_out[j] += e * its_cost[j]
    return total, costly


@inner(True)
def _merge(sums: Array, i: int, kind: int, shift: Scalar, total: Scalar, costly: Scalar) -> None:
    """Add total * 2^shift to a running (shift, total, costly); shifts are integers, so nothing is rounded."""
    if total <= 0:
        return
    before = sums[i, kind, 0]
    if sums[i, kind, 1] == 0 or shift > before:
        keep = 0.0 if sums[i, kind, 1] == 0 else _power(before - shift)
        sums[i, kind, 0] = shift
        sums[i, kind, 1] = sums[i, kind, 1] * keep + total
        sums[i, kind, 2] = sums[i, kind, 2] * keep + costly
    else:
        keep = _power(shift - before)
        sums[i, kind, 1] += total * keep
        sums[i, kind, 2] += costly * keep


@inner(True)
def _power(exponent: Scalar) -> Scalar:
    """2^exponent in float64, exactly, for an integer of at most 0; 0 far below."""
    if exponent < -1000:
        return 0.0
    return np.int64(np.int64(exponent + 1023) << np.int64(52)).view(np.float64)


@inner(True)
def _suits(total: Scalar, shift: Scalar, sums: Array, i: int, kind: int) -> bool:
    """Return whether a sum under the shared shift is exact enough, by itself or relative to what its row has already.

    The logarithm is read off the exponent: a call to log2 would push the inner loop's constants out of their registers.
    """
    if total >= _MOST:
        return False
    before = np.float64(sums[i, kind, 1])
    exponent = (before.view(np.int64) >> np.int64(52)) - 1023
    return bool(total >= _LEAST) or bool(before > 0 and sums[i, kind, 0] + exponent > shift - _REACH)


@inner(True)
def _sample(tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, parts: int, left: int, kind: int) -> Scalar:
    """A shift for the tile: the mean of the largest affinities of a few rows, as an integer."""
    total, count = 0.0, 0
    for i in range(0, len(tile), max(1, len(tile) // 8)):
        top = _top(tile, i, scale, minus_columns, spans, parts, left, kind)
        if top > _NEARLY_MASKED:
            total += top + minus_rows[i]
            count += 1
    return float(math.floor(total / max(count, 1)))


@outer
def summarize(
    tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, parts: int, left: int,
    targets_rows: Array | None, targets_columns: Array | None, rows: Array, bad: Array, shifts: Array, down: Array,
) -> int:  # fmt: skip
    """Add a tile to the running sums of its rows; return how many (row, kind) were marked in `bad` (n, 2) and not added.

    `rows` (n, 2, 3) in float64: for positives and negatives the shift, the sum, the sum with costs. The shared `shifts` (2,) and
    the columns' sums under them, `down` (2, 2, m) of zeros, are left for `merge_columns`.
    """
    n, m = tile.shape
    totals, costlies, widths = np.zeros(2, _F), np.zeros(2, _F), np.zeros(2, np.int64)
    cost = None if targets_columns is None else np.zeros(m, _F)
    count = 0
    for kind in range(2):
        shifts[kind] = _sample(tile, scale, minus_rows, minus_columns, spans, parts, left, kind)
    for i in range(n):
        if targets_rows is not None:
            _costs(targets_rows[i], targets_columns, cost)
        for kind in range(2):
            totals[kind], costlies[kind], widths[kind] = 0, 0, 0
        for number in range(parts):
            start, end, kind = _edge(spans, i, number - 1, parts, left, m), _edge(spans, i, number, parts, left, m), (number + 1) % 2
            if start < end:
                base = minus_rows[i] - _F(shifts[kind])
                total, costly = _sum(tile, i, start, end, scale, base, minus_columns, cost, down, kind)
                totals[kind] += total
                costlies[kind] += costly
                widths[kind] += end - start
        for kind in range(2):
            if widths[kind] == 0 or _suits(totals[kind], shifts[kind], rows, i, kind):
                _merge(rows, i, kind, shifts[kind], totals[kind], costlies[kind])
            else:
                bad[i, kind] = True
                count += 1
    return count


@outer
def summarize_each(
    tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, parts: int, left: int,
    targets_rows: Array | None, targets_columns: Array | None, rows: Array, bad: Array,
) -> int:  # fmt: skip
    """Add the rows of a tile that are marked in `bad` (n, 2) to their running sums, each under its own shift.

    Return how many of them had any candidate.
    """
    n, m = tile.shape
    count = 0
    unused = np.zeros((1, 2, m), _F)
    cost = None if targets_columns is None else np.zeros(m, _F)
    for i in range(n):
        if targets_rows is not None:
            _costs(targets_rows[i], targets_columns, cost)
        for kind in range(2):
            top = _top(tile, i, scale, minus_columns, spans, parts, left, kind) if bad[i, kind] else tile.dtype.type(MASKED)
            if top < _NEARLY_MASKED:
                continue
            count += 1
            shift = float(math.ceil(top + minus_rows[i]))
            for number in range(parts):
                start, end = _edge(spans, i, number - 1, parts, left, m), _edge(spans, i, number, parts, left, m)
                if start < end and (kind == _POSITIVE) == (number == 1):
                    base = minus_rows[i] - tile.dtype.type(shift)
                    total, costly = _sum(tile, i, start, end, scale, base, minus_columns, cost, unused, 0)
                    _merge(rows, i, kind, shift, total, costly)
    return count


@outer
def merge_columns(down: Array, shifts: Array, spans: Array, top: int, height: int, columns: Array) -> bool:
    """Add the column sums of a tile to the running sums of the columns; False, with nothing added, if the shared shifts do not suit.

    `spans` are those of the columns: where the rows top .. top + height - 1 hold nothing of a kind, its sum is rightly zero.
    """
    for add in range(2):
        for j in range(down.shape[2]):
            low, high = max(spans[j, 0], top), min(spans[j, 1], top + height)
            for kind in range(2):
                there = high > low if kind == _POSITIVE else high - low < height
                if add:
                    _merge(columns, j, kind, shifts[kind], down[kind, 0, j], down[kind, 1, j])
                elif there and not _suits(down[kind, 0, j], shifts[kind], columns, j, kind):
                    return False
    return True


@inner(True)
def _amounts(pull: Array, lse: Array, shift: Scalar, sign: Scalar, out: Array) -> None:
    """sign * pull * 2^(shift - lse), split into integer and fraction in float64."""
    for i in range(pull.size):
        exponent = max(shift - lse[i], -127.0)
        whole = math.floor(exponent)
        out[i] = sign * pull[i] * exp2(_F(whole)) * exp2(_F(exponent - whole))


@inner(True)
def _counting(h: Scalar) -> Scalar:
    """Return the weight, or 0 if it is below _TINY: subnormal numbers in BLAS are a hundred times slower on x86."""
    return h if abs(h) >= _TINY else _F(0)


@inner(True)
def _weigh(
    tile: Array, i: int, start: int, end: int, scale: Scalar, base: Scalar, minus: Array, mine: Scalar, theirs: Array,
    cost: Array | None, mean: Scalar, means: Array, down: Array, kind: int,
) -> Scalar:  # fmt: skip
    """Replace dots by 2^(s - shift) (mine + theirs_j), with costs by 2^(s - shift) (mine (cost - mean) + ...); their sum."""
    row, its_minus, them, out = tile[i, start:end], minus[start:end], theirs[kind, start:end], down[start:end]
    total = _F(0)
    if cost is None:
        for j in range(row.size):
            h = _counting(exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST)) * (mine + them[j]))
            row[j] = h
            total += h
            out[j] += h
    else:
        its_cost, its_means = cost[start:end], means[start:end]
        for j in range(row.size):
            e = exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
            h = _counting(e * (mine * (its_cost[j] - mean) + them[j] * (its_cost[j] - its_means[j])))
            row[j] = h
            total += h
            out[j] += h
    return total


@inner(True)
def _weigh_twice(
    tile: Array, i: int, start: int, end: int, scale: Scalar, base: Scalar, minus: Array, mine: Scalar, theirs: Array,
    cost: Array | None, mean: Scalar, means: Array, down: Array, kind: int, their_base: Scalar, their_minus: Array,
) -> Scalar:  # fmt: skip
    """The same with two exponentials for each pair: one under the shift of the row, one under that of the column."""
    row, its_minus, them, out = tile[i, start:end], minus[start:end], theirs[kind, start:end], down[start:end]
    its_their_minus = their_minus[kind, start:end]
    total = _F(0)
    if cost is None:
        for j in range(row.size):
            e = mine * exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
            f = them[j] * exp2(min(max(_F((its_their_minus[j] + their_base) + scale * row[j]), _LOWEST), _HIGHEST))
            h = _counting(e + f)
            row[j] = h
            total += h
            out[j] += h
    else:
        its_cost, its_means = cost[start:end], means[start:end]
        for j in range(row.size):
            e = mine * exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
            f = them[j] * exp2(min(max(_F((its_their_minus[j] + their_base) + scale * row[j]), _LOWEST), _HIGHEST))
            h = _counting(e * (its_cost[j] - mean) + f * (its_cost[j] - its_means[j]))
            row[j] = h
            total += h
            out[j] += h
    return total


@outer
def weigh(
    tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, parts: int, left: int,
    targets_rows: Array | None, targets_columns: Array | None, lse_rows: Array, lse_columns: Array,
    pull_rows: Array, pull_columns: Array, mean_rows: Array, mean_columns: Array, shifts: Array, rows: Array, columns: Array,
) -> None:  # fmt: skip
    """Replace a tile of dots by its gradient weights W_ij + W_ji, and add their sums to `rows` and to `columns`.

    `lse` (2, n) holds the log-sums over positives and negatives in float64, -MASKED where the pull is 0; all others of the tile lie
    within SPREAD / 2 of `shifts` (2,).
    """
    n, m = tile.shape
    cost = None if targets_columns is None else np.zeros(m, _F)
    down = np.zeros(m, _F)
    mine, theirs = np.zeros((2, n), _F), np.zeros((2, m), _F)
    for kind in range(2):
        sign = -1.0 if kind == _POSITIVE else 1.0
        _amounts(pull_rows, lse_rows[kind], shifts[kind], sign, mine[kind])
        _amounts(pull_columns, lse_columns[kind], shifts[kind], sign, theirs[kind])
    for i in range(n):
        if targets_rows is not None:
            _costs(targets_rows[i], targets_columns, cost)
        for number in range(parts):
            start, end, kind = _edge(spans, i, number - 1, parts, left, m), _edge(spans, i, number, parts, left, m), (number + 1) % 2
            if start < end:
                rows[i] += _weigh(
                    tile, i, start, end, scale, minus_rows[i] - _F(shifts[kind]), minus_columns, mine[kind, i], theirs,
                    cost, mean_rows[i], mean_columns, down, kind,
                )  # fmt: skip
    for j in range(m):
        columns[j] += down[j]


@outer
def weigh_each(
    tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, parts: int, left: int,
    targets_rows: Array | None, targets_columns: Array | None, lse_rows: Array, lse_columns: Array,
    pull_rows: Array, pull_columns: Array, mean_rows: Array, mean_columns: Array, rows: Array, columns: Array,
) -> None:  # fmt: skip
    """The same for log-sums at any distance, from two exponentials for each pair."""
    n, m = tile.shape
    cost = None if targets_columns is None else np.zeros(m, _F)
    down, their_minus, theirs = np.zeros(m, _F), np.zeros((2, m), tile.dtype), np.zeros((2, m), _F)
    for kind in range(2):
        for j in range(m):  # as array expressions these would take numba four seconds more to compile
            their_minus[kind, j] = minus_columns[j] - lse_columns[kind, j]
            theirs[kind, j] = -pull_columns[j] if kind == _POSITIVE else pull_columns[j]
    for i in range(n):
        if targets_rows is not None:
            _costs(targets_rows[i], targets_columns, cost)
        for number in range(parts):
            start, end, kind = _edge(spans, i, number - 1, parts, left, m), _edge(spans, i, number, parts, left, m), (number + 1) % 2
            if start < end:
                rows[i] += _weigh_twice(
                    tile, i, start, end, scale, minus_rows[i] - tile.dtype.type(lse_rows[kind, i]), minus_columns,
                    -pull_rows[i] if kind == _POSITIVE else pull_rows[i], theirs, cost, mean_rows[i], mean_columns, down, kind,
                    minus_rows[i], their_minus,
                )  # fmt: skip
    for j in range(m):
        columns[j] += down[j]
