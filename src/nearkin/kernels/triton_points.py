"""The caller's points as the Triton kernels read them, and their gradients as the caller gets them, without a copy in float32 between.

A frame (`contract.Frame`) says how points become points in base-2 units: divided by their length, moved to the center, scaled. Each kernel
that reads points does that in its registers, in float32, whatever their type.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearkin.kernels.contract import Frame, Work

ROWS, CHUNK = 32, 128  # of one program of the kernels that take points row by row, and how many dimensions at a time


class Framed(NamedTuple):
    """A frame as the kernels take it, with a placeholder for what is absent, which is never read."""

    center: Tensor
    query_lengths: Tensor
    reference_lengths: Tensor
    factor: float
    centered: bool
    unit_queries: bool
    unit_references: bool


def framed(work: Work) -> Framed:
    """The frame of a work, or the one that changes nothing."""
    frame, none = work.frame or Frame(1.0), work.queries
    center, mine, theirs = (none if x is None else x for x in frame[1:])
    return Framed(center, mine, theirs, frame.scale, *(x is not None for x in frame[1:]))


@triton.jit
def load_points(points, rows, columns, count, d, center, lengths, factor, CENTERED: tl.constexpr, UNIT: tl.constexpr):
    """(rows, columns) in base-2 units; 0 beyond the last row and the last dimension."""
    inside = (rows < count)[:, None] & (columns < d)[None, :]
    x = tl.load(points + rows.to(tl.int64)[:, None] * d + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    if UNIT:
        x = tl.div_rn(x, tl.load(lengths + rows, mask=rows < count, other=1.0)[:, None])
    if CENTERED:
        x = tl.where(inside, x - tl.load(center + columns, mask=columns < d, other=0.0)[None, :], 0.0)
    return x * factor


@triton.jit
def _summed(parts, rows, columns, inside, count, d, number):
    """The sum of the parts of a gradient, in order."""
    at = rows.to(tl.int64)[:, None] * d + columns[None, :]
    total = tl.load(parts + at, mask=inside, other=0.0)
    for part in range(1, number):
        total += tl.load(parts + part * count.to(tl.int64) * d + at, mask=inside, other=0.0)
    return total


@triton.jit(do_not_specialize=["count", "number"])
def finish_kernel(parts, points, lengths, out, count, d, number, BM: tl.constexpr, DC: tl.constexpr, UNIT: tl.constexpr):
    """Add up the parts of a gradient; where points were set to length 1, take what is across them, over their length."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    length, along = tl.full([BM], 1.0, tl.float32), tl.zeros([BM], tl.float32)
    if UNIT:
        length = tl.load(lengths + rows, mask=rows < count, other=1.0)
        for chunk in range(0, d, DC):
            columns = chunk + tl.arange(0, DC)
            inside = (rows < count)[:, None] & (columns < d)[None, :]
            u = load_points(points, rows, columns, count, d, points, lengths, 1.0, False, True)
            along += tl.sum(_summed(parts, rows, columns, inside, count, d, number) * u, 1)
    for chunk in range(0, d, DC):
        columns = chunk + tl.arange(0, DC)
        inside = (rows < count)[:, None] & (columns < d)[None, :]
        found = _summed(parts, rows, columns, inside, count, d, number)
        if UNIT:
            u = load_points(points, rows, columns, count, d, points, lengths, 1.0, False, True)
            found = tl.div_rn(found - along[:, None] * u, length[:, None])
        tl.store(out + rows.to(tl.int64)[:, None] * d + columns[None, :], found, mask=inside)


def finished(parts: Tensor, points: Tensor, lengths: Tensor | None) -> Tensor:
    """(n, d) the gradient of points from its (parts, n, d) parts in float32."""
    number, n, d = parts.shape
    if number == 1 and lengths is None and points.dtype == torch.float32:
        return parts[0]
    out = torch.empty_like(points, memory_format=torch.contiguous_format)
    none = parts if lengths is None else lengths
    finish_kernel[(-(-n // ROWS),)](parts, points, none, out, n, d, number, BM=ROWS, DC=CHUNK, UNIT=lengths is not None)
    return out
