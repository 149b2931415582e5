"""Classification from neighbors: predictions, accuracy, the confusion matrix and a table of classes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, cosine
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import Comparison, Groups, class_labels, compare, own_places, whole_numbers_above_zero
from nearkin.evaluate.neighbors import class_means, soft_probabilities
from nearkin.evaluate.score import DRAWS, Score, mean_score
from nearkin.search import Neighbors, nearest
from nearkin.search.exclusion import Exclusion
from nearkin.search.measure import Measure, exact_scores, inverse_lengths, measure, pair_scores
from nearkin.search.voting import vote, weighted_vote

WEIGHTED_K, WEIGHTED_TEMPERATURE = 200, 0.07  # as in the text of [huang2019and]; see weighted_knn_predict
NO_PREDICTION = torch.iinfo(torch.int64).min  # the "class" of a query that exclusion left without neighbors
NO_NEIGHBOR = "no neighbor left after exclusion"


@dataclass(frozen=True)
class ClassRow:
    """One row of the table of `per_class`; NaN where a ratio has no cases.

    Parameters
    ----------
    label : int
        The class.
    precision : float
        Share of the predictions of this class that are right.
    recall : float
        Share of the queries of this class that were predicted as it.
    f1 : float
        Harmonic mean of precision and recall.
    queries : int
        Number of queries of this class.
    predicted : int
        Number of queries predicted as this class.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import per_class
    >>> row = per_class(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))[0]
    >>> row.precision, row.recall
    (1.0, 0.5)
    """

    label: int
    precision: float
    recall: float
    f1: float
    queries: int
    predicted: int


@takes_arrays
def classification(
    queries: Points,
    references: Points | None = None,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1, 10),
    *,
    groups: Groups | None = None,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """Measure the accuracy of every neighbor classifier: k-NN, weighted k-NN, nearest class mean and soft neighbors.

    A query whose class no reference has cannot be predicted correctly; it counts as an error, and the notes report how many there are.
    A query without any neighbor after exclusion is left out and counted in `left_out`.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels. With ids on both sides, the query itself is excluded from the references by id.
    references : Points (m, d), optional
        Embeddings and class labels. By default every query is predicted from the other queries.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    ks : sequence of int, default (1, 10)
        The numbers of neighbors of the majority vote.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when `references` is given.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    draws : int, default 1000
        Bootstrap resamples of the queries for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    dict of str to Score
        "1-nn", "10-nn", "weighted 200-nn", "nearest class mean", "soft neighbors". A k above the number of references is clamped, and the
        name shows the k that was used. See `predictions` for the classifiers and their ties.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points, classification
    >>> points = Points(torch.tensor([[0.0], [0.1], [5.0], [5.1], [9.0]]), torch.tensor([0, 0, 1, 1, 2]))
    >>> scores = classification(points, ks=(1,), draws=0)
    >>> scores["1-nn"].value
    0.8
    >>> scores["1-nn"].notes
    ('1 queries are of a class that no reference has; they count as errors',)
    >>> list(scores)
    ['1-nn', 'weighted 4-nn', 'nearest class mean', 'soft neighbors']

    References
    ----------
    [goldberger2005nca], [hao2018anchor], [wu2018instance]
    """
    found = predictions(queries, references, affinity, ks, groups=groups)
    assert queries.labels is not None
    return accuracies(found, queries.labels, None if references is None else references.labels, split=split, draws=draws, seed=seed)


def accuracies(
    predicted: Mapping[str, Tensor], labels: Tensor, known: Tensor | None, *, split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, Score]:
    """Score every prediction (n,) against the `labels` (n,), with a note on labels that are not among the `known` ones."""
    notes = _unknown_classes(labels, known)
    scores = {name: accuracy(one, labels, name=name, split=split, draws=draws, seed=seed) for name, one in predicted.items()}
    return {name: replace(score, notes=notes) for name, score in scores.items()}


def _unknown_classes(labels: Tensor, known: Tensor | None) -> tuple[str, ...]:
    """A note on queries whose class no reference has."""
    if known is None:
        _, which, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        number = int((counts[which] == 1).sum())
    else:
        number = int((~torch.isin(labels, known)).sum())
    return (f"{number} queries are of a class that no reference has; they count as errors",) if number else ()


@takes_arrays
@torch.no_grad()
def predictions(
    queries: Points,
    references: Points | None = None,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1, 10),
    *,
    groups: Groups | None = None,
) -> dict[str, Tensor]:
    """Predict the class of every query with each neighbor classifier; `classification` scores these.

    - "k-nn": the majority class of the k nearest; ties go to the class of the nearest neighbor.
    - "weighted 200-nn": the class with the largest sum of exp(affinity) over the 200 nearest. For a cosine the temperature is 0.07
      (see `weighted_knn_predict`); any other affinity is used as it is.
    - "nearest class mean": the class of the nearest mean; a query among the references is taken out of its own mean first.
    - "soft neighbors": the class with the largest share of softmax(affinity) over all references.

    Parameters
    ----------
    queries : Points (n, d)
        Embeddings and class labels. With ids on both sides, the query itself is excluded from the references by id.
    references : Points (m, d), optional
        Embeddings and class labels. By default every query is predicted from the other queries.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity that the model was trained with.
    ks : sequence of int, default (1, 10)
        The numbers of neighbors of the majority vote. A k above the number of references is clamped; the name shows the k used.
    groups : Tensor (n,) or pair of Tensors (n,) and (m,), optional
        Group numbers; points of the query's group are excluded. A pair is needed when `references` is given.

    Returns
    -------
    dict of str to Tensor (n,)
        The predicted classes; NO_PREDICTION for a query that exclusion left without neighbors. "nearest class mean" is missing where a
        query cannot be taken out of its class mean: with groups, with an id that occurs twice among the references, and with a custom
        affinity if queries are among the references.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import predictions
    >>> references = Points(torch.tensor([[0.0], [0.1], [5.0]]), torch.tensor([0, 0, 1]))
    >>> queries = Points(torch.tensor([[0.2], [4.0]]), torch.tensor([0, 1]))
    >>> predictions(queries, references, ks=(1, 3))["1-nn"]
    tensor([0, 1])
    """
    ks = whole_numbers_above_zero(ks)
    comparison = compare(queries, references, affinity, groups)
    found = votes(comparison, ks)
    shares, classes = soft_probabilities(queries, references, affinity, groups=groups)
    found["soft neighbors"] = torch.where(shares[:, 0].isnan(), NO_PREDICTION, classes[shares.nan_to_num(0.0).argmax(1)])
    return found


@takes_arrays
def accuracy(
    predicted: Tensor, labels: Tensor, *, name: str = "accuracy", split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> Score:
    """Measure the share of predictions that equal the labels.

    Chance is the share of the largest class.

    Parameters
    ----------
    predicted : Tensor or ndarray (n,) of integers
        Predicted classes; NO_PREDICTION entries are left out and counted.
    labels : Tensor or ndarray (n,) of integers
        True classes.
    name : str, default "accuracy"
        The name of the score.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    draws : int, default 1000
        Bootstrap resamples of the queries for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    Score

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import accuracy
    >>> accuracy(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 0]), draws=0)
    <accuracy 0.75, chance 0.5, 4 counted>
    """
    predicted, labels = _both(predicted, labels)
    counted = predicted != NO_PREDICTION
    right = torch.where(counted, (predicted == labels).double(), torch.nan)
    chance = float(torch.unique(labels[counted], return_counts=True)[1].max() / counted.sum()) if bool(counted.any()) else None
    left_out = {NO_NEIGHBOR: int((~counted).sum())}
    return mean_score(name, right, chance=chance, left_out=left_out, split=split, draws=draws, seed=seed)


@takes_arrays
def confusion(predicted: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    """Count every pair of true and predicted class.

    Parameters
    ----------
    predicted : Tensor or ndarray (n,) of integers
        Predicted classes 0..C-1; NO_PREDICTION entries are left out. `nearkin.encode_labels` gives such classes.
    labels : Tensor or ndarray (n,) of integers
        True classes 0..C-1.
    classes : int, optional
        C; by default the largest class plus 1.

    Returns
    -------
    Tensor (C, C) int64
        Row: true class. Column: predicted class.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import confusion
    >>> confusion(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    tensor([[1, 1],
            [0, 1]])
    """
    predicted, labels = _both(predicted, labels)
    predicted, labels = predicted[predicted != NO_PREDICTION], labels[predicted != NO_PREDICTION]
    both = torch.cat([predicted, labels])
    size = classes if classes is not None else int(both.max()) + 1 if len(both) else 0
    if len(both) and (int(both.min()) < 0 or int(both.max()) >= size):
        wrong = int(both.min()) if int(both.min()) < 0 else int(both.max())
        raise ValueError(f"class {wrong} is outside 0..{size - 1}; nearkin.encode_labels gives classes 0..C-1")
    return torch.bincount(labels * size + predicted, minlength=size**2).view(size, size)


@takes_arrays
def per_class(predicted: Tensor, labels: Tensor, classes: int | None = None) -> list[ClassRow]:
    """Compute precision, recall and F1 of each class.

    Parameters
    ----------
    predicted : Tensor or ndarray (n,) of integers
        Predicted classes 0..C-1; NO_PREDICTION entries are left out.
    labels : Tensor or ndarray (n,) of integers
        True classes 0..C-1.
    classes : int, optional
        C; by default the largest class plus 1.

    Returns
    -------
    list of ClassRow
        One row for each class 0..C-1.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import per_class
    >>> per_class(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))[1]
    ClassRow(label=1, precision=0.5, recall=1.0, f1=0.6666666666666666, queries=1, predicted=2)
    """
    table = confusion(predicted, labels, classes).cpu()
    hits, queries, as_this = table.diagonal().tolist(), table.sum(1).tolist(), table.sum(0).tolist()
    return [
        ClassRow(label, _ratio(hit, named), _ratio(hit, true), _ratio(2 * hit, named + true), true, named)
        for label, (hit, true, named) in enumerate(zip(hits, queries, as_this, strict=True))
    ]


def votes(comparison: Comparison, ks: Sequence[int], near: Neighbors | None = None) -> dict[str, Tensor]:
    """The predictions of `predictions` but for soft neighbors; `near` are the nearest of every query, if they are known already."""
    m = len(comparison.gallery.embeddings) - (comparison.queries is comparison.gallery)
    found, counts, most = {}, list(dict.fromkeys(min(k, max(m, 1)) for k in ks)), min(WEIGHTED_K, max(m, 1))
    near = near or _nearest(comparison, max(most, *counts))  # a temperature changes no order, so that one search serves all votes
    for k in counts:
        found[f"{k}-nn"] = _voted(comparison, near, k, weighted=False)
    found[f"weighted {most}-nn"] = _voted(comparison, near, most, weighted=True)
    by_mean = _by_class_mean(comparison)
    return found if by_mean is None else {**found, "nearest class mean": by_mean}


def _nearest(comparison: Comparison, k: int) -> Neighbors:
    """The k nearest after exclusion."""
    excluded, affinity = comparison.excluded, comparison.affinity
    sides = [Points(side.embeddings, None, side.ids) for side in (comparison.queries, comparison.gallery)]
    groups = None if excluded.groups is None or excluded.reference_groups is None else (excluded.groups, excluded.reference_groups)
    return nearest(sides[0], sides[1], k, affinity, exclude_same_id=excluded.ids is not None, groups=groups)


def _voted(comparison: Comparison, near: Neighbors, k: int, weighted: bool) -> Tensor:
    """(n,) the vote of the k nearest; NO_PREDICTION if exclusion left none."""
    found = Neighbors(near.positions[:, :k], near.affinity[:, :k])
    assert comparison.gallery.labels is not None
    labels = comparison.gallery.labels.long()[found.positions.clamp_min(0)]
    there = found.positions >= 0
    if not weighted and bool(there.all()):
        return vote(labels)
    weights = at_vote_temperature(found.affinity, comparison.affinity) if weighted else torch.zeros_like(found.affinity)
    alone = ~there[:, 0]
    weights = weights.masked_fill(~there & ~alone[:, None], -torch.inf)
    return weighted_vote(labels, torch.where(alone[:, None], 0.0, weights)).masked_fill(alone, NO_PREDICTION)


def _by_class_mean(comparison: Comparison) -> Tensor | None:
    """(n,) the class of the nearest mean; a query that is among the references is taken out of the mean of its class first."""
    queries, gallery, excluded = comparison.queries.embeddings, comparison.gallery, comparison.excluded
    place = torch.full((len(queries),), -1, device=queries.device) if excluded == Exclusion() else own_places(excluded)
    if place is None:
        return None  # groups, or an id that occurs twice: every query would need its own means
    inside, how = (place >= 0).nonzero()[:, 0], measure(comparison.affinity)
    if len(inside) and how is None:
        return None
    means = class_means(gallery)
    assert means.labels is not None and gallery.labels is not None
    named = means.labels.long()[nearest(queries, means.embeddings, 1, comparison.affinity).positions[:, 0]]
    if len(inside) and how is not None:
        at = place[inside]
        members = torch.searchsorted(means.labels, gallery.labels)  # labels of means are sorted
        number = torch.bincount(members, minlength=len(means.labels))[members[at]]
        named[inside] = _without_itself(how, comparison.affinity, queries[inside], gallery.embeddings[at], members[at], number, means)
    return named


def _without_itself(
    how: Measure, affinity: Affinity, queries: Tensor, selves: Tensor, own: Tensor, number: Tensor, means: Points
) -> Tensor:
    """(n,) the class of the nearest mean, with `selves` (n, d) taken out of the mean `own` (n,) of `number` (n,) points.

    NO_PREDICTION if no mean is left.
    """
    assert means.labels is not None
    x, centers = queries.double(), means.embeddings.double()
    without = (centers[own] * number[:, None] - selves.double()) / (number[:, None] - 1).clamp_min(1)
    rows = torch.arange(len(x), device=x.device)
    to_unit = inverse_lengths(x, how.unit_queries)
    mine = pair_scores(how, x, without, (to_unit, inverse_lengths(without, how.unit_references)), rows, rows)
    two = nearest(x, centers, min(2, len(centers)), affinity).positions  # the best other mean is one of the two best
    scores = exact_scores(how, x, centers, (to_unit, inverse_lengths(centers, how.unit_references)), two)
    best, at = scores.masked_fill(two == own[:, None], -torch.inf).max(1)
    stays = (mine >= best) & (number > 1)
    named = torch.where(stays, own, two.gather(1, at[:, None])[:, 0])
    return torch.where(stays | (best > -torch.inf), means.labels.long()[named], NO_PREDICTION)


def with_vote_temperature(affinity: Affinity) -> Affinity:
    """A cosine at the temperature of the weighted vote, 0.07; any other affinity unchanged."""
    return cosine(WEIGHTED_TEMPERATURE) if getattr(affinity, "metric", None) == "cosine" else affinity


def at_vote_temperature(near: Tensor, affinity: Affinity) -> Tensor:
    """The same affinities as `with_vote_temperature` gives, from those of the affinity."""
    if getattr(affinity, "metric", None) != "cosine":
        return near
    return near * (float(getattr(affinity, "temperature", 1.0)) / WEIGHTED_TEMPERATURE)


def _both(predicted: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    predicted = class_labels(predicted, len(predicted), "predicted").long()
    if not len(predicted):
        raise ValueError("predicted are empty, so that there is nothing to measure; give at least one query")
    return predicted, class_labels(labels, len(predicted), "labels").long().to(predicted.device)


def _ratio(a: int, b: int) -> float:
    return a / b if b else math.nan
