"""What every set of references can do."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.compose.value_checks import checked_range


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
    slots : bool
        Some of them may be empty slots, with label and id `nearkin.compose.points.EMPTY`. Every relation leaves these out.
    moves : bool
        `update` changes them, so that a training loop that never calls it is warned.
    needs_inputs : bool
        They embed the inputs by a network of their own, so that an objective, which sees embeddings only, cannot fill them.

    Examples
    --------
    A set of your own that never moves:

    >>> import torch
    >>> from nearkin.compose import Points, References
    >>> class Origin(References):
    ...     def forward(self, batch):
    ...         return Points(torch.zeros(1, batch.embeddings.shape[1]), torch.zeros(1, dtype=torch.int64), torch.tensor([-1]))
    ...
    ...     def update(self, batch):
    ...         return None
    >>> Origin()(Points(torch.ones(3, 2))).embeddings
    tensor([[0., 0.]])
    """

    from_batch: ClassVar[bool] = False
    columns: ClassVar[str | None] = None
    predicts: ClassVar[bool] = False
    per_sample: ClassVar[bool] = False
    spread: ClassVar[bool] = False
    slots: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    needs_inputs: ClassVar[bool] = False

    @abstractmethod
    def forward(self, batch: Points) -> Points:
        """Return the points that may be chosen by this batch.

        Parameters
        ----------
        batch : Points
            The queries.

        Returns
        -------
        Points
            The references.
        """

    @abstractmethod
    def update(self, batch: Points) -> None:
        """Move the state, after the optimizer's step; most references have nothing to do.

        Parameters
        ----------
        batch : Points
            The batch that was just trained on.
        """

    def column(self, batch: Points, references: Points) -> tuple[Tensor, Tensor | None]:
        """Return the column of each query's one positive.

        Parameters
        ----------
        batch : Points
            The queries.
        references : Points
            What `forward` returned for them.

        Returns
        -------
        column : Tensor
            (n,) -1 where a query has none.
        there : Tensor or None
            (m,) which columns are filled; None: all of them.
        """
        assert batch.labels is not None
        if self.known_classes() is not None:  # then labels are checked before anything is computed
            return batch.labels, None
        return checked_range("classes", batch.labels, "labels", len(references.embeddings)), None

    def collect(self) -> None:
        """Bring state that is spread over ranks together, before the first rank saves it; every rank calls this."""

    def lookup(self) -> Callable[[Tensor], Tensor | None] | None:
        """From ids to positions, when these references know a shorter way than searching their ids."""
        return None

    def narrowed(self, dimension: int) -> "References":
        """Return a copy for the first coordinates of the embeddings alone, as `Matryoshka` needs one for each prefix.

        Parameters
        ----------
        dimension : int
            Number of coordinates.

        Returns
        -------
        References
            The copy.

        Raises
        ------
        ValueError
            If these references cannot be cut.
        """
        raise ValueError(
            f"{type(self).__name__} cannot be cut to {dimension} coordinates; pass Matryoshka a function of the dimension, such as "
            "lambda m: SupCon().choosing_among(CrossBatchMemory(4096, m))"
        )

    def known_classes(self) -> int | None:
        """How many classes 0..C-1 these references stand for; None when they take the batch's own."""
        return None

    def known_dimension(self) -> int | None:
        """The size of embedding these references were built for; None when they take the batch's own."""
        return None


def class_labels(count: int) -> Tensor:
    """Return labels 0..C-1 of references that stand for one class each."""
    return torch.arange(count)
