"""Losses of a linear map z = A x and their gradients, over all pairs in O(n d) memory.

A loss is called with a flat A (p * d,) and returns its value and flat gradient in float64: dL/dA = (dL/dZ)^T X
([taylor2010pose] eq. (27)). The points x are in the solver's units.
"""

from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nearkin.estimators.linear.scaling import CHUNK, Units
from nearkin.kernels.autograd import soft_neighbors
from nearkin.kernels.contract import Work

FEW = 8  # dimensions up to which differences are faster than matrix products
SMALL = 512  # points up to which the full matrix in float64 is fastest; above, the kernels run in float32


class Loss(Protocol):
    """A sum over all points, to be minimized."""

    points: Tensor  # (n, d)

    def __call__(self, transformation: np.ndarray) -> tuple[float, np.ndarray]: ...

    def done(self, value: float) -> bool:
        """Whether the value is at its minimum, up to a tolerance."""
        ...


def solver_points(x: np.ndarray, units: Units, order: np.ndarray | None = None, exact: bool = False) -> Tensor:
    """The rows of x (n, d) in this order, in the solver's units and the precision of the kernels."""
    order = np.arange(len(x)) if order is None else order
    kind = np.float64 if exact or len(x) <= SMALL else np.float32
    out = np.empty(x.shape, kind)
    for start in range(0, len(x), CHUNK):  # in chunks: no second copy of x
        out[start : start + CHUNK] = (x[order[start : start + CHUNK]] - units.middle) @ units.forward
    return torch.from_numpy(out)


def transformed(points: Tensor, transformation: np.ndarray) -> Tensor:
    """Z = X A^T, (n, p)."""
    a = torch.from_numpy(transformation.reshape(-1, points.shape[1])).to(points.dtype)
    return torch.cat([part @ a.T for part in torch.split(points, CHUNK)])  # in chunks: BLAS may copy its input


def pulled_back(points: Tensor, slope: Tensor) -> np.ndarray:
    """From dL/dZ (n, p) to the flat dL/dA."""
    total = torch.zeros(slope.shape[1], points.shape[1], dtype=torch.float64)
    for part, some in zip(torch.split(slope, CHUNK), torch.split(points, CHUNK), strict=True):
        total += part.T @ some
    gradient: np.ndarray = total.numpy().ravel()
    return gradient


def _evaluated(points: Tensor, work: Work, embedded: Tensor) -> tuple[float, np.ndarray]:
    """Sum over queries and gradient of the expected form, by the kernels."""
    live = embedded.detach().requires_grad_()
    others = None if work.references is None else live
    values = soft_neighbors(work._replace(queries=live, references=others), "expected", 1.0).values
    (slope,) = torch.autograd.grad(values, live, torch.ones_like(values))
    return float(values.detach().double().sum()), pulled_back(points, slope)


def _small(embedded: Tensor) -> bool:
    return embedded.dtype == torch.float64 and len(embedded) <= SMALL


def _chances(z: Tensor) -> Tensor:
    """(n, n) p_ij."""
    lengths = z.square().sum(1)
    near = torch.addmm(-lengths, z, z.T, alpha=2)  # without the row's own length: it does not change a softmax
    return torch.softmax(near.fill_diagonal_(-torch.inf), 1)


def _slope(z: Tensor, pull: Tensor) -> Tensor:
    """dL/dZ (n, p) from dL/ds (n, n), s_ij = -|z_i - z_j|^2: 2 (V Z - rowsum(V) Z), V = pull + pull^T."""
    both = pull + pull.T
    return 2 * (both @ z - both.sum(1)[:, None] * z)


def _few(embedded: Tensor) -> bool:
    """Whether differences are faster than products, and float32 is enough."""
    return embedded.dtype == torch.float32 and embedded.shape[1] <= FEW and find_spec("numba") is not None


def _all_others(points: Tensor) -> Work:
    """Work in which the candidates of a point are all other points."""
    return Work(points, None, True, skip=torch.arange(len(points))[:, None])


class NCALoss:
    """NCA: minus the sum of p_i, the probability that a soft neighbor has the same class (scikit-learn's objective, negated)."""

    def __init__(self, points: Tensor, classes: Tensor) -> None:
        """Take points sorted by class: the kernels need the positives of a query in one span."""
        self.points = points
        span = torch.stack([torch.searchsorted(classes, classes), torch.searchsorted(classes, classes, right=True)], dim=1)
        self.work = _all_others(points)._replace(span=span)
        self.with_positives = int((span[:, 1] - span[:, 0] > 1).sum())
        self.same = (classes[:, None] == classes).to(points.dtype) if _small(points) else None

    def __call__(self, transformation: np.ndarray) -> tuple[float, np.ndarray]:
        embedded = transformed(self.points, transformation)
        if _small(embedded):
            p = _chances(embedded)
            assert self.same is not None
            same = p * self.same
            right = same.sum(1)  # (n,)
            return -float(right.sum()), pulled_back(self.points, _slope(embedded, p * right[:, None] - same))
        if _few(embedded):
            from nearkin.estimators.linear.few_dimensions import nca_errors

            assert self.work.span is not None
            value, slope = nca_errors(embedded, self.work.span)
            return value - len(self.points), pulled_back(self.points, slope.to(self.points.dtype))
        value, gradient = _evaluated(self.points, self.work, embedded)
        return value - len(self.points), gradient

    def done(self, value: float) -> bool:
        return value <= -(1 - 1e-3) * self.with_positives


class NCARegressionLoss:
    """NCA regression: the sum over points of sum_j p_ij |y_i - y_j|^2; targets (n, t)."""

    def __init__(self, points: Tensor, targets: Tensor) -> None:
        self.points = points
        targets = targets.to(points.dtype)
        self.work = _all_others(points)._replace(targets=(targets, targets))
        self.costs = (targets[:, None] - targets).square().sum(2) if _small(points) else None  # (n, n)

    def __call__(self, transformation: np.ndarray) -> tuple[float, np.ndarray]:
        embedded = transformed(self.points, transformation)
        if self.costs is None:
            return _evaluated(self.points, self.work, embedded)
        p = _chances(embedded)
        costly = p * self.costs
        mean = costly.sum(1)
        return float(mean.sum()), pulled_back(self.points, _slope(embedded, costly - p * mean[:, None]))

    def done(self, value: float) -> bool:
        return value <= 1e-3 * len(self.points)


class MLKRLoss:
    """MLKR: the sum over points of |y_i - sum_j p_ij y_j|^2; targets (n, t).

    The kernels compute mean costs |u_i - v_j|^2. Targets get one more coordinate, so that all v_j have the same length R and
    the cost is linear in y_j. With u = e_k the mean cost gives the k-th coordinate of the prediction; with
    u_i = y_i - prediction_i its gradient is the gradient of the loss.
    """

    def __init__(self, points: Tensor, targets: Tensor) -> None:
        self.points, self.targets = points, targets.double()
        squares = self.targets.square().sum(1)
        self.square_radius = float(squares.max())
        self.lifted = torch.cat([self.targets, (self.square_radius - squares).clamp_min(0).sqrt()[:, None]], 1)  # (n, t + 1)
        # Queries and references are separate sets: the cost is not symmetric, and the kernels assume symmetry within one set.
        self.work = _all_others(points)._replace(references=points)

    def _with(self, mine: Tensor) -> Work:
        return self.work._replace(targets=(mine.to(self.points.dtype), self.lifted.to(self.points.dtype)))

    @torch.no_grad()
    def _predicted(self, embedded: Tensor) -> Tensor:
        """(n, t) sum_j p_ij y_j."""
        columns = []
        for k in range(self.targets.shape[1]):
            mine = torch.zeros_like(self.lifted)
            mine[:, k] = 1.0
            work = self._with(mine)._replace(queries=embedded, references=embedded)
            costs = soft_neighbors(work, "expected", 1.0).values.double()
            columns.append((1 + self.square_radius - costs) / 2)
        return torch.stack(columns, 1)

    def __call__(self, transformation: np.ndarray) -> tuple[float, np.ndarray]:
        embedded = transformed(self.points, transformation)
        if _small(embedded):
            p = _chances(embedded)
            error = self.targets - p @ self.targets  # (n, t)
            costs = -2 * error @ self.targets.T
            pull = p * (costs - (p * costs).sum(1, keepdim=True))
            return float(error.square().sum()), pulled_back(self.points, _slope(embedded, pull))
        error = self.targets - self._predicted(embedded)  # (n, t)
        mine = torch.cat([error, torch.zeros(len(error), 1, dtype=error.dtype)], 1)
        _, gradient = _evaluated(self.points, self._with(mine), embedded)
        return float(error.square().sum()), gradient

    def done(self, value: float) -> bool:
        return value <= 1e-3 * len(self.points)


class Cached:
    """A loss that remembers its last result: the check of the start must not cost the solver an evaluation."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.points = loss, loss.points
        self.last: tuple[np.ndarray, tuple[float, np.ndarray]] | None = None

    def __call__(self, transformation: np.ndarray) -> tuple[float, np.ndarray]:
        if self.last is None or not np.array_equal(self.last[0], transformation):
            self.last = (transformation.copy(), self.loss(transformation))
        value, gradient = self.last[1]
        return value, gradient.copy()

    def done(self, value: float) -> bool:
        return self.loss.done(value)
