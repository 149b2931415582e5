"""Soft choices have no gradient where all points are too far apart, or too near: found, and mended by scaling the start.

At features x 1000 every softmax is one-hot, the gradient is exactly zero and a solver "converges" where it stands.
"""

import numpy as np

from nearkin.estimators.linear.losses import Price

FLAT = 1e-3  # of a point's price, that a change of scale by e may gain; ordinary starts have 0.05 to 1
SAMPLE = 1000  # points that the search for a scale looks at
SCALES = 10.0 ** np.arange(-8, 8.5, 0.5)


def slope(price: Price, start: np.ndarray) -> float:
    """|dL/dA| |A| a point: how much moving the transformation by its own size might gain."""
    return _slope(price(start)[1], start, len(price.points))


def _slope(gradient: np.ndarray, start: np.ndarray, n: int) -> float:
    return float(np.linalg.norm(gradient) * np.linalg.norm(start)) / n


def flat(price: Price, start: np.ndarray) -> bool:
    """Whether the start lies on a plateau that is not already the bottom."""
    value, gradient = price(start)
    return _slope(gradient, start, len(price.points)) < FLAT and not price.done(value)


def better_scale(price: Price, start: np.ndarray) -> float | None:
    """The factor for the start at which it has the steepest slope; None if it has none at any."""
    slopes = [slope(price, start * scale) for scale in SCALES]
    best = int(np.argmax(slopes))
    return float(SCALES[best]) if slopes[best] >= FLAT else None
