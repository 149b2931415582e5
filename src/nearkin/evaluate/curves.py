"""Precision-recall and ROC curves over pairs: is a pair positive if its affinity is above a threshold?

All pairs of a query and a gallery point are pooled, so that one threshold serves all queries. A threshold never splits a tie.
With few pairs every affinity is a threshold. With many pairs the thresholds are quantiles of the affinities of positive and of
negative pairs; the curve is exact at them, and a note bounds the error of the area.
"""

from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import Comparison, Groups, Ranker, compare, ranker
from nearkin.evaluate.score import DRAWS, Curve, Score, interval, resamples
from nearkin.search.threads import run_in_threads

PAIRS = 1 << 26  # used by default: a few seconds
FEW = 1 << 18  # up to this many pairs, every affinity is a threshold
QUANTILES = 2048  # thresholds from positive pairs, and as many from negative pairs, if there are more pairs than FEW
SAMPLED = 1 << 21  # pairs whose quantiles are the thresholds
COARSE = 1024  # thresholds used for the interval
BLOCKS = 50  # blocks of queries that are resampled together


class PairCounts(NamedTuple):
    """Pairs between thresholds: counts (b, t + 1, 2) of negative and positive pairs for b blocks of queries, strictest first."""

    thresholds: Tensor  # (t + 1,) descending, -inf last
    counts: Tensor
    left_out: dict[str, int]
    exact: bool


@takes_arrays
def pr_curve(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    *,
    groups: Groups | None = None,
    split: str | None = None,
) -> Curve:
    """Compute the precision-recall curve over all pairs of a query and a gallery point.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels. With ids, the query itself is excluded from the gallery by id.
    gallery : Points (m, d), optional
        The ranked points, with labels. By default the queries are ranked among themselves, each without itself.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when a gallery is given.
    split : str, optional
        The part of the data that was measured; see `Score`.

    Returns
    -------
    Curve
        x is recall, y is precision; the area is the average precision.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import pr_curve
    >>> pr_curve(Points(torch.tensor([[0.0], [0.1], [5.0], [5.2]]), torch.tensor([0, 0, 1, 1]))).area.value
    1.0
    """
    return pair_curves(queries, gallery, affinity, groups=groups, split=split)[0]


@takes_arrays
def roc_curve(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    *,
    groups: Groups | None = None,
    split: str | None = None,
) -> Curve:
    """Compute the ROC curve over all pairs of a query and a gallery point.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels. With ids, the query itself is excluded from the gallery by id.
    gallery : Points (m, d), optional
        The ranked points, with labels. By default the queries are ranked among themselves, each without itself.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when a gallery is given.
    split : str, optional
        The part of the data that was measured; see `Score`.

    Returns
    -------
    Curve
        x is the false positive rate, y the true positive rate. The area is the probability that a positive pair has a larger affinity
        than a negative pair; ties count one half.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import roc_curve
    >>> roc_curve(Points(torch.tensor([[0.0], [0.1], [5.0], [5.2]]), torch.tensor([0, 0, 1, 1]))).area.value
    1.0
    """
    return pair_curves(queries, gallery, affinity, groups=groups, split=split)[1]


@takes_arrays
@torch.no_grad()
def pair_curves(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    *,
    groups: Groups | None = None,
    split: str | None = None,
    pairs: int | None = PAIRS,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[Curve, Curve]:
    """Compute the precision-recall and the ROC curve from one pass over the pairs.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels. With ids, the query itself is excluded from the gallery by id.
    gallery : Points (m, d), optional
        The ranked points, with labels. By default the queries are ranked among themselves, each without itself.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when a gallery is given.
    split : str, optional
        The part of the data that was measured; see `Score`.
    pairs : int or None, default 2**26
        Use at most this many pairs, from evenly spaced queries; the notes report it. None uses all pairs.
    draws : int, default 1000
        Bootstrap resamples for the 95% interval, at most 400 of them are used; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    precision_recall, roc : Curve
        See `pr_curve` and `roc_curve`. A threshold takes all pairs of a tie at once.

    Raises
    ------
    ValueError
        If there are no positive or no negative pairs.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import pair_curves
    >>> points = Points(torch.tensor([[0.0], [2.0], [3.0], [6.0]]), torch.tensor([0, 0, 1, 1]))
    >>> pr, roc = pair_curves(points, draws=0)
    >>> round(pr.area.value, 4), round(roc.area.value, 4)
    (0.5, 0.6875)
    """
    comparison = thinned(compare(queries, gallery, affinity, groups), pairs)
    return curves_of(comparison, count_pairs(comparison), split=split, draws=draws, seed=seed)


def curves_of(
    comparison: Comparison, found: PairCounts, *, split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> tuple[Curve, Curve]:
    """The curves of `pair_curves`, from the counts of the pairs."""
    negatives, positives = found.counts.sum(0).double().cumsum(0).T  # (t + 1,) each: pairs at or above the threshold
    if float(positives[-1]) == 0 or float(negatives[-1]) == 0:
        raise ValueError(f"there are {int(positives[-1])} positive and {int(negatives[-1])} negative pairs; a curve needs both")
    recall, precision = positives / positives[-1], positives / (positives + negatives)
    false_alarms = negatives / negatives[-1]
    zero = recall.new_zeros(1)
    thresholds = torch.cat([zero + torch.inf, found.thresholds])
    pr_area, roc_area = _areas(found.counts.sum(0)[None].double())
    drawn = [
        _areas(torch.einsum("sb,btc->stc", weights.to(positives.device).double(), _coarse(found.counts)))
        for weights in block_resamples(found, draws, seed)
    ]
    total, counts = int(positives[-1] + negatives[-1]), found.counts.sum(0).double()
    chance = {"average_precision": float(positives[-1]) / total, "roc_auc": 0.5}
    curves = []
    for number, (name, area) in enumerate((("average_precision", pr_area), ("roc_auc", roc_area))):
        low, high = interval(torch.cat([areas[number] for areas in drawn]).cpu()) if drawn else (float("nan"), float("nan"))
        notes = comparison.notes if found.exact else (*comparison.notes, _area_note(counts, number))
        score = Score(name, float(area[0]), low, high, chance[name], None, total, found.left_out, notes, True, split)
        curves.append(score)
    pr = Curve("precision-recall", recall, precision, found.thresholds, curves[0])
    roc = Curve("roc", torch.cat([zero, false_alarms]), torch.cat([zero, recall]), thresholds, curves[1])
    return pr, roc


def thinned(comparison: Comparison, pairs: int | None) -> Comparison:
    """Keep fewer queries when there are more than `pairs` pairs; a note reports how many are left."""
    n, m = len(comparison.queries.embeddings), len(comparison.gallery.embeddings)
    if pairs is None or n * m <= pairs:
        return comparison
    kept = torch.linspace(0, n - 1, max(pairs // m, 1), device=comparison.queries.embeddings.device).long()
    queries = Points(*(None if x is None else x[kept] for x in comparison.queries))  # type: ignore[arg-type]
    ids, groups = (None if x is None else x[kept] for x in (comparison.excluded.ids, comparison.excluded.groups))
    notes = (*comparison.notes, f"{len(kept)} of {n} queries, evenly spaced")
    return comparison._replace(queries=queries, excluded=comparison.excluded._replace(ids=ids, groups=groups), notes=notes)


def _areas(counts: Tensor) -> tuple[Tensor, Tensor]:
    """(s,) average precision and area under the ROC from counts (s, t, 2), strictest threshold first."""
    negatives, positives = counts.unbind(2)
    above, hits = negatives.cumsum(1), positives.cumsum(1)
    precision = hits / (above + hits).clamp_min(1e-300)  # before the first pair there is nothing to divide
    average = (positives * precision).sum(1) / hits[:, -1]
    # a positive pair beats the negative pairs below it, and half of those at the same threshold
    wins = (positives * (above[:, -1:] - above + negatives / 2)).sum(1) / (hits[:, -1] * above[:, -1])
    return average, wins


def _area_note(counts: Tensor, number: int) -> str:
    """A note on how far the area can be from that with every affinity as a threshold."""
    negatives, positives = counts.unbind(1)
    above, hits = negatives.cumsum(0), positives.cumsum(0)
    if number == 1:
        bound = float((negatives * positives).sum() / (2 * negatives.sum() * positives.sum()))
    else:
        best = hits / (above - negatives + hits).clamp_min(1)  # all positives between two thresholds before the negatives there
        bound = float((positives * (best - hits / (above + hits).clamp_min(1))).sum() / positives.sum())
    return f"{len(counts) - 1} thresholds; the area is off by {bound:.1g} at most"


def count_pairs(comparison: Comparison) -> PairCounts:
    """Count the pairs between thresholds in one pass."""
    mine, theirs = comparison.same_class
    ready = ranker(comparison)
    n, m = len(mine), len(theirs)
    exact = n * m <= FEW
    edges = _every(ready, n) if exact else _quantiles(ready, mine, theirs)  # ascending
    blocks = min(BLOCKS, n)
    counts = torch.zeros(blocks, len(edges) + 1, 2, dtype=torch.int64, device=mine.device)
    hidden, one_at_a_time = [0], Lock()

    @torch.no_grad()  # a setting of each thread
    def work(rows: slice) -> None:
        near = ready.scores(rows)
        seen = near > -torch.inf
        at = torch.searchsorted(edges, near, right=True, out_int32=True)
        block = torch.arange(rows.start, rows.start + len(near), device=mine.device, dtype=torch.int32) % blocks
        flat = at.add_(block[:, None] * (len(edges) + 1)).mul_(2).add_(mine[rows, None] == theirs)
        found = torch.bincount(flat[seen], minlength=counts.numel()).view(counts.shape)
        with one_at_a_time:
            counts.add_(found)
            hidden[0] += near.numel() - int(seen.sum())

    if mine.device.type == "cpu":
        run_in_threads(work, n, ready.step())
    else:
        for start in range(0, n, ready.step()):
            work(slice(start, min(start + ready.step(), n)))
    thresholds = torch.cat([edges.double().flip(0), edges.new_full((1,), -torch.inf).double()])
    if ready.how is not None:
        thresholds = ready.how.affinity(thresholds)
    left_out = {"excluded pairs": hidden[0]} if hidden[0] else {}
    return PairCounts(thresholds, counts.flip(1), left_out, exact)


def _every(ready: Ranker, n: int) -> Tensor:
    """All distinct affinities, ascending."""
    scores = torch.cat([ready.scores(slice(start, start + ready.step())).reshape(-1) for start in range(0, n, ready.step())])
    found: Tensor = torch.unique(scores)
    return found[found > -torch.inf]


def _quantiles(ready: Ranker, mine: Tensor, theirs: Tensor) -> Tensor:
    """Quantiles of the affinities of positive and of negative pairs, from evenly spaced queries."""
    n, m = len(mine), len(theirs)
    some = torch.linspace(0, n - 1, max(min(n, SAMPLED // m), 1)).long().tolist()
    near = torch.cat([ready.scores(slice(row, row + 1)) for row in some])
    positives = mine[some, None] == theirs
    parts = []
    for which in (positives, ~positives):
        values = near[which & (near > -torch.inf)].sort().values
        if len(values):
            parts.append(values[torch.linspace(0, len(values) - 1, QUANTILES, device=values.device).long()])
    edges: Tensor = torch.unique(torch.cat(parts))
    return edges


def _coarse(counts: Tensor) -> Tensor:
    """(b, about COARSE, 2): counts of neighboring thresholds added up, for the interval only."""
    width = -(-counts.shape[1] // COARSE)
    padded = torch.nn.functional.pad(counts, (0, 0, 0, -counts.shape[1] % width))
    return padded.view(len(counts), -1, width, 2).sum(2).double()


def block_resamples(found: PairCounts, draws: int, seed: int) -> list[Tensor]:
    """Resamples of blocks that contain both positive and negative pairs."""
    have = found.counts.sum(1).double()  # (b, 2)
    drawn = torch.cat(list(resamples(len(have), min(draws, 400), seed))) if draws else have.new_empty(0, len(have))
    drawn = drawn[(drawn.to(have.device).double() @ have > 0).all(1).cpu()]
    return list(torch.split(drawn, 50)) if len(drawn) else []
