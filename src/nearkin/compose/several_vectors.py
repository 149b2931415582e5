"""Affinities of classes with several vectors, and the signal-to-noise distance.

A class with k vectors is one reference: its row holds them one after the other, k d numbers. Its affinity is that of the nearest of them,
or a soft maximum.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nearkin.compose.affinity import Euclidean, InnerProduct
from nearkin.compose.derivatives import apply


def _cosines(queries: Tensor, references: Tensor, count: int) -> Tensor:
    """(n, C, k) cosines with each of the vectors."""
    vectors = references.reshape(len(references) * count, -1)
    return InnerProduct().between_directions(queries, vectors).reshape(len(queries), len(references), count)


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
        return _cosines(queries, references, self.count).max(2).values  # of equal ones the first has the gradient


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
        found: Tensor = apply(_SoftMaximum, cosines, *_soft_maximum(cosines.detach(), self.temperature), self.temperature)
        return found


COLD = 1 / 40  # e^40 and e^-40 are ordinary numbers: up to here a softmax of cosines need not look for the largest first


def _soft_maximum(x: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(n, C) means of cosines x (n, C, k) over k, weighted by a softmax of x / temperature; and their slopes (n, C, k)."""
    scaled = x / temperature
    if temperature >= COLD:
        shares = scaled.exp()
        shares = shares / shares.sum(2, keepdim=True)
    else:
        shares = scaled.softmax(2)
    means = torch.linalg.vecdot(shares, x)
    return means, (scaled - (means / temperature - 1)[:, :, None]) * shares


class _SoftMaximum(torch.autograd.Function):
    """Gives means the slopes that were found with them."""

    @staticmethod
    def forward(x: Tensor, means: Tensor, slope: Tensor, temperature: float) -> Tensor:
        return means.view_as(means)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, slope, ctx.temperature = inputs
        ctx.save_for_backward(x, slope)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        x, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            slope = _soft_maximum(x, ctx.temperature)[1]
        return upstream[0][:, :, None] * slope, None, None, None


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
