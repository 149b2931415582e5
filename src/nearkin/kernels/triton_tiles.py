"""What both Triton passes do with a tile: load points, multiply them, and find single pairs.

These functions have one `return` at the end: Triton compiles what follows a `return` even where a constant excludes it.
"""
# mypy: ignore-errors
# ruff: noqa: N803, SIM108

import triton
import triton.language as tl

from nearkin.kernels.triton_prepare import _CAST

_SCAN = tl.constexpr(256)
_MANY = tl.constexpr(1 << 30)
LOWEST = tl.constexpr(-1e30)  # below any affinity, but finite: the difference of two is not nan


@triton.jit
def log_sum(top, total):
    """log2 of a sum that is `total` times 2^top; -inf for an empty sum, and nan for a broken one: it must show in the loss."""
    return tl.where(total == 0, float("-inf"), top + tl.log2(tl.where(total == 0, 1.0, total)))


@triton.jit
def _points(z, start, plane, stride: tl.constexpr, BN: tl.constexpr, DC: tl.constexpr):
    """A tile of points (BN, DC) from row `start` on."""
    at = tl.arange(0, BN)[:, None] * stride + tl.arange(0, DC)[None, :]
    return tl.load(z + start.to(tl.int64) * stride + plane + at)


@triton.jit
def _turned(zt, start, chunk, padded, BN: tl.constexpr, DC: tl.constexpr):
    """A tile of transposed points (DC, BN)."""
    at = tl.arange(0, DC)[:, None] * padded + tl.arange(0, BN)[None, :]
    return tl.load(zt + chunk * padded.to(tl.int64) + start + at)


@triton.jit
def _column_tile(
    col_z, col_zt, start, chunk, plane, padded,
    D: tl.constexpr, DC: tl.constexpr, BN: tl.constexpr, ROUND: tl.constexpr, SPLIT: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """A tile of column points: as rounded, what the rounding left, and transposed; the first again where one does not exist."""
    b = _points(col_z + chunk, start, 0, D, BN, DC)
    b_low, b_turned = b, b
    if SPLIT:
        b_low = _points(col_z + chunk, start, plane, D, BN, DC)
    if TURNED and ROUND != _CAST:
        b_turned = _turned(col_zt, start, chunk, padded, BN, DC)
    return b, b_low, b_turned


@triton.jit
def _product(a, a_low, b, b_low, SPLIT: tl.constexpr, INPUT: tl.constexpr):
    """a b^T. The sum starts at 0, with the small terms: norms are subtracted last."""
    if SPLIT:
        dots = tl.dot(a_low, tl.trans(b))
        dots = tl.dot(a, tl.trans(b_low), dots)
        dots = tl.dot(a, tl.trans(b), dots)
    else:
        dots = tl.dot(a, tl.trans(b), input_precision=INPUT)
    return dots


@triton.jit
def _dots(
    a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start,
    D: tl.constexpr, DC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SPLIT: tl.constexpr, INPUT: tl.constexpr,
):  # fmt: skip
    """Dot products (BM, BN) of a row block and a column tile; long points in chunks, which are loaded here."""
    if D == DC:
        dots = _product(a, a_low, b, b_low, SPLIT, INPUT)
    else:
        dots = tl.zeros([BM, BN], tl.float32)
        for chunk in range(0, D, DC):
            p, q = _points(row_z + chunk, row0, 0, D, BM, DC), _points(col_z + chunk, start, 0, D, BN, DC)
            p_low, q_low = p, q
            if SPLIT:
                p_low = _points(row_z + chunk, row0, row_plane, D, BM, DC)
                q_low = _points(col_z + chunk, start, col_plane, D, BN, DC)
            dots += _product(p, p_low, q, q_low, SPLIT, INPUT)
    return dots


@triton.jit
def _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM: tl.constexpr, BN: tl.constexpr, T: tl.constexpr):
    """Squared distances of the scaled targets (BM, BN)."""
    cost = tl.zeros([BM, BN], tl.float32)
    for c in tl.static_range(T):
        difference = tl.load(row_y + c * row_padded + rows)[:, None] - tl.load(col_y + c * col_padded + columns)[None, :]
        cost += difference * difference
    return cost


@triton.jit
def _among(positions, each, owners, others, count, DOWN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """(BM, BN): whether the other point is among the positions of its owner. Owners are the rows, or the columns if DOWN."""
    found = tl.zeros([BM, BN], tl.int1)
    for e in range(each):
        position = tl.load(positions + owners.to(tl.int64) * each + e, mask=owners < count, other=-1).to(tl.int32)
        if DOWN:
            found = found | (position[None, :] == others[:, None])
        else:
            found = found | (position[:, None] == others[None, :])
    return found


@triton.jit
def _in_span(span, owners, others, count, DOWN: tl.constexpr):
    """(BM, BN): whether the other point is within the span of its owner."""
    low = tl.load(span + owners.to(tl.int64) * 2, mask=owners < count, other=0).to(tl.int32)
    high = tl.load(span + owners.to(tl.int64) * 2 + 1, mask=owners < count, other=0).to(tl.int32)
    if DOWN:
        positive = (others[:, None] >= low[None, :]) & (others[:, None] < high[None, :])
    else:
        positive = (others[None, :] >= low[:, None]) & (others[None, :] < high[:, None])
    return positive


@triton.jit
def _mixed_range(kinds, step, from_tile, to_tile, BN: tl.constexpr, G: tl.constexpr):
    """The first mixed tile and the one after the last: mostly a short stretch around the class of the rows."""
    begin, end = from_tile + _MANY, from_tile
    for start in range(from_tile, to_tile, _SCAN):
        at = start + tl.arange(0, _SCAN)
        mixed = tl.load(kinds + at * BN // G * step, mask=at < to_tile, other=0) == 2
        begin = tl.minimum(begin, tl.min(tl.where(mixed, at, _MANY), 0))
        end = tl.maximum(end, tl.max(tl.where(mixed, at + 1, 0), 0))
    return tl.minimum(begin, end), end  # an empty range if there is none: _MANY times the slivers would overflow
