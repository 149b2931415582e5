"""Counting strangers before each kin, compiled, from float32 products with a bound on their error.

A query's kin get their exact scores first. The range they span is cut into bins, and strangers are counted by the bin of their
product; only in bins with kin in them, or near to one, a stranger is compared with single kin, and only where the bound on
the error leaves it open, by its own exact score. So the ranking is exact, and nearly all of the work is one product.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearkin.evaluate.standing import Standing
from nearkin.search.measure import Factors, Measure, grain, shown, slack
from nearkin.search.numba_scan import compiled

Array = NDArray[Any]
BINS = 4096
FLOAT = np.float32


@compiled({"nnan", "nsz", "contract", "reassoc"})
def _score(query: Array, reference: Array, mine: float, theirs: float, squared: bool) -> float:
    """One pair, summed in float64."""
    total = 0.0
    if squared:
        for k in range(query.size):
            gap = np.float64(query[k]) * mine - np.float64(reference[k]) * theirs
            total -= gap * gap
    else:
        for k in range(query.size):
            total += (np.float64(query[k]) * mine) * (np.float64(reference[k]) * theirs)
    return total


@compiled(set())
def _settled(score: float, grain: float) -> FLOAT:
    """To whole grains, and to float32: what is equal but for rounding becomes equal."""
    return FLOAT(np.round(score / grain) * grain) if grain > 0 else FLOAT(score)


@compiled(set())
def _kin_scores(
    queries: Array, references: Array, mine: Array, theirs: Array, squared: bool, grain: Array,
    spans: Array, own: Array, kin: Array, number: Array,
) -> None:  # fmt: skip
    """Minus the exact scores of each query's kin, (n, g) float32 in no order, and how many there are."""
    for i in range(queries.shape[0]):
        count = 0
        for j in range(spans[i, 0], spans[i, 1]):
            if j != own[i]:
                kin[i, count] = -_settled(_score(queries[i], references[j], mine[i], theirs[j], squared), grain[i])
                count += 1
        number[i] = count


@compiled({"nnan", "nsz", "contract"})
def _bin(products: Array, minus: Array, low: FLOAT, high: FLOAT, scale: FLOAT, bins: Array) -> None:
    """Which bin each product falls into; what lies outside falls into the first or the last."""
    for j in range(products.size):
        bins[j] = np.uint32(np.int32((min(max(products[j] + minus[j], low), high) - low) * scale))


@compiled(set())
def _place(ladder: Array, start: int, number: int, value: FLOAT) -> int:
    """How many of the falling `ladder` are above the value, when the first `start` are: a few steps, then halving."""
    at, stop = start, min(start + 8, number)
    while at < stop and ladder[at] > value:
        at += 1
    if at < stop:
        return at
    stop = number
    while at < stop:
        half = (at + stop) // 2
        if ladder[half] > value:
            at = half + 1
        else:
            stop = half
    return at


@compiled(set())
def _mark(ladder: Array, number: int, room: FLOAT, low: FLOAT, high: FLOAT, scale: FLOAT, near_kin: Array) -> None:
    """For bins with a product within `room` of a kin's: how many kin stand surely above; -1 for all others."""
    near_kin[:] = -1
    for at in range(number - 1, -1, -1):  # the highest last: of several kin near a bin, its count is the smallest
        first = np.int32((min(max(ladder[at] - room, low), high) - low) * scale)
        last = np.int32((min(max(ladder[at] + room, low), high) - low) * scale)
        near_kin[first : last + 1] = at


@compiled(set())
def _above(
    counts: Array, near_kin: Array, reached: Array, kin: Array, ladder: Array, number: int,
    low: FLOAT, high: FLOAT, scale: FLOAT, above: Array, tied: Array,
) -> None:  # fmt: skip
    """From the strangers in each bin and those placed one by one to those strictly above each kin."""
    b, over = counts.size - 1, 0
    for at in range(number):
        floor = np.int32((min(max(ladder[at], low), high) - low) * scale)
        while b > floor:
            over += counts[b] if near_kin[b] < 0 else 0
            b -= 1
        over += reached[at]
        if at > 0 and kin[at] == kin[at - 1]:
            above[at], tied[at] = above[at - 1], tied[at - 1]
        else:
            above[at] = over - tied[at]


@compiled(set())
def _count(
    products: Array, minus: Array, queries: Array, references: Array, mine: Array, theirs: Array, squared: bool, grain: Array,
    spans: Array, own: Array, kin: Array, number: Array, shift: Array, room: Array, width: int, above: Array, tied: Array,
) -> int:  # fmt: skip
    """Strangers strictly above and tied with each kin, (n, g); returns how many pairs had to be compared exactly."""
    m = products.shape[1]
    bins, counts, near_kin = np.empty(m, np.uint32), np.empty(width, np.int32), np.empty(width, np.int32)
    ladder, reached, exact = np.empty(kin.shape[1], FLOAT), np.empty(kin.shape[1] + 1, np.int64), 0
    for i in range(products.shape[0]):
        size = number[i]
        if size == 0:
            continue
        for at in range(size):
            ladder[at] = kin[i, at] + shift[i]  # in the units of the products
        reached[:] = 0
        counts[:] = 0
        margin = 2 * room[i] + (ladder[0] - ladder[size - 1]) / FLOAT(width // 2)
        low, high = ladder[size - 1] - margin, ladder[0] + margin
        scale = FLOAT(width - 1) / (high - low)
        scale = scale if scale < FLOAT(1e30) else FLOAT(0)
        _bin(products[i], minus, low, high, scale, bins)
        _mark(ladder, size, room[i], low, high, scale, near_kin)
        for part in range(2):
            start, stop = (0, spans[i, 0]) if part == 0 else (spans[i, 1], m)
            for j in range(start, stop):
                b = bins[j]
                counts[b] += 1  # read for the bins far from kin only
                if near_kin[b] < 0 or j == own[i]:
                    continue
                product = products[i, j] + minus[j]
                at = _place(ladder, near_kin[b], size, product)
                if (at > 0 and ladder[at - 1] - product <= room[i]) or (at < size and product - ladder[at] <= room[i]):
                    exact += 1
                    value = _settled(_score(queries[i], references[j], mine[i], theirs[j], squared), grain[i])
                    at = _place(kin[i], 0, size, value)
                    if at < size and kin[i, at] == value:
                        tied[i, at] += 1  # held by the first of a tie
                reached[at] += 1
        if own[i] >= 0 and (own[i] < spans[i, 0] or own[i] >= spans[i, 1]):
            counts[bins[own[i]]] -= 1
        _above(counts, near_kin, reached, kin[i], ladder, size, low, high, scale, above[i], tied[i])
    return exact


@compiled(set())
def _kin_ties(kin: Array, number: Array, kin_above: Array, kin_tied: Array) -> None:
    """Kin strictly nearer than, and as near as, each one."""
    for i in range(kin.shape[0]):
        start = 0
        while start < number[i]:
            stop = start + 1
            while stop < number[i] and kin[i, stop] == kin[i, start]:
                stop += 1
            kin_above[i, start:stop], kin_tied[i, start:stop] = start, stop - start
            start = stop


def standing(
    how: Measure,
    sides: tuple[Tensor, Tensor],
    to_unit: tuple[Tensor, Tensor],
    made: Factors,
    turned: Tensor,
    spans: Tensor,
    own: Tensor,
    rows: slice,
) -> tuple[Standing, float]:
    """The standing of some queries, and the share of pairs that had to be compared exactly.

    `sides` are queries and gallery (sorted by class) as they came, `made` their factors, `turned` (d, m) the gallery's;
    `spans` (n, 2) where the query's class stands in the gallery, `own` (n,) where the query itself does, or -1.
    """
    queries, gallery = sides[0][rows].numpy(), sides[1].numpy()
    mine, theirs, m = to_unit[0][rows].numpy(), to_unit[1].numpy(), turned.shape[1]
    some, here = spans[rows].contiguous().numpy(), own[rows].contiguous().numpy()
    g, n = max(int((some[:, 1] - some[:, 0]).max()), 1), len(queries)
    kin, number = np.full((n, g), np.inf, np.float32), np.empty(n, np.int64)
    part = made._replace(queries=made.queries[rows], squares=made.squares[rows])
    step = grain(how, part).numpy()
    _kin_scores(queries, gallery, mine, theirs, how.squared, step, some, here, kin, number)
    kin.sort(axis=1)
    np.negative(kin, out=kin)  # falling, -inf at the end
    lowest = torch.from_numpy(kin[np.arange(n), np.maximum(number - 1, 0)]).double()
    largest = torch.from_numpy(np.abs(np.where(np.isfinite(kin), kin, 0)).max(1)).double()
    # exact scores are compared as float32, and so are the products they are moved to
    rounding = torch.finfo(torch.float32).eps * (2 * largest + 2 * part.squares)
    room = (slack(how, part, lowest.nan_to_num(neginf=0.0)) + rounding).float().numpy()
    shift = shown(how, part, torch.zeros(n, dtype=torch.float64)).float().numpy()
    above, tied, kin_above, kin_tied = (np.zeros((n, g), np.int64) for _ in range(4))
    kin_tied += 1
    products = torch.mm(part.queries, turned).numpy()
    compared = _count(
        products,
        made.minus.numpy(),
        queries,
        gallery,
        mine,
        theirs,
        how.squared,
        step,
        some,
        here,
        kin,
        number,
        shift,
        room,
        BINS,
        above,
        tied,
    )
    _kin_ties(kin, number, kin_above, kin_tied)
    weight = (np.arange(g) < number[:, None]).astype(np.int64)
    ranked = np.full(n, m, np.int64) - (here >= 0)
    arrays = (above, tied, kin_above, kin_tied, weight, number, ranked)
    return Standing(*(torch.from_numpy(array) for array in arrays)), compared / products.size
