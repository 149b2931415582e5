"""Hubness: whether few references are the neighbors of many queries, and many of none."""

import math

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, takes_arrays
from nearkin.compose.validation import check_whole
from nearkin.evaluate.comparison import compare
from nearkin.evaluate.score import DRAWS, Score
from nearkin.search.exact import nearest

BLOCKS = 100  # of queries, for the jackknife
NORMAL = 1.96  # standard errors of a 95% interval
NAMES = ("hub_skewness", "hubs", "anti_hubs")
OFTEN = 2  # a hub is a neighbor more than this many times as often as the average reference


@takes_arrays
@torch.no_grad()
def hubness(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    k: int = 10,
    *,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """Measure how unevenly references are chosen as neighbors.

    With N(r) the number of queries that have reference r among their k nearest (the k-occurrence):

    - "hub_skewness": the skewness of N over the references, mean((N - mean N)^3) / std(N)^3. 0 for a symmetric distribution.
    - "hubs": the share of references with N above twice the mean.
    - "anti_hubs": the share of references with N = 0, which no query ever finds.

    Chance is the value if each query drew its k neighbors at random: N is then binomial. CSLS and local scaling reduce hubness
    (`nearkin.search.rescaled`).

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings; labels are not needed. With ids, the query itself is excluded from the gallery by id.
    gallery : Points (m, d), optional
        The references. By default the queries are compared among themselves, each without itself.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    k : int, default 10
        Number of neighbors; clamped to the number of candidates, which a note reports.
    split : str, optional
        The part of the data that was measured; see `Score`.
    draws : int, default 1000
        0 for no interval; any other number has the same effect. The interval is the value and 1.96 standard errors on either side, by
        a jackknife over blocks of queries: resampled queries would leave more references without any.
    seed : int, default 0
        Seed of the assignment of queries to blocks.

    Returns
    -------
    dict of str to Score
        "hub_skewness", "hubs" and "anti_hubs"; smaller is better.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import hubness
    >>> star = Points(torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.1, 0.0], [0.0, 1.2], [0.0, -1.3]]))
    >>> scores = hubness(star, k=1, draws=0)
    >>> round(scores["hub_skewness"].value, 2), scores["hubs"].value, scores["anti_hubs"].value
    (1.29, 0.2, 0.6)
    """
    check_whole("k", k)
    comparison = compare(queries, gallery, affinity, labeled=False)
    n, m = len(comparison.queries.embeddings), len(comparison.gallery.embeddings)
    most = m - 1 if gallery is None else m
    notes = comparison.notes + ((f"k was clamped to {most}",) if k > most else ())
    mine, theirs = comparison.queries, comparison.gallery
    if gallery is None and mine.ids is None:
        mine = theirs = Points(mine.embeddings, ids=torch.arange(n, device=mine.embeddings.device))
    with_ids = mine.ids is not None and theirs.ids is not None
    near = nearest(mine, theirs, min(k, most), comparison.affinity, exclude_same_id=with_ids).positions
    return hubness_of(near, m, most, notes=notes, split=split, draws=draws, seed=seed)


def hubness_of(
    near: Tensor, m: int, most: int, *, notes: tuple[str, ...] = (), split: str | None = None, draws: int = 1, seed: int = 0
) -> dict[str, Score]:
    """The scores of `hubness`, from the neighbors (n, k) of every query among m references, of which it may have `most`; -1 is none."""
    near = near.cpu()
    order = torch.randperm(len(near), generator=torch.Generator().manual_seed(seed))
    blocks = torch.stack([_occurrences(near[rows], m) for rows in torch.tensor_split(order, min(BLOCKS, len(near)))])  # (b, m)
    whole = blocks.sum(0)
    values, chances = _shape_of(whole[None])[0], _chances(len(near), near.shape[1] / most)
    error = [math.nan] * 3
    if draws and len(blocks) > 1:
        without = torch.cat([_shape_of(whole - some[None]) for some in blocks])  # (b, 3)
        error = ((len(blocks) - 1) / len(blocks) * (without - without.mean(0)).square().sum(0)).sqrt().tolist()
    least = (-math.inf, 0.0, 0.0)
    return {
        name: Score(name, value, max(value - NORMAL * e, low), value + NORMAL * e, chance, None, len(near), {}, notes, False, split)
        for name, value, e, chance, low in zip(NAMES, values.tolist(), error, chances, least, strict=True)
    }


def _occurrences(near: Tensor, m: int) -> Tensor:
    """(m,) how often each reference is a neighbor."""
    return torch.bincount(near[near >= 0], minlength=m).double()


def _shape_of(counts: Tensor) -> Tensor:
    """(s, 3) skewness, share of hubs and share of anti-hubs of counts (s, m)."""
    middle = counts.mean(1, keepdim=True)
    spread = (counts - middle).square().mean(1).sqrt()
    skew = (counts - middle).pow(3).mean(1) / torch.where(spread > 0, spread, 1.0).pow(3)
    return torch.stack([skew, (counts > OFTEN * middle).double().mean(1), (counts == 0).double().mean(1)], 1)


def _chances(n: int, p: float) -> tuple[float, float, float]:
    """The same for binomial counts: n draws with probability p each."""
    from scipy.stats import binom

    spread = n * p * (1 - p)
    skew = (1 - 2 * p) / math.sqrt(spread) if spread > 0 else 0.0
    return skew, float(binom.sf(math.floor(OFTEN * n * p), n, p)), float((1 - p) ** n)
