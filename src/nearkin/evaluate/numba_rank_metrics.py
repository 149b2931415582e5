"""Retrieval metrics from rank counts, compiled: the equations of `rank_metrics.py`, one query at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearkin.evaluate.rank_counts import RankCounts
from nearkin.search.numba_scan import compiled

Array = NDArray[Any]


@compiled(set())
def _none_of(others: int, searched: int, places: int) -> float:
    """The probability that none of the `searched` is in the first `places` of a random order of `others` + `searched`."""
    if places > others:
        return 0.0
    left = 1.0
    for place in range(places):
        left *= (others - place) / (others + searched - place)
    return left


@compiled(set())
def _precisions(before: int, size: int, positives_above: int, slope: float, places: int, harmonic: Array) -> float:
    """The expected sum, over the first `places` of a tie, of the precision there if each held a positive."""
    if size == 1:
        return (positives_above + 1) / (before + 1)
    steps: float = harmonic[before + places] - harmonic[before]
    return slope * places + (positives_above + 1 - slope * (before + 1)) * steps


@compiled(set())
def _reciprocal_rank(above: int, negatives: int, positives: int) -> float:
    """The expected 1 / rank of the first positive of a tie."""
    total, chance, size = 0.0, 1.0, negatives + positives
    for place in range(negatives + 1):  # negatives before it
        here = chance * positives / (size - place)
        total += here / (above + place + 1)
        chance *= (negatives - place) / (size - place)
    return total


@compiled(set())
def _all_positive(above: Array, tied: Array, weight: Array, limit: int) -> float:
    """The probability that the first `limit` are all positives."""
    leading, positives, negatives = 0, 0, 0
    for e in range(above.size):
        if weight[e] == 0 or above[e] > 0:
            break
        if tied[e] == 0:
            leading += weight[e]
        else:
            positives, negatives = positives + weight[e], tied[e]
    return 1.0 if limit <= leading else _none_of(positives, negatives, limit - leading)


@compiled(set())
def _fill_metrics(at: Any, ks: Array, harmonic: Array, found: Array) -> None:
    """Fill found (n, 4 c + 4) from rank counts: four metrics for each of the c ks, then r-precision, map, map@r and mrr."""
    last = 4 * ks.size
    for i in range(at.positives.size):
        positives, candidates, row = at.positives[i], at.candidates[i], found[i]
        if positives == 0:
            row[:] = np.nan
            continue
        row[:] = 0.0
        for e in range(at.above.shape[1]):
            if at.weight[i, e] == 0:
                break
            if e > 0 and at.positives_above[i, e] == at.positives_above[i, e - 1]:  # of the same tie
                continue
            before, size = at.above[i, e] + at.positives_above[i, e], at.tied[i, e] + at.positives_tied[i, e]
            slope, share = (at.positives_tied[i, e] - 1) / max(size - 1, 1), at.positives_tied[i, e] / size
            row[last + 1] += share * _precisions(before, size, at.positives_above[i, e], slope, size, harmonic)
            for c in range(ks.size + 1):
                limit = positives if c == ks.size else min(ks[c], candidates)
                places = min(limit - before, size)
                if places > 0:
                    hits, precisions = (last, last + 2) if c == ks.size else (4 * c, 4 * c + 2)
                    row[hits] += share * places
                    row[precisions] += share * _precisions(before, size, at.positives_above[i, e], slope, places, harmonic)
        above, tied = at.above[i, 0], at.tied[i, 0]
        for c in range(ks.size):
            limit = min(ks[c], candidates)
            row[4 * c] /= limit
            row[4 * c + 1] = 1 - _none_of(tied, at.positives_tied[i, 0], max(limit - above, 0))
            row[4 * c + 2] /= min(positives, limit)
            row[4 * c + 3] = _all_positive(at.above[i], at.tied[i], at.weight[i], limit)
        row[last : last + 3] /= positives
        row[last + 3] = _reciprocal_rank(above, tied, at.positives_tied[i, 0])


def rank_metrics(at: RankCounts, ks: Sequence[int]) -> dict[str, Tensor]:
    """Every retrieval metric of every query, (n,) float64; NaN for a query without a positive."""
    arrays = RankCounts(*(x.numpy() for x in at))  # type: ignore[arg-type]
    harmonic = np.concatenate([np.zeros(1), np.cumsum(1 / np.arange(1, int(at.candidates.max()) + 1))])
    found = np.empty((len(at.positives), 4 * len(ks) + 4))
    _fill_metrics(arrays, np.array(ks, np.int64), harmonic, found)
    names = [f"{name}@{k}" for k in ks for name in ("precision", "recall", "map", "consistency")]
    columns = torch.from_numpy(found).T
    return dict(zip([*names, "r_precision", "map", "map@r", "mrr"], columns, strict=True))
