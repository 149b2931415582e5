"""Counting strangers before each kin, compiled.

The span of a query's kin is cut into equal bins, and each bin knows how many kin stand above it: most strangers fall into a bin
without kin and are counted with one look; the others are compared with the few kin of their bin.
"""

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
BINS = 2048


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Callable[..., Any], numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no writable cache folder: a read-only install
        return cast(Callable[..., Any], numba.njit(**options)(function))


@_compiled
def _count(near: Array, spans: Array, kin: Array, bins: int, above: Array, tied: Array, candidates: Array) -> None:
    """above, tied (n, g) and candidates (n,) for near (n, m) and kin (n, g) in falling order, -inf at the end."""
    m, g = near.shape[1], kin.shape[1]
    reached = np.empty(g + 1, np.int64)
    over = np.empty(bins + 1, np.int64)  # kin in higher bins
    bin_of = np.empty(m, np.int32)
    for i in range(near.shape[0]):
        row, mine = near[i], kin[i]
        number = 0
        for j in range(g):
            reached[j] = 0
            number += mine[j] > -np.inf
        lowest = mine[number - 1] if number else np.float32(np.inf)
        highest = mine[0] if number else np.float32(np.inf)
        spread = highest - lowest
        scale = np.float32(bins - 1) / spread if spread > 0 else np.float32(0)
        if not np.isfinite(scale):
            scale = np.float32(0)
        # the same roundings for kin and strangers, none of which turns an order round: a higher bin is a higher affinity
        for j in range(m):
            bin_of[j] = np.int32((min(max(row[j], lowest), highest) - lowest) * scale)
        at = number
        for b in range(bins):
            while at > 0 and np.int32((mine[at - 1] - lowest) * scale) <= b:
                at -= 1
            over[b] = at
        total = 0
        for part in range(2):
            start, stop = (0, spans[i, 0]) if part == 0 else (spans[i, 1], m)
            for j in range(start, stop):
                value = row[j]
                total += value > -np.inf
                if value < lowest:
                    continue
                b = bin_of[j]
                at = over[b]
                stops = over[b - 1] if b > 0 else number
                if stops - at > 8:  # many kin in one bin: halve
                    while stops > at:
                        half = (at + stops) // 2
                        if mine[half] > value:
                            at = half + 1
                        else:
                            stops = half
                else:
                    while at < stops and mine[at] > value:
                        at += 1
                reached[at] += 1  # kin from `at` on are not nearer than it
                if mine[at] == value:
                    tied[i, at] += 1  # held by the first of a tie until below
        candidates[i] = total
        running = 0
        for j in range(number):
            running += reached[j]
            if j > 0 and mine[j] == mine[j - 1]:
                above[i, j], tied[i, j] = above[i, j - 1], tied[i, j - 1]
            else:
                above[i, j] = running - tied[i, j]


def strangers(near: Tensor, spans: Tensor, kin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, g) strangers above and tied with each kin, and (n,) all of them."""
    above, tied = torch.zeros(kin.shape, dtype=torch.int64), torch.zeros(kin.shape, dtype=torch.int64)
    candidates = torch.empty(len(near), dtype=torch.int64)
    near, spans, kin = near.contiguous(), spans.contiguous(), kin.contiguous()
    _count(near.numpy(), spans.numpy(), kin.numpy(), BINS, above.numpy(), tied.numpy(), candidates.numpy())
    return above, tied, candidates
