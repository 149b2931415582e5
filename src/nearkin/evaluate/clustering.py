"""Clustering: compare k-means clusters of the embedding with the classes."""

import math

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, unit
from nearkin.compose.points import Points, takes_arrays
from nearkin.compose.validation import check_whole
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
    """Cluster the embeddings by k-means and compare the clusters with the classes.

    The value is that of the restart with the least inertia. `low` and `high` are the extremes over the restarts: these scores depend more
    on the start of k-means than on the sample of points. With a cosine affinity the points are normalized to length 1 first.

    Parameters
    ----------
    points : Points (n, d)
        Embeddings and class labels.
    affinity : Affinity, optional
        Only decides whether points are normalized first.
    labels : Tensor (n,) of integers, optional
        Compare with these classes instead of `points.labels`, such as super-categories.
    clusters : int, optional
        The number of clusters; by default the number of classes.
    restarts : int, default 10
        How many starts of k-means++.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    seed : int, default 0
        Seed of the first restart; the others follow.

    Returns
    -------
    dict of str to Score
        "nmi" (normalized by the arithmetic mean of the entropies), "ami", "ari", and "pairwise_f1": F1 of "these two belong
        together" over all pairs of points.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points, clustering
    >>> points = Points(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), torch.tensor([0, 0, 1, 1]))
    >>> clustering(points, restarts=2)["nmi"].value
    1.0
    """
    x = finite(points.embeddings, "points")
    classes = points.labels if labels is None else labels
    if classes is None:
        raise ValueError("points.labels are missing; clusters are compared with them: Points(embeddings, labels), or pass labels=")
    truth = torch.unique(class_labels(classes, len(x), "labels"), return_inverse=True)[1].cpu().numpy()
    size = int(truth.max()) + 1 if clusters is None else clusters
    if not 1 <= size <= len(x):
        raise ValueError(f"clusters ({size}) must be between 1 and the number of points ({len(x)})")
    check_whole("restarts", restarts)
    how = None if affinity is None else measure(affinity)
    x = unit(x.double()) if how is not None and how.unit_queries else x.double()
    runs = [k_means(x, size, seed + number) for number in range(restarts)]
    results = [agreement(truth, found) for found, _ in runs]
    best = min(range(restarts), key=lambda number: runs[number][1])
    chance = _chance(truth, runs[best][0])
    notes = (f"{size} clusters, best of {restarts} restarts by inertia; the interval is their range", "nmi divides by the arithmetic mean")
    return {
        name: Score(name, results[best][name], *_range(results, name), chance[name], None, len(x), {}, notes, True, split)
        for name in results[best]
    }


def agreement(truth: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """Compare two partitions of the same points.

    Parameters
    ----------
    truth : ndarray (n,) of integers
        Class numbers from 0.
    found : ndarray (n,) of integers
        Cluster numbers from 0.

    Returns
    -------
    dict of str to float
        "nmi" (normalized by the arithmetic mean), "ami", "ari" and "pairwise_f1".

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.evaluate import agreement
    >>> found = agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2]))
    >>> round(found["nmi"], 4), round(found["pairwise_f1"], 4)
    (0.8, 0.6667)
    """
    from sklearn import metrics

    truth, found = (_numbered(parts, name) for parts, name in ((truth, "truth"), (found, "found")))
    if len(truth) != len(found):
        raise ValueError(f"truth has {len(truth)} entries and found {len(found)}; give both for the same points")
    return {
        "nmi": float(metrics.normalized_mutual_info_score(truth, found, average_method="arithmetic")),
        "ami": adjusted_information(truth, found, float(metrics.mutual_info_score(truth, found)), _mean_entropy(truth, found)),
        "ari": float(metrics.adjusted_rand_score(truth, found)),
        "pairwise_f1": _pairwise_f1(truth, found),
    }


def _numbered(parts: np.ndarray, name: str) -> np.ndarray:
    parts = np.asarray(parts)
    if parts.ndim != 1 or not len(parts) or parts.dtype.kind not in "iu" or parts.min() < 0:
        raise ValueError(f"{name} must be whole numbers (n,) from 0, for at least one point; leave out points without a class")
    return parts


def _pairwise_f1(truth: np.ndarray, found: np.ndarray) -> float:
    """F1 of "these two belong together" over all pairs; 1 when neither partition joins any pair."""
    together, in_truth, in_found = (_pairs(table) for table in _tables(truth, found))
    return 2 * together / (in_truth + in_found) if in_truth + in_found else 1.0


def _tables(truth: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of the parts: of the intersections, of the classes, of the clusters."""
    both = np.unique(truth.astype(np.int64) * (int(found.max()) + 1) + found, return_counts=True)[1]
    return both, np.bincount(truth), np.bincount(found)


def _pairs(sizes: np.ndarray) -> int:
    return sum(size * (size - 1) // 2 for size in sizes.tolist())


def _chance(truth: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """The expected scores when points are assigned at random to clusters of these sizes."""
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


def _range(results: list[dict[str, float]], name: str) -> tuple[float, float]:
    values = [result[name] for result in results if not math.isnan(result[name])]
    return min(values), max(values)
