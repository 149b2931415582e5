"""Affinity: how near IS each reference to each query? Larger is nearer, always.

An affinity is a pure function of two sets of embeddings, (n, d) and (m, d), to an (n, m) matrix, divided by a
temperature. The one an objective was trained with is the one to search with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nearkin.codes.packing import signs


class Affinity(Protocol):
    """How near is each of m references to each of n queries."""

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class SquaredEuclidean:
    """Minus the squared Euclidean distance: -|q - r|^2 / temperature.

    Both sides are centred on the mean of the references first. The expansion |q|^2 + |r|^2 - 2 q.r loses half of
    float32's digits when the data sit far from the origin; distances do not change under a shift, so the shift is free.
    """

    temperature: float = 1.0

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return self.around(references.detach().mean(0), queries, references)

    def around(self, centre: Tensor, queries: Tensor, references: Tensor) -> Tensor:
        """The same, centred on a given point: blocks of one search must share it, or equal rows would stop being tied."""
        queries, references = queries - centre, references - centre
        norms = queries.square().sum(1)[:, None] + references.square().sum(1)[None, :]
        squared = torch.addmm(norms, queries, references.T, alpha=-2).relu()  # (n, m); rounding may dip below zero
        return squared / -self.temperature


@dataclass(frozen=True)
class Euclidean:
    """Minus the Euclidean distance: -|q - r| / temperature.

    From differences, not from the expansion: a root magnifies the error of a small square. The gradient at
    distance zero, where none exists, is zero.
    """

    temperature: float = 1.0

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        distance = torch.cdist(queries, references, compute_mode="donot_use_mm_for_euclid_dist")
        return -distance / self.temperature


@dataclass(frozen=True)
class InnerProduct:
    """q . r / temperature."""

    temperature: float = 1.0

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return queries @ references.T / self.temperature


@dataclass(frozen=True)
class Affine:
    """w . q + b for references that carry their bias b as one last coordinate: the linear classification head."""

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return torch.addmm(references[:, -1], queries, references[:, :-1].T)


@dataclass(frozen=True)
class Normalised:
    """Another affinity between unit vectors.

    `references=False` leaves the references as they are, for a memory bank that keeps its own length.
    """

    of: Affinity
    references: bool = True

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return self.of(*self.directions(queries, references))

    def directions(self, queries: Tensor, references: Tensor) -> tuple[Tensor, Tensor]:
        """Both sides as the other affinity gets them; once where they are the same."""
        mine = unit(queries)
        return mine, (mine if references is queries else unit(references)) if self.references else references


def cosine(temperature: float = 1.0) -> Normalised:
    """cos(q, r) / temperature; the cosine with a zero vector is 0."""
    return Normalised(InnerProduct(temperature))


@dataclass(frozen=True)
class Hamming:
    """Minus the number of dimensions in which the signs differ: the affinity of codes. A zero counts as positive.

    By a product of signs, whose sums are whole numbers and exact. It has no gradient.
    """

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        agreeing = signs(queries) @ signs(references).T
        return (agreeing - queries.shape[1]) / 2


@dataclass(frozen=True)
class MinusDistance:
    """A caller's own distance(queries, references) -> (n, m), turned round and scaled: -scale * distance."""

    distance: Callable[[Tensor, Tensor], Tensor]
    scale: float = 1.0

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        distance, expected = self.distance(queries, references), (len(queries), len(references))
        if distance.shape != expected:
            raise ValueError(f"the given distance returned shape {tuple(distance.shape)}; it must be {expected}: queries by references")
        return -self.scale * distance


def unit(x: Tensor) -> Tensor:
    """Rows of length 1; a zero row stays zero, with a gradient of ordinary size (an epsilon would make it 1e12)."""
    length = x.norm(dim=-1, keepdim=True)
    return x / torch.where(length > 0, length, torch.ones_like(length))
