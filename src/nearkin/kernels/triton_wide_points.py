"""Operands of the wide engine from the caller's points, and gradients from what its products added up to: one pass each.

The operands of the products [low, high, high] by [high, low, high] are two windows of the same rows: [high, low, high, high].
"""
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from nearkin.kernels.triton_points import load_points
from nearkin.kernels.triton_prepare import _POINT_EXPONENT, largest, power_of_two


@triton.jit(do_not_specialize=["count"])
def tops_kernel(
    points, center, lengths, factor, tops, count, d,
    BM: tl.constexpr, DC: tl.constexpr, CENTERED: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The largest magnitude of each block of rows."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    top = tl.zeros([BM], tl.float32)
    for chunk in range(0, d, DC):
        x = load_points(points, rows, chunk + tl.arange(0, DC), count, d, center, lengths, factor, CENTERED, UNIT)
        top = tl.maximum(top, tl.max(tl.abs(x), 1))
    tl.store(tops + tl.program_id(0), tl.max(top, 0))


@triton.jit(do_not_specialize=["count", "padded_count", "blocks"])
def operands_kernel(
    points, center, lengths, factor, tops, operands, bias, scale, count, padded_count, d, padded, blocks,
    BM: tl.constexpr, DC: tl.constexpr, CENTERED: tl.constexpr, UNIT: tl.constexpr, SPLIT: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Rows of 16-bit operands, scaled by a power of two, and the square lengths that their products give.

    Those leave out low by low, so that copies of a point stay at distance 0. Rows beyond `count` are 0.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    power = power_of_two(largest(tops, blocks), _POINT_EXPONENT)
    if tl.program_id(0) == 0:
        tl.store(scale, power)
    width = padded * (4 if SPLIT else 1)
    length = tl.zeros([BM], tl.float64)
    for chunk in range(0, padded, DC):
        columns = chunk + tl.arange(0, DC)
        x = power * load_points(points, rows, columns, count, d, center, lengths, factor, CENTERED, UNIT)
        inside = (rows < padded_count)[:, None] & (columns < padded)[None, :]
        at = operands + rows.to(tl.int64)[:, None] * width + columns[None, :]
        high = x.to(operands.dtype.element_ty)
        tl.store(at, high, mask=inside)
        exact = high.to(tl.float64)
        square = exact * exact
        if SPLIT:
            low = (x - high.to(tl.float32)).to(operands.dtype.element_ty)
            tl.store(at + padded, low, mask=inside)
            tl.store(at + 2 * padded, high, mask=inside)
            tl.store(at + 3 * padded, high, mask=inside)
            square = exact * (exact + 2.0 * low.to(tl.float64))
        length += tl.sum(square, 1)
    if not SQUARED:
        length = tl.zeros([BM], tl.float64)
    wide = power.to(tl.float64)
    tl.store(bias + rows, (length / (wide * wide)).to(tl.float32), mask=rows < count)


@triton.jit
def _slopes(
    push, sums, operands, rows, columns, count, padded, unit, mine, weight,
    SQUARED: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """(rows, columns) the gradient of points in base-2 units: 2 (W Z - rowsum(W) z) for squared distances, W Z for inner products."""
    inside = (rows < count)[:, None] & (columns < padded)[None, :]
    found = tl.load(push + rows.to(tl.int64)[:, None] * padded + columns[None, :], mask=inside, other=0.0) * unit
    if SQUARED:
        at = operands + rows.to(tl.int64)[:, None] * (padded * (4 if SPLIT else 1)) + columns[None, :]
        z = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        if SPLIT:
            z += tl.load(at + padded, mask=inside, other=0.0).to(tl.float32)
        total = tl.load(sums + rows, mask=rows < count, other=0.0) * weight
        found = 2.0 * (found - z * mine * total[:, None])
    return found


@triton.jit(do_not_specialize=["count"])
def slopes_kernel(
    push, sums, operands, scale, other_scale, size, points, lengths, out, count, d, padded,
    BM: tl.constexpr, DC: tl.constexpr, UNIT: tl.constexpr, SPLIT: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """The gradient of the caller's points, but for the factor of their frame; of those set to length 1, what is across them."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    weight, mine = 1.0 / tl.load(size), 1.0 / tl.load(scale)
    unit = weight / tl.load(other_scale)
    length, along = tl.full([BM], 1.0, tl.float32), tl.zeros([BM], tl.float32)
    if UNIT:
        length = tl.load(lengths + rows, mask=rows < count, other=1.0)
        for chunk in range(0, d, DC):
            columns = chunk + tl.arange(0, DC)
            u = load_points(points, rows, columns, count, d, points, lengths, 1.0, False, True)
            along += tl.sum(u * _slopes(push, sums, operands, rows, columns, count, padded, unit, mine, weight, SQUARED, SPLIT), 1)
    for chunk in range(0, d, DC):
        columns = chunk + tl.arange(0, DC)
        found = _slopes(push, sums, operands, rows, columns, count, padded, unit, mine, weight, SQUARED, SPLIT)
        if UNIT:
            u = load_points(points, rows, columns, count, d, points, lengths, 1.0, False, True)
            found = tl.div_rn(found - along[:, None] * u, length[:, None])
        inside = (rows < count)[:, None] & (columns < d)[None, :]
        tl.store(out + rows.to(tl.int64)[:, None] * d + columns[None, :], found, mask=inside)
