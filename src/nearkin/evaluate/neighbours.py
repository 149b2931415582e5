"""Predictions by neighbours."""

import torch
from torch import Tensor

from nearkin.affinity import Affinity
from nearkin.points import Points
from nearkin.search import nearest


def vote(labels: Tensor) -> Tensor:
    """(n, k) labels of neighbours, nearest first, to the majority label (n,).

    Among classes with equally many votes, the one with the nearest member wins.
    """
    if labels.ndim != 2 or labels.shape[1] == 0 or labels.is_floating_point():
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} and type {labels.dtype}; give integer classes (n, k) of neighbours, k >= 1"
        )
    n, k = labels.shape
    votes = torch.zeros(n, k, dtype=torch.long, device=labels.device)
    for column in range(k):  # k passes over (n, k): no (n, k, k) or (n, C) matrix
        votes += labels == labels[:, column : column + 1]
    # argmax may return any of several maxima; rank breaks the tie towards the nearest.
    rank = torch.arange(k, 0, -1, device=labels.device)
    winner = (votes * (k + 1) + rank).argmax(1)
    return labels.gather(1, winner[:, None])[:, 0]


def knn_predict(
    queries: Points | Tensor, references: Points, k: int, affinity: Affinity | None = None, *, exclude_same_id: bool = False
) -> Tensor:
    """The majority class among each query's k nearest references."""
    if references.labels is None:
        raise ValueError("references.labels are missing; a vote needs them: Points(embeddings, labels)")
    _one_each("references", references)
    found = nearest(queries, references, k, affinity, exclude_same_id=exclude_same_id)
    if bool((found.positions < 0).any()):
        raise ValueError("some queries have no k neighbours left after exclusion; lower k or add references")
    return vote(references.labels[found.positions])


def knn_accuracy(queries: Points, references: Points, k: int, affinity: Affinity | None = None, *, exclude_same_id: bool = False) -> float:
    """The share of queries whose k nearest references vote for the query's own class."""
    if queries.labels is None:
        raise ValueError("queries.labels are missing; accuracy needs them: Points(embeddings, labels)")
    _one_each("queries", queries)
    predicted = knn_predict(queries, references, k, affinity, exclude_same_id=exclude_same_id)
    return float((predicted == queries.labels).double().mean())


def _one_each(name: str, points: Points) -> None:
    """One class for every embedding: a column of labels, or a single one, would be spread over all rows unseen."""
    assert points.labels is not None
    if points.labels.shape != (len(points.embeddings),):
        raise ValueError(
            f"{name}.labels have shape {tuple(points.labels.shape)} for {len(points.embeddings)} embeddings; give one class for each"
        )
