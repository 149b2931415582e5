"""Parts of another package with names of their own for parameters: mypy (`make lint`) and pyright must accept this file."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nearkin import MultiSimilarity, NeighborhoodObjective, Points
from nearkin.compose import InBatch, Outcome, Related, SameLabel
from nearkin.compose.relation import Supervision


def manhattan(a: Tensor, b: Tensor) -> Tensor:
    """An affinity."""
    return -(a[:, None] - b).abs().sum(2)


@dataclass(frozen=True)
class SameParity:
    """A relation."""

    supervision: Supervision = "classes"

    def __call__(self, mine: Points, others: Points) -> Related:
        assert mine.labels is not None and others.labels is not None
        differ = mine.labels[:, None] % 2 != others.labels % 2
        return Related(differ.to(mine.embeddings.dtype), torch.ones_like(differ))


def pull(near: Tensor, wanted: Related) -> Outcome:
    """A criterion."""
    right = (wanted.cost == 0) & wanted.candidate
    return Outcome(-(near * right).sum(1), right.any(1).to(near.dtype), right.sum())


objective = NeighborhoodObjective(InBatch(), manhattan, SameLabel(), pull)
by_parity = NeighborhoodObjective(InBatch(), manhattan, SameParity(), pull)
points = Points(np.zeros((3, 2)), np.arange(3), np.arange(3))
embeddings: Tensor = points.embeddings
similarity = MultiSimilarity(epsilon=None)
