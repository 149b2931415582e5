"""NCA in a few dimensions: value and gradient of one query at a time, compiled by numba.

Up to some eight dimensions a difference is cheaper than a matrix product, and it loses no digits: a map to the plane grows
until its points are thousands of bits apart, where products need float64. All that a query says is known once its own sums
are, so one exponential for each pair serves value and gradient. Memory is O(n) for every thread.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearkin.kernels.numba_loops import Scalar, exp2, outer

Array = NDArray[Any]
ROWS = 256  # queries whose gradients are added in float32 before they go to float64
BITS = math.log2(math.e)
FAR = np.float32(3e38)
LOWEST = np.float32(-127)  # where exp2 gives zero
STILL = 1e-12  # a query this sure of its choice moves nobody


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """For compiled callers. Slices come in as arguments: an index from an offset could be negative, and would not be vectorised."""
    return cast(Callable[..., Any], numba.njit(fastmath=True, nogil=True, error_model="numpy")(function))


@inner
def _distances(z: Array, i: int, near: Array) -> None:
    """Squared distances (n,) of point i to all points z (p, n), two dimensions at a time: the memory is what takes time."""
    for k in range(0, z.shape[0], 2):
        first, second, x, y = z[k], z[k + 1], z[k, i], z[k + 1, i]
        if k == 0:
            for j in range(near.size):
                near[j] = (first[j] - x) * (first[j] - x) + (second[j] - y) * (second[j] - y)
        else:
            for j in range(near.size):
                near[j] += (first[j] - x) * (first[j] - x) + (second[j] - y) * (second[j] - y)


@inner
def _least(near: Array) -> Scalar:
    least = FAR
    for j in range(near.size):
        least = min(least, near[j])
    return least


@inner
def _raised(near: Array, shift: Scalar) -> Scalar:
    """2^(shift - near) in place; their sum."""
    total = np.float32(0)
    for j in range(near.size):
        near[j] = exp2(max(shift - near[j], LOWEST))
        total += near[j]
    return total


@inner
def _pushed(z: Array, k: int, i: int, start: int, end: int, weight: Scalar, near: Array, mine: Array, theirs: Array) -> None:
    """weight * near * (z_j - z_i) of columns start..end-1 in dimensions k and k + 1: added to i's gradient and taken from theirs."""
    first, second, out, other = z[k, start:end], z[k + 1, start:end], theirs[k, start:end], theirs[k + 1, start:end]
    x, y, some = z[k, i], z[k + 1, i], near[start:end]
    total, totals = np.float32(0), np.float32(0)
    for j in range(some.size):
        w = weight * some[j]
        push, pushes = w * (first[j] - x), w * (second[j] - y)
        total += push
        totals += pushes
        out[j] -= push
        other[j] -= pushes
    mine[k, i] += total
    mine[k + 1, i] += totals


@outer
def _queries(z: Array, spans: Array, top: int, bottom: int, values: Array, mine: Array, theirs: Array, near: Array) -> None:
    """Queries top..bottom-1 among all points z (p, n) in root-bits, sorted by class.

    Fills values (the chance of a wrong choice), and adds to the gradients of the queries `mine` and of the chosen `theirs`, (p, n).
    `near` (n,) is room to work in.
    """
    for i in range(top, bottom):
        low, high = spans[i, 0], spans[i, 1]
        before, kin, after = near[:low], near[low:high], near[high:]
        _distances(z, i, near)
        near[i] = FAR  # no candidate
        right, wrong = _least(kin), min(_least(before), _least(after))
        if max(right, wrong) == FAR:  # no kin: always wrong; nobody else: never
            values[i] = 1.0 if right == FAR else 0.0
            continue
        of_right, of_wrong = _raised(kin, right), _raised(before, wrong) + _raised(after, wrong)
        gap = (math.log2(of_wrong) - wrong) - (math.log2(of_right) - right)
        gap = min(max(gap, -1000.0), 1000.0)
        values[i] = 1 / (1 + 2.0**-gap)
        pull = values[i] / (1 + 2.0**gap)  # q (1 - q), which does not cancel near 1
        if pull < STILL:
            continue
        to_right, to_wrong = np.float32(-pull / of_right), np.float32(pull / of_wrong)
        for k in range(0, z.shape[0], 2):
            _pushed(z, k, i, 0, low, to_wrong, near, mine, theirs)
            _pushed(z, k, i, low, high, to_right, near, mine, theirs)
            _pushed(z, k, i, high, near.size, to_wrong, near, mine, theirs)


def wrong_choices(embedded: Tensor, spans: Tensor) -> tuple[float, Tensor]:
    """The sum over queries of the chance of a wrong choice, and its gradient (n, p); points (n, p) sorted by class."""
    n, p = embedded.shape
    z = np.zeros((p + p % 2, n), np.float32)  # an even number of dimensions
    z[:p] = (embedded * math.sqrt(BITS)).numpy().T
    where = spans.numpy()
    values, slope = np.empty(n), np.zeros(z.shape)

    def some(share: range) -> Array:
        total, near = np.zeros(z.shape), np.empty(n, np.float32)
        for top in share:
            mine, theirs = np.zeros_like(z), np.zeros_like(z)
            _queries(z, where, top, min(top + ROWS, n), values, mine, theirs, near)
            total += mine
            total += theirs
        return total

    threads = min(torch.get_num_threads(), -(-n // ROWS))
    shares = [range(k * ROWS, n, threads * ROWS) for k in range(threads)]
    if threads == 1:
        slope += some(shares[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            for part in pool.map(some, shares):  # added in the order of the shares: no result depends on timing
                slope += part
    return float(values.sum()), torch.from_numpy(slope[:p].T * (2 / math.sqrt(BITS)))
