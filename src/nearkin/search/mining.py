"""Hard negatives: the nearest points of other classes, from all that are stored, to train against."""

from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, SquaredEuclidean
from nearkin.compose.points import Points
from nearkin.compose.validation import check_whole
from nearkin.search.exact import nearest
from nearkin.search.voting import vote


class Mined(NamedTuple):
    """What `hard_negatives` found.

    Parameters
    ----------
    points : Points
        The hard negatives of all queries, each once: pass them as `references=` of an objective, together with the batch.
    positions : Tensor
        (n, k) rows of the searched points for every query, nearest first, -1 where there are fewer.

    Examples
    --------
    >>> import torch
    >>> from nearkin.search import Mined
    >>> Mined._fields
    ('points', 'positions')
    """

    points: Points
    positions: Tensor  # (n, k)


def hard_negatives(
    queries: Points,
    stored: Points,
    k: int = 10,
    affinity: Affinity | None = None,
    *,
    duplicates: float = 1e-6,
    suspects: Tensor | None = None,
) -> Mined:
    """Find the k nearest points of another class for every query, without those that are no honest negatives.

    Left out are the query itself, by id; points of the query's class; suspected label errors, by id; and near duplicates of the query,
    which are the same object under another label.

    Parameters
    ----------
    queries : Points
        Embeddings, integer classes and ids.
    stored : Points
        What is searched: embeddings, integer classes and ids, such as those of an index.
    k : int, default=10
        How many for each query.
    affinity : Affinity, optional
        Minus the squared distance by default. Pass that of your objective.
    duplicates : float, default=1e-6
        A stored point counts as a duplicate if its distance to the query is at most this share of the query's length. 0 keeps all but exact
        copies.
    suspects : Tensor, optional
        Ids of stored points whose label is in doubt; `suspected_labels` finds them.

    Returns
    -------
    Mined
        The points, and their positions for every query.

    Raises
    ------
    ValueError
        If labels or ids are missing.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.search import hard_negatives
    >>> stored = Points(torch.tensor([[0.0], [0.1], [1.0], [5.0]]), torch.tensor([0, 0, 1, 1]), torch.arange(4))
    >>> queries = Points(stored.embeddings[:1], stored.labels[:1], stored.ids[:1])
    >>> hard_negatives(queries, stored, k=1).points.ids
    tensor([2])
    """
    check_whole("k", k)
    for name, points in (("queries", queries), ("stored", stored)):
        if points.labels is None or points.ids is None:
            raise ValueError(f"{name} need labels and ids, to know what is a negative and what is the query itself: pass Points with both")
    assert queries.labels is not None and stored.labels is not None and queries.ids is not None and stored.ids is not None
    kept = torch.arange(len(stored.ids), device=stored.ids.device)
    if suspects is not None:
        kept = kept[~torch.isin(stored.ids, suspects.to(stored.ids.device))]
    labels = stored.labels[kept]
    some = Points(stored.embeddings[kept], labels, stored.ids[kept])
    affinity = SquaredEuclidean() if affinity is None else affinity
    spare = k + 8  # a few more than are needed, because duplicates are dropped afterwards; more where that was not enough
    while True:
        found = nearest(
            queries, some, min(spare, max(len(kept), 1)), affinity, exclude_same_id=True, groups=(queries.labels, labels)
        ).positions
        apart = (queries.embeddings[:, None] - some.embeddings[found.clamp_min(0)]).norm(dim=2)
        honest = (found >= 0) & (apart > duplicates * queries.embeddings.norm(dim=1, keepdim=True))
        if spare >= len(kept) or not bool(((honest.sum(1) < k) & (found[:, -1] >= 0)).any()):
            break
        spare *= 4
    first = (~honest).long().argsort(dim=1, stable=True)[:, :k]  # honest ones first, in their order
    positions = torch.where(honest.gather(1, first), kept[found.gather(1, first).clamp_min(0)], -1)
    rows = torch.unique(positions[positions >= 0])
    return Mined(Points(stored.embeddings[rows], stored.labels[rows], stored.ids[rows]), positions)


def suspected_labels(points: Points, k: int = 10, affinity: Affinity | None = None) -> Tensor:
    """Return the ids of points whose class is not that of the majority of their k nearest neighbors.

    Parameters
    ----------
    points : Points
        Embeddings, integer classes and ids.
    k : int, default=10
        Neighbors that vote.
    affinity : Affinity, optional
        Minus the squared distance by default.

    Returns
    -------
    Tensor
        (s,) ids.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.search import suspected_labels
    >>> points = Points(torch.tensor([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]]), torch.tensor([0, 0, 1, 1, 1, 1]), torch.arange(6))
    >>> suspected_labels(points, k=2)
    tensor([2])
    """
    if points.labels is None or points.ids is None:
        raise ValueError("points need labels and ids: pass Points with both")
    found = nearest(points, points, k, affinity, exclude_same_id=True).positions
    there = (found >= 0).all(1)
    voted = vote(points.labels[found.clamp_min(0)])
    return points.ids[there & (voted != points.labels)]
