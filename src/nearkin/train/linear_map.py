"""A linear map of features in closed form: whiten the scatter within the classes, then keep the directions of largest variance.

It is linear discriminant analysis with shrinkage and more dimensions than classes: it costs one eigendecomposition, needs no learning rate,
and gives the head of a frozen encoder a start that is already better than the features themselves.
"""

from typing import NamedTuple

import torch
from torch import Tensor

SHRINKAGES = (0.03, 0.1, 0.3)  # tried beside the estimated one; the validation part chooses


class LinearMap(NamedTuple):
    """x @ weight.T + bias."""

    weight: Tensor  # (d, f)
    bias: Tensor  # (d,)

    def __call__(self, features: Tensor) -> Tensor:
        """Map features (n, f) to (n, d)."""
        return features @ self.weight.T + self.bias


class Whitening:
    """The maps for features (n, f) of known classes (n,), for any shrinkage: the costly part is computed once.

    `shrinkage` is the one that fits the number of points and dimensions.

    The scatter within classes is mixed with a multiple of the identity, which changes its eigenvalues only. Directions in which the
    features do not vary are left out before: they carry no variance between points, and few points then cost little.
    """

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        x, count = features.double(), int(labels.max()) + 1
        self.center, self.size = x.mean(0), x.shape[1]
        self.basis = _span(x - self.center)  # (f, r)
        rows = (x - self.center) @ self.basis  # (n, r)
        sizes = torch.bincount(labels, minlength=count).clamp_min(1)
        means = torch.zeros(count, rows.shape[1], dtype=x.dtype, device=x.device).index_add_(0, labels, rows) / sizes[:, None]
        within = rows - means[labels]
        self.values, self.vectors = torch.linalg.eigh(within.T @ within / len(x))
        self.shrinkage = _estimated(self.values.clamp_min(0), self.size, max(len(x) - int((sizes > 0).sum()), 1))
        turned = rows @ self.vectors  # in the axes of the scatter
        self.total = turned.T @ turned  # (r, r)

    def map(self, dimension: int, shrinkage: float) -> LinearMap:
        """The map to at most `dimension` numbers; `shrinkage` in 0..1, as few points estimate the scatter badly."""
        scale = (self.values.clamp_min(0).sum() / self.size).clamp_min(1e-12)
        spread = ((1 - shrinkage) * self.values + shrinkage * scale).clamp_min(1e-9 * float(scale)).sqrt()
        directions = torch.linalg.eigh(self.total / torch.outer(spread, spread))[1].flip(1)[:, :dimension]
        weight = (self.basis @ (self.vectors / spread) @ directions).T
        weight = torch.nn.functional.pad(weight, (0, 0, 0, min(dimension, self.size) - len(weight)))  # fewer points than dimensions
        return LinearMap(weight.float(), (-(weight @ self.center)).float())


def _estimated(values: Tensor, size: int, free: int) -> float:
    """The shrinkage that oracle approximation estimates from the eigenvalues (r,) of a scatter of `size` dimensions and `free` points.

    Few points for many dimensions need much of it. [chen2010shrinkage]
    """
    trace, square = float(values.sum()), float(values.square().sum())
    over = (free + 1 - 2 / size) * (square - trace**2 / size)
    return 1.0 if over <= 0 else min(((1 - 2 / size) * square + trace**2) / over, 1.0)


def _span(x: Tensor) -> Tensor:
    """(f, r) an orthonormal basis of the rows (n, f)."""
    if len(x) >= x.shape[1]:
        return torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    values, vectors = torch.linalg.eigh(x @ x.T)
    kept = values > 1e-12 * values.amax().clamp_min(1e-300)
    basis: Tensor = x.T @ (vectors[:, kept] / values[kept].sqrt())
    return basis
