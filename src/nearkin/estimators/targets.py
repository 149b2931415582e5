"""From scikit-learn's y to what an objective reads: classes, numbers, label sets, or nothing but who each row is."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from nearkin.compose.validation import check_choice

MANY, FEW = 20, 3  # more classes than this, with fewer rows each, are likelier numbers
SUPERVISIONS = ("auto", "classes", "numbers", "sets", "ids")


class Answers(NamedTuple):
    """What is known of the training rows."""

    supervision: str  # classes, numbers, sets or ids
    labels: Tensor | None  # (n,) codes, (n, t) float64 numbers, (n, C) multi-hot
    classes: np.ndarray  # (C,) names of the codes; empty without classes
    flat: bool = False  # numbers came as (n,)

    def for_training(self) -> Tensor | None:
        """Numbers are brought to total variance 1: the objective's price and the learning rate know no units."""
        if self.supervision != "numbers" or self.labels is None:
            return self.labels
        centerd = self.labels - self.labels.mean(0)
        spread = float(centerd.square().sum(1).mean().sqrt()) or 1.0
        return (centerd / spread).float()


def understood(y: np.ndarray | None, supervision: str = "auto") -> Answers:
    """The answers in y: what kind they are is seen by scikit-learn's `type_of_target`, unless `supervision` says."""
    check_choice("supervision", supervision, SUPERVISIONS)
    if y is None or supervision == "ids":
        if y is None and supervision not in ("auto", "ids"):
            raise ValueError(f"supervision {supervision!r} needs y, and y is None; pass y, or supervision='ids'")
        return Answers("ids", None, np.empty(0))
    kind = _kind(y) if supervision == "auto" else supervision
    if kind == "numbers":
        return Answers("numbers", torch.from_numpy(y.reshape(len(y), -1).astype(np.float64)), np.empty(0), y.ndim == 1)
    if kind == "sets":
        return Answers("sets", _sets(y), np.arange(y.shape[1]) if y.ndim == 2 else np.empty(0))
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y holds one class only ({classes[0]!r}): no neighbor could be wrong; give at least two classes")
    if supervision == "auto" and classes.dtype.kind in "iuf" and len(classes) > MANY and len(y) < FEW * len(classes):
        warnings.warn(
            f"y holds {len(classes):,} different whole numbers in {len(y):,} rows, which are taken for classes; "
            "supervision='numbers' learns them as numbers, and supervision='classes' is silent",
            stacklevel=2,
        )
    return Answers("classes", torch.from_numpy(codes.astype(np.int64)), classes)


def _kind(y: Any) -> str:
    kind = type_of_target(y)
    if kind.startswith("continuous"):
        return "numbers"
    if kind == "multilabel-indicator":
        return "sets"
    if kind == "multiclass-multioutput":
        raise ValueError(f"y has {y.shape[1]} columns of whole numbers; say supervision='numbers', or give one column of classes")
    return "classes"


def _sets(y: np.ndarray) -> Tensor:
    if y.ndim != 2 or not np.isin(y, (0, 1)).all():
        raise ValueError(f"supervision 'sets' needs a multi-hot y (n, C) of zeros and ones, not shape {y.shape}")
    return torch.from_numpy(y.astype(np.float32))
