"""Counting strangers before each kin, compiled: a binary search among the sorted kin for every stranger nearer than the last."""

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Callable[..., Any], numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no writable cache folder: a read-only install
        return cast(Callable[..., Any], numba.njit(**options)(function))


@_compiled
def _count(near: Array, spans: Array, kin: Array, above: Array, tied: Array, candidates: Array) -> None:
    """above, tied (n, g) and candidates (n,) for near (n, m) and kin (n, g) in falling order, -inf at the end."""
    m, g = near.shape[1], kin.shape[1]
    size = 1
    while size < g + 1:
        size *= 2
    ladder = np.empty(size, np.float32)  # padded to a power of two, so that the search has no branches
    reached = np.empty(size + 1, np.int64)
    for i in range(near.shape[0]):
        row, mine = near[i], kin[i]
        number = 0
        for j in range(size):
            ladder[j] = mine[j] if j < g else -np.inf
            reached[j] = 0
            number += j < g and mine[j] > -np.inf
        lowest = mine[number - 1] if number else np.float32(np.inf)
        total = 0
        for part in range(2):
            start, stop = (0, spans[i, 0]) if part == 0 else (spans[i, 1], m)
            for j in range(start, stop):
                value = row[j]
                total += value > -np.inf
                if value < lowest:
                    continue
                at, half = 0, size // 2
                while half > 0:
                    at += half if ladder[at + half - 1] > value else 0
                    half //= 2
                reached[at] += 1  # kin from `at` on are not nearer than it
                if ladder[at] == value:
                    tied[i, at] += 1  # held by the first of a tie until below
        candidates[i] = total
        running = 0
        for j in range(number):
            running += reached[j]
            first = j > 0 and mine[j] == mine[j - 1]
            if first:
                above[i, j], tied[i, j] = above[i, j - 1], tied[i, j - 1]
            else:
                above[i, j] = running - tied[i, j]


def strangers(near: Tensor, spans: Tensor, kin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, g) strangers above and tied with each kin, and (n,) all of them."""
    above, tied = torch.zeros(kin.shape, dtype=torch.int64), torch.zeros(kin.shape, dtype=torch.int64)
    candidates = torch.empty(len(near), dtype=torch.int64)
    arrays = (near.contiguous(), spans.contiguous(), kin.contiguous(), above, tied, candidates)
    _count(*(x.numpy() for x in arrays))
    return above, tied, candidates
