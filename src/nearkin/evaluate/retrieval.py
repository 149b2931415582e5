"""Retrieval: how high do a query's kin stand in its ranking of the gallery?"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import torch
from torch import Tensor

from nearkin.affinity import Affinity
from nearkin.evaluate.comparison import Comparison, Groups, compare, own_places, ranker, whole_numbers_above_zero
from nearkin.evaluate.ranks import worth
from nearkin.evaluate.score import DRAWS, Score, bootstrap_intervals
from nearkin.evaluate.standing import Standing, single_tie, standing
from nearkin.points import Points
from nearkin.search.exclusion import Exclusion
from nearkin.search.measure import factors, in_range, inverse_lengths, measure
from nearkin.search.threads import dealt_out

NO_KIN = "no kin in the gallery"
ROWS = 512  # queries whose products are held at once by the compiled engine
MANY_OPEN = 0.05  # share of pairs compared one by one above which float64 products are faster


@torch.no_grad()
def retrieval(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1, 5, 10),
    *,
    groups: Groups | None = None,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """precision@k, recall@k, map@k and consistency@k for each k, r_precision, map, map@r and mrr, in one pass.

    Without a gallery the queries are ranked among themselves. A gallery point with the query's id is the query and is never
    ranked; with `groups`, (n,) or a pair of (n,) and (m,), neither are the points of the query's group. Queries with no
    kin in the gallery are left out and counted. Ties give the expected value over all their orders, and k above the number
    of candidates is lowered to it. docs/metrics.md defines every figure.
    """
    ks = whole_numbers_above_zero(ks)
    comparison = compare(queries, gallery, affinity, groups)
    values, kin, candidates = _every_query(comparison, ks)
    return _scores(values, kin, candidates, comparison.notes + _lowered(ks, kin, candidates), ks, split, draws, seed)


Piece = tuple[dict[str, Tensor], Tensor, Tensor]  # metrics, R and the number of candidates of some queries


def _every_query(comparison: Comparison, ks: tuple[int, ...]) -> Piece:
    """All metrics of all queries, (n,) each, with R and the number of candidates, block by block."""
    comparison, spans = _by_class(comparison)
    compiled = _compiled(comparison, spans)
    stand, step = compiled or _in_float64(comparison, spans)
    pieces: dict[int, Piece] = {}

    @torch.no_grad()  # a setting of each thread
    def work(rows: slice) -> None:
        at = stand(rows)
        pieces[rows.start] = worth(at, ks), at.kin, at.candidates

    if spans.device.type == "cpu":
        dealt_out(work, len(spans), step)
    else:
        for start in range(0, len(spans), step):
            work(slice(start, start + step))
    ordered = [pieces[start] for start in sorted(pieces)]
    values = {name: torch.cat([piece[0][name] for piece in ordered]) for name in ordered[0][0]}
    return values, torch.cat([piece[1] for piece in ordered]), torch.cat([piece[2] for piece in ordered])


def _in_float64(comparison: Comparison, spans: Tensor) -> tuple[Callable[[slice], Standing], int]:
    """For any affinity, exclusion and device: all affinities from float64 products."""
    ready = ranker(comparison)
    return lambda rows: standing(ready.scores(rows), spans[rows]), ready.step()


def _compiled(comparison: Comparison, spans: Tensor) -> tuple[Callable[[slice], Standing], int] | None:
    """On a CPU with numba: float32 products, and exact scores where they leave the order open. None where it cannot serve."""
    how, q, r = measure(comparison.affinity), comparison.queries.embeddings, comparison.gallery.embeddings
    excluded = comparison.excluded
    own = torch.full((len(q),), -1) if excluded == Exclusion() else own_places(excluded)
    single = q.dtype == r.dtype == torch.float32 and q.device.type == "cpu"
    if how is None or own is None or not single or find_spec("numba") is None:
        return None
    q, r = in_range(q.contiguous()), in_range(r.contiguous())
    if torch.float64 in (q.dtype, r.dtype):
        return None
    from nearkin.evaluate import numba_ranks

    to_unit = inverse_lengths(q, how.unit_queries), inverse_lengths(r, how.unit_references)
    made = factors(how, q, r, to_unit)
    turned = made.references.T.contiguous()
    slow, step = _in_float64(comparison, spans)
    open_pairs: list[float] = []

    def stand(rows: slice) -> Standing:
        if open_pairs and max(open_pairs) > MANY_OPEN:  # copies, or a collapsed embedding: products decide too little
            return slow(rows)
        at, share = numba_ranks.standing(how, (q, r), to_unit, made, turned, spans, own, rows)
        open_pairs.append(share)
        return at

    return stand, min(step, ROWS)


def _by_class(comparison: Comparison) -> tuple[Comparison, Tensor]:
    """The gallery sorted by class, and (n, 2) where each query's class starts and ends in it."""
    mine, theirs = comparison.same_class
    theirs, order = theirs.sort(stable=True)
    gallery = Points(comparison.gallery.embeddings[order])
    spans = torch.stack([torch.searchsorted(theirs, mine), torch.searchsorted(theirs, mine, right=True)], 1)
    return comparison._replace(gallery=gallery, excluded=comparison.excluded.of_references(order)), spans


def _scores(
    values: dict[str, Tensor],
    kin: Tensor,
    candidates: Tensor,
    notes: tuple[str, ...],
    ks: tuple[int, ...],
    split: str | None,
    draws: int,
    seed: int,
) -> dict[str, Score]:
    counted = kin > 0
    intervals = bootstrap_intervals(torch.stack(list(values.values()), 1), draws, seed)
    chance = _chance(kin[counted], candidates[counted], ks)
    left_out = {NO_KIN: int((~counted).sum())} if not bool(counted.all()) else {}
    scores = {}
    for (name, per_query), (low, high) in zip(values.items(), intervals, strict=True):
        value = float(per_query[counted].mean())  # NaN when nobody is counted
        scores[name] = Score(name, value, low, high, chance.get(name), per_query, int(counted.sum()), left_out, notes, True, split)
    return scores


def _chance(kin: Tensor, candidates: Tensor, ks: tuple[int, ...]) -> dict[str, float]:
    """The mean worth of a ranking that is one single tie; queries of equal numbers are worked out once."""
    if not len(kin):
        return {}
    most = int(candidates.max()) + 1
    kinds, counts = torch.unique(kin * most + candidates, return_counts=True)  # one number is faster to sort than two
    found = worth(single_tie(kinds // most, kinds % most), ks)
    return {name: float((values * counts).sum() / counts.sum()) for name, values in found.items()}


def _lowered(ks: tuple[int, ...], kin: Tensor, candidates: Tensor) -> tuple[str, ...]:
    fewest = int(candidates[kin > 0].min()) if bool((kin > 0).any()) else 0
    short = [k for k in ks if 0 < fewest < k]
    if not short:
        return ()
    number = int((candidates[kin > 0] < max(short)).sum())
    return (f"k was lowered to the number of candidates (at least {fewest}) for {number} queries",)
