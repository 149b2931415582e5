"""Clustering: does k-means on the embedding find the classes?"""

import math

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, unit
from nearkin.compose.points import Points, takes_arrays
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.evaluate.k_means import k_means
from nearkin.evaluate.mutual_information import adjusted_information, expected_information
from nearkin.evaluate.score import Score
from nearkin.search.measure import measure


@takes_arrays
def clustering(
    points: Points,
    affinity: Affinity | None = None,
    *,
    labels: Tensor | None = None,
    clusters: int | None = None,
    restarts: int = 10,
    split: str | None = None,
    seed: int = 0,
) -> dict[str, Score]:
    """nmi (arithmetic average), ami, ari and pairwise_f1 of k-means against the labels, or against `labels` (n,) such as super-categories.

    The value is that of the restart with the least inertia; low and high are the extremes over the restarts: which start
    k-means had moves these figures more than which points were drawn. As many clusters as there are classes unless told.
    With a cosine affinity the points are set to length 1 first.
    """
    x = finite(points.embeddings, "points")
    given = points.labels if labels is None else labels
    if given is None:
        raise ValueError("points.labels are missing; clusters are compared with them: Points(embeddings, labels), or pass labels=")
    truth = torch.unique(class_labels(given, len(x), "labels"), return_inverse=True)[1].cpu().numpy()
    size = int(truth.max()) + 1 if clusters is None else clusters
    if not 1 <= size <= len(x):
        raise ValueError(f"clusters ({size}) must be between 1 and the number of points ({len(x)})")
    if restarts < 1:
        raise ValueError(f"restarts ({restarts}) must be above 0")
    how = None if affinity is None else measure(affinity)
    x = unit(x.double()) if how is not None and how.unit_queries else x.double()
    runs = [k_means(x, size, seed + number) for number in range(restarts)]
    figures = [agreement(truth, found) for found, _ in runs]
    best = min(range(restarts), key=lambda number: runs[number][1])
    chance = _chance(truth, runs[best][0])
    notes = (f"{size} clusters, best of {restarts} restarts by inertia; the interval is their range", "nmi divides by the arithmetic mean")
    return {
        name: Score(name, figures[best][name], *_range(figures, name), chance[name], None, len(x), {}, notes, True, split)
        for name in figures[best]
    }


def agreement(truth: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """nmi, ami, ari and pairwise_f1 of two ways (n,) to part the same points."""
    from sklearn import metrics

    return {
        "nmi": float(metrics.normalized_mutual_info_score(truth, found, average_method="arithmetic")),
        "ami": adjusted_information(truth, found, float(metrics.mutual_info_score(truth, found)), _mean_entropy(truth, found)),
        "ari": float(metrics.adjusted_rand_score(truth, found)),
        "pairwise_f1": _pairwise_f1(truth, found),
    }


def _pairwise_f1(truth: np.ndarray, found: np.ndarray) -> float:
    """F1 of "these two belong together" over all pairs; 1 when neither puts any two together."""
    together, in_truth, in_found = (_pairs(table) for table in _tables(truth, found))
    return 2 * together / (in_truth + in_found) if in_truth + in_found else 1.0


def _tables(truth: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of the parts: in both at once, in the truth, in what was found."""
    both = np.unique(truth.astype(np.int64) * (int(found.max()) + 1) + found, return_counts=True)[1]
    return both, np.bincount(truth), np.bincount(found)


def _pairs(sizes: np.ndarray) -> int:
    return sum(size * (size - 1) // 2 for size in sizes.tolist())


def _chance(truth: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """What clusters of these sizes get, on average, when points are dealt to them at random."""
    n = len(truth)
    mean_entropy = _mean_entropy(truth, found)
    information = expected_information(truth, found) if mean_entropy > 0 else 0.0
    _, in_truth, in_found = (_pairs(table) for table in _tables(truth, found))
    together = in_truth * in_found / _pairs(np.array([n])) if n > 1 else 0.0
    f1 = 2 * together / (in_truth + in_found) if in_truth + in_found else 1.0
    return {"nmi": float(information / mean_entropy) if mean_entropy > 0 else 1.0, "ami": 0.0, "ari": 0.0, "pairwise_f1": f1}


def _mean_entropy(truth: np.ndarray, found: np.ndarray) -> float:
    return (_entropy(truth) + _entropy(found)) / 2


def _entropy(parts: np.ndarray) -> float:
    share = np.bincount(parts) / len(parts)
    share = share[share > 0]
    return float(-(share * np.log(share)).sum())


def _range(figures: list[dict[str, float]], name: str) -> tuple[float, float]:
    values = [figure[name] for figure in figures if not math.isnan(figure[name])]
    return min(values), max(values)
