"""Ranks: what the standing of a query's kin is worth, with ties as the mean over all their orders.

Among tied points every order is equally likely, so a tie is worth its expected value, in closed form.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.evaluate.rank_counts import Standing


def worth(at: Standing, ks: Sequence[int]) -> dict[str, Tensor]:
    """Every retrieval metric of every query, (n,) float64; NaN for a query without kin."""
    loose = at.loose.nonzero()[:, 0]
    found = {name: values.double() for name, values in _worth_untied(at, ks).items()}
    if len(loose):
        for name, values in _worth_of_ties(at.some(loose), ks).items():
            found[name][loose] = values.double()
    return {name: torch.where(at.kin > 0, values, torch.nan) for name, values in found.items()}


def _worth_untied(at: Standing, ks: Sequence[int]) -> dict[str, Tensor]:
    """The definitions themselves: the j-th kin has one rank."""
    place = torch.arange(1, at.above.shape[1] + 1, device=at.above.device)
    rank = torch.where(at.weight > 0, at.above + place, at.candidates[:, None] + 1)  # (n, g); padding stands behind everybody
    precision = place / rank.double()
    found: dict[str, Tensor] = {}
    for k in ks:
        limit = at.candidates.clamp_max(k)
        hit = rank[:, :k] <= limit[:, None]
        hits = hit.sum(1)
        found[f"precision@{k}"] = hits / limit.double()
        found[f"recall@{k}"] = hit[:, 0]
        found[f"map@{k}"] = (precision[:, :k] * hit).sum(1) / torch.minimum(at.kin, limit)
        found[f"consistency@{k}"] = hits == limit
    hit = rank <= at.kin[:, None]
    found["r_precision"] = hit.sum(1) / at.kin.double()
    found["map"] = (precision * (at.weight > 0)).sum(1) / at.kin
    found["map@r"] = (precision * hit).sum(1) / at.kin
    found["mrr"] = 1 / rank[:, 0].double()
    return found


def _worth_of_ties(at: Standing, ks: Sequence[int]) -> dict[str, Tensor]:
    """The same, every tie as its expected value."""
    ties = _ties(at)
    found: dict[str, Tensor] = {}
    for k in ks:
        limit = at.candidates.clamp_max(k)  # (n,)
        near = _reached(ties, k)
        found[f"precision@{k}"] = _hits(near, limit) / limit
        found[f"recall@{k}"] = 1 - _none_of(at.tied[:, 0], at.kin_tied[:, 0], limit - at.above[:, 0])
        found[f"map@{k}"] = _precisions(near, limit) / torch.minimum(at.kin, limit)
        found[f"consistency@{k}"] = _all_kin(at, limit)
    found["r_precision"] = _hits(ties, at.kin) / at.kin
    found["map"] = _precisions(ties, at.candidates) / at.kin
    found["map@r"] = _precisions(ties, at.kin) / at.kin
    found["mrr"] = _reciprocal_rank(at)
    return found


class _Ties(NamedTuple):
    """What the sums over kin need of each entry, (n, g)."""

    size: Tensor  # t, of the tie
    before: Tensor  # a, everybody strictly nearer
    kin_above: Tensor  # h
    slope: Tensor  # (p - 1) / (t - 1)
    share: Tensor  # weight / t
    harmonic: Tensor  # 0, 1, 1 + 1/2, ...


def _ties(at: Standing) -> _Ties:
    size, before = at.tied + at.kin_tied, at.above + at.kin_above
    slope = (at.kin_tied - 1) / (size - 1).clamp_min(1).double()
    most = int(at.candidates.max())
    steps = 1 / torch.arange(1, most + 1, dtype=torch.float64, device=size.device)
    harmonic = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
    return _Ties(size, before.clamp_max(most), at.kin_above, slope, at.weight / size.double(), harmonic)


def _reached(ties: _Ties, k: int) -> _Ties:
    """Without the entries at the end that no query reaches within its first k."""
    width = max(int((ties.before < k).any(0).sum()), 1)
    return ties._replace(**{name: getattr(ties, name)[:, :width] for name in ("size", "before", "kin_above", "slope", "share")})


def _hits(ties: _Ties, limit: Tensor) -> Tensor:
    """(n,) expected kin among the first `limit` (n,)."""
    places = torch.minimum((limit[:, None] - ties.before).clamp_min(0), ties.size)  # of the tie within the limit
    return (ties.share * places).sum(1)


def _precisions(ties: _Ties, limit: Tensor) -> Tensor:
    """(n,) the expected sum, over kin among the first `limit`, of the precision at their rank.

    In a tie of t with p kin after a others, h of them kin, place i holds kin with probability p / t, and then
    h + 1 + (i - 1)(p - 1)/(t - 1) kin have been met on average among a + i.
    """
    places = torch.minimum((limit[:, None] - ties.before).clamp_min(0), ties.size)
    ends = (ties.before + places).clamp_max(len(ties.harmonic) - 1)
    steps = ties.harmonic[ends] - ties.harmonic[ties.before]
    total = ties.slope * places + (ties.kin_above + 1 - ties.slope * (ties.before + 1)) * steps
    return (ties.share * total).sum(1)


def _none_of(others: Tensor, wanted: Tensor, places: Tensor) -> Tensor:
    """(n,) the probability that none of the `wanted` stands in the first `places` of a shuffled `others` + `wanted`."""
    places = places.clamp_min(0)
    size = others + wanted
    some = torch.minimum(places, others).double()
    log = _log_falling(others.double(), some) - _log_falling(size.double(), some)
    return torch.where(places > others, 0.0, torch.where(places == 0, 1.0, log.exp()))


def _all_kin(at: Standing, limit: Tensor) -> Tensor:
    """(n,) the probability that the first `limit` are all kin."""
    ahead = at.weight * (at.above == 0)
    sure = (ahead * (at.tied == 0)).sum(1)  # before every stranger
    tie = ahead * (at.tied > 0)
    kin, strangers = tie.sum(1), (at.tied * (tie > 0)).amax(1)
    return _none_of(kin, strangers, limit - sure)


def _reciprocal_rank(at: Standing) -> Tensor:
    """(n,) the expected 1 / rank of the first kin."""
    first = torch.stack([at.above[:, 0], at.tied[:, 0], at.kin_tied[:, 0]], 1)
    kinds, which = torch.unique(first, dim=0, return_inverse=True)
    values = torch.empty(len(kinds), dtype=torch.float64, device=first.device)
    loose = kinds[:, 1] > 0
    values[~loose] = 1 / (kinds[~loose, 0] + 1).double()
    for at_kind in loose.nonzero()[:, 0].tolist():
        above, tied, kin = kinds[at_kind].tolist()
        place = torch.arange(1, tied + 2, dtype=torch.float64, device=first.device)  # of the first kin, within the tie
        size = float(tied + kin)
        # kin at `place` and strangers before it: C(size - place, kin - 1) / C(size, kin)
        log = _log_falling(torch.full_like(place, tied), place - 1) - _log_falling(torch.full_like(place, size), place)
        values[at_kind] = (log.exp() * kin / (above + place)).sum()
    return values[which]


def _log_falling(n: Tensor, k: Tensor) -> Tensor:
    """log n (n - 1) ... (n - k + 1)."""
    return torch.lgamma(n + 1) - torch.lgamma(n - k + 1)
