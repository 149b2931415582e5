"""Calibration: whether a classifier is right as often as it says."""

import torch
from torch import Tensor


def expected_calibration_error(confidence: Tensor, right: Tensor, bins: int = 15) -> float:
    """The mean gap between confidence and accuracy, over equal bins of confidence.

    Parameters
    ----------
    confidence : Tensor or ndarray of shape (n,)
        Probability of the predicted class.
    right : Tensor or ndarray of shape (n,)
        Whether the prediction is right.
    bins : int, default=15
        Number of bins.

    Returns
    -------
    float
        From 0 to 1; 0 is perfectly calibrated.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import expected_calibration_error
    >>> round(expected_calibration_error(torch.full((4,), 0.9), torch.tensor([True, True, True, False])), 4)
    0.15
    """
    confidence, right = torch.as_tensor(confidence), torch.as_tensor(right)
    of = (confidence.double() * bins).long().clamp(0, bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, of.cpu(), (confidence.double() - right.double()).cpu())
    return float(gaps.abs().sum() / len(confidence))
