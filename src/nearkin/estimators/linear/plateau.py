"""Rescale a start at which soft neighbors have no gradient because all points are too far apart or too close.

With features x 1000 every softmax is one-hot, the gradient is exactly zero, and a solver "converges" at the start.
"""

import numpy as np

from nearkin.estimators.linear.losses import Loss

FLAT = 1e-3  # slope per point below which a start is on a plateau; ordinary starts have 0.05 to 1
SAMPLE = 1000  # points used to search for a scale
SCALES = 10.0 ** np.arange(-8, 8.5, 0.5)


def slope(loss: Loss, start: np.ndarray) -> float:
    """|dL/dA| |A| per point: to first order, the gain from moving the map by its own size."""
    return _slope(loss(start)[1], start, len(loss.points))


def _slope(gradient: np.ndarray, start: np.ndarray, n: int) -> float:
    return float(np.linalg.norm(gradient) * np.linalg.norm(start)) / n


def flat(loss: Loss, start: np.ndarray) -> bool:
    """Whether the start lies on a plateau and not at the minimum."""
    value, gradient = loss(start)
    return _slope(gradient, start, len(loss.points)) < FLAT and not loss.done(value)


def better_scale(loss: Loss, start: np.ndarray) -> float | None:
    """The factor that gives the start the steepest slope; None if it is flat at every scale."""
    slopes = [slope(loss, start * scale) for scale in SCALES]
    best = int(np.argmax(slopes))
    return float(SCALES[best]) if slopes[best] >= FLAT else None
