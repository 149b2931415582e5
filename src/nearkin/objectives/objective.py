"""Objective: what every loss of nearkin can do. Call it with embeddings and labels, add its parameters to the
optimizer, and call `update` after the optimizer's step."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from nearkin.compose.outcome import Outcome, Reduction, reduce
from nearkin.compose.points import Points
from nearkin.compose.relation import Supervision
from nearkin.objectives import inputs as door


class Deployment(NamedTuple):
    """How embeddings trained by an objective are searched: the index's metric, and the temperature of its softmax, if it trained one."""

    metric: str = "squared_euclidean"
    temperature: float | None = None


class Last:
    """What the last call did. The counts stay on the device until they are read."""

    def __init__(self, outcome: Outcome) -> None:
        self._weight = _cut(outcome.weight)
        self._active = _cut(outcome.active)
        self._clamped = outcome.clamped

    @property
    def queries(self) -> int:
        """How many queries came."""
        return len(self._weight)

    @property
    def valid(self) -> int:
        """How many of them could be valid."""
        return int((self._weight > 0).sum())

    @property
    def skipped_mask(self) -> Tensor:
        """(n,) True where a query could not be valid: nothing right, or nothing at all, to choose."""
        return self._weight == 0

    @property
    def active(self) -> int:
        """How many pairs or triplets bore on the value."""
        return int(self._active)

    @property
    def active_on_device(self) -> Tensor:
        """The same as a tensor, which can be added up without waiting; in a recorded step it holds each replay's count."""
        return self._active

    @property
    def clamped(self) -> int:
        """How many queries had fewer than k candidates, so that k was lowered for them."""
        return 0 if self._clamped is None else int(self._clamped)

    def __repr__(self) -> str:
        return f"Last(queries={self.queries}, valid={self.valid}, active={self.active}, clamped={self.clamped})"


def _cut(x: Tensor) -> Tensor:
    """Without the graph it may hang on; most hang on none."""
    return x.detach() if x.requires_grad else x


class Objective(nn.Module, ABC):
    """A price for embeddings. `keys` names its papers in papers.bib; `supervision` says what its labels are."""

    keys: ClassVar[tuple[str, ...]] = ()
    refresh_every: int = 0  # epochs between two calls of `refresh`; 0: never
    discovers: ClassVar[bool] = False  # whether training looks for neighborhoods between epochs and hands them to `trust`
    last: Last | None = None

    @property
    @abstractmethod
    def supervision(self) -> Supervision:
        """What the labels are: classes, numbers, sets, or ids alone."""

    @abstractmethod
    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        """The price of every query; `references` replace the objective's own when given."""

    def known_classes(self) -> int | None:
        """C, when labels must be 0..C-1."""
        return None

    def known_dimension(self) -> int | None:
        """d, when the objective holds vectors of its own that embeddings must match."""
        return None

    def deployment(self) -> Deployment:
        """The metric to search with after training. Distances, unless the objective was trained with another affinity."""
        return Deployment()

    def recordable(self, queries: int) -> bool:
        """Whether a step with so many queries reads nothing back to the host, so that a CUDA graph can hold it."""
        return True

    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the objective's own state (bank, centers, annealing), after the optimizer's step; most have none."""
        return None

    def refresh(self, seed: int) -> str | None:
        """Between epochs, every `refresh_every` of them: look at all samples again. Return why training cannot go on, or None."""
        return None

    def forward(
        self,
        embeddings: Tensor,
        labels: Any = None,
        *,
        ids: Any = None,
        references: Points | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """The loss: a scalar, or with reduction="none" the value of every query (0 where it could not be valid).

        embeddings: (n, d). labels: what `supervision` says. ids: (n,) the samples' numbers, needed as soon as a
        sample can meet itself elsewhere: twice in a batch, in a bank, in `references`. references: Points to choose
        among instead of the objective's own. The arithmetic is float32 or float64, also under autocast.
        """
        door.check_reduction(reduction)
        with torch.autocast(embeddings.device.type if isinstance(embeddings, Tensor) else "cpu", enabled=False):
            batch = self._checked(embeddings, labels, ids)
            if references is not None:
                references = door.check_references(references, batch, self.supervision)
            outcome = self.outcome(batch, references)
            self.last = Last(outcome)
            return reduce(outcome, reduction)

    def _checked(self, embeddings: Any, labels: Any, ids: Any) -> Points:
        embeddings = door.check_embeddings(embeddings)
        door.check_dimension(embeddings, self.known_dimension())
        checked = door.check_labels(labels, self.supervision, embeddings)
        known = self.known_classes()
        if known is not None and checked is not None:
            door.check_known(checked, known)
        return Points(embeddings, checked, door.check_ids(ids, embeddings))
