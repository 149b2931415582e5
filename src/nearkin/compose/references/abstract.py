"""What every set of references can do."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nearkin.compose.points import Points


class References(nn.Module, ABC):
    """A module, so that parameters and state travel in the objective's state_dict."""

    @abstractmethod
    def forward(self, batch: Points) -> Points:
        """The points that may be chosen by this batch."""

    @abstractmethod
    def update(self, batch: Points) -> None:
        """Move the state, after the optimizer's step; most references have nothing to do."""

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
