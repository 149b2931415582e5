"""Is this neighbor of the same kind? A threshold on affinity, fitted on pairs whose labels are known."""

from typing import Any

import numpy as np
import torch

from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.search.exact import nearest

NEAR, FAR = 10, 10  # pairs drawn for a point: with its nearest others, and with others at random
FEWEST = 20  # pairs of either kind, below which no threshold is worth the name


def calibrate(vectors: np.ndarray, labels: np.ndarray, asked: np.ndarray, metric: str, seed: int = 0) -> dict[str, Any] | None:
    """The affinity from which on two points count as one kind: it maximizes the mean of the two kinds' hit rates.

    vectors (n, d) and class numbers (n,) of the labeled points of an index, and the rows (q,) of those that play the query,
    best some the network was not trained on. Pairs are each query with its nearest others, where the verdict will be asked,
    and as many at random. Fitted on half of the queries, judged on the other half: `accuracy` is the mean of both hit rates
    there. None when there are too few pairs of either kind.
    """
    if min(len(asked), len(vectors)) < 2:
        return None
    order = np.random.default_rng(seed).permutation(asked)
    fit, judge = (_pairs(vectors, labels, half, metric, seed) for half in np.array_split(order, 2))
    if min(int(same.sum()) for _, same in (fit, judge)) < FEWEST or min(int((~same).sum()) for _, same in (fit, judge)) < FEWEST:
        return None
    threshold = best_threshold(*fit)
    affinity, same = judge
    said = affinity >= threshold
    hits, rejections = float(said[same].mean()), float((~said[~same]).mean())
    return {
        "threshold": threshold,
        "accuracy": (hits + rejections) / 2,
        "same_recognized": hits,
        "others_recognized": rejections,
        "pairs": len(affinity) + len(fit[0]),
        "queries": len(asked),
    }


def best_threshold(affinity: np.ndarray, same: np.ndarray) -> float:
    """Midway between the two neighboring affinities that part the kinds best, by the mean of both hit rates."""
    order = np.argsort(-affinity, kind="stable")
    affinity, same = affinity[order].astype(np.float64), same[order]
    hits = np.cumsum(same) / same.sum()  # if everything down to here is called the same kind
    alarms = np.cumsum(~same) / (~same).sum()
    gain = np.where(np.append(affinity[1:] < affinity[:-1], True), hits - alarms, -np.inf)  # no cut between equals
    at = int(np.argmax(gain))
    return float(affinity[at] if at + 1 == len(affinity) else (affinity[at] + affinity[at + 1]) / 2)


def _pairs(vectors: np.ndarray, labels: np.ndarray, asked: np.ndarray, metric: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Affinities and whether the labels agree, of near and of random pairs."""
    n = len(vectors)
    known = Points(torch.from_numpy(vectors), ids=torch.arange(n))
    queries = Points(known.embeddings[asked], ids=torch.from_numpy(asked))
    near = nearest(queries, known, min(NEAR, n - 1), METRICS[metric], exclude_same_id=True)
    steps = np.random.default_rng(seed).integers(1, n, (len(asked), FAR))
    others = (asked[:, None] + steps) % n  # (q, FAR), never itself
    random = [METRICS[metric](one[None], known.embeddings[theirs])[0] for one, theirs in zip(queries.embeddings, others, strict=True)]
    affinity = np.concatenate([near.affinity.numpy().ravel(), torch.cat(random).numpy()])
    same = np.concatenate([(labels[met] == labels[asked][:, None]).ravel() for met in (near.positions.numpy(), others)])
    return affinity, same
