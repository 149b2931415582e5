"""Inputs and outputs of the estimators: check arrays and tensors, return results of the same kind."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

FLOATS = [np.float64, np.float32]


def validated(estimator: Any, X: Any, y: Any = "no_validation", **checks: Any) -> Any:  # noqa: N803
    """X, or X and y, after scikit-learn's own checks, which remember the columns (or compare them, with reset=False).

    The check is a function since scikit-learn 1.6 and was a method before.
    """
    X, y = array(X), array(y)  # noqa: N806
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:
        return estimator._validate_data(X, y, **checks)
    return validate_data(estimator, X, y, **checks)


def array(given: Any) -> Any:
    """A tensor as a numpy array; anything else unchanged."""
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else given


def like(result: np.ndarray, given: Any) -> Any:
    """A tensor on the device of `given` if that is a tensor; class names that are strings stay an array."""
    return torch.from_numpy(result).to(given.device) if isinstance(given, Tensor) and result.dtype.kind in "biuf" else result
