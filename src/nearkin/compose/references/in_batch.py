"""References taken from the batch itself."""

from typing import ClassVar

import torch
from torch import Tensor

from nearkin.compose.points import EMPTY, Points, rows_of
from nearkin.compose.references.abstract import References
from nearkin.compose.value_checks import may_read


class InBatch(References):
    """All points of the batch. The relation keeps a query from choosing itself, by id.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import InBatch, Points
    >>> batch = Points(torch.zeros(2, 3))
    >>> InBatch()(batch) is batch
    True
    """

    from_batch: ClassVar[bool] = True

    def forward(self, batch: Points) -> Points:
        return batch

    def update(self, batch: Points) -> None:
        return None


class OnePerClass(References):
    """The second point of every class in the batch; the others are queries.

    With two points a class this is the N-pair batch: x_c is the query, p_c its answer. A class of one has no answer. On a GPU there are as
    many references as points, so that a CUDA graph can record the step: those that answer for no class are empty slots.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import OnePerClass, Points
    >>> OnePerClass()(Points(torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]), torch.arange(4))).ids.tolist()
    [1, 3]
    """

    from_batch: ClassVar[bool] = True
    columns: ClassVar[str | None] = "answers"

    def column(self, batch: Points, references: Points) -> tuple[Tensor, Tensor | None]:
        return answered(batch, references)

    def forward(self, batch: Points) -> Points:
        assert batch.labels is not None
        ranked, order = torch.sort(batch.labels, stable=True)
        second = ranked[1:] == ranked[:-1]  # (n - 1,) of its class, or a later one
        second[1:] &= ranked[2:] != ranked[:-2]
        answers = torch.zeros_like(ranked, dtype=torch.bool).scatter_(0, order[1:], second)
        if may_read(batch.embeddings):
            return rows_of(batch, answers.nonzero()[:, 0])
        return batch._replace(labels=torch.where(answers, batch.labels, EMPTY))

    def update(self, batch: Points) -> None:
        return None


def answered(batch: Points, answers: Points) -> tuple[Tensor, Tensor]:
    """(n,) the column of each query's answer, -1 where it has none or is the answer itself; and (m,) which columns are filled."""
    assert batch.labels is not None and answers.labels is not None and batch.ids is not None and answers.ids is not None
    has, column = (batch.labels[:, None] == answers.labels).max(1)
    return torch.where(has & (answers.ids[column] != batch.ids), column, -1), answers.labels != EMPTY
