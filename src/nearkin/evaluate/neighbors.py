"""Predictions by neighbors: majority, weighted, nearest class mean, all softly, and means of numbers."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, cosine
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import Comparison, Groups, class_labels, compare, ranker
from nearkin.search import nearest
from nearkin.search.voting import vote, weighted_vote


@takes_arrays
def knn_predict(
    queries: Points | Tensor,
    references: Points,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The majority class among each query's k nearest references."""
    labels = _reference_classes(references)
    found = nearest(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    return vote(labels[_all_there(found.positions)])


@takes_arrays
def weighted_knn_predict(
    queries: Points | Tensor,
    references: Points,
    k: int = 200,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The class with the largest sum of exp(affinity) among each query's k nearest references [wu2018instance].

    The temperature is the affinity's own; cosine(0.07) unless told, as [huang2019and] prints it. k above m is lowered to m.
    """
    labels = _reference_classes(references)
    affinity = cosine(0.07) if affinity is None else affinity
    found = nearest(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    return weighted_vote(labels[_all_there(found.positions)], found.affinity)


@takes_arrays
def knn_accuracy(
    queries: Points,
    references: Points,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
) -> float:
    """The share of queries whose k nearest references vote for the query's own class."""
    if queries.labels is None:
        raise ValueError("queries.labels are missing; accuracy needs them: Points(embeddings, labels)")
    _one_each("queries", queries)
    predicted = knn_predict(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    return float((predicted == queries.labels).double().mean())


@takes_arrays
def class_means(points: Points) -> Points:
    """The mean embedding of every class, (C, d), with its label: [hao2018anchor] eq. (1)."""
    labels = _reference_classes(points)
    classes, which = torch.unique(labels, return_inverse=True)
    sums = torch.zeros(len(classes), points.embeddings.shape[1], dtype=torch.float64, device=which.device)
    sums.index_add_(0, which, points.embeddings.double())
    means = sums / torch.bincount(which, minlength=len(classes))[:, None]
    return Points(means.to(points.embeddings.dtype), classes)


@takes_arrays
def nearest_mean_predict(queries: Points | Tensor, means: Points | Tensor, affinity: Affinity | None = None) -> Tensor:
    """The class of the nearest mean, [hao2018anchor] eq. (3): `class_means(...)`, or anchors (C, d) whose row is their class."""
    at = nearest(queries, means, 1, affinity).positions[:, 0]
    return at if isinstance(means, Tensor) or means.labels is None else means.labels[at]


@takes_arrays
@torch.no_grad()
def soft_probabilities(
    queries: Points | Tensor, references: Points | None = None, affinity: Affinity | None = None, *, groups: Groups | None = None
) -> tuple[Tensor, Tensor]:
    """(n, C) how likely each query chooses a neighbor of each class under softmax(affinity), and the C labels.

    NCA's own prediction [goldberger2005nca]. Without references each query chooses among the others. NaN where nobody is left.
    """
    asked = queries if isinstance(queries, Points) else Points(queries)
    _reference_classes(asked if references is None else references)
    comparison = compare(asked, references, affinity, groups, labeled=False)
    labels = comparison.gallery.labels
    assert labels is not None
    classes, which = torch.unique(class_labels(labels, len(comparison.gallery.embeddings), "references.labels"), return_inverse=True)
    rows = []
    for weights in _soft_weights(comparison):
        sums = torch.zeros(len(weights), len(classes), dtype=torch.float64, device=weights.device)
        rows.append(sums.index_add_(1, which, weights))
    return torch.cat(rows), classes


@takes_arrays
@torch.no_grad()
def soft_mean(
    queries: Points | Tensor,
    references: Points | None = None,
    affinity: Affinity | None = None,
    *,
    groups: Groups | None = None,
    period: float | None = None,
) -> Tensor:
    """The mean target (n,) or (n, t) of the neighbors under softmax(affinity): NCA regression's prediction [taylor2010pose]."""
    asked = queries if isinstance(queries, Points) else Points(queries)
    comparison = compare(asked, references, affinity, groups, labeled=False)
    targets = numbers(comparison.gallery.labels, len(comparison.gallery.embeddings), "references.labels")
    flat = targets.reshape(len(targets), -1)
    rows = [_mean(weights, flat, period) for weights in _soft_weights(comparison)]
    return torch.cat(rows).reshape(-1, *targets.shape[1:])


@takes_arrays
@torch.no_grad()
def knn_regress(
    queries: Points | Tensor,
    references: Points,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
    period: float | None = None,
) -> Tensor:
    """The mean target, (n,) or (n, t), of each query's k nearest references; round the circle when targets have a `period`."""
    targets = numbers(references.labels, len(references.embeddings), "references.labels")
    found = nearest(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    theirs = targets[_all_there(found.positions)]  # (n, k) or (n, k, t)
    if period is None:
        return theirs.mean(1)
    turn = 2 * math.pi / period
    return torch.atan2((theirs * turn).sin().mean(1), (theirs * turn).cos().mean(1)) / turn % period


def numbers(labels: Tensor | None, count: int, name: str) -> Tensor:
    """(n,) or (n, t) float64 targets, or an error that says what to give."""
    if not isinstance(labels, Tensor):
        raise ValueError(f"{name} are missing or no tensor; give numbers (n,) or (n, t), one row for each embedding")
    if labels.ndim not in (1, 2) or len(labels) != count:
        raise ValueError(f"{name} have shape {tuple(labels.shape)} for {count} embeddings; give numbers (n,) or (n, t)")
    if not bool(torch.isfinite(labels.double()).all()):
        raise ValueError(f"{name} hold NaN or infinity; drop the points without a target")
    return labels.double()


def _mean(weights: Tensor, targets: Tensor, period: float | None) -> Tensor:
    """(b, t) from weights (b, m) that sum to 1 and targets (m, t)."""
    if period is None:
        return weights @ targets
    turn = 2 * math.pi / period
    return torch.atan2(weights @ (targets * turn).sin(), weights @ (targets * turn).cos()) / turn % period


def _soft_weights(comparison: Comparison) -> Iterator[Tensor]:
    """Blocks (b, m) float64 of softmax(affinity) over the gallery."""
    ready = ranker(comparison)
    n = len(comparison.queries.embeddings)
    return (ready.affinities(slice(start, start + ready.step())).softmax(1) for start in range(0, n, ready.step()))


def _reference_classes(references: Points) -> Tensor:
    if references.labels is None:
        raise ValueError("references.labels are missing; a vote needs them: Points(embeddings, labels)")
    _one_each("references", references)
    return references.labels


def _all_there(positions: Tensor) -> Tensor:
    if bool((positions < 0).any()):
        raise ValueError("some queries have no k neighbors left after exclusion; lower k or add references")
    return positions


def _one_each(name: str, points: Points) -> None:
    """One class for every embedding: a column of labels, or a single one, would be spread over all rows unseen."""
    assert points.labels is not None
    if isinstance(points.labels, Tensor) and points.labels.shape != (len(points.embeddings),):
        raise ValueError(
            f"{name}.labels have shape {tuple(points.labels.shape)} for {len(points.embeddings)} embeddings; give one class for each"
        )
    class_labels(points.labels, len(points.embeddings), f"{name}.labels")
