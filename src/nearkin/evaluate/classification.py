"""Classification: how often is the predicted class right, and which classes are taken for which?"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from nearkin.affinity import Affinity
from nearkin.evaluate.comparison import Groups
from nearkin.evaluate.score import DRAWS, Score
from nearkin.points import Points


@dataclass(frozen=True)
class ClassRow:
    """One line of the per-class table; NaN where nothing was counted."""

    label: int
    precision: float
    recall: float
    f1: float
    queries: int  # of this class
    predicted: int  # as this class


def classification(
    queries: Points,
    references: Points | None = None,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1, 10),
    *,
    groups: Groups | None = None,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """The accuracy of every predictor on neighbours: "1-nn", "10-nn", "weighted 200-nn", "nearest class mean", "soft neighbours".

    Without references every query is predicted from the others.
    """
    raise NotImplementedError


def predictions(
    queries: Points,
    references: Points | None = None,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1, 10),
    *,
    groups: Groups | None = None,
) -> dict[str, Tensor]:
    """What `classification` scores: the predicted class (n,) by predictor; -1 marks a query that exclusion left without neighbours."""
    raise NotImplementedError


def accuracy(
    predicted: Tensor, labels: Tensor, *, name: str = "accuracy", split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> Score:
    """The share of (n,) predictions that equal the (n,) labels; chance is the share of the largest class."""
    raise NotImplementedError


def confusion(predicted: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    """(C, C) counts: row = true class, column = predicted class."""
    raise NotImplementedError


def per_class(predicted: Tensor, labels: Tensor, classes: int | None = None) -> list[ClassRow]:
    """Precision, recall and F1 of each class, by its number."""
    raise NotImplementedError
