"""Regression: how far off are predicted numbers?"""

from torch import Tensor

from nearkin.evaluate.score import DRAWS, Score


def regression(
    predicted: Tensor, targets: Tensor, *, period: float | None = None, split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, Score]:
    """mae, rmse, r2 and spearman of predictions (n,) or (n, t) against targets of the same shape.

    With `period` (360 for degrees) differences are taken round the circle, and only mae and rmse are meaningful and given.
    """
    raise NotImplementedError


def angular_error(predicted: Tensor, targets: Tensor, *, split: str | None = None, draws: int = DRAWS, seed: int = 0) -> Score:
    """The mean angle in degrees between predicted and true directions (n, t), t >= 2; zero vectors are left out and counted."""
    raise NotImplementedError
