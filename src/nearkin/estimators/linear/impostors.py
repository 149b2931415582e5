"""The loss of LMNN: target neighbors pull, impostors inside the margin push.

One scan over all pairs of different classes, in blocks, finds the impostors of a map. Between scans the solver evaluates only
the listed pairs. Hinges that are not listed count as 0, so that loss is a lower bound, and it is exact at the scanned map.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from nearkin.estimators.linear.losses import pulled_back, transformed

BLOCK = 2048  # queries and references of one block of a scan
CHUNK = 1 << 16  # pairs whose differences are held at once
MOST_PAIRS = 8_000_000  # a longer list is subsampled at random and reweighted


class Pairs(NamedTuple):
    """Queries and their impostors, (m,) each; every pair stands for `weight` pairs."""

    rows: Tensor
    columns: Tensor
    weight: float = 1.0


class LMNNLoss:
    """(1 - mu) sum |z_i - z_j|^2 + mu sum [1 + |z_i - z_j|^2 - |z_i - z_l|^2]+ over targets j of i and all l of other classes.

    `points` (n, d) are sorted by class, `bounds` (C + 1,) are where the classes begin, `targets` (n, k) are target neighbors.
    """

    def __init__(self, points: Tensor, bounds: Tensor, targets: Tensor, mu: float) -> None:
        self.points, self.bounds, self.targets, self.mu = points, bounds.tolist(), targets, mu
        self.pairs = Pairs(targets[:0, 0], targets[:0, 0])

    def done(self, value: float) -> bool:
        return value == 0

    def _reach(self, z: Tensor) -> Tensor:
        """(n, k) squared distances to the target neighbors."""
        return torch.stack([(z - z[column]).square().sum(1) for column in self.targets.unbind(1)], 1)

    @torch.no_grad()
    def scan(self, transformation: np.ndarray) -> tuple[float, Pairs]:
        """The exact loss, and all pairs inside the margin."""
        z = transformed(self.points, transformation)
        reach = self._reach(z)
        lengths, widest = z.square().sum(1), 1 + reach.amax(1)
        total, found, count = (1 - self.mu) * float(reach.double().sum()), [], 0
        for first, last in zip(self.bounds, self.bounds[1:], strict=False):
            for top in range(first, last, BLOCK):
                here = slice(top, min(top + BLOCK, last))
                for left, right in self._others(first, last):
                    near = torch.addmm(lengths[left:right], z[here], z[left:right].T, alpha=-2)  # (rows, columns), without the row's length
                    rows, columns = torch.nonzero(near < (widest - lengths)[here, None], as_tuple=True)
                    near = near[rows, columns] + lengths[here][rows]
                    rows = rows + top
                    hinges = (1 + reach[rows] - near[:, None]).clamp_min(0)  # (m, k)
                    total += self.mu * float(hinges.double().sum())
                    found.append(torch.stack([rows, columns + left]))
                    count += len(rows)
        return total, _thinned(torch.cat(found, 1), count)

    def _others(self, first: int, last: int) -> list[tuple[int, int]]:
        """Blocks of all points outside one class."""
        n = len(self.points)
        spans = [(left, min(left + BLOCK, first)) for left in range(0, first, BLOCK)]
        return spans + [(left, min(left + BLOCK, n)) for left in range(last, n, BLOCK)]

    @torch.no_grad()
    def __call__(self, transformation: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient over the listed pairs."""
        z = transformed(self.points, transformation)
        reach = self._reach(z)
        rows, columns, weight = self.pairs
        pull = torch.full_like(reach, 1 - self.mu)  # (n, k) weight of each target pair
        push, kept, total = [], [], 0.0
        for start in range(0, len(rows), CHUNK):
            i, l = rows[start : start + CHUNK], columns[start : start + CHUNK]  # noqa: E741
            hinges = 1 + reach[i] - (z[i] - z[l]).square().sum(1)[:, None]  # (m, k)
            active = (hinges > 0).to(z.dtype)
            total += float((hinges * active).double().sum())
            pull.index_add_(0, i, active, alpha=self.mu * weight)
            counts = active.sum(1)
            push.append(-self.mu * weight * counts[counts > 0])
            kept.append(torch.stack([i, l])[:, counts > 0])
        value = (1 - self.mu) * float(reach.double().sum()) + self.mu * weight * total
        return value, pulled_back(self.points, self._slope(z, pull, push, kept))

    def _slope(self, z: Tensor, pull: Tensor, push: list[Tensor], kept: list[Tensor]) -> Tensor:
        """2 (rowsum(V) Z - V Z), V = W + W^T, with W the weights of all pairs as a sparse matrix."""
        n, k = self.targets.shape
        to_targets = torch.stack([torch.arange(n).repeat_interleave(k), self.targets.reshape(-1)])
        where = torch.cat([to_targets, *kept], 1).numpy()
        weights = torch.cat([pull.reshape(-1), *push]).numpy()
        w = csr_matrix((weights, (where[0], where[1])), shape=(n, n))
        v = w + w.T
        sums = torch.from_numpy(np.asarray(v.sum(1), dtype=weights.dtype))  # (n, 1)
        return 2 * (sums * z - torch.from_numpy(v @ z.numpy()))


def _thinned(found: Tensor, count: int) -> Pairs:
    if count <= MOST_PAIRS:
        return Pairs(found[0], found[1])
    keep = torch.rand(count, generator=torch.Generator().manual_seed(0)) < MOST_PAIRS / count
    return Pairs(found[0][keep], found[1][keep], count / int(keep.sum()))


def joined(a: Pairs, b: Pairs, n: int) -> Pairs:
    """The pairs of both lists, each once."""
    keys = torch.unique(torch.cat([a.rows * n + a.columns, b.rows * n + b.columns]))
    return Pairs(keys // n, keys % n)
