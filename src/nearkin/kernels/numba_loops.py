"""The loops over one tile, compiled by numba: exponentials, online sums, gradient weights.

A tile holds dot products; the affinity is s_ij = scale * tile_ij + minus_row_i + minus_column_j, where the two
"minus" terms are the negated square lengths (zeros for an inner product). A hole is HOLE. Row i is right in the
columns spans[i, 0] .. spans[i, 1] - 1 and wrong elsewhere, in both directions alike.

The trap on a CPU is the exponential, not the product: so there is one per pair and pass, of a shift shared by the tile,
and both the row's and the column's sum read it. A row or column the shared shift does not suit (its sum left the range
in which float32 is exact to rounding) is done again with a shift of its own.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Scalar = Any  # float32 or float64, as the tile is

_ORDERED = {"nnan", "ninf", "nsz", "contract", "arcp"}  # all but reassociation, which would cancel the rounding trick
_F = np.float32
_ROUND = _F(1.5 * 2**23 + 127)  # x + _ROUND holds round(x) + 127 in its last bits: the exponent of 2^round(x)
_C0, _C1, _C2, _C3, _C4, _C5 = (_F(c) for c in (1.0000001192, 0.693146944, 0.240221202, 0.0555071309, 0.00967554096, 0.00132764713))
_LOWEST, _HIGHEST = _F(-127), _F(100)  # 2^-127 comes out as 0; sums of 2^100 are still finite
_LEAST, _MOST = 2.0**-86, 2.0**100  # a row sum in between has lost nothing that counts to underflow or to the clamp
_SPREAD = 180.0  # bits between the largest and the smallest log-sum that one gradient shift can serve
HOLE = -1e30
_NOWHERE = -1e29
_RIGHT, _WRONG = 0, 1


def _compiled(fastmath: bool | set[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """numba's njit, kept on disk where some cache folder can be written, else compiled in every process."""

    def compile_(function: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {"fastmath": fastmath, "nogil": True, "error_model": "numpy"}
        try:
            return cast(Callable[..., Any], numba.njit(cache=True, **options)(function))
        except RuntimeError:  # no writable cache folder: a read-only install
            return cast(Callable[..., Any], numba.njit(**options)(function))

    return compile_


@_compiled(_ORDERED)
def exp2(x: Scalar) -> Scalar:
    """2^x in float32 for -127 <= x < 128 to 2.4e-7, and 0 below -126.5: a polynomial around the nearest integer."""
    y = _F(x + _ROUND)
    f = x - (y - _ROUND)
    g = f * f
    polynomial = (_C0 + f * _C1) + g * ((_C2 + f * _C3) + g * (_C4 + f * _C5))
    return polynomial * np.int32(y.view(np.int32) << np.int32(23)).view(_F)


@_compiled(True)
def _part(number: int, spans: Array, i: int, left: int, width: int) -> tuple[int, int, int]:
    """Part 0, 1 or 2 of a row: the wrong columns before the right ones, the right ones, the wrong ones after."""
    low, high = min(max(spans[i, 0] - left, 0), width), min(max(spans[i, 1] - left, 0), width)
    if low >= high:
        low = high = 0
    if number == 0:
        return 0, low, _WRONG
    return (low, high, _RIGHT) if number == 1 else (high, width, _WRONG)


@_compiled(True)
def _occurs(spans: Array, left: int, width: int, kind: int) -> bool:
    """Has any row of the tile a column of this kind?"""
    for i in range(len(spans)):
        low, high = max(spans[i, 0] - left, 0), min(spans[i, 1] - left, width)
        if (kind == _RIGHT and low < high) or (kind == _WRONG and high - low < width):
            return True
    return False


@_compiled(True)
def _costs(target: Array, targets: Array, out: Array) -> None:
    """Squared distances of one target (t,) to many (t, m)."""
    out[:] = 0
    for t in range(target.size):
        here, there = target[t], targets[t]
        for j in range(out.size):
            out[j] += (there[j] - here) * (there[j] - here)


@_compiled(True)
def _top(tile: Array, i: int, start: int, end: int, scale: Scalar, minus: Array) -> Scalar:
    row, its_minus = tile[i, start:end], minus[start:end]
    top = tile.dtype.type(HOLE)
    for j in range(row.size):
        top = max(top, its_minus[j] + scale * row[j])
    return top


@_compiled(True)
def _sum(tile: Array, i: int, start: int, end: int, scale: Scalar, base: Scalar, minus: Array, down: Array) -> Scalar:
    """Sum of 2^(base + minus_j + scale tile_ij), each term added to its column `down` as well."""
    row, its_minus, out = tile[i, start:end], minus[start:end], down[0, start:end]
    total = _F(0)
    for j in range(row.size):
        e = exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
        total += e
        out[j] += e
    return total


@_compiled(True)
def _sum_costs(
    tile: Array, i: int, start: int, end: int, scale: Scalar, base: Scalar, minus: Array, cost: Array, down: Array
) -> tuple[Scalar, Scalar]:
    """The same with the sum of the costs so weighted beside it."""
    row, its_minus, its_cost = tile[i, start:end], minus[start:end], cost[start:end]
    out, costly_out = down[0, start:end], down[1, start:end]
    total, costly = _F(0), _F(0)
    for j in range(row.size):
        e = exp2(min(max(_F((its_minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
        total += e
        out[j] += e
        costly += e * its_cost[j]
        costly_out[j] += e * its_cost[j]
    return total, costly


@_compiled(True)
def _row_sums(
    tile: Array, i: int, scale: Scalar, base: Scalar, minus: Array, spans: Array, left: int, kind: int, cost: Array, down: Array
) -> tuple[Scalar, Scalar]:
    """(sum, sum with costs) over a row's columns of one kind; `down` (2, m) takes the columns' share."""
    total, costly = _F(0), _F(0)
    for number in range(3):
        start, end, its_kind = _part(number, spans, i, left, minus.size)
        if its_kind != kind or start >= end:
            continue
        if cost.size:
            add, add_cost = _sum_costs(tile, i, start, end, scale, base, minus, cost, down)
            costly += add_cost
        else:
            add = _sum(tile, i, start, end, scale, base, minus, down)
        total += add
    return total, costly


@_compiled(True)
def _own_shift(tile: Array, i: int, scale: Scalar, minus: Array, spans: Array, left: int, kind: int) -> Scalar:
    """The integer above a row's largest affinity of one kind, less the row's own part; HOLE without candidates."""
    top = tile.dtype.type(HOLE)
    for number in range(3):
        start, end, its_kind = _part(number, spans, i, left, minus.size)
        if its_kind == kind and start < end:
            top = max(top, _top(tile, i, start, end, scale, minus))
    return top


@_compiled(True)
def _power(exponent: Scalar) -> Scalar:
    """2^exponent in float64, exactly, for an integer of at most 0; 0 far below."""
    if exponent < -1000:
        return 0.0
    return np.int64(np.int64(exponent + 1023) << np.int64(52)).view(np.float64)


@_compiled(True)
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


@_compiled(True)
def _suits(total: Scalar, shift: Scalar, sums: Array, i: int, kind: int) -> bool:
    """Is a sum under the shared shift exact enough, by itself or beside what its row has already?"""
    if total >= _MOST:
        return False
    return bool(total >= _LEAST) or bool(sums[i, kind, 1] > 0 and sums[i, kind, 0] + math.log2(sums[i, kind, 1]) > shift - 86)


@_compiled(True)
def _sampled_shift(tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, left: int, kind: int) -> Scalar:
    """The mean of the largest affinity in a few rows."""
    total, count = 0.0, 0
    for i in range(0, len(tile), max(1, len(tile) // 8)):
        top = _own_shift(tile, i, scale, minus_columns, spans, left, kind)
        if top > _NOWHERE:
            total += top + minus_rows[i]
            count += 1
    return float(math.floor(total / max(count, 1)))


@_compiled(True)
def _redo_columns(
    tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, left: int, kind: int,
    targets_rows: Array, targets_columns: Array, shift: Scalar, down: Array, columns: Array,
) -> None:  # fmt: skip
    """Columns that the shared shift does not suit, under a shift of their own."""
    n, m = tile.shape
    tops = np.full(m, HOLE, tile.dtype)
    sums, cost = np.zeros((2, m), _F), np.zeros(m, _F)
    for i in range(n):
        for number in range(3):
            start, end, its_kind = _part(number, spans, i, left, m)
            if its_kind == kind:
                row, top, base = tile[i, start:end], tops[start:end], minus_rows[i]
                for j in range(row.size):
                    top[j] = max(top[j], base + scale * row[j])
    shifts = np.ceil(tops + minus_columns)
    minus = minus_columns - shifts
    for i in range(n):
        if len(targets_columns):
            _costs(targets_rows[i], targets_columns, cost)
        _row_sums(tile, i, scale, minus_rows[i], minus, spans, left, kind, cost, sums)
    for j in range(m):
        if not _suits(down[0, j], shift, columns, j, kind):
            down[0, j] = 0
            if tops[j] > _NOWHERE:
                _merge(columns, j, kind, shifts[j], sums[0, j], sums[1, j])


@_compiled(True)
def summarise(
    tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, left: int,
    targets_rows: Array, targets_columns: Array, mirrored: bool, shared: bool, rows: Array, columns: Array,
) -> int:  # fmt: skip
    """Add a tile to the running sums of its rows and, if mirrored, of its columns; the number of rows done twice.

    `rows` (n, 2, 3) and `columns` (m, 2, 3) in float64: for right and wrong the shift, the sum, the sum with costs.
    """
    n, m = tile.shape
    graded = len(targets_columns) > 0
    cost, unused = np.zeros(m if graded else 0, _F), np.zeros((2, m), _F)
    redone = 0
    for kind in range(2):
        if not _occurs(spans, left, m, kind):
            continue
        shared_shift = _sampled_shift(tile, scale, minus_rows, minus_columns, spans, left, kind)
        down = np.full((2, m), _F(0) if shared else _F(_MOST))  # _MOST suits nobody
        for i in range(n):
            if graded:
                _costs(targets_rows[i], targets_columns, cost)
            shift, total, costly = shared_shift, _F(_MOST), _F(0)
            if shared:
                base = minus_rows[i] - tile.dtype.type(shift)
                total, costly = _row_sums(tile, i, scale, base, minus_columns, spans, left, kind, cost, down)
            if not _suits(total, shift, rows, i, kind):
                top = _own_shift(tile, i, scale, minus_columns, spans, left, kind)
                if top < _NOWHERE:
                    continue
                shift = math.ceil(top + minus_rows[i])
                base = minus_rows[i] - tile.dtype.type(shift)
                total, costly = _row_sums(tile, i, scale, base, minus_columns, spans, left, kind, cost, unused)
                redone += 1
            _merge(rows, i, kind, shift, total, costly)
        if not mirrored:
            continue
        for j in range(m):
            if not _suits(down[0, j], shared_shift, columns, j, kind):
                _redo_columns(
                    tile, scale, minus_rows, minus_columns, spans, left, kind,
                    targets_rows, targets_columns, shared_shift, down, columns,
                )  # fmt: skip
                break
        for j in range(m):
            _merge(columns, j, kind, shared_shift, down[0, j], down[1, j])
    return redone


@_compiled(True)
def _shared_shift(lse: Array, other: Array) -> tuple[Scalar, bool]:
    """The middle of the log-sums of a tile's rows and columns, and whether they are near enough to share it."""
    low, high = -HOLE, HOLE
    for values in (lse, other):
        for value in values:
            if value < -_NOWHERE:
                low, high = min(low, value), max(high, value)
    if low > high:
        return 0.0, True
    return (low + high) / 2, high - low < _SPREAD


@_compiled(True)
def _amounts(pull: Array, lse: Array, shift: Scalar, shared: bool, sign: Scalar, out: Array) -> None:
    """pull 2^(shift - lse), split into integer and fraction in float64; the pull alone where shifts are not shared."""
    for i in range(pull.size):
        out[i] = sign * pull[i]
        if shared and pull[i] != 0:
            whole = math.floor(shift - lse[i])
            out[i] *= exp2(_F(whole)) * exp2(_F(shift - lse[i] - whole))


@_compiled(True)
def _weigh(row: Array, scale: Scalar, base: Scalar, minus: Array, mine: Scalar, theirs: Array, down: Array) -> Scalar:
    """Replace dots by gradient weights 2^(s - shift) (mine + theirs_j); their sum."""
    total = _F(0)
    for j in range(row.size):
        h = exp2(min(max(_F((minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST)) * (mine + theirs[j])
        row[j] = h
        total += h
        down[j] += h
    return total


@_compiled(True)
def _weigh_twice(
    row: Array, scale: Scalar, base: Scalar, minus: Array, mine: Scalar, their_base: Scalar, their_minus: Array, theirs: Array, down: Array
) -> Scalar:
    """The same with one exponential for the row's shift and one for each column's."""
    total = _F(0)
    for j in range(row.size):
        e = exp2(min(max(_F((minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
        f = exp2(min(max(_F((their_minus[j] + their_base) + scale * row[j]), _LOWEST), _HIGHEST))
        h = e * mine + f * theirs[j]
        row[j] = h
        total += h
        down[j] += h
    return total


@_compiled(True)
def _weigh_costs(
    row: Array, scale: Scalar, base: Scalar, minus: Array, mine: Scalar, their_base: Scalar, their_minus: Array, theirs: Array, down: Array,
    cost: Array, mean: Scalar, means: Array, shared: bool,
) -> Scalar:  # fmt: skip
    """Gradient weights of label distances: 2^(s - shift) (mine (cost - mean) + theirs_j (cost - mean_j))."""
    total = _F(0)
    if shared:
        for j in range(row.size):
            e = exp2(min(max(_F((minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
            h = e * (mine * (cost[j] - mean) + theirs[j] * (cost[j] - means[j]))
            row[j] = h
            total += h
            down[j] += h
        return total
    for j in range(row.size):
        e = exp2(min(max(_F((minus[j] + base) + scale * row[j]), _LOWEST), _HIGHEST))
        f = exp2(min(max(_F((their_minus[j] + their_base) + scale * row[j]), _LOWEST), _HIGHEST))
        h = e * mine * (cost[j] - mean) + f * theirs[j] * (cost[j] - means[j])
        row[j] = h
        total += h
        down[j] += h
    return total


@_compiled(True)
def weigh(
    tile: Array, scale: Scalar, minus_rows: Array, minus_columns: Array, spans: Array, left: int,
    targets_rows: Array, targets_columns: Array, lse_rows: Array, lse_columns: Array,
    pull_rows: Array, pull_columns: Array, mean_rows: Array, mean_columns: Array,
    mirrored: bool, rows: Array, columns: Array,
) -> None:  # fmt: skip
    """Replace a tile of dots by its gradient weights W_ij + W_ji, and add their sums to `rows` and, if mirrored, `columns`.

    `lse` (2, n) holds the log-sums over right and wrong in float64, -HOLE where the pull is 0.
    """
    n, m = tile.shape
    graded = len(targets_columns) > 0
    cost, down = np.zeros(m, _F), np.zeros(m, _F)
    mine, theirs, their_minus = np.zeros((2, n), _F), np.zeros((2, m), _F), np.zeros((2, m), tile.dtype)
    shifts, shared = np.zeros(2), np.zeros(2, np.bool_)
    for kind in range(2):
        if not _occurs(spans, left, m, kind):
            continue
        sign = -1.0 if kind == _RIGHT else 1.0
        shifts[kind], shared[kind] = _shared_shift(lse_rows[kind], lse_columns[kind])
        _amounts(pull_rows, lse_rows[kind], shifts[kind], shared[kind], sign, mine[kind])
        _amounts(pull_columns, lse_columns[kind], shifts[kind], shared[kind], sign, theirs[kind])
        their_minus[kind] = minus_columns - lse_columns[kind]
    for i in range(n):
        if graded:
            _costs(targets_rows[i], targets_columns, cost)
        for number in range(3):
            start, end, kind = _part(number, spans, i, left, m)
            if start >= end:
                continue
            row, minus, out = tile[i, start:end], minus_columns[start:end], down[start:end]
            base = minus_rows[i] - tile.dtype.type(shifts[kind] if shared[kind] else lse_rows[kind, i])
            me, them, them_minus = mine[kind, i], theirs[kind, start:end], their_minus[kind, start:end]
            if graded:
                total = _weigh_costs(
                    row, scale, base, minus, me, minus_rows[i], them_minus, them, out,
                    cost[start:end], mean_rows[i], mean_columns[start:end], shared[kind],
                )  # fmt: skip
            elif shared[kind]:
                total = _weigh(row, scale, base, minus, me, them, out)
            else:
                total = _weigh_twice(row, scale, base, minus, me, minus_rows[i], them_minus, them, out)
            rows[i] += total
    if mirrored:
        for j in range(m):
            columns[j] += down[j]
