"""The order of points by class in one launch: every label is compared with every other, which n labels of a batch do in microseconds."""
# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _COLUMNS = 16, 512  # labels of one program, and how many of the others it looks at together


@triton.jit(do_not_specialize=["n"])
def class_order_kernel(labels, order, place, span, n, BM: tl.constexpr, BN: tl.constexpr):
    """Store the place of some points and, at their places, the points and the ends of their classes."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    there = rows < n
    mine = tl.load(labels + rows, mask=there, other=0)
    below, before, alike = tl.zeros([BM], tl.int32), tl.zeros([BM], tl.int32), tl.zeros([BM], tl.int32)
    for start in range(0, n, BN):
        at = start + tl.arange(0, BN)
        theirs = tl.load(labels + at, mask=at < n, other=0)
        inside = (at < n)[None, :]
        same = (theirs[None, :] == mine[:, None]) & inside
        below += tl.sum(((theirs[None, :] < mine[:, None]) & inside).to(tl.int32), 1)
        alike += tl.sum(same.to(tl.int32), 1)
        before += tl.sum((same & (at[None, :] < rows[:, None])).to(tl.int32), 1)
    found = below + before
    tl.store(place + rows, found.to(tl.int64), mask=there)
    tl.store(order + found, rows.to(tl.int64), mask=there)
    tl.store(span + 2 * found, below, mask=there)
    tl.store(span + 2 * found + 1, below + alike, mask=there)


def compared(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Order and place (n,) and the spans (n, 2), of 32 bits as the kernels read them."""
    n, labels = len(labels), labels.contiguous()
    order, place = torch.empty(2, n, dtype=torch.int64, device=labels.device).unbind(0)
    span = torch.empty(n, 2, dtype=torch.int32, device=labels.device)
    class_order_kernel[(-(-n // _ROWS),)](labels, order, place, span, n, BM=_ROWS, BN=_COLUMNS)
    return order, place, span
