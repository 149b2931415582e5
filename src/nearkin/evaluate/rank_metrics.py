"""Retrieval metrics from rank counts, with ties as the mean over all their orders.

Among tied points every order is equally likely, so a tie contributes its expected value, in closed form.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.evaluate.rank_counts import RankCounts


def rank_metrics(at: RankCounts, ks: Sequence[int]) -> dict[str, Tensor]:
    """Every retrieval metric of every query, (n,) float64; NaN for a query without a positive."""
    tied_rows = at.has_tie.nonzero()[:, 0]
    found = {name: values.double() for name, values in _metrics_untied(at, ks).items()}
    if len(tied_rows):
        for name, values in _metrics_with_ties(at.some(tied_rows), ks).items():
            found[name][tied_rows] = values.double()
    return {name: torch.where(at.positives > 0, values, torch.nan) for name, values in found.items()}


def gains(at: RankCounts, ks: Sequence[int]) -> dict[str, Tensor]:
    """ "ndcg@k" of every query, (n,) float64: the discounted gain 1 / log2(1 + rank) of positives, over that of the best ranking.

    A positive in a tie has the mean discount of the ranks of the tie.
    """
    most = int(at.candidates.max()) if len(at.candidates) else 0
    ranks = torch.arange(1, most + 1, dtype=torch.float64, device=at.above.device)
    total = torch.cat([ranks.new_zeros(1), (1 / torch.log2(1 + ranks)).cumsum(0)])  # of the first 0, 1, 2, ... ranks
    size, before = (at.tied + at.positives_tied).clamp_min(1), (at.above + at.positives_above).clamp_max(most)
    found = {}
    for k in ks:
        limit = at.candidates.clamp_max(k)
        reached = torch.minimum(before + size, limit[:, None])
        gain = at.weight / size.double() * (total[reached] - total[torch.minimum(before, reached)])
        found[f"ndcg@{k}"] = torch.where(at.positives > 0, gain.sum(1) / total[torch.minimum(at.positives, limit)], torch.nan)
    return found


def _metrics_untied(at: RankCounts, ks: Sequence[int]) -> dict[str, Tensor]:
    """The definitions without ties: the j-th positive has one rank."""
    place = torch.arange(1, at.above.shape[1] + 1, device=at.above.device)
    rank = torch.where(at.weight > 0, at.above + place, at.candidates[:, None] + 1)  # (n, g); padding ranks last
    precision = place / rank.double()
    found: dict[str, Tensor] = {}
    for k in ks:
        limit = at.candidates.clamp_max(k)
        hit = rank[:, :k] <= limit[:, None]
        hits = hit.sum(1)
        found[f"precision@{k}"] = hits / limit.double()
        found[f"recall@{k}"] = hit[:, 0]
        found[f"map@{k}"] = (precision[:, :k] * hit).sum(1) / torch.minimum(at.positives, limit)
        found[f"consistency@{k}"] = hits == limit
    hit = rank <= at.positives[:, None]
    found["r_precision"] = hit.sum(1) / at.positives.double()
    found["map"] = (precision * (at.weight > 0)).sum(1) / at.positives
    found["map@r"] = (precision * hit).sum(1) / at.positives
    found["mrr"] = 1 / rank[:, 0].double()
    return found


def _metrics_with_ties(at: RankCounts, ks: Sequence[int]) -> dict[str, Tensor]:
    """The same, with the expected value of every tie."""
    ties = _ties(at)
    found: dict[str, Tensor] = {}
    for k in ks:
        limit = at.candidates.clamp_max(k)  # (n,)
        near = _reached(ties, k)
        found[f"precision@{k}"] = _hits(near, limit) / limit
        found[f"recall@{k}"] = 1 - _none_of(at.tied[:, 0], at.positives_tied[:, 0], limit - at.above[:, 0])
        found[f"map@{k}"] = _precisions(near, limit) / torch.minimum(at.positives, limit)
        found[f"consistency@{k}"] = _all_positive(at, limit)
    found["r_precision"] = _hits(ties, at.positives) / at.positives
    found["map"] = _precisions(ties, at.candidates) / at.positives
    found["map@r"] = _precisions(ties, at.positives) / at.positives
    found["mrr"] = _reciprocal_rank(at)
    return found


class _Ties(NamedTuple):
    """What the sums over positives need from each entry, (n, g)."""

    size: Tensor  # t, of the tie
    before: Tensor  # a, all points strictly nearer
    positives_above: Tensor  # h
    slope: Tensor  # (p - 1) / (t - 1)
    share: Tensor  # weight / t
    harmonic: Tensor  # 0, 1, 1 + 1/2, ...


def _ties(at: RankCounts) -> _Ties:
    size, before = at.tied + at.positives_tied, at.above + at.positives_above
    slope = (at.positives_tied - 1) / (size - 1).clamp_min(1).double()
    most = int(at.candidates.max())
    steps = 1 / torch.arange(1, most + 1, dtype=torch.float64, device=size.device)
    harmonic = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
    return _Ties(size, before.clamp_max(most), at.positives_above, slope, at.weight / size.double(), harmonic)


def _reached(ties: _Ties, k: int) -> _Ties:
    """Drop the entries at the end that no query reaches within its first k."""
    width = max(int((ties.before < k).any(0).sum()), 1)
    return ties._replace(**{name: getattr(ties, name)[:, :width] for name in ("size", "before", "positives_above", "slope", "share")})


def _hits(ties: _Ties, limit: Tensor) -> Tensor:
    """(n,) expected positives among the first `limit` (n,)."""
    places = torch.minimum((limit[:, None] - ties.before).clamp_min(0), ties.size)  # of the tie within the limit
    return (ties.share * places).sum(1)


def _precisions(ties: _Ties, limit: Tensor) -> Tensor:
    """(n,) the expected sum, over positives among the first `limit`, of the precision at their rank.

    In a tie of t points with p positives, after a points with h positives, rank i of the tie holds a positive with probability p / t; then
    the first a + i points hold h + 1 + (i - 1)(p - 1)/(t - 1) positives on average.
    """
    places = torch.minimum((limit[:, None] - ties.before).clamp_min(0), ties.size)
    ends = (ties.before + places).clamp_max(len(ties.harmonic) - 1)
    steps = ties.harmonic[ends] - ties.harmonic[ties.before]
    total = ties.slope * places + (ties.positives_above + 1 - ties.slope * (ties.before + 1)) * steps
    return (ties.share * total).sum(1)


def _none_of(others: Tensor, searched: Tensor, places: Tensor) -> Tensor:
    """(n,) the probability that none of the `searched` is in the first `places` of a random order of `others` + `searched`."""
    places = places.clamp_min(0)
    size = others + searched
    some = torch.minimum(places, others).double()
    log = _log_falling(others.double(), some) - _log_falling(size.double(), some)
    return torch.where(places > others, 0.0, torch.where(places == 0, 1.0, log.exp()))


def _all_positive(at: RankCounts, limit: Tensor) -> Tensor:
    """(n,) the probability that the first `limit` are all positives."""
    ahead = at.weight * (at.above == 0)
    leading = (ahead * (at.tied == 0)).sum(1)  # ranked before every negative
    tie = ahead * (at.tied > 0)
    positives, negatives = tie.sum(1), (at.tied * (tie > 0)).amax(1)
    return _none_of(positives, negatives, limit - leading)


def _reciprocal_rank(at: RankCounts) -> Tensor:
    """(n,) the expected 1 / rank of the first positive."""
    first = torch.stack([at.above[:, 0], at.tied[:, 0], at.positives_tied[:, 0]], 1)
    kinds, which = torch.unique(first, dim=0, return_inverse=True)
    values = torch.empty(len(kinds), dtype=torch.float64, device=first.device)
    tied_rows = kinds[:, 1] > 0
    values[~tied_rows] = 1 / (kinds[~tied_rows, 0] + 1).double()
    for at_kind in tied_rows.nonzero()[:, 0].tolist():
        above, tied, positives = kinds[at_kind].tolist()
        place = torch.arange(1, tied + 2, dtype=torch.float64, device=first.device)  # rank of the first positive within the tie
        size = float(tied + positives)
        # a positive at `place` and negatives before it: C(size - place, positives - 1) / C(size, positives)
        log = _log_falling(torch.full_like(place, tied), place - 1) - _log_falling(torch.full_like(place, size), place)
        values[at_kind] = (log.exp() * positives / (above + place)).sum()
    return values[which]


def _log_falling(n: Tensor, k: Tensor) -> Tensor:
    """log n (n - 1) ... (n - k + 1)."""
    return torch.lgamma(n + 1) - torch.lgamma(n - k + 1)
