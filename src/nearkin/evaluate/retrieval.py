"""Retrieval: how high do a query's positives count in its ranking of the gallery?"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import Comparison, Groups, compare, own_places, ranker, whole_numbers_above_zero
from nearkin.evaluate.rank_counts import RankCounts, rank_counts, single_tie
from nearkin.evaluate.rank_metrics import rank_metrics
from nearkin.evaluate.score import DRAWS, Score, bootstrap_intervals
from nearkin.search.exclusion import Exclusion
from nearkin.search.measure import in_range, measure
from nearkin.search.threads import run_in_threads

NO_POSITIVE = "no positive in the gallery"
# Pairs up to which nothing is compiled: the first call with an empty cache waits 19 s for numba. Once compiled it is ahead of torch by
# 1 to 3 ms at 100 x 100 (of 128 and 16 dimensions), 3 to 12 at 300, 17 at 500, 20 to 40 at 1000, 60 to 140 at 2000, and by nothing that
# is sure at 4000.
SMALL = 1 << 20


@takes_arrays
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
    positives in the gallery are left out and counted. Ties give the expected value over all their orders, and k above the number
    of candidates is lowered to it. docs/metrics.md defines every figure.
    """
    ks = whole_numbers_above_zero(ks)
    comparison = compare(queries, gallery, affinity, groups)
    return retrieval_scores(_every_query(comparison, ks), ks, notes=comparison.notes, split=split, draws=draws, seed=seed)


Piece = tuple[dict[str, Tensor], Tensor, Tensor]  # metrics, R and the number of candidates of some queries


def retrieval_scores(
    found: Piece, ks: tuple[int, ...], *, notes: tuple[str, ...] = (), split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, Score]:
    """The scores of `retrieval`, from what every query came to."""
    values, positives, candidates = found
    return _scores(values, positives, candidates, notes + _clamped_note(ks, positives, candidates), ks, split, draws, seed)


def metrics_of(at: RankCounts, ks: Sequence[int], compiled: bool = True) -> Piece:
    """What some queries came to; `compiled` by numba, where it is there."""
    compiled = compiled and at.positives.device.type == "cpu" and find_spec("numba") is not None
    return (_compiled_metrics() if compiled else rank_metrics)(at, ks), at.positives, at.candidates


def few_pairs(n: int, m: int) -> bool:
    """Whether torch is as quick as what would have to be compiled."""
    return n * m <= SMALL


def concatenate_pieces(pieces: Sequence[Piece]) -> Piece:
    """Pieces of consecutive queries as one."""
    columns, positives, candidates = zip(*pieces, strict=True)
    return {name: torch.cat([column[name] for column in columns]) for name in columns[0]}, torch.cat(positives), torch.cat(candidates)


CountRows = Callable[[slice], list[RankCounts]]  # of consecutive queries, in one part or more


def _every_query(comparison: Comparison, ks: tuple[int, ...]) -> Piece:
    """All metrics of all queries, (n,) each, with R and the number of candidates, block by block."""
    comparison, spans, order = _by_class(comparison)
    on_cpu = spans.device.type == "cpu"
    compiled = on_cpu and not few_pairs(len(spans), len(comparison.gallery.embeddings)) and find_spec("numba") is not None
    count, step = (_tiled(comparison, spans) if compiled else None) or _in_float64(comparison, spans)
    blocks = [slice(start, start + step) for start in range(0, len(spans), step)]
    pieces: dict[int, list[Piece]] = {}

    @torch.no_grad()  # a setting of each thread
    def work(some: slice) -> None:
        for rows in blocks[some]:
            pieces[rows.start] = [metrics_of(at, ks, compiled) for at in count(rows)]

    if on_cpu:
        run_in_threads(work, len(blocks), 1)
    else:
        work(slice(0, len(blocks)))
    back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    values, positives, candidates = concatenate_pieces([piece for rows in blocks for piece in pieces[rows.start]])
    return {name: column[back] for name, column in values.items()}, positives[back], candidates[back]


def _in_float64(comparison: Comparison, spans: Tensor) -> tuple[CountRows, int]:
    """For any affinity, exclusion and device: all affinities from float64 products."""
    ready = ranker(comparison)

    def count(rows: slice) -> list[RankCounts]:
        starts = range(rows.start, min(rows.stop, len(spans)), ready.step())
        parts = [slice(start, min(start + ready.step(), rows.stop)) for start in starts]
        return [rank_counts(ready.scores(part), spans[part]) for part in parts]

    return count, min(ready.step(), _share(len(spans)))


def _share(n: int) -> int:
    """Rows of each thread, when all get as many."""
    return -(-n // torch.get_num_threads())


def _compiled_metrics() -> Callable[[RankCounts, Sequence[int]], dict[str, Tensor]]:
    from nearkin.evaluate import numba_rank_metrics

    return numba_rank_metrics.rank_metrics


def _tiled(comparison: Comparison, spans: Tensor) -> tuple[CountRows, int] | None:
    """On a CPU with numba: float32 products, and exact scores where they leave the order open. None where they cannot serve."""
    how, q, r = measure(comparison.affinity), comparison.queries.embeddings, comparison.gallery.embeddings
    excluded, among = comparison.excluded, comparison.queries is comparison.gallery
    own = torch.full((len(q),), -1) if excluded == Exclusion() else own_places(excluded)
    if how is None or own is None or not q.dtype == r.dtype == torch.float32:
        return None
    q, r = in_range(q.contiguous()), in_range(r.contiguous())
    if torch.float64 in (q.dtype, r.dtype):
        return None
    from nearkin.evaluate import rank_tiles

    step = min(rank_tiles.SIDE, _share(len(q)))
    among = among and how.unit_queries == how.unit_references
    ready = rank_tiles.sides(how, q, r, spans, own, step if among else rank_tiles.SIDE)
    if among and rank_tiles.fits_in_memory(ready):
        counted = rank_tiles.count_all(ready)
        return None if counted is None else (lambda rows: [counted[rows.start]], step)
    in_float64 = cache(lambda: _in_float64(comparison, spans)[0])
    too_close: list[slice] = []

    def count(rows: slice) -> list[RankCounts]:
        at = None if too_close else rank_tiles.count_rows(ready, rows)
        if at is None:  # copies, or a collapsed embedding
            too_close.append(rows)
            return in_float64()(rows)
        return [at]

    return count, step


def _by_class(comparison: Comparison) -> tuple[Comparison, Tensor, Tensor]:
    """Both sides sorted by class, (n, 2) where each query's class starts and ends in the gallery, and the order of the queries."""
    mine, theirs = comparison.same_class
    (mine, order), (theirs, others) = mine.sort(stable=True), theirs.sort(stable=True)
    gallery = Points(comparison.gallery.embeddings[others])
    queries = gallery if comparison.queries is comparison.gallery else Points(comparison.queries.embeddings[order])
    spans = torch.stack([torch.searchsorted(theirs, mine), torch.searchsorted(theirs, mine, right=True)], 1)
    excluded = comparison.excluded.of_references(others).of_queries(order)
    return comparison._replace(queries=queries, gallery=gallery, excluded=excluded), spans, order


def _scores(
    values: dict[str, Tensor],
    positives: Tensor,
    candidates: Tensor,
    notes: tuple[str, ...],
    ks: tuple[int, ...],
    split: str | None,
    draws: int,
    seed: int,
) -> dict[str, Score]:
    counted = positives > 0
    intervals = bootstrap_intervals(torch.stack(list(values.values()), 1), draws, seed)
    chance = _chance(positives[counted], candidates[counted], ks)
    left_out = {NO_POSITIVE: int((~counted).sum())} if not bool(counted.all()) else {}
    scores = {}
    for (name, per_query), (low, high) in zip(values.items(), intervals, strict=True):
        value = float(per_query[counted].mean())  # NaN when nobody is counted
        scores[name] = Score(name, value, low, high, chance.get(name), per_query, int(counted.sum()), left_out, notes, True, split)
    return scores


def _chance(positives: Tensor, candidates: Tensor, ks: tuple[int, ...]) -> dict[str, float]:
    """The mean rank_metrics of a ranking that is one single tie; queries of equal numbers are worked out once."""
    if not len(positives):
        return {}
    most = int(candidates.max()) + 1
    kinds, counts = torch.unique(positives * most + candidates, return_counts=True)  # one number is faster to sort than two
    found = rank_metrics(single_tie(kinds // most, kinds % most), ks)
    return {name: float((values * counts).sum() / counts.sum()) for name, values in found.items()}


def _clamped_note(ks: tuple[int, ...], positives: Tensor, candidates: Tensor) -> tuple[str, ...]:
    fewest = int(candidates[positives > 0].min()) if bool((positives > 0).any()) else 0
    short = [k for k in ks if 0 < fewest < k]
    if not short:
        return ()
    number = int((candidates[positives > 0] < max(short)).sum())
    return (f"k was lowered to the number of candidates (at least {fewest}) for {number} queries",)
