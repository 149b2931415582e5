"""Classification: how often is the predicted class right, and which classes are taken for which?"""

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
from nearkin.search import nearest
from nearkin.search.exclusion import Exclusion
from nearkin.search.measure import Measure, exact_scores, inverse_lengths, measure, pair_scores
from nearkin.search.voting import vote, weighted_vote

WEIGHTED_K, WEIGHTED_TEMPERATURE = 200, 0.07  # [huang2019and]
NOBODY = torch.iinfo(torch.int64).min  # predicted for a query that has no neighbor left
NO_NEIGHBOR = "no neighbor left after exclusion"


@dataclass(frozen=True)
class ClassRow:
    """One line of the per-class table; NaN where nothing was counted."""

    label: int
    precision: float
    recall: float
    f1: float
    queries: int  # of this class
    predicted: int  # as this class


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
    """The accuracy of every predictor on neighbors: "1-nn", "10-nn", "weighted 200-nn", "nearest class mean", "soft neighbors".

    Without references every query is predicted from the others, its own class's mean without it. A query of a class that no
    reference has cannot be predicted right and counts as an error; the notes say how many there are.
    """
    found = predictions(queries, references, affinity, ks, groups=groups)
    assert queries.labels is not None
    return accuracies(found, queries.labels, None if references is None else references.labels, split=split, draws=draws, seed=seed)


def accuracies(
    predicted: Mapping[str, Tensor], labels: Tensor, known: Tensor | None, *, split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, Score]:
    """The score of every prediction (n,) of the `labels` (n,), with a word on those that none of the `known` labels could give."""
    notes = _hopeless(labels, known)
    scores = {name: accuracy(one, labels, name=name, split=split, draws=draws, seed=seed) for name, one in predicted.items()}
    return {name: replace(score, notes=notes) for name, score in scores.items()}


def _hopeless(labels: Tensor, known: Tensor | None) -> tuple[str, ...]:
    """A word about queries whose class no reference has."""
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
    """What `classification` scores: the predicted class (n,) by predictor; NOBODY for a query that exclusion left alone.

    k is lowered to the number of references, and the name says the k that was used. The weighted vote takes cosine / 0.07
    where the affinity is a cosine, else the affinity as it is. Groups, an id that stands twice among the references, and an
    affinity of the caller's own on queries that stand there have no nearest class mean: nobody could be taken out of it.
    """
    asked = whole_numbers_above_zero(ks)
    comparison = compare(queries, references, affinity, groups)
    m = len(comparison.gallery.embeddings) - (1 if references is None else 0)
    found = {}
    for k in dict.fromkeys(min(k, max(m, 1)) for k in asked):
        found[f"{k}-nn"] = _voted(comparison, k, comparison.affinity, weighted=False)
    k = min(WEIGHTED_K, max(m, 1))
    found[f"weighted {k}-nn"] = _voted(comparison, k, sharpened(comparison.affinity), weighted=True)
    by_mean = _by_class_mean(comparison)
    if by_mean is not None:
        found["nearest class mean"] = by_mean
    shares, classes = soft_probabilities(queries, references, affinity, groups=groups)
    found["soft neighbors"] = torch.where(shares[:, 0].isnan(), NOBODY, classes[shares.nan_to_num(0.0).argmax(1)])
    return found


@takes_arrays
def accuracy(
    predicted: Tensor, labels: Tensor, *, name: str = "accuracy", split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> Score:
    """The share of (n,) predictions that equal the (n,) labels; chance is the share of the largest class."""
    predicted, labels = _both(predicted, labels)
    counted = predicted != NOBODY
    right = torch.where(counted, (predicted == labels).double(), torch.nan)
    chance = float(torch.unique(labels[counted], return_counts=True)[1].max() / counted.sum()) if bool(counted.any()) else None
    left_out = {NO_NEIGHBOR: int((~counted).sum())}
    return mean_score(name, right, chance=chance, left_out=left_out, split=split, draws=draws, seed=seed)


@takes_arrays
def confusion(predicted: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    """(C, C) counts: row = true class, column = predicted class. Classes are 0..C-1; `encode_labels` makes them so."""
    predicted, labels = _both(predicted, labels)
    predicted, labels = predicted[predicted != NOBODY], labels[predicted != NOBODY]
    both = torch.cat([predicted, labels])
    size = classes if classes is not None else int(both.max()) + 1 if len(both) else 0
    if len(both) and (int(both.min()) < 0 or int(both.max()) >= size):
        wrong = int(both.min()) if int(both.min()) < 0 else int(both.max())
        raise ValueError(f"class {wrong} is outside 0..{size - 1}; nearkin.encode_labels gives classes 0..C-1")
    return torch.bincount(labels * size + predicted, minlength=size**2).view(size, size)


@takes_arrays
def per_class(predicted: Tensor, labels: Tensor, classes: int | None = None) -> list[ClassRow]:
    """Precision, recall and F1 of each class, by its number."""
    table = confusion(predicted, labels, classes).cpu()
    hits, queries, as_this = table.diagonal().tolist(), table.sum(1).tolist(), table.sum(0).tolist()
    return [
        ClassRow(label, _ratio(hit, named), _ratio(hit, true), _ratio(2 * hit, named + true), true, named)
        for label, (hit, true, named) in enumerate(zip(hits, queries, as_this, strict=True))
    ]


def _voted(comparison: Comparison, k: int, affinity: Affinity, weighted: bool) -> Tensor:
    """(n,) by the k nearest that are left, NOBODY if none is."""
    excluded = comparison.excluded
    sides = [Points(side.embeddings, None, side.ids) for side in (comparison.queries, comparison.gallery)]
    groups = None if excluded.groups is None or excluded.reference_groups is None else (excluded.groups, excluded.reference_groups)
    found = nearest(sides[0], sides[1], k, affinity, exclude_same_id=excluded.ids is not None, groups=groups)
    assert comparison.gallery.labels is not None
    labels = comparison.gallery.labels.long()[found.positions.clamp_min(0)]
    there = found.positions >= 0
    if not weighted and bool(there.all()):
        return vote(labels)
    weights = found.affinity if weighted else torch.zeros_like(found.affinity)
    alone = ~there[:, 0]
    weights = weights.masked_fill(~there & ~alone[:, None], -torch.inf)
    return weighted_vote(labels, torch.where(alone[:, None], 0.0, weights)).masked_fill(alone, NOBODY)


def _by_class_mean(comparison: Comparison) -> Tensor | None:
    """(n,) the class of the nearest mean; a query that stands among the references is taken out of its class's mean first."""
    queries, gallery, excluded = comparison.queries.embeddings, comparison.gallery, comparison.excluded
    place = torch.full((len(queries),), -1, device=queries.device) if excluded == Exclusion() else own_places(excluded)
    if place is None:
        return None  # groups, or an id that stands twice: every query would need means of its own
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
    """(n,) the class of the nearest mean, `selves` (n, d) taken out of the mean `own` (n,) of so many; NOBODY if no mean is left."""
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
    return torch.where(stays | (best > -torch.inf), means.labels.long()[named], NOBODY)


def sharpened(affinity: Affinity) -> Affinity:
    """The temperature that the weighted vote was published with, for a cosine."""
    return cosine(WEIGHTED_TEMPERATURE) if getattr(affinity, "metric", None) == "cosine" else affinity


def _both(predicted: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    predicted = class_labels(predicted, len(predicted), "predicted").long()
    return predicted, class_labels(labels, len(predicted), "labels").long().to(predicted.device)


def _ratio(a: int, b: int) -> float:
    return a / b if b else math.nan
