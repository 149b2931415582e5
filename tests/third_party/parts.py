"""Parts as another package would write them: nothing here is imported from nearkin but the types of its protocols."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nearkin.compose import Layout, Outcome, Points, Related


@dataclass(frozen=True)
class ScaledCosine:
    """An affinity that declares its metric."""

    temperature: float = 0.2
    metric: ClassVar[str] = "cosine"

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        norms = queries.norm(dim=1)[:, None] * references.norm(dim=1)
        return queries @ references.T / norms / self.temperature


@dataclass(frozen=True)
class Dot:
    """One whose ranking differs from that of any distance."""

    temperature: float = 1.0
    metric: ClassVar[str] = "inner_product"

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return queries @ references.T / self.temperature


def manhattan(queries: Tensor, references: Tensor) -> Tensor:
    """An affinity that declares nothing: a plain function."""
    return -(queries[:, None] - references).abs().sum(2)


@dataclass(frozen=True)
class SameParity:
    """A relation that declares a layout: even labels belong together, and so do odd ones."""

    supervision: ClassVar[str] = "classes"
    streams: ClassVar[tuple[str, ...]] = ("log", "expected")

    def layout(self, queries: Points, references: Points) -> Layout:
        return Layout(classes=(queries.labels % 2, references.labels % 2))

    def __call__(self, queries: Points, references: Points) -> Related:
        differ = (queries.labels % 2)[:, None] != (references.labels % 2)
        itself = torch.zeros_like(differ) if queries.ids is None or references.ids is None else queries.ids[:, None] == references.ids
        return Related((differ | itself).to(queries.embeddings.dtype), ~itself)


@dataclass(frozen=True)
class NextLabel:
    """A relation that declares nothing: the label before or after is a positive."""

    supervision: ClassVar[str] = "classes"

    def __call__(self, queries: Points, references: Points) -> Related:
        far = (queries.labels[:, None] - references.labels).abs() != 1
        return Related(far.to(queries.embeddings.dtype), torch.ones_like(far))


@dataclass(frozen=True)
class Surprise:
    """A criterion that declares its form: minus the log of the share of the positives."""

    form: ClassVar[str] = "log"

    def __call__(self, affinity: Tensor, relation: Related) -> Outcome:
        positive = relation.candidate & (relation.cost == 0)
        whole = affinity.masked_fill(~relation.candidate, -torch.inf).logsumexp(1)
        part = affinity.masked_fill(~positive, -torch.inf).logsumexp(1)
        valid = positive.any(1)
        values = torch.where(valid, whole - torch.where(valid, part, 0.0), 0.0)
        return Outcome(values, valid.to(values.dtype), (relation.candidate.sum(1) * valid).sum())


def mean_of_positives(affinity: Tensor, relation: Related) -> Outcome:
    """A criterion that declares nothing."""
    positive = (relation.candidate & (relation.cost == 0)).to(affinity.dtype)
    count = positive.sum(1)
    return Outcome(-(affinity * positive).sum(1) / count.clamp_min(1), (count > 0).to(affinity.dtype), count.sum())
