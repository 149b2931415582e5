"""Count the negatives before each positive, compiled, from float32 products with a bound on their error.

The positives of a query get exact scores first. The range they span is cut into bins, and negatives are counted by the bin of their
product. A negative is compared with single positives only in bins that hold a positive or are close to one, and by its exact score
only where the error bound leaves the order open. So the ranking is exact, and nearly all of the work is one product.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearkin.evaluate.rank_counts import RankCounts
from nearkin.search.measure import Factors, Measure, grain, shown, slack
from nearkin.search.numba_scan import compiled

Array = NDArray[Any]
FLOAT = np.float32
ONE = np.uint16(1)
FEWEST_BINS, MOST_BINS = 512, 8192
COARSE = 4  # low bits of a bin number that are dropped where positives are counted
PAD = 16  # unused bins at the end of a row: rows a power of two apart would compete for the same cache lines


class RankState(NamedTuple):
    """What n queries need to rank negatives among their g or fewer positives, and what has been counted so far."""

    queries: Array  # (n, d) float64, normalized if the measure requires it
    spans: Array  # (n, 2) where the class of the query starts and ends in the gallery
    own: Array  # (n,) position of the query itself, or -1
    grain: Array  # (n,)
    positives: Array  # (n, g) exact scores in float32, descending, -inf at the end
    thresholds: Array  # (n, g) the same in units of the products
    positive_bins: Array  # (n, g) their bins
    number: Array  # (n,) number of positives
    low: Array  # (n,) the product at which the first bin starts
    scale: Array  # (n,) bins per unit
    tolerance: Array  # (n,) how far a product can be from its score
    counts: Array  # (n, bins) negatives by bin; the highest bit is set where a product may be within `tolerance` of a positive
    above: Array  # (n, bins / 16) positives in bins above these sixteen
    reached: Array  # (n, g + 1) negatives compared one by one, by the first positive not above them
    tied: Array  # (n, g) those as near as a positive, at the first of equal positives

    def of(self, rows: slice) -> "RankState":
        """Views of some of the queries."""
        return RankState(*(array[rows] for array in self))


class Gallery(NamedTuple):
    """The m points that are ranked, sorted by class."""

    references: Array  # (m, d) float32
    to_unit: Array  # (m,) float64
    minus: Array  # (m,) float32, what is added to the products
    squared: bool


@compiled({"nnan", "nsz", "contract", "reassoc"})
def _distance(queries: Array, i: int, references: Array, j: int, theirs: float) -> float:
    """Minus the squared distance of one pair, summed in float64."""
    total = 0.0
    for k in range(queries.shape[1]):
        gap = queries[i, k] - np.float64(references[j, k]) * theirs
        total -= gap * gap
    return total


@compiled({"nnan", "nsz", "contract", "reassoc"})
def _inner_product(queries: Array, i: int, references: Array, j: int, theirs: float) -> float:
    """The inner product of one pair, summed in float64."""
    total = 0.0
    for k in range(queries.shape[1]):
        total += queries[i, k] * (np.float64(references[j, k]) * theirs)
    return total


@compiled(set())
def _score(queries: Array, i: int, references: Array, j: int, theirs: float, squared: bool) -> float:
    """The score of one pair; two separate functions, since one with both loops is not vectorized."""
    score: float = _distance(queries, i, references, j, theirs) if squared else _inner_product(queries, i, references, j, theirs)
    return score


@compiled(set())
def _rounded(score: float, grain: float) -> FLOAT:
    """Round to multiples of `grain` and to float32, so that scores that differ only by rounding become equal."""
    return FLOAT(np.round(score / grain) * grain) if grain > 0 else FLOAT(score)


@compiled(set())
def _positive_scores(queries: Array, gallery: Gallery, grain: Array, spans: Array, own: Array, positives: Array, number: Array) -> None:
    """Store minus the exact scores of the positives of each query, (n, g) float32 unordered, and how many there are."""
    references, to_unit, squared = gallery.references, gallery.to_unit, gallery.squared
    for i in range(queries.shape[0]):
        count = 0
        for j in range(spans[i, 0], spans[i, 1]):
            if j != own[i]:
                score = _score(queries, i, references, j, to_unit[j], squared)
                positives[i, count] = -_rounded(score, grain[i])
                count += 1
        number[i] = count


@compiled({"nnan", "nsz", "contract"})
def _bin(product: FLOAT, minus: FLOAT, low: FLOAT, scale: FLOAT, top: FLOAT) -> np.uint16:
    """The bin of a product; products outside the range go to the first or the last bin."""
    return np.uint16(np.int32(min(max((product + minus - low) * scale, FLOAT(0)), top)))


@compiled({"nnan", "nsz", "contract"})
def _bin_rows(products: Array, minus: Array, low: Array, scale: Array, top: FLOAT, bins: Array) -> None:
    """Store the bins of the products (h, w) of h queries in the first columns of bins (h, w or more)."""
    for i in range(products.shape[0]):
        start, step = low[i], scale[i]
        for j in range(products.shape[1]):
            bins[i, j] = _bin(products[i, j], minus[j], start, step, top)


@compiled({"nnan", "nsz", "contract"})
def _bin_columns(products: Array, minus: Array, low: Array, scale: Array, top: FLOAT, bins: Array) -> None:
    """The same for w queries in the columns."""
    for i in range(products.shape[0]):
        shift = minus[i]
        for j in range(products.shape[1]):
            bins[i, j] = _bin(products[i, j], shift, low[j], scale[j], top)


@compiled(set())
def _rank_of(descending: Array, i: int, start: int, number: int, value: FLOAT) -> int:
    """How many of the descending row i are above the value, given that the first `start` are: a few steps, then bisection."""
    at, stop = start, min(start + 8, number)
    while at < stop and descending[i, at] > value:
        at += 1
    if at < stop:
        return at
    stop = number
    while at < stop:
        half = (at + stop) >> 1
        if descending[i, half] > value:
            at = half + 1
        else:
            stop = half
    return at


@compiled(set())
def _prepare(state: RankState, shift: Array) -> None:
    """Compute thresholds and bins of the positives, and mark the bins whose products may be within `tolerance` of a positive."""
    (n, g), width, near = state.positives.shape, state.counts.shape[1], 1 << (8 * state.counts.itemsize - 1)
    positives, thresholds, number, tolerances, lows, scales = (
        state.positives, state.thresholds, state.number, state.tolerance, state.low, state.scale
    )  # fmt: skip
    counts, above, positive_bins, top, none = state.counts, state.above, state.positive_bins, FLOAT(width - 1), np.zeros(g, FLOAT)
    for i in range(n):
        size, tolerance = number[i], tolerances[i]
        if size == 0:
            continue
        for at in range(g):
            thresholds[i, at] = positives[i, at] + shift[i]
        margin = 2 * tolerance + (thresholds[i, 0] - thresholds[i, size - 1]) / FLOAT(width // 2)
        low, high = thresholds[i, size - 1] - margin, thresholds[i, 0] + margin
        scale = top / (high - low)
        lows[i], scales[i] = low, scale if scale < FLOAT(1e30) else FLOAT(0)
    first, last = np.empty((n, g), np.uint16), np.empty((n, g), np.uint16)
    _bin_rows(thresholds, none, lows, scales, top, positive_bins)
    _bin_rows(thresholds, none, lows + tolerances, scales, top, first)
    _bin_rows(thresholds, none, lows - tolerances, scales, top, last)
    for i in range(n):
        at = 0
        for coarse in range(above.shape[1] - 1, -1, -1):
            while at < number[i] and positive_bins[i, at] >> COARSE > coarse:
                at += 1
            above[i, coarse] = at
        for at in range(number[i]):
            for b in range(first[i, at], last[i, at] + 1):
                counts[i, b] = near


@compiled(set())
def _count_bins(bins: Array, turned: bool, i: int, start: int, stop: int, counts: Array, doubtful: Array, number: int) -> int:
    """Count the negatives of query i by bin, and list those that may be close to a positive, without a branch."""
    found, high = np.uint64(number), np.uint64(8 * counts.itemsize - 1)  # unsigned, so that indexing needs no check of the sign
    if turned:
        for j in range(start, stop):
            b = bins[j, i]
            count = counts[i, b]
            counts[i, b] = count + ONE
            doubtful[found] = j
            found += np.uint64(count) >> high
    else:
        for j in range(start, stop):
            b = bins[i, j]
            count = counts[i, b]
            counts[i, b] = count + ONE
            doubtful[found] = j
            found += np.uint64(count) >> high
    return int(found)


@compiled(set())
def count_tile(products: Array, turned: bool, left: int, state: RankState, gallery: Gallery) -> int:
    """Rank the gallery points left.. among the positives of the queries, which are the rows of products, or if turned the columns.

    Return how many pairs needed an exact score.
    """
    (h, w), exact = products.shape, 0
    queries, points = (w, h) if turned else (h, w)
    minus, top = gallery.minus[left : left + points], FLOAT(state.counts.shape[1] - 1)
    bins, doubtful = np.empty((h, w + PAD), np.uint16), np.empty(points + 1, np.uint32)
    if turned:
        _bin_columns(products, minus, state.low, state.scale, top, bins)
    else:
        _bin_rows(products, minus, state.low, state.scale, top, bins)
    # read once: each access to a tuple of arrays costs a reference count
    number, spans, whose, tolerances, grain = state.number, state.spans, state.own, state.tolerance, state.grain
    counts, above, thresholds, positives, tied, reached = (
        state.counts,
        state.above,
        state.thresholds,
        state.positives,
        state.tied,
        state.reached,
    )
    exactly, references, to_unit, squared = state.queries, gallery.references, gallery.to_unit, gallery.squared
    for i in range(queries):
        size, tolerance, own = number[i], tolerances[i], whose[i] - left
        if size == 0:
            continue
        start, stop = min(max(spans[i, 0] - left, 0), points), min(max(spans[i, 1] - left, 0), points)
        found = _count_bins(bins, turned, i, 0, start, counts, doubtful, 0)
        found = _count_bins(bins, turned, i, stop, points, counts, doubtful, found)
        if 0 <= own < start or stop <= own < points:
            counts[i, bins[own, i] if turned else bins[i, own]] -= ONE
        for n in range(found):
            j = np.int64(doubtful[n])
            if j == own:
                continue
            b = bins[j, i] if turned else bins[i, j]
            product = (products[j, i] if turned else products[i, j]) + minus[j]
            at = _rank_of(thresholds, i, np.int64(above[i, b >> COARSE]), size, product)
            if (at > 0 and thresholds[i, at - 1] - product <= tolerance) or (at < size and product - thresholds[i, at] <= tolerance):
                exact += 1
                value = _rounded(_score(exactly, i, references, left + j, to_unit[left + j], squared), grain[i])
                at = _rank_of(positives, i, 0, size, value)
                if at < size and positives[i, at] == value:
                    tied[i, at] += 1
            reached[i, at] += 1
    return exact


@compiled(set())
def _finish(state: RankState, above: Array, tied: Array, positives_above: Array, positives_tied: Array, weight: Array) -> None:
    """Convert the counts to the negatives and positives strictly above, and tied with, each positive."""
    counts, positive_bins, positives, number, reached, ties = (
        state.counts, state.positive_bins, state.positives, state.number, state.reached, state.tied
    )  # fmt: skip
    near = 1 << (8 * counts.itemsize - 1)
    for i in range(above.shape[0]):
        b, over, first = counts.shape[1] - 1, 0, 0
        for at in range(number[i]):
            while b > positive_bins[i, at]:
                over += counts[i, b] if counts[i, b] < near else 0
                b -= 1
            over += reached[i, at]
            first = first if positives[i, at] == positives[i, first] else at
            above[i, at] = over - ties[i, at] if first == at else above[i, first]
            tied[i, at], positives_above[i, at], weight[i, at] = ties[i, first], first, 1
            positives_tied[i, first] += 1
        for at in range(number[i]):
            positives_tied[i, at] = positives_tied[i, positives_above[i, at]]
        positives_tied[i, number[i] :] = 1


def start_counting(how: Measure, queries: Tensor, to_unit: Tensor, made: Factors, gallery: Gallery, spans: Array, own: Array) -> RankState:
    """Return the state of some queries (n, d), with nothing counted yet; `made` holds the factors of these queries."""
    exact = (queries.double() * to_unit[:, None]).numpy()
    n, g = len(exact), max(int((spans[:, 1] - spans[:, 0]).max()), 1)
    positives, number, step = np.full((n, g), np.inf, FLOAT), np.empty(n, np.int64), grain(how, made).numpy()
    _positive_scores(exact, gallery, step, spans, own, positives, number)
    positives.sort(axis=1)
    np.negative(positives, out=positives)  # descending, -inf at the end
    ends = positives[np.arange(n), 0], positives[np.arange(n), np.maximum(number - 1, 0)]
    first, last = (torch.from_numpy(end).double().nan_to_num(neginf=0.0) for end in ends)
    # exact scores, and the thresholds made from them, are compared as float32
    rounding = torch.finfo(torch.float32).eps * (2 * torch.maximum(first.abs(), last.abs()) + 2 * made.squares)
    tolerance = (slack(how, made, last) + rounding).float().numpy()
    counts = np.zeros((n, bins_for(g)), np.uint16 if len(gallery.references) < 1 << 15 else np.uint32)
    above = np.empty((n, counts.shape[1] >> COARSE), np.int16 if g < 1 << 15 else np.int32)
    low, scale, thresholds = np.zeros(n, FLOAT), np.zeros(n, FLOAT), np.full((n, g), -np.inf, FLOAT)
    reached, tied, positive_bins = np.zeros((n, g + 1), np.int32), np.zeros((n, g), np.int32), np.empty((n, g), np.uint16)
    state = RankState(
        exact, spans, own, step, positives, thresholds, positive_bins, number, low, scale, tolerance, counts, above, reached, tied
    )
    _prepare(state, shown(how, made, torch.zeros(n, dtype=torch.float64)).float().numpy())
    return state


def bins_for(positives: int) -> int:
    """A number of bins at which few negatives share a bin with one of the positives."""
    return min(max(1 << (8 * positives - 1).bit_length(), FEWEST_BINS), MOST_BINS)


def finish_counting(state: RankState, m: int) -> RankCounts:
    """Return the rank counts, after all m points of the gallery have been counted."""
    above, tied, positives_above, positives_tied, weight = (np.zeros(state.positives.shape, np.int64) for _ in range(5))
    _finish(state, above, tied, positives_above, positives_tied, weight)
    ranked = np.full(len(above), m, np.int64) - (state.own >= 0)
    arrays = (above, tied, positives_above, positives_tied, weight, state.number, ranked)
    return RankCounts(*(torch.from_numpy(array) for array in arrays))
