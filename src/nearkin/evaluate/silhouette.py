"""Silhouette: how much nearer points are to their own class than to the next one."""

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, unit
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.evaluate.score import DRAWS, Score, mean_score
from nearkin.search.measure import measure

ROWS = 1024  # distances of so many points at a time
ALONE = "the only point of its class"


@takes_arrays
@torch.no_grad()
def silhouette(
    points: Points, affinity: Affinity | None = None, *, split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, Score]:
    """Measure how much nearer each point is to its own class than to the nearest other one.

        s = (b - a) / max(a, b)

    with a the mean distance of a point to the others of its class, and b the least mean distance to the points of another class. Distances
    are Euclidean, or 1 - cosine if the affinity normalizes. A point that is the only one of its class has s = 0 and is counted. Chance is
    the mean over randomly permuted labels.

    Parameters
    ----------
    points : Points (n, d)
        Embeddings and class labels.
    affinity : Affinity, optional
        Only decides between the two distances.
    split : str, optional
        The part of the data that was measured; see `Score`.
    draws : int, default 1000
        Bootstrap resamples of the points for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples and of the permutation.

    Returns
    -------
    dict of str to Score
        "silhouette", between -1 and 1.

    Raises
    ------
    ValueError
        If there are fewer than two classes.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import silhouette
    >>> points = Points(torch.tensor([[0.0], [1.0], [9.0], [10.0]]), torch.tensor([0, 0, 1, 1]))
    >>> round(silhouette(points, draws=0)["silhouette"].value, 3)
    0.889
    """
    x = finite(points.embeddings, "points").double()
    labels = class_labels(points.labels, len(x), "points")
    codes = torch.unique(labels, return_inverse=True)[1]
    count = int(codes.max()) + 1
    if count < 2:
        raise ValueError("points are all of one class; the silhouette compares classes, so give points of at least two")
    how = measure(affinity) if affinity is not None else None
    cosine = how is not None and how.unit_references
    x = unit(x) if cosine else x
    shuffled = codes[torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed)).to(codes.device)]
    values, chance = _widths(x, [codes, shuffled], count, cosine)
    alone = int((torch.bincount(codes)[codes] == 1).sum())
    notes = (f"{alone:,} points are the only ones of their class and count as 0",) if alone else ()
    options = {"notes": notes, "split": split, "draws": draws, "seed": seed}
    return {"silhouette": mean_score("silhouette", values, chance=float(chance.mean()), **options)}  # type: ignore[arg-type]


def _widths(x: Tensor, codings: list[Tensor], count: int, cosine: bool) -> list[Tensor]:
    """(n,) silhouettes of the points for each coding (n,) of their classes."""
    hot = [torch.nn.functional.one_hot(codes, count).double() for codes in codings]
    found: list[list[Tensor]] = [[] for _ in codings]
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        far = 1 - x[rows] @ x.T if cosine else torch.cdist(x[rows], x, compute_mode="donot_use_mm_for_euclid_dist")
        far[torch.arange(len(far)), torch.arange(start, start + len(far))] = 0.0
        for at, (codes, members) in enumerate(zip(codings, hot, strict=True)):
            found[at].append(_of_rows(far @ members, codes[rows], members.sum(0)))
    return [torch.cat(parts) for parts in found]


def _of_rows(sums: Tensor, own: Tensor, sizes: Tensor) -> Tensor:
    """From the summed distances (b, C) of points of classes `own` (b,) to classes of `sizes` (C,)."""
    mine = own[:, None] == torch.arange(len(sizes), device=own.device)
    a = sums[mine] / (sizes[own] - 1).clamp_min(1)
    b = torch.where(mine | (sizes == 0), torch.inf, sums / sizes).amin(1)
    width = (b - a) / torch.maximum(a, b).clamp_min(1e-300)
    return torch.where(sizes[own] > 1, width, 0.0)
