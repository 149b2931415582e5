"""The threshold behind `Hit.same_kind`: the affinity from which two points count as one class, fitted on pairs with known labels."""

from typing import Any

import numpy as np
import torch

from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.index.store import StoredRows
from nearkin.search.exact import nearest
from nearkin.search.packing import UnpackedRows

NEAR, FAR = 10, 10  # pairs per query: with its nearest other points, and with random ones
FEWEST = 20  # pairs of the same class, and of different classes, below which nothing is fitted
LEAST = 0.65  # accuracy below which a threshold would mislead; guessing has 0.5
MOST_QUERIES = 2000  # 40,000 pairs: the threshold's accuracy is then known to half a point
HELD_OUT = 40  # held-out points below which all labeled points are used


def fit(vectors: np.ndarray | UnpackedRows | StoredRows, classes: np.ndarray, splits: np.ndarray, metric: str) -> dict[str, Any] | None:
    """The rule for points (n, d) of known or unknown (-1) classes (n,) and splits (n,) by name.

    None if there are too few labeled pairs, or if no threshold tells them apart.

    The queries are points that the network was not trained on, if there are enough.
    """
    labeled = classes >= 0
    choices = {
        "validation pairs": labeled & (splits == "validation"),
        "test pairs": labeled & (splits == "test"),
        "pairs of indexed points, which the network may have been trained on": labeled,
    }
    chosen = next(((name, mask) for name, mask in choices.items() if mask.sum() >= HELD_OUT), None)
    if chosen is None:
        return None
    fitted_on, mask = chosen
    known, queries = np.flatnonzero(labeled), np.flatnonzero(mask[labeled])  # rows of the index, and places among the labeled
    if len(queries) > MOST_QUERIES:
        queries = np.sort(np.random.default_rng(0).choice(queries, MOST_QUERIES, replace=False))
    rule = calibrate(vectors[known], classes[known], queries, metric)
    return None if rule is None or rule["accuracy"] < LEAST else {**rule, "fitted_on": fitted_on}


def calibrate(vectors: np.ndarray, labels: np.ndarray, queries: np.ndarray, metric: str, seed: int = 0) -> dict[str, Any] | None:
    """The threshold that maximizes the mean of both hit rates: of pairs of one class, and of pairs of two.

    vectors (n, d) and class numbers (n,) of the labeled points, and the rows (q,) of those that are queries. Each query is paired with its
    nearest other points, since that is where the threshold is applied, and with as many random points. It is fitted on half of the
    queries and tested on the other half, which gives `accuracy`. None if there are too few pairs.
    """
    if min(len(queries), len(vectors)) < 2:
        return None
    order = np.random.default_rng(seed).permutation(queries)
    fitting, testing = (_pairs(vectors, labels, half, metric, seed) for half in np.array_split(order, 2))
    if min(int(part.sum()) for _, same in (fitting, testing) for part in (same, ~same)) < FEWEST:
        return None
    threshold = best_threshold(*fitting)
    affinity, same = testing
    predicted = affinity >= threshold
    hits, rejections = float(predicted[same].mean()), float((~predicted[~same]).mean())
    return {
        "threshold": threshold,
        "accuracy": (hits + rejections) / 2,
        "same_recognized": hits,
        "others_recognized": rejections,
        "pairs": len(affinity) + len(fitting[0]),
        "queries": len(queries),
    }


def best_threshold(affinity: np.ndarray, same: np.ndarray) -> float:
    """The midpoint between the two adjacent affinities that separate the pairs best, by the mean of both hit rates."""
    order = np.argsort(-affinity, kind="stable")
    affinity, same = affinity[order].astype(np.float64), same[order]
    hits = np.cumsum(same) / same.sum()  # if all pairs up to here are predicted to be of one class
    alarms = np.cumsum(~same) / (~same).sum()
    gain = np.where(np.append(affinity[1:] < affinity[:-1], True), hits - alarms, -np.inf)  # never cut between equal affinities
    at = int(np.argmax(gain))
    return float(affinity[at] if at + 1 == len(affinity) else (affinity[at] + affinity[at + 1]) / 2)


def _pairs(vectors: np.ndarray, labels: np.ndarray, queries: np.ndarray, metric: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Affinities of near and of random pairs, and whether their labels agree."""
    n = len(vectors)
    known = Points(torch.from_numpy(vectors), ids=torch.arange(n))
    points = Points(known.embeddings[queries], ids=torch.from_numpy(queries))
    near = nearest(points, known, min(NEAR, n - 1), METRICS[metric], exclude_same_id=True)
    steps = np.random.default_rng(seed).integers(1, n, (len(queries), FAR))
    others = (queries[:, None] + steps) % n  # (q, FAR), never the query itself
    random = [METRICS[metric](one[None], known.embeddings[theirs])[0] for one, theirs in zip(points.embeddings, others, strict=True)]
    affinity = np.concatenate([near.affinity.numpy().ravel(), torch.cat(random).numpy()])
    same = np.concatenate([(labels[met] == labels[queries][:, None]).ravel() for met in (near.positions.numpy(), others)])
    return affinity, same
