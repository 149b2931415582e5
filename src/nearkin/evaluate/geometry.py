"""Geometry of an embedding: how many dimensions it uses, and how pure its neighborhoods are."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import Groups, compare, finite, own_places, whole_numbers_above_zero
from nearkin.evaluate.retrieval import NO_POSITIVE, few_pairs, retrieval, retrieval_scores
from nearkin.evaluate.score import DRAWS, Score, mean_score
from nearkin.search.exact import score_nearest
from nearkin.search.measure import measure

BLOCKS = 100  # blocks of points for the jackknife: second moments of single points would not fit in memory
BATCH = 10  # jackknife matrices decomposed at a time
NORMAL = 1.96  # standard errors of a 95% interval
CLOSE, CLOSER = 1e-6, 1e-12  # relative to a score, and to the largest possible score: closer scores may tie in float32


@takes_arrays
@torch.no_grad()
def collapse(points: Points | Tensor, *, split: str | None = None, draws: int = DRAWS, seed: int = 0) -> dict[str, Score]:
    """Measure how many dimensions the embeddings use: the effective rank.

        effective_rank = exp(-sum_i p_i log p_i),   p_i = s_i / sum_j s_j

    with s_i the singular values of the centered embeddings. It is between 1 and min(n - 1, d), and 0 if all points are equal. A value far
    below d means that the embedding has collapsed to few dimensions.

    Parameters
    ----------
    points : Points or Tensor or ndarray (n, d)
        Embeddings; labels are not needed.
    split : str, optional
        The part of the data that was measured; see `Score`.
    draws : int, default 1000
        0 for no interval; any other number has the same effect. The interval is the value and 1.96 standard errors on either side, by
        a jackknife over blocks of points: a bootstrap would be too low, since repeated points span no new dimension.
    seed : int, default 0
        Seed of the assignment of points to blocks.

    Returns
    -------
    dict of str to Score
        "effective_rank".

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import collapse
    >>> line = torch.arange(10.0)[:, None] * torch.tensor([[1.0, 2.0, 3.0]])
    >>> round(collapse(line, draws=0)["effective_rank"].value, 3)
    1.0
    """
    x = finite(points.embeddings if isinstance(points, Points) else points, "points").double()
    x = x - x.mean(0)
    blocks = torch.tensor_split(x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)], min(BLOCKS, len(x)))
    moments = torch.stack([_moments(block) for block in blocks])  # (b, d + 1, d + 1)
    value = float(_effective_rank(moments.sum(0)[None])[0])
    low = high = float("nan")
    if draws and len(blocks) > 1:
        margin = NORMAL * _standard_error(moments)
        low, high = max(value - margin, 0.0), min(value + margin, max(value, float(min(len(x) - 1, x.shape[1]))))
    return {"effective_rank": Score("effective_rank", value, low, high, None, None, len(x), split=split)}


def _standard_error(moments: Tensor) -> float:
    """The jackknife standard error, from the effective ranks without each of the blocks with moments (b, d + 1, d + 1)."""
    b, whole = len(moments), moments.sum(0)
    without = torch.cat([_effective_rank(whole - some) for some in torch.split(moments, BATCH)])
    return float(((b - 1) / b * (without - without.mean()).square().sum()).sqrt())


def _moments(x: Tensor) -> Tensor:
    """Sums of products of the coordinates and a 1, so that the mean of any union of blocks can be subtracted."""
    wide = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    return wide.T @ wide


def _effective_rank(moments: Tensor) -> Tensor:
    """(s,) from moments (s, d + 1, d + 1)."""
    count = moments[:, -1:, -1:]
    sums = moments[:, :-1, -1:]
    scatter = moments[:, :-1, :-1] - sums @ sums.mT / count
    squares = torch.linalg.eigvalsh(scatter).clamp_min(0)
    # rounding errors are not dimensions
    squares = torch.where(squares > squares.amax(1, keepdim=True) * 1e-13, squares, 0.0)
    singular = squares.sqrt()
    total = singular.sum(1, keepdim=True)
    share = singular / torch.where(total > 0, total, 1.0)
    return torch.where(total[:, 0] > 0, torch.special.entr(share).sum(1).exp(), 0.0)


@takes_arrays
def consistency(
    points: Points,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1,),
    *,
    selected: Tensor | None = None,
    groups: Groups | None = None,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """Measure the share of points whose k nearest other points all have their class.

    Neighborhood discovery relies on this number. A point without another point of its class is left out and counted in `left_out`. Among
    tied points the expected value over all their orders is taken.

    Parameters
    ----------
    points : Points (n, d)
        Embeddings and class labels.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    ks : sequence of int, default (1,)
        The numbers of neighbors. A k above the number of candidates is clamped, and a note reports it.
    selected : Tensor (n,) bool, optional
        Average over these points only; all points remain candidates.
    groups : Tensor (n,), optional
        Group numbers; points of the query's group are excluded.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    draws : int, default 1000
        Bootstrap resamples of the queries for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    dict of str to Score
        "consistency@k" for each k.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import consistency
    >>> points = Points(torch.tensor([[0.0], [0.1], [0.3], [5.0]]), torch.tensor([0, 0, 1, 1]))
    >>> consistency(points, draws=0)["consistency@1"].value
    0.75

    References
    ----------
    [huang2019and]
    """
    if selected is not None and (selected.shape != (len(points.embeddings),) or selected.dtype != torch.bool):
        raise ValueError(f"selected has shape {tuple(selected.shape)} and type {selected.dtype}; give one bool for each point")
    found = {}
    quick = _by_neighbors(points, affinity, whole_numbers_above_zero(ks)) if groups is None else None
    for name, score in (quick or retrieval(points, None, affinity, ks, groups=groups, draws=0)).items():
        if not name.startswith("consistency") or score.per_query is None:
            continue
        values, left_out = score.per_query, dict(score.left_out)
        if selected is not None:
            left_out = {NO_POSITIVE: int((values.isnan() & selected).sum()), "not selected": int((~selected).sum())}
            values = torch.where(selected, values, torch.nan)
        found[name] = mean_score(
            name, values, chance=score.chance, left_out=left_out, notes=score.notes, split=split, draws=draws, seed=seed
        )
    return found


@torch.no_grad()
def _by_neighbors(points: Points, affinity: Affinity | None, ks: tuple[int, ...]) -> dict[str, Score] | None:
    """The consistency of `retrieval`, from the nearest few points alone; None where they do not suffice, or are not faster.

    Queries that may have a tie at rank k are ranked by `retrieval`, which takes the expected value of a tie.
    """
    comparison = compare(points, None, affinity)
    (x, labels, ids), how, n = comparison.queries, measure(comparison.affinity), len(points.embeddings)
    if few_pairs(n, n) or not ks or max(ks) >= n - 1 or how is None or own_places(comparison.excluded) is None:
        return None
    assert labels is not None
    best = score_nearest(comparison.queries, comparison.queries, max(ks) + 1, comparison.affinity, exclude_same_id=True).best
    which, counts = torch.unique(labels, return_inverse=True, return_counts=True)[1:]
    positives, same = counts[which] - 1, labels[best.positions] == labels[:, None]
    values = {f"consistency@{k}": torch.where(positives > 0, same[:, :k].all(1).double(), torch.nan) for k in ks}
    centered = x.double() - (x.double().mean(0) if how.squared and not how.unit_queries else 0)
    largest = 1.0 if how.unit_references else 1.0 * how.unit_queries + float(centered.square().sum(1).max())
    last = best.affinity[:, [k - 1 for k in ks]]
    gaps = last - best.affinity[:, list(ks)]
    close = ((gaps <= CLOSE * last.abs() + CLOSER * largest).any(1) & (positives > 0)).nonzero()[:, 0]
    if len(close):
        some = comparison.queries._replace(embeddings=x[close], labels=labels[close], ids=None if ids is None else ids[close])
        ranked = retrieval(some, comparison.queries, affinity, ks, draws=0)
        for name, column in values.items():
            exactly = ranked[name].per_query
            assert exactly is not None
            column[close] = exactly
    return retrieval_scores((values, positives, torch.full_like(positives, n - 1)), ks, notes=comparison.notes, draws=0)
