"""What every set of references can do."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from nearkin.compose.points import Points


class References(nn.Module, ABC):
    """A module, so that parameters and state travel in the objective's state_dict.

    Attributes
    ----------
    from_batch : bool
        The references are points of the batch: without ids, a point knows itself by its position.
    columns : {"classes", "answers"} or None
        "classes": row c is the one vector of class c, so that a label is a column. "answers": at most one point of each class answers, and
        `column` says where. See `nearkin.compose.Criterion`.
    predicts : bool
        The class of the nearest one is a prediction.
    per_sample : bool
        There is one vector for every sample, row i for the sample with id i, and `vectors` holds them.
    spread : bool
        They are one rank's part of what several ranks hold together.
    """

    from_batch: ClassVar[bool] = False
    columns: ClassVar[str | None] = None
    predicts: ClassVar[bool] = False
    per_sample: ClassVar[bool] = False
    spread: ClassVar[bool] = False

    @abstractmethod
    def forward(self, batch: Points) -> Points:
        """The points that may be chosen by this batch."""

    @abstractmethod
    def update(self, batch: Points) -> None:
        """Move the state, after the optimizer's step; most references have nothing to do."""

    def column(self, batch: Points, references: Points) -> tuple[Tensor, Tensor | None]:
        """(n,) the column of each query's one positive, -1 where it has none, and (m,) which columns are filled (None: all of them)."""
        assert batch.labels is not None
        return batch.labels, None

    def collect(self) -> None:
        """Bring state that is spread over ranks together, before the first rank saves it; every rank calls this."""

    def lookup(self) -> Callable[[Tensor], Tensor | None] | None:
        """From ids to positions, when these references know a shorter way than searching their ids."""
        return None

    def known_classes(self) -> int | None:
        """How many classes 0..C-1 these references stand for; None when they take the batch's own."""
        return None

    def known_dimension(self) -> int | None:
        """The size of embedding these references were built for; None when they take the batch's own."""
        return None


def class_labels(count: int) -> Tensor:
    """Labels 0..C-1 of references that stand for one class each."""
    return torch.arange(count)
