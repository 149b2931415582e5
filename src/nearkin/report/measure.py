"""Compute every figure that the subject of an evaluation allows."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nearkin.compose.points import Points, rows_of
from nearkin.data.progress import Report, inform
from nearkin.evaluate import (
    ClassRow,
    Curve,
    Score,
    accuracy,
    classification,
    clustering,
    collapse,
    confusion,
    consistency,
    per_class,
    regression,
    retrieval,
    silhouette,
    vote,
)
from nearkin.evaluate.classification import WEIGHTED_K, accuracies, votes
from nearkin.evaluate.comparison import compare
from nearkin.evaluate.curves import PAIRS, count_pairs, curves_of, thinned
from nearkin.evaluate.hubness import hubness_of
from nearkin.evaluate.score import mean_score
from nearkin.evaluate.verification import rates_of
from nearkin.report.subject import Subject
from nearkin.search import Neighbors, nearest, rescaled
from nearkin.search.rescaled import Method

KS = (1, 2, 5, 10, 20, 50, 100, 200)  # values of k, up to the number of references
NEAR = 10  # neighbors used one by one: gallery, flow, suspected labels
GEOMETRY = "geometry of the references"
PROBES = "linear probes by layer"  # the family of scores that `probing.probe` adds
AT_ONE = ("map@1", "consistency@1", "ndcg@1")  # equal to precision@1
HUBS = "how often references are neighbors"
MOST_COMPARED = 5_000  # points for the silhouette at most
MOST_PAIRS = 200_000_000  # pairs of a query and a reference for the curves; above, a sample of the queries
MOST_PAIRED = 200_000  # references for the curves at most: they are held in float64
MOST_CLUSTERED = 20_000  # points for k-means at most


@dataclass
class Measured:
    """All figures by family, and the data that pictures are drawn from."""

    scores: dict[str, dict[str, Score]] = field(default_factory=dict)
    by_k: dict[int, Score] = field(default_factory=dict)  # k-NN accuracy, or the error of k-NN regression
    classes: list[ClassRow] = field(default_factory=list)
    confusion: Tensor | None = None  # (C, C)
    flow: Tensor | None = None  # (C, C) classes of queries by classes of their nearest
    curves: tuple[Curve, Curve] | None = None  # precision over recall, and ROC
    found: Neighbors | None = None  # (n, NEAR)
    predicted: Tensor | None = None  # (n, t) numbers
    notes: list[str] = field(default_factory=list)
    pairs: int = PAIRS  # that the curves count at most


def measure(subject: Subject, report: Report | None = None, *, pairs: int = PAIRS) -> Measured:
    """Classes: classification, retrieval, clustering, curves. Numbers: regression. Sets: overlap. Always: effective rank, neighbors.

    The curves count at most `pairs` pairs.
    """
    measured = Measured(notes=list(subject.notes), pairs=pairs)
    queries, references = subject.queries.points, subject.references.points
    inform(report, "searching neighbors")
    candidates = len(subject.references) - (subject.gallery is None)
    most = max(*ks_up_to(candidates), min(WEIGHTED_K, candidates), NEAR)
    found = nearest(queries, references, most, subject.model.affinity, exclude_same_id=True)  # one search for all k
    measured.found = Neighbors(found.positions[:, :NEAR], found.affinity[:, :NEAR])
    by: dict[str, Callable[[Subject, Measured, Neighbors, Report | None], None]] = {
        "classes": _classes,
        "numbers": _numbers,
        "sets": _sets,
    }
    if subject.supervision in by:
        by[subject.supervision](subject, measured, found, report)
    else:
        measured.notes.append(
            "These data have no labels, so whether the neighbors are right cannot be measured. "
            "To measure it, pass some labeled data: `nearkin evaluate FOLDER DATA`. "
            "The checks and the gallery below need no labels."
        )
    measured.scores[HUBS] = hubness_of(measured.found.positions, len(subject.references), candidates, split=subject.split)
    inform(report, "computing the effective rank")
    # Of the references: a few queries cannot span many dimensions, however good the embedding is.
    measured.scores[GEOMETRY] = collapse(references, split=subject.split if subject.gallery is None else "train")
    return measured


def _classes(subject: Subject, measured: Measured, found: Neighbors, report: Report | None) -> None:
    queries, gallery, affinity = subject.queries.points, _gallery(subject), subject.model.affinity
    ks = ks_up_to(len(subject.references) - (subject.gallery is None))
    inform(report, "predicting classes from neighbors")
    soft = subject.model.soft_affinity
    assert queries.labels is not None and subject.references.points.labels is not None
    if soft is None:
        predicted = votes(compare(queries, gallery, affinity), (1, min(10, max(ks))), found)
        family = accuracies(predicted, queries.labels, None if gallery is None else gallery.labels, split=subject.split)
    else:
        family = classification(queries, gallery, soft, (1, min(10, max(ks))), split=subject.split)
    measured.scores["prediction from neighbors"] = family
    near = neighbors_of(found, subject.references.points.labels)
    measured.by_k = by_votes(near, queries.labels, ks, subject.split)
    inform(report, "ranking the references")
    ranked = retrieval(queries, gallery, affinity, [k for k in (1, 5, 10) if k <= max(ks)], split=subject.split)
    measured.scores["retrieval"] = {name: score for name, score in ranked.items() if name not in AT_ONE}
    inform(report, "clustering")
    some = _some(queries, MOST_CLUSTERED)
    if len(some.embeddings) < len(queries.embeddings):
        measured.notes.append(f"Clustering used {len(some.embeddings):,} of {len(queries.embeddings):,} queries, drawn at random.")
    measured.scores["clustering of the queries"] = clustering(some, affinity, split=subject.split)
    if len(torch.unique(queries.labels)) > 1:
        measured.scores["clustering of the queries"] |= silhouette(_some(queries, MOST_COMPARED), affinity, split=subject.split)
    measured.scores["neighborhoods among the queries"] = consistency(queries, affinity, (1,), split=subject.split)
    inform(report, "computing the curves of pairs")
    measured.curves = _curves(subject, measured)
    confusions(measured, queries.labels, near[:, :NEAR], len(subject.classes))


def measure_rescaled(subject: Subject, measured: Measured, method: Method, report: Report | None = None) -> None:
    """Add the retrieval and the hubs with affinities that are corrected for hubs."""
    inform(report, f"ranking with {method}")
    mine, theirs, affinity = rescaled(subject.queries.points, subject.references.points, subject.model.affinity, method)
    most = len(subject.references) - (subject.gallery is None)
    scores = hubness_of(nearest(mine, theirs, min(NEAR, most), affinity, exclude_same_id=True).positions, len(subject.references), most)
    if subject.supervision == "classes":
        scores = retrieval(mine, theirs, affinity, [k for k in (1, 5, 10) if k <= most], split=subject.split) | scores
    measured.scores[f"with {method}"] = {name: score for name, score in scores.items() if name not in AT_ONE}


def by_votes(near: Tensor, labels: Tensor, ks: list[int], split: str | None) -> dict[int, Score]:
    """The k-NN accuracy for every k, from the classes (n, most) of the neighbors."""
    return {k: accuracy(vote(near[:, :k]), labels, name=f"{k}-nn", split=split) for k in ks}


def _curves(subject: Subject, measured: Measured) -> tuple[Curve, Curve] | None:
    queries, gallery = subject.queries.points, _gallery(subject)
    some = _some(queries, max(100, MOST_PAIRS // len(subject.references)))
    if len(some.embeddings) < len(queries.embeddings):
        measured.notes.append(f"The curves of pairs used {len(some.embeddings):,} queries, drawn at random.")
        gallery = queries if gallery is None else gallery
    if gallery is not None and len(gallery.embeddings) > MOST_PAIRED:
        measured.notes.append(f"The curves of pairs used {MOST_PAIRED:,} references, drawn at random.")
        gallery = _some(gallery, MOST_PAIRED)
    try:
        comparison = thinned(compare(some, gallery, subject.model.affinity), measured.pairs)
        pairs = count_pairs(comparison)
        curves = curves_of(comparison, pairs, split=subject.split)
    except ValueError as error:  # only one class, or no class in common: noted, not an error
        measured.notes.append(f"No curves of pairs: {error}.")
        return None
    measured.scores["pairs"] = {curve.area.name: curve.area for curve in curves}
    measured.scores["pairs"] |= rates_of(comparison, pairs, split=subject.split)
    return curves


def confusions(measured: Measured, labels: Tensor, near: Tensor, count: int) -> None:
    """Fill in confusion, per-class figures and flow, from the classes (n, k) of the neighbors; -1 means no neighbor."""
    predicted = near[:, 0]  # 1-NN
    known = predicted >= 0
    measured.confusion = confusion(predicted[known], labels[known], count)
    measured.classes = per_class(predicted[known], labels[known], count)
    measured.flow = flow_counts(labels, near, count)


def flow_counts(labels: Tensor, neighbors: Tensor, count: int) -> Tensor:
    """(C, C) how many of the neighbors (n, k) of queries of one class (n,) are of each class; -1 means no neighbor."""
    known = neighbors >= 0
    pairs = (labels[:, None] * count + neighbors)[known]
    return torch.bincount(pairs, minlength=count * count).reshape(count, count)


def neighbors_of(found: Neighbors, labels: Tensor) -> Tensor:
    """(n, k) labels of the neighbors, -1 where there is none."""
    return torch.where(found.positions >= 0, labels[found.positions.clamp_min(0)], -1)


def _numbers(subject: Subject, measured: Measured, found: Neighbors, report: Report | None) -> None:
    inform(report, "predicting numbers from neighbors")
    targets, known = subject.queries.points.labels, subject.references.points.labels
    assert targets is not None and known is not None
    ks = ks_up_to(len(subject.references) - (subject.gallery is None))
    by_means(measured, known[found.positions[:, : max(ks)]], targets, ks, subject.split)


def by_means(measured: Measured, near: Tensor, targets: Tensor, ks: list[int], split: str | None) -> None:
    """The errors of predicting the mean of k neighbors for every k, from the numbers (n, most, t) of the neighbors."""
    for k in ks:
        predicted = near[:, :k].float().mean(1)
        scores = regression(predicted, targets, split=split)
        measured.by_k[k] = scores["mae"]
        if k == min(10, max(ks)):
            measured.predicted = predicted
            measured.scores[f"regression from the {k} nearest"] = scores


def _sets(subject: Subject, measured: Measured, found: Neighbors, report: Report | None) -> None:
    inform(report, "comparing label sets")
    sets, known = subject.queries.points.labels, subject.references.points.labels
    assert sets is not None and known is not None
    near, drawn = found.positions[:, 0].clamp_min(0), random_rows(len(known), len(sets)).to(known.device)
    by_overlap(measured, sets, known[near], known[drawn], subject.split)


def random_rows(m: int, n: int) -> Tensor:
    """(n,) rows of m references drawn with a fixed seed, to measure chance."""
    return torch.randint(m, (n,), generator=torch.Generator().manual_seed(0))


def by_overlap(measured: Measured, sets: Tensor, near: Tensor, drawn: Tensor, split: str | None) -> None:
    """The overlap of the queries' label sets (n, C) with those of their nearest references; chance is that with random ones."""
    per_query = overlap(sets, near)
    chance = float(overlap(sets, drawn).nanmean())
    empty = int(per_query.isnan().sum())
    score = mean_score("overlap@1", per_query, chance=chance, left_out={"both sets empty": empty}, split=split)
    measured.scores["label sets"] = {"overlap@1": score}


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """(n,) members in both of two label sets (n, C) over members in either; NaN where both are empty."""
    both, either = (a.bool() & b.bool()).sum(1).double(), (a.bool() | b.bool()).sum(1).double()
    return torch.where(either > 0, both / either.clamp_min(1), torch.nan)


def worst_queries(right: Tensor, affinity: Tensor) -> Tensor:
    """Rows of queries (n,), worst first: fewest right neighbors (n, k), then latest first right one, then nearest wrong one."""
    k = right.shape[1]
    rank = torch.where(right.any(1), right.float().argmax(1), k)
    nearest_wrong = torch.where(right, -torch.inf, affinity).amax(1)
    order = nearest_wrong.argsort(descending=True, stable=True)
    order = order[rank[order].argsort(descending=True, stable=True)]
    return order[right[order].sum(1).argsort(stable=True)]


def _gallery(subject: Subject) -> Points | None:
    return None if subject.gallery is None else subject.gallery.points


def ks_up_to(most: int) -> list[int]:
    """The values of k for `most` references."""
    if most < 1:
        raise ValueError("there is no reference to compare a query with; pass data with at least two points")
    return [k for k in KS if k <= most]


def _some(points: Points, most: int) -> Points:
    """At most `most` points, drawn with a fixed seed, in their own order."""
    n = len(points.embeddings)
    if n <= most:
        return points
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values.to(points.embeddings.device)
    return rows_of(points, rows)
