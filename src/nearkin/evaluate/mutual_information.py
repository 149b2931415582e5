"""The mutual information of two partitions that chance alone gives, and the adjusted mutual information.

The expectation over random partitions depends only on the sizes of the parts. Parts of equal size are computed once, so that
hundreds of classes take no longer than ten.
"""

import math

import numpy as np

LEAST = float(np.finfo(np.float64).eps)


def expected_information(truth: np.ndarray, found: np.ndarray) -> float:
    """The expected mutual information of random partitions of (n,) points into parts of these sizes."""
    from scipy.special import gammaln

    n = len(truth)
    sizes, counts = zip(*(np.unique(np.bincount(part)[np.bincount(part) > 0], return_counts=True) for part in (truth, found)), strict=True)
    total = 0.0
    for a, often in zip(sizes[0].tolist(), counts[0].tolist(), strict=True):
        for b, as_often in zip(sizes[1].tolist(), counts[1].tolist(), strict=True):
            both = np.arange(max(1, a + b - n), min(a, b) + 1, dtype=np.float64)
            fixed = gammaln(a + 1) + gammaln(b + 1) + gammaln(n - a + 1) + gammaln(n - b + 1) - gammaln(n + 1)
            log_chance = fixed - gammaln(both + 1) - gammaln(a - both + 1) - gammaln(b - both + 1) - gammaln(n - a - b + both + 1)
            total += often * as_often * float((both / n * (np.log(both) + math.log(n / (a * b))) * np.exp(log_chance)).sum())
    return total


def adjusted_information(truth: np.ndarray, found: np.ndarray, information: float, mean_entropy: float) -> float:
    """AMI: (information - expected) / (mean entropy - expected); 1 where both have one part, 0 where only one of them has."""
    parts = {len(np.unique(truth)), len(np.unique(found))}
    if 1 in parts:
        return 1.0 if parts == {1} else 0.0
    expected = expected_information(truth, found)
    return _away_from_zero(information - expected) / _away_from_zero(mean_entropy - expected)


def _away_from_zero(x: float) -> float:
    """Keep away from 0, so that rounding of a perfect match does not give 0 / 0."""
    return min(x, -LEAST) if x < 0 else max(x, LEAST)
