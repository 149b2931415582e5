"""`values_of` as one launch: a dozen launches by torch would take as long as a small pass."""
# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl

from nearkin.kernels.contract import Values

_LN2 = tl.constexpr(0.6931471805599453)
_TINY = tl.constexpr(1e-8)  # below this, log(1 + e) is e to the last digit of float32


@triton.jit(do_not_specialize=["n"])
def values_kernel(
    first, second, value, valid, weight, finite_first, finite_second, n, slope,
    BLOCK: tl.constexpr, TARGETS: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """One program for BLOCK queries; in float64 between the load and the store."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = rows < n
    a = tl.load(first + rows, mask=there, other=0.0)
    b = tl.load(second + rows, mask=there, other=0.0)
    positive, negative = a != float("-inf"), b != float("-inf")  # nan counts as present: broken embeddings must show in the loss
    if TARGETS:
        counts = positive
        cost, pull = b, tl.where(positive, slope, 0.0)
        a = tl.where(positive, a, 0.0)
    else:
        # A gap of -inf has loss 0 and no gradient; a gap of inf (no positive) has loss 1.
        counts = positive if LOG else positive | negative
        gap = tl.where(counts & negative if LOG else counts, b - a, float("-inf")).to(tl.float64)  # in base-2 units
        e = tl.exp2(-tl.abs(gap))
        if LOG:
            cost = _LN2 * tl.maximum(gap, 0.0) + tl.where(e < _TINY, e, tl.log(1.0 + e))
            pull = tl.where(gap > 0, 1.0, e) / (1.0 + e) * slope
        else:
            cost = tl.where(gap > 0, 1.0, e) / (1.0 + e)
            pull = e / ((1.0 + e) * (1.0 + e)) * slope
        a = tl.where(positive, a, tl.where(negative, b, 0.0))
        b = tl.where(negative, b, a)
    tl.store(value + rows, cost.to(tl.float32), mask=there)
    tl.store(valid + rows, counts.to(tl.uint8), mask=there)
    tl.store(weight + rows, pull.to(tl.float32), mask=there)
    tl.store(finite_first + rows, a, mask=there)
    tl.store(finite_second + rows, b, mask=there)


def values_by_kernel(targets, form, first, second, slope) -> Values:
    """`Engine.values` for summaries in float32 or float64."""
    n = len(first)
    value, weight = (torch.empty(n, dtype=torch.float32, device=first.device) for _ in range(2))
    finite_first, finite_second, valid = torch.empty_like(first), torch.empty_like(first), torch.empty_like(first, dtype=torch.uint8)
    values_kernel[(-(-n // 128),)](
        first, second, value, valid, weight, finite_first, finite_second, n, slope, BLOCK=128, TARGETS=targets, LOG=form == "log"
    )
    return Values(value, valid.view(torch.bool), weight, finite_first, finite_second)
