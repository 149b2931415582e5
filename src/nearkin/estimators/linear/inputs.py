"""The door of the scikit-learn estimators: arrays and tensors in, checked arrays on, and answers in the kind that came in."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

FLOATS = [np.float64, np.float32]


def validated(estimator: Any, X: Any, y: Any = "no_validation", **checks: Any) -> Any:  # noqa: N803
    """X, or X and y, through scikit-learn's own checks; columns and their names are remembered, or compared with reset=False.

    scikit-learn 1.6 made a function of what was a method before.
    """
    X, y = array(X), array(y)  # noqa: N806
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:
        return estimator._validate_data(X, y, **checks)
    return validate_data(estimator, X, y, **checks)


def array(given: Any) -> Any:
    """A tensor as the numpy array it holds; anything else as it is."""
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else given


def like(result: np.ndarray, given: Any) -> Any:
    """A tensor on the same device where a tensor was given; names of classes stay an array."""
    return torch.from_numpy(result).to(given.device) if isinstance(given, Tensor) and result.dtype.kind in "biuf" else result
