"""Inputs and outputs of the estimators: check arrays and tensors, return results of the same kind."""

from datetime import date, timedelta
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
    refuse_moments(y)
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:
        return estimator._validate_data(X, y, **checks)
    return validate_data(estimator, X, y, **checks)


def array(given: Any) -> Any:
    """A tensor, or what polars has and numpy has not, as a numpy array; anything else unchanged."""
    if str(getattr(given, "dtype", "")) in ("Int128", "UInt128"):
        return np.array(given.to_list())
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else given


def refuse_moments(y: Any) -> None:
    """Raise if y holds dates or durations: they would be a class each, or numbers of nanoseconds."""
    values = np.asarray(y, dtype=None if hasattr(y, "dtype") else object)
    cells = values.ravel() if values.dtype.kind in "MmO" else ()
    found = next((cell for cell in cells if isinstance(cell, date | timedelta | np.datetime64 | np.timedelta64) and cell == cell), None)  # noqa: PLR0124
    if found is not None:
        kind, number = ("dates", "days since a fixed one") if isinstance(found, date | np.datetime64) else ("durations", "days or hours")
        raise ValueError(f"y holds {kind} ({str(found)!r}); make them numbers, such as {number}, or for classes texts, by astype(str)")


def like(result: np.ndarray, given: Any) -> Any:
    """A tensor on the device of `given` if that is a tensor; class names that are strings stay an array."""
    return torch.from_numpy(result).to(given.device) if isinstance(given, Tensor) and result.dtype.kind in "biuf" else result
