"""A Triton kernel that does nothing but exponentials, to learn how many a device can do in a second."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # numbers a program; with four warps eight a thread, whose sums do not wait for each other
DOWN = 1 / 16  # per step: exact in float32, and no power leaves the normal range within 1,024 of them


@triton.jit
def _exponentials(numbers, sums, steps, BLOCK: tl.constexpr, DOWN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(numbers + at)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for _step in range(steps):
        total += tl.exp2(x)
        x -= DOWN  # another number every time, and no conversion, which would share the exponentials' unit
    tl.store(sums + at, total)


def exponentials(numbers: Tensor, steps: int) -> Tensor:
    """Of every x the sum of 2^(x - i / 16) over i below `steps`, one exponential each; whole blocks of float32 only."""
    assert len(numbers) % BLOCK == 0 and numbers.dtype == torch.float32
    sums = torch.empty_like(numbers)
    _exponentials[(len(numbers) // BLOCK,)](numbers, sums, steps, BLOCK=BLOCK, DOWN=DOWN)
    return sums
