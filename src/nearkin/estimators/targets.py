"""Read scikit-learn's y as an objective needs it: classes, numbers, label sets, or only ids."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from nearkin.compose.validation import check_choice

MANY, FEW = 20, 3  # more than MANY whole numbers with fewer than FEW rows each are probably not classes
SUPERVISIONS = ("auto", "classes", "numbers", "sets", "ids")


class Targets(NamedTuple):
    """The targets of the training rows."""

    supervision: str  # classes, numbers, sets or ids
    labels: Tensor | None  # (n,) codes, (n, t) float64 numbers, (n, C) multi-hot
    classes: np.ndarray  # (C,) names of the codes; empty without classes
    flat: bool = False  # numbers came as (n,)

    def for_training(self) -> Tensor | None:
        """The labels for the objective; numbers are scaled to total variance 1, so that the learning rate does not depend on units."""
        if self.supervision != "numbers" or self.labels is None:
            return self.labels
        centered = self.labels - self.labels.mean(0)
        spread = float(centered.square().sum(1).mean().sqrt()) or 1.0
        return (centered / spread).float()


def read_targets(y: np.ndarray | None, supervision: str = "auto") -> Targets:
    """Read y; the kind of targets comes from scikit-learn's `type_of_target` unless `supervision` names it."""
    check_choice("supervision", supervision, SUPERVISIONS)
    if y is None or supervision == "ids":
        if y is None and supervision not in ("auto", "ids"):
            raise ValueError(f"supervision {supervision!r} needs y, and y is None; pass y, or supervision='ids'")
        return Targets("ids", None, np.empty(0))
    kind = _kind(y) if supervision == "auto" else supervision
    if kind == "numbers":
        return Targets("numbers", torch.from_numpy(y.reshape(len(y), -1).astype(np.float64)), np.empty(0), y.ndim == 1)
    if kind == "sets":
        return Targets("sets", _sets(y), np.arange(y.shape[1]) if y.ndim == 2 else np.empty(0))
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y holds one class only ({classes.tolist()[0]!r}); give at least two classes")
    if supervision == "auto" and classes.dtype.kind in "iuf" and len(classes) > MANY and len(y) < FEW * len(classes):
        warnings.warn(
            f"y holds {len(classes):,} different whole numbers in {len(y):,} rows, and they are used as classes; "
            "pass supervision='numbers' to use them as numbers, or supervision='classes' to silence this warning",
            stacklevel=2,
        )
    return Targets("classes", torch.from_numpy(codes.astype(np.int64)), classes)


def _kind(y: Any) -> str:
    kind = type_of_target(y)
    if kind.startswith("continuous"):
        return "numbers"
    if kind == "multilabel-indicator":
        return "sets"
    if kind == "multiclass-multioutput":
        raise ValueError(f"y has {y.shape[1]} columns of whole numbers; pass supervision='numbers', or give one column of classes")
    return "classes"


def _sets(y: np.ndarray) -> Tensor:
    if y.ndim != 2 or not np.isin(y, (0, 1)).all():
        raise ValueError(f"supervision 'sets' needs a multi-hot y (n, C) of zeros and ones, not shape {y.shape}")
    return torch.from_numpy(y.astype(np.float32))
