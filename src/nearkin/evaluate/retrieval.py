"""Retrieval: how high the positives of a query rank in the gallery."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import Comparison, Groups, compare, own_places, ranker, whole_numbers_above_zero
from nearkin.evaluate.rank_counts import RankCounts, rank_counts, single_tie
from nearkin.evaluate.rank_metrics import gains, rank_metrics
from nearkin.evaluate.score import DRAWS, Score, bootstrap_intervals
from nearkin.search.exclusion import Exclusion
from nearkin.search.measure import in_range, measure
from nearkin.search.threads import run_in_threads

NO_POSITIVE = "no positive in the gallery"
# Up to this many pairs torch is used, so that the first call does not wait 19 s for numba to compile. Once compiled, numba is faster by
# 1 to 3 ms at 100 x 100 pairs (128 and 16 dimensions), 3 to 12 ms at 300, 17 ms at 500, 20 to 40 ms at 1000 and 60 to 140 ms at 2000.
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
    """Compute all retrieval metrics of a ranking in one pass.

    A gallery point is a positive of a query if it has the same class. With R the number of positives of a query:

    - "precision@k": the share of positives among the first k.
    - "recall@k": 1 if any of the first k is a positive, else 0 (the recall@k of metric learning).
    - "map@k": the mean, over min(R, k), of the precision at each positive among the first k.
    - "consistency@k": 1 if all of the first k are positives, else 0.
    - "r_precision": the precision at R. "map": the average precision. "map@r": the map@k with k = R.
    - "mrr": 1 / rank of the first positive.
    - "ndcg@k": the sum of 1 / log2(1 + rank) over the positives among the first k, divided by that of a perfect ranking.

    Every score is the mean over the queries that have a positive; the others are left out and counted in `left_out`. Tied points, which
    float32 cannot tell apart, give the expected value over all their orders, so no result depends on the order of the rows. A k
    above the number of candidates of a query is clamped to it, and a note reports how many queries were affected. Chance is the value of
    an embedding in which all points tie.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels. With ids, the query itself is excluded from the gallery by id.
    gallery : Points (m, d), optional
        The ranked points, with labels. By default the queries are ranked among themselves, each without itself.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    ks : sequence of int, default (1, 5, 10)
        The cutoffs of the metrics at k.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when a gallery is given.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    draws : int, default 1000
        Bootstrap resamples of the queries for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    dict of str to Score
        The metrics above by name, each with its per-query values.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points, retrieval
    >>> points = Points(torch.tensor([[0.0], [0.1], [0.3], [5.0]]), torch.tensor([0, 0, 1, 1]))
    >>> scores = retrieval(points, ks=(1, 10), draws=0)
    >>> scores["precision@1"]
    <precision@1 0.75, chance 0.3333, 4 counted>
    >>> scores["mrr"].per_query
    tensor([1.0000, 1.0000, 0.3333, 1.0000], dtype=torch.float64)
    >>> scores["precision@10"].notes
    ('k was clamped to the number of candidates (at least 3) for 4 queries',)
    """
    ks = whole_numbers_above_zero(ks)
    comparison = compare(queries, gallery, affinity, groups)
    return retrieval_scores(_every_query(comparison, ks), ks, notes=comparison.notes, split=split, draws=draws, seed=seed)


Piece = tuple[dict[str, Tensor], Tensor, Tensor]  # metrics, number of positives R, and number of candidates of some queries


def retrieval_scores(
    found: Piece, ks: tuple[int, ...], *, notes: tuple[str, ...] = (), split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, Score]:
    """The scores of `retrieval`, from the metrics of every query."""
    values, positives, candidates = found
    return _scores(values, positives, candidates, notes + _clamped_note(ks, positives, candidates), ks, split, draws, seed)


def metrics_of(at: RankCounts, ks: Sequence[int], compiled: bool = True) -> Piece:
    """The metrics of some queries; `compiled` by numba, where it is installed."""
    compiled = compiled and at.positives.device.type == "cpu" and find_spec("numba") is not None
    return {**(_compiled_metrics() if compiled else rank_metrics)(at, ks), **gains(at, ks)}, at.positives, at.candidates


def few_pairs(n: int, m: int) -> bool:
    """Whether there are too few pairs to wait for a compiler."""
    return n * m <= SMALL


def concatenate_pieces(pieces: Sequence[Piece]) -> Piece:
    """Concatenate the metrics of consecutive queries."""
    columns, positives, candidates = zip(*pieces, strict=True)
    return {name: torch.cat([column[name] for column in columns]) for name in columns[0]}, torch.cat(positives), torch.cat(candidates)


CountRows = Callable[[slice], list[RankCounts]]  # counts of consecutive queries, in one part or more


def _every_query(comparison: Comparison, ks: tuple[int, ...]) -> Piece:
    """Compute all metrics of all queries, (n,) each, with R and the number of candidates, block by block."""
    comparison, spans, order = _by_class(comparison)
    on_cpu = spans.device.type == "cpu"
    compiled = on_cpu and not few_pairs(len(spans), len(comparison.gallery.embeddings)) and find_spec("numba") is not None
    count, step = (_tiled(comparison, spans) if compiled else None) or _in_float64(comparison, spans)
    blocks = [slice(start, start + step) for start in range(0, len(spans), step)]
    pieces: dict[int, list[Piece]] = {}

    @torch.no_grad()  # set for each thread
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
    """Rank counts for any affinity, exclusion and device, from float64 products."""
    ready = ranker(comparison)

    def count(rows: slice) -> list[RankCounts]:
        starts = range(rows.start, min(rows.stop, len(spans)), ready.step())
        parts = [slice(start, min(start + ready.step(), rows.stop)) for start in starts]
        return [rank_counts(ready.scores(part), spans[part]) for part in parts]

    return count, min(ready.step(), _share(len(spans)))


def _share(n: int) -> int:
    """Rows of each thread, when all get the same number."""
    return -(-n // torch.get_num_threads())


def _compiled_metrics() -> Callable[[RankCounts, Sequence[int]], dict[str, Tensor]]:
    from nearkin.evaluate import numba_rank_metrics

    return numba_rank_metrics.rank_metrics


def _tiled(comparison: Comparison, spans: Tensor) -> tuple[CountRows, int] | None:
    """Rank counts on a CPU with numba: float32 products, and exact scores where products do not decide. None where this cannot be used."""
    how, q, r = measure(comparison.affinity), comparison.queries.embeddings, comparison.gallery.embeddings
    excluded, leave_one_out = comparison.excluded, comparison.queries is comparison.gallery
    own = torch.full((len(q),), -1) if excluded == Exclusion() else own_places(excluded)
    if how is None or own is None or not q.dtype == r.dtype == torch.float32:
        return None
    q, r = in_range(q.contiguous()), in_range(r.contiguous())
    if torch.float64 in (q.dtype, r.dtype):
        return None
    from nearkin.evaluate import rank_tiles

    step = min(rank_tiles.SIDE, _share(len(q)))
    leave_one_out = leave_one_out and how.unit_queries == how.unit_references
    ready = rank_tiles.prepare_sides(how, q, r, spans, own, step if leave_one_out else rank_tiles.SIDE)
    if leave_one_out and rank_tiles.fits_in_memory(ready):
        counted = rank_tiles.count_all(ready)
        return None if counted is None else (lambda rows: [counted[rows.start]], step)
    in_float64 = cache(lambda: _in_float64(comparison, spans)[0])
    too_close: list[slice] = []

    def count(rows: slice) -> list[RankCounts]:
        at = None if too_close else rank_tiles.count_rows(ready, rows)
        if at is None:  # duplicates, or a collapsed embedding
            too_close.append(rows)
            return in_float64()(rows)
        return [at]

    return count, step


def _by_class(comparison: Comparison) -> tuple[Comparison, Tensor, Tensor]:
    """Sort both sides by class; return also the start and end (n, 2) of the class of each query, and the order of queries."""
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
        value = float(per_query[counted].mean())  # NaN when no query is counted
        scores[name] = Score(name, value, low, high, chance.get(name), per_query, int(counted.sum()), left_out, notes, True, split)
    return scores


def _chance(positives: Tensor, candidates: Tensor, ks: tuple[int, ...]) -> dict[str, float]:
    """The mean metrics of a ranking in which all candidates tie; queries with equal numbers are computed once."""
    if not len(positives):
        return {}
    most = int(candidates.max()) + 1
    kinds, counts = torch.unique(positives * most + candidates, return_counts=True)  # one number is faster to sort than two
    tie = single_tie(kinds // most, kinds % most)
    found = {**rank_metrics(tie, ks), **gains(tie, ks)}
    return {name: float((values * counts).sum() / counts.sum()) for name, values in found.items()}


def _clamped_note(ks: tuple[int, ...], positives: Tensor, candidates: Tensor) -> tuple[str, ...]:
    fewest = int(candidates[positives > 0].min()) if bool((positives > 0).any()) else 0
    short = [k for k in ks if 0 < fewest < k]
    if not short:
        return ()
    number = int((candidates[positives > 0] < max(short)).sum())
    return (f"k was clamped to the number of candidates (at least {fewest}) for {number} queries",)
