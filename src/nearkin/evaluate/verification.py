"""Verification: are two points of one class? The share of missed pairs at a given share of false matches."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, takes_arrays
from nearkin.compose.validation import check_share
from nearkin.evaluate.comparison import Comparison, Groups, compare
from nearkin.evaluate.curves import PAIRS, PairCounts, block_resamples, count_pairs, thinned
from nearkin.evaluate.score import DRAWS, Score, interval

RATES = (0.001, 0.01, 0.1)


@takes_arrays
@torch.no_grad()
def verification(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    rates: Sequence[float] = RATES,
    *,
    groups: Groups | None = None,
    split: str | None = None,
    pairs: int | None = PAIRS,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """Compute the false non-match rate at given false match rates.

    A pair matches if its affinity is at least a threshold. "fnmr@r" is the share of pairs of one class that do not match, at the loosest
    threshold at which at most the share r of pairs of two classes does (their false match rate, FMR). A threshold never splits a tie.
    Chance is 1 - r.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels. With ids, the query itself is excluded from the gallery by id.
    gallery : Points (m, d), optional
        By default the queries are compared among themselves, each without itself.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    rates : sequence of float, default (0.001, 0.01, 0.1)
        The false match rates.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded.
    split : str, optional
        The part of the data that was measured; see `Score`.
    pairs : int or None, default 2**26
        Use at most this many pairs, from evenly spaced queries; the notes report it. None uses all pairs.
    draws : int, default 1000
        Bootstrap resamples of blocks of queries for the 95% interval, at most 400 of them are used; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    dict of str to Score
        "fnmr@r" for each rate; smaller is better.

    Raises
    ------
    ValueError
        If there are no positive or no negative pairs, or a rate is not between 0 and 1.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import verification
    >>> points = Points(torch.tensor([[0.0], [1.0], [1.5], [5.0]]), torch.tensor([0, 0, 1, 1]))
    >>> verification(points, rates=(0.25,), draws=0)["fnmr@0.25"].value
    0.5
    """
    for rate in rates:
        check_share("rates", rate)
    comparison = thinned(compare(queries, gallery, affinity, groups), pairs)
    return rates_of(comparison, count_pairs(comparison), rates, split=split, draws=draws, seed=seed)


def rates_of(
    comparison: Comparison,
    found: PairCounts,
    rates: Sequence[float] = RATES,
    *,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """The scores of `verification`, from the counts of the pairs."""
    whole = found.counts.sum(0)[None].double()  # (1, t, 2)
    if not bool((whole.sum((0, 1)) > 0).all()):
        negatives, positives = whole.sum((0, 1)).tolist()
        raise ValueError(f"there are {int(positives)} positive and {int(negatives)} negative pairs; a rate needs both")
    drawn = [
        torch.einsum("sb,btc->stc", weights.to(whole.device).double(), found.counts.double())
        for weights in block_resamples(found, draws, seed)
    ]
    notes = comparison.notes if found.exact else (*comparison.notes, f"{whole.shape[1] - 1} thresholds; the rates are at most too large")
    scores = {}
    for rate in rates:
        name = f"fnmr@{rate:g}"
        low, high = interval(torch.cat([_missed(some, rate) for some in drawn]).cpu()) if drawn else (math.nan, math.nan)
        value = float(_missed(whole, rate)[0])
        scores[name] = Score(name, value, low, high, 1 - rate, None, int(whole.sum()), found.left_out, notes, False, split)
    return scores


def _missed(counts: Tensor, rate: float) -> Tensor:
    """(s,) the share of positive pairs below the loosest threshold that keeps the rate, from counts (s, t, 2), strictest first."""
    negatives, positives = counts.cumsum(1).unbind(2)
    allowed = negatives <= rate * negatives[:, -1:] * (1 + 1e-12)
    matched = torch.where(allowed, positives, 0.0).amax(1)
    return 1 - matched / positives[:, -1]
