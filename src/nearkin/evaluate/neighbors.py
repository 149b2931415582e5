"""Predictions from neighbors: majority vote, weighted vote, nearest class mean, softmax over all, and means of numeric targets."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, cosine
from nearkin.compose.points import Points, takes_arrays
from nearkin.compose.validation import check_finite
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
    """Predict the majority class among the k nearest references of each query.

    Among classes with equally many votes, the class of the nearest neighbor wins; among equally near references, the earlier.

    Parameters
    ----------
    queries : Points or Tensor or ndarray (n, d)
        Embeddings.
    references : Points (m, d)
        Embeddings and class labels.
    k : int
        How many neighbors vote; clamped to the number of references m.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    exclude_same_id : bool, default False
        Exclude references with the id of the query. Use it when the queries are among the references.
    groups : pair of Tensors (n,) and (m,), optional
        Group numbers; references of the query's group are excluded.

    Returns
    -------
    Tensor (n,)
        The predicted classes.

    Raises
    ------
    ValueError
        If exclusion leaves a query with fewer than k references; `predictions` handles such queries.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points, knn_predict
    >>> references = Points(torch.tensor([[0.0], [1.0], [1.1], [5.0]]), torch.tensor([0, 1, 1, 0]))
    >>> knn_predict(torch.tensor([[0.2]]), references, k=1), knn_predict(torch.tensor([[0.2]]), references, k=3)
    (tensor([0]), tensor([1]))
    """
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
    """Predict the class with the largest sum of weights among the k nearest references of each query.

        weight_j = exp(affinity_j),   with cosine / temperature by default

    Among classes with equal sums, the class of the nearest neighbor wins. No weight overflows.

    Parameters
    ----------
    queries : Points or Tensor or ndarray (n, d)
        Embeddings.
    references : Points (m, d)
        Embeddings and class labels.
    k : int, default 200
        How many neighbors vote; clamped to the number of references m.
    affinity : Affinity, optional
        `cosine(0.07)` by default: its temperature is that of the weights. The text of Huang et al. (2019) gives 0.07; their released code,
        and so the tables of the paper, use 0.1. Pass `cosine(0.1)` to compare with those tables.
    exclude_same_id : bool, default False
        Exclude references with the id of the query. Use it when the queries are among the references.
    groups : pair of Tensors (n,) and (m,), optional
        Group numbers; references of the query's group are excluded.

    Returns
    -------
    Tensor (n,)
        The predicted classes.

    Raises
    ------
    ValueError
        If exclusion leaves a query with fewer than k references.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.compose import cosine
    >>> from nearkin.evaluate import weighted_knn_predict
    >>> references = Points(torch.tensor([[1.0, 0.1], [1.0, 0.9], [1.0, 1.0]]), torch.tensor([0, 1, 1]))
    >>> query = torch.tensor([[1.0, 0.0]])
    >>> weighted_knn_predict(query, references), weighted_knn_predict(query, references, 3, cosine(1.0))
    (tensor([0]), tensor([1]))

    References
    ----------
    [wu2018instance], [huang2019and]
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
    """Measure the share of queries whose k nearest references vote for the class of the query.

    The vote and its ties are those of `knn_predict`. `classification` also gives an interval and the chance level.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels.
    references : Points (m, d)
        Embeddings and class labels.
    k : int
        How many neighbors vote; clamped to the number of references m.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    exclude_same_id : bool, default False
        Exclude references with the id of the query. Use it when the queries are among the references.
    groups : pair of Tensors (n,) and (m,), optional
        Group numbers; references of the query's group are excluded.

    Returns
    -------
    float

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points, knn_accuracy
    >>> references = Points(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1]))
    >>> knn_accuracy(Points(torch.tensor([[0.4], [2.0]]), torch.tensor([0, 1])), references, k=1)
    0.5
    """
    if queries.labels is None:
        raise ValueError("queries.labels are missing; accuracy needs them: Points(embeddings, labels)")
    _one_each("queries", queries)
    predicted = knn_predict(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    return float((predicted == queries.labels).double().mean())


@takes_arrays
def class_means(points: Points) -> Points:
    """Compute the mean embedding of every class.

    Parameters
    ----------
    points : Points (n, d)
        Embeddings and class labels.

    Returns
    -------
    Points (C, d)
        The means, with the classes as labels in ascending order.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import class_means
    >>> means = class_means(Points(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([4, 4, 1])))
    >>> means.labels, means.embeddings[:, 0]
    (tensor([1, 4]), tensor([5., 1.]))

    References
    ----------
    [hao2018anchor], eq. (1)
    """
    labels = _reference_classes(points)
    classes, which = torch.unique(labels, return_inverse=True)
    sums = torch.zeros(len(classes), points.embeddings.shape[1], dtype=torch.float64, device=which.device)
    sums.index_add_(0, which, points.embeddings.double())
    means = sums / torch.bincount(which, minlength=len(classes))[:, None]
    return Points(means.to(points.embeddings.dtype), classes)


@takes_arrays
def nearest_mean_predict(queries: Points | Tensor, means: Points | Tensor, affinity: Affinity | None = None) -> Tensor:
    """Predict the class of the nearest class mean, or of the nearest anchor.

    Among equally near means the earlier one wins.

    Parameters
    ----------
    queries : Points or Tensor or ndarray (n, d)
        Embeddings.
    means : Points or Tensor or ndarray (C, d)
        The result of `class_means`, or anchors without labels, whose row number is their class.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.

    Returns
    -------
    Tensor (n,)
        The predicted classes.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import nearest_mean_predict
    >>> nearest_mean_predict(torch.tensor([[0.9, 0.1], [0.2, 0.5]]), torch.eye(2))
    tensor([0, 1])

    References
    ----------
    [hao2018anchor], eq. (3)
    """
    at = nearest(queries, means, 1, affinity).positions[:, 0]
    return at if isinstance(means, Tensor) or means.labels is None else means.labels[at]


@takes_arrays
@torch.no_grad()
def soft_probabilities(
    queries: Points | Tensor, references: Points | None = None, affinity: Affinity | None = None, *, groups: Groups | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the probability of each class under a softmax over all references: the prediction of NCA.

        p_ic = sum_{j of class c} exp(affinity_ij) / sum_j exp(affinity_ij)

    Parameters
    ----------
    queries : Points or Tensor or ndarray (n, d)
        Embeddings. With ids on both sides, the query itself is excluded by id.
    references : Points (m, d), optional
        Embeddings and class labels. By default each query is predicted from the other queries.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when `references` is given.

    Returns
    -------
    probabilities : Tensor (n, C) float64
        Rows sum to 1; NaN for a query that exclusion left without references.
    classes : Tensor (C,)
        The label of each column, ascending.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import soft_probabilities
    >>> probabilities, classes = soft_probabilities(Points(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1])))
    >>> [round(value, 4) for value in probabilities[:, 0].tolist()]
    [0.9997, 0.9526, 1.0]

    References
    ----------
    [goldberger2005nca]
    """
    points = queries if isinstance(queries, Points) else Points(queries)
    _reference_classes(points if references is None else references)
    comparison = compare(points, references, affinity, groups, labeled=False)
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
    """Predict the mean target under a softmax over all references: the prediction of NCA regression.

        prediction_i = sum_j softmax_j(affinity_ij) target_j

    Parameters
    ----------
    queries : Points or Tensor or ndarray (n, d)
        Embeddings. With ids on both sides, the query itself is excluded by id.
    references : Points (m, d), optional
        Embeddings and targets (m,) or (m, t) as labels. By default each query is predicted from the other queries.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when `references` is given.
    period : float, optional
        The period of circular targets, such as 360 for degrees: the mean is taken on the circle.

    Returns
    -------
    Tensor (n,) or (n, t) float64
        NaN for a query that exclusion left without references.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import soft_mean
    >>> references = Points(torch.tensor([[0.0], [2.0]]), torch.tensor([10.0, 20.0]))
    >>> soft_mean(torch.tensor([[1.0]]), references)
    tensor([15.], dtype=torch.float64)

    References
    ----------
    [taylor2010pose]
    """
    points = queries if isinstance(queries, Points) else Points(queries)
    comparison = compare(points, references, affinity, groups, labeled=False)
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
    """Predict the mean target of the k nearest references of each query.

    Among equally near references the earlier is taken.

    Parameters
    ----------
    queries : Points or Tensor or ndarray (n, d)
        Embeddings.
    references : Points (m, d)
        Embeddings and targets (m,) or (m, t) as labels.
    k : int
        How many neighbors are averaged; clamped to the number of references m.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    exclude_same_id : bool, default False
        Exclude references with the id of the query. Use it when the queries are among the references.
    groups : pair of Tensors (n,) and (m,), optional
        Group numbers; references of the query's group are excluded.
    period : float, optional
        The period of circular targets, such as 360 for degrees: the mean is taken on the circle.

    Returns
    -------
    Tensor (n,) or (n, t) float64

    Raises
    ------
    ValueError
        If exclusion leaves a query with fewer than k references.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import knn_regress
    >>> references = Points(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([1.0, 3.0, 100.0]))
    >>> knn_regress(torch.tensor([[0.2]]), references, k=2)
    tensor([2.], dtype=torch.float64)
    """
    targets = numbers(references.labels, len(references.embeddings), "references.labels")
    found = nearest(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    theirs = targets[_all_there(found.positions)]  # (n, k) or (n, k, t)
    if period is None:
        return theirs.mean(1)
    turn = 2 * math.pi / period
    return torch.atan2((theirs * turn).sin().mean(1), (theirs * turn).cos().mean(1)) / turn % period


def numbers(labels: Tensor | None, count: int, name: str) -> Tensor:
    """Return targets (n,) or (n, t) in float64, or raise an error that says what to give."""
    if not isinstance(labels, Tensor):
        raise ValueError(f"{name} are missing or not a tensor; give numbers (n,) or (n, t), one row for each embedding")
    if labels.ndim not in (1, 2) or len(labels) != count:
        raise ValueError(f"{name} have shape {tuple(labels.shape)} for {count} embeddings; give numbers (n,) or (n, t)")
    if not labels.numel():
        raise ValueError(f"{name} are empty, so that there is nothing to measure; give at least one row")
    return check_finite(name, labels.double(), "remove the points without a target")  # type: ignore[no-any-return]


def _mean(weights: Tensor, targets: Tensor, period: float | None) -> Tensor:
    """(b, t) from weights (b, m) that sum to 1 and targets (m, t)."""
    if period is None:
        return weights @ targets
    turn = 2 * math.pi / period
    return torch.atan2(weights @ (targets * turn).sin(), weights @ (targets * turn).cos()) / turn % period


def _soft_weights(comparison: Comparison) -> Iterator[Tensor]:
    """Yield blocks (b, m) float64 of softmax(affinity) over the gallery."""
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
        raise ValueError("some queries have fewer than k neighbors left after exclusion; lower k or add references")
    return positions


def _one_each(name: str, points: Points) -> None:
    """Check that every embedding has one class: a column of labels, or a single label, would be broadcast silently."""
    assert points.labels is not None
    if isinstance(points.labels, Tensor) and points.labels.shape != (len(points.embeddings),):
        raise ValueError(
            f"{name}.labels have shape {tuple(points.labels.shape)} for {len(points.embeddings)} embeddings; give one class for each"
        )
    class_labels(points.labels, len(points.embeddings), f"{name}.labels")
