"""References taken from the batch itself."""

from typing import ClassVar

import torch
from torch import Tensor

from nearkin.compose.log_sums import may_read
from nearkin.compose.points import EMPTY, Points
from nearkin.compose.references.abstract import References


class InBatch(References):
    """All the points of the batch; the relation keeps a query from choosing itself, by id."""

    from_batch: ClassVar[bool] = True

    def forward(self, batch: Points) -> Points:
        return batch

    def update(self, batch: Points) -> None:
        return None


class OnePerClass(References):
    """The second point of every class in the batch; the others are its queries.

    With two points a class this is the N-pair batch: x_c is the query, p_c its answer. A class of one has no answer. On a GPU there are as
    many references as points, so that a CUDA graph can record the step: those that answer for no class are empty slots.
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
        slots = batch._replace(labels=torch.where(answers, batch.labels, EMPTY))
        return filled(slots) if may_read(batch.embeddings) else slots

    def update(self, batch: Points) -> None:
        return None


def filled(points: Points) -> Points:
    """The slots that hold a point, alone. How many is read back, so a CUDA graph cannot record it."""
    assert points.labels is not None
    there = (points.labels != EMPTY).nonzero()[:, 0]
    return Points(points.embeddings[there], points.labels[there], None if points.ids is None else points.ids[there])


def answered(batch: Points, answers: Points) -> tuple[Tensor, Tensor]:
    """Of one answer a class: (n,) where each query's stands, -1 where there is none or it is the query itself; and (m,) which are there."""
    assert batch.labels is not None and answers.labels is not None and batch.ids is not None and answers.ids is not None
    has, column = (batch.labels[:, None] == answers.labels).max(1)
    return torch.where(has & (answers.ids[column] != batch.ids), column, -1), answers.labels != EMPTY
