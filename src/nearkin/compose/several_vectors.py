"""Affinities of classes with several vectors, and the signal-to-noise distance.

A class with k vectors is one reference: its row holds them one after the other, k d numbers. Its affinity is that of the nearest of them,
or a soft maximum.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nearkin.compose.affinity import Euclidean, unit


def _cosines(queries: Tensor, references: Tensor, count: int) -> Tensor:
    """(n, C, k) cosines with each of the vectors."""
    vectors = references.reshape(len(references) * count, -1)
    return (unit(queries) @ unit(vectors).T).reshape(len(queries), len(references), count)


@dataclass(frozen=True)
class NearestVector:
    """The cosine with the nearest of the `count` vectors of a reference. References have count * d columns.

    Parameters
    ----------
    count : int, default=3
        Vectors of each reference.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import NearestVector
    >>> NearestVector(2)(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0, 1.0], [-1.0, 0.0, 0.0, -1.0]]))
    tensor([[1., 0.]])
    """

    count: int = 3
    own_references: ClassVar[bool] = True  # no references but the objective's own have several vectors in a row

    def __call__(self, queries: Tensor, references: Tensor, /) -> Tensor:
        return _cosines(queries, references, self.count).amax(2)


@dataclass(frozen=True)
class SoftNearestVector:
    """The mean cosine with the `count` vectors of a reference, weighted by a softmax of the same cosines.

    Parameters
    ----------
    count : int, default=10
        Vectors of each reference.
    temperature : float, default=0.1
        Of the softmax over the vectors of one reference; toward 0 it is `NearestVector`.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import SoftNearestVector
    >>> SoftNearestVector(2, 1e-3)(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0, 0.0, 1.0]]))
    tensor([[1.]])
    """

    count: int = 10
    temperature: float = 0.1
    own_references: ClassVar[bool] = True

    def __call__(self, queries: Tensor, references: Tensor, /) -> Tensor:
        cosines = _cosines(queries, references, self.count)
        return ((cosines / self.temperature).softmax(2) * cosines).sum(2)


@dataclass(frozen=True)
class SignalToNoise:
    """Minus the variance of the difference over the variance of the query, -var(q - r) / var(q), each over the d coordinates.

    It is not symmetric. A query whose coordinates are all equal has variance 0; its affinities are then minus the sum of squares of the
    centered difference.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import SignalToNoise
    >>> SignalToNoise()(torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0, -2.0]])).round(decimals=4)
    tensor([[-1.]])
    """

    def __call__(self, queries: Tensor, references: Tensor, /) -> Tensor:
        q, r = (x - x.mean(1, keepdim=True) for x in (queries, references))
        power = q.square().sum(1)
        noise = Euclidean()(q, r).square()  # from differences where points are near: a copy is at exactly 0
        return -noise / torch.where(power > 0, power, 1.0)[:, None]
