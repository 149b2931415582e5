"""NCA in a few dimensions: value and gradient of one query at a time, compiled by numba.

Up to about eight dimensions, differences are cheaper than a matrix product, and they lose no digits: a map to the plane grows
until its points are thousands of bits apart, where products need float64. Value and gradient of a query need only its own
sums, so one exponential per pair serves both. Memory is O(n) per thread.
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
ROWS = 256  # queries whose gradients are summed in float32 before they are added in float64
BITS = math.log2(math.e)
FAR = np.float32(3e38)
LOWEST = np.float32(-127)  # where exp2 gives zero
FAINT = np.float32(2.0**-90)  # sums of shares above it have all their digits
STILL = 1e-12  # gradient factor below which a query is skipped


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for compiled callers. They pass slices: an index computed from an offset could be negative, which prevents vectorization."""
    return cast(Callable[..., Any], numba.njit(fastmath=True, nogil=True, error_model="numpy")(function))


@inner
def _distances(z: Array, i: int, h: int, start: int, end: int, dimensions: int, room: Array) -> None:
    """Squared distances of points i and h to the points start..end-1 of z (p, n) in the first dimensions, into room (2, n).

    Two points and two dimensions at a time: reading and writing takes longer than the arithmetic.
    """
    near, other = room[0, start:end], room[1, start:end]
    for k in range(0, dimensions, 2):
        first, second = z[k, start:end], z[k + 1, start:end]
        a, b, c, d = z[k, i], z[k + 1, i], z[k, h], z[k + 1, h]
        if k == 0:
            for j in range(near.size):
                near[j] = (first[j] - a) * (first[j] - a) + (second[j] - b) * (second[j] - b)
                other[j] = (first[j] - c) * (first[j] - c) + (second[j] - d) * (second[j] - d)
        else:
            for j in range(near.size):
                near[j] += (first[j] - a) * (first[j] - a) + (second[j] - b) * (second[j] - b)
                other[j] += (first[j] - c) * (first[j] - c) + (second[j] - d) * (second[j] - d)


@inner
def _shares(z: Array, i: int, h: int, start: int, end: int, room: Array) -> tuple[Scalar, Scalar]:
    """Write 2^-distance from points i and h to the points start..end-1 into room (2, n), and return the two sums."""
    near, other, last = room[0, start:end], room[1, start:end], z.shape[0] - 2
    first, second = z[last, start:end], z[last + 1, start:end]
    a, b, c, d = z[last, i], z[last + 1, i], z[last, h], z[last + 1, h]
    total, its = np.float32(0), np.float32(0)
    if last == 0:
        for j in range(near.size):
            e = exp2(max(-((first[j] - a) * (first[j] - a) + (second[j] - b) * (second[j] - b)), LOWEST))
            f = exp2(max(-((first[j] - c) * (first[j] - c) + (second[j] - d) * (second[j] - d)), LOWEST))
            near[j], other[j] = e, f
            total += e
            its += f
        return total, its
    _distances(z, i, h, start, end, last, room)
    for j in range(near.size):
        e = exp2(max(-(near[j] + (first[j] - a) * (first[j] - a) + (second[j] - b) * (second[j] - b)), LOWEST))
        f = exp2(max(-(other[j] + (first[j] - c) * (first[j] - c) + (second[j] - d) * (second[j] - d)), LOWEST))
        near[j], other[j] = e, f
        total += e
        its += f
    return total, its


@inner
def _sums(z: Array, i: int, h: int, low: int, high: int, room: Array) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Sums of the shares of positives and negatives, of i and of h = i or i + 1, both of the class low..high-1."""
    before, after = _shares(z, i, h, 0, low, room), _shares(z, i, h, high, z.shape[1], room)
    left, right = _shares(z, i, h, low, i, room), _shares(z, i, h, h + 1, high, room)
    _shares(z, i, h, i, h + 1, room)
    between = room[0, h] if h > i else np.float32(0)
    room[0, i], room[1, h] = 0, 0  # no candidates
    return left[0] + right[0] + between, before[0] + after[0], left[1] + right[1] + between, before[1] + after[1]


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
def _factors(i: int, of_right: Scalar, of_wrong: Scalar, apart: float, values: Array) -> tuple[Scalar, Scalar]:
    """The factors that turn shares into slopes, from two sums of shares; the sum of the negatives is to be scaled by 2^`apart`."""
    gap = min(max(math.log2(of_wrong) - math.log2(of_right) + apart, -1000.0), 1000.0)
    values[i] = 1 / (1 + 2.0**-gap)
    pull = values[i] / (1 + 2.0**gap)  # q (1 - q), which does not cancel near 1
    if pull < STILL:
        return np.float32(0), np.float32(0)
    return np.float32(-pull / of_right), np.float32(pull / of_wrong)


@inner
def _chosen(near: Array, i: int, low: int, high: int, values: Array) -> tuple[Scalar, Scalar]:
    """Distances of any size to shares in place, positives and negatives each relative to their nearest; returns the factors."""
    before, same, after = near[:low], near[low:high], near[high:]
    near[i] = FAR  # no candidate
    right, wrong = _least(same), min(_least(before), _least(after))
    if max(right, wrong) == FAR:  # no positive: always wrong; no negative: never
        values[i] = 1.0 if right == FAR else 0.0
        return np.float32(0), np.float32(0)
    of_wrong = _raised(before, wrong) + _raised(after, wrong)
    factors: tuple[Scalar, Scalar] = _factors(i, _raised(same, right), of_wrong, float(right) - float(wrong), values)
    return factors


@inner
def _pushed(z: Array, i: int, h: int, start: int, end: int, room: Array, factor: Scalar, its: Scalar, mine: Array, theirs: Array) -> None:
    """Add slope times (z_j - z_i) for columns start..end-1 to the gradients of i and h, and subtract it from the columns' gradients."""
    near, other = room[0, start:end], room[1, start:end]
    for k in range(0, z.shape[0], 2):
        first, second, out, outs = z[k, start:end], z[k + 1, start:end], theirs[k, start:end], theirs[k + 1, start:end]
        a, b, c, d = z[k, i], z[k + 1, i], z[k, h], z[k + 1, h]
        to_a, to_b, to_c, to_d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for j in range(near.size):
            w, v = factor * near[j], its * other[j]
            wa, wb, vc, vd = w * (first[j] - a), w * (second[j] - b), v * (first[j] - c), v * (second[j] - d)
            to_a += wa
            to_b += wb
            to_c += vc
            to_d += vd
            out[j] -= wa + vc
            outs[j] -= wb + vd
        mine[k, i] += to_a
        mine[k + 1, i] += to_b
        mine[k, h] += to_c
        mine[k + 1, h] += to_d


@outer
def _queries(z: Array, spans: Array, top: int, bottom: int, values: Array, mine: Array, theirs: Array, room: Array) -> None:
    """Queries top..bottom-1, two at a time, among all points z (p, n) in root-bits, sorted by class.

    Fills `values` (the probability of a wrong neighbor) and adds to the gradients (p, n) of queries, `mine`, and of
    references, `theirs`. `room` (2, n) is scratch space.
    """
    i, tried, failed = top, 0, 0
    while i < bottom:
        low, high, of_h = spans[i, 0], spans[i, 1], (np.float32(0), np.float32(0))
        h = min(i + 1, bottom - 1, high - 1)  # the last point of a class is paired with itself and counts once
        near = 4 * failed <= tried  # stop trying where the fast path fails too often
        if near:
            tried += 1
            right, wrong, its_right, its_wrong = _sums(z, i, h, low, high, room)
            near = min(right, wrong, its_right, its_wrong) > FAINT
            failed += not near
        if near:
            of_i = _factors(i, right, wrong, 0.0, values)
            of_h = _factors(h, its_right, its_wrong, 0.0, values) if h > i else of_h
        else:
            _distances(z, i, h, 0, z.shape[1], z.shape[0], room)
            of_i = _chosen(room[0], i, low, high, values)
            of_h = _chosen(room[1], h, low, high, values) if h > i else of_h
        if of_i[1] > 0 or of_h[1] > 0:  # both slopes are zero otherwise
            _pushed(z, i, h, 0, low, room, of_i[1], of_h[1], mine, theirs)
            _pushed(z, i, h, low, high, room, of_i[0], of_h[0], mine, theirs)
            _pushed(z, i, h, high, z.shape[1], room, of_i[1], of_h[1], mine, theirs)
        i = h + 1


def nca_errors(embedded: Tensor, spans: Tensor) -> tuple[float, Tensor]:
    """The sum over queries of the probability of a wrong neighbor, and its gradient (n, p); points (n, p) are sorted by class."""
    n, p = embedded.shape
    z = np.zeros((p + p % 2, n), np.float32)  # an even number of dimensions
    z[:p] = (embedded * math.sqrt(BITS)).numpy().T
    where = spans.numpy()
    values, slope = np.empty(n), np.zeros(z.shape)

    def some(share: range) -> Array:
        total, room = np.zeros(z.shape), np.empty((2, n), np.float32)
        for top in share:
            mine, theirs = np.zeros_like(z), np.zeros_like(z)
            _queries(z, where, top, min(top + ROWS, n), values, mine, theirs, room)
            total += mine
            total += theirs
        return total

    threads = min(torch.get_num_threads(), -(-n // ROWS))
    shares = [range(k * ROWS, n, threads * ROWS) for k in range(threads)]
    if threads == 1:
        slope += some(shares[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            for part in pool.map(some, shares):  # added in the order of the shares, so results do not depend on timing
                slope += part
    return float(values.sum()), torch.from_numpy(slope[:p].T * (2 / math.sqrt(BITS)))
