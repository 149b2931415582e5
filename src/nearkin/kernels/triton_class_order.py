"""The order of points by class in one launch: every label is compared with every other, which n labels of a batch do in microseconds."""
# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _COLUMNS, _WARPS = 16, 256, 4  # labels of one program, and how many of the others it looks at together


@triton.jit
def _counted(labels, mine, first, last, n, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """How many labels in first..last are below each of mine, and how many are not above it; summed up once, at the end."""
    below, up_to = tl.zeros([BM, BN], tl.int32), tl.zeros([BM, BN], tl.int32)
    for start in range(first, last, BN):
        at = start + tl.arange(0, BN)
        theirs = tl.load(labels + at, mask=at < n, other=0).to(KIND)[None, :]
        inside = (at < n)[None, :]
        below += ((theirs < mine[:, None]) & inside).to(tl.int32)
        up_to += ((theirs <= mine[:, None]) & inside).to(tl.int32)
    return tl.sum(below, 1), tl.sum(up_to, 1)


@triton.jit
def _placed(labels, order, place, span, rows, there, n, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    mine = tl.load(labels + rows, mask=there, other=0).to(KIND)
    middle = tl.program_id(0) * BM // BN * BN  # of the columns among which the program's own labels are
    before, before_or_same = _counted(labels, mine, 0, middle, n, KIND, BM, BN)
    after, after_or_same = _counted(labels, mine, middle + BN, n, n, KIND, BM, BN)
    at = middle + tl.arange(0, BN)
    theirs = tl.load(labels + at, mask=at < n, other=0).to(KIND)[None, :]
    inside = (at < n)[None, :]
    less = (theirs < mine[:, None]) & inside
    same = (theirs == mine[:, None]) & inside
    below = before + after + tl.sum(less.to(tl.int32), 1)
    up_to = before_or_same + after_or_same + tl.sum((less | same).to(tl.int32), 1)
    found = before_or_same + after + tl.sum((less | (same & (at[None, :] < rows[:, None]))).to(tl.int32), 1)
    tl.store(place + rows, found.to(tl.int64), mask=there)
    tl.store(order + found, rows.to(tl.int64), mask=there)
    tl.store(span + 2 * found, below, mask=there)
    tl.store(span + 2 * found + 1, up_to, mask=there)


@triton.jit(do_not_specialize=["n"])
def class_order_kernel(labels, order, place, span, n, BM: tl.constexpr, BN: tl.constexpr):
    """Store the place of some points and, at their places, the points and the ends of their classes.

    Labels that fit into 32 bits, as all but hashes do, are compared as such, in half of the time.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    there = rows < n
    long = tl.zeros([BN], tl.int32)
    for start in range(0, n, BN):
        at = start + tl.arange(0, BN)
        theirs = tl.load(labels + at, mask=at < n, other=0).to(tl.int64)
        long |= (theirs != theirs.to(tl.int32).to(tl.int64)).to(tl.int32)
    if tl.max(long, 0) == 0:
        _placed(labels, order, place, span, rows, there, n, tl.int32, BM, BN)
    else:
        _placed(labels, order, place, span, rows, there, n, tl.int64, BM, BN)


def compared(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Order and place (n,) and the spans (n, 2), of 32 bits as the kernels read them."""
    n, labels = len(labels), labels.contiguous()
    order, place = torch.empty(2, n, dtype=torch.int64, device=labels.device).unbind(0)
    span = torch.empty(n, 2, dtype=torch.int32, device=labels.device)
    class_order_kernel[(-(-n // _ROWS),)](labels, order, place, span, n, BM=_ROWS, BN=_COLUMNS, num_warps=_WARPS)
    return order, place, span
