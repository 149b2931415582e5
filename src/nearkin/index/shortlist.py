"""A shortlist for single queries: the points that can be among the k nearest, by one product over all points and a bound on its error.

`nearest` prepares its references at every call, which takes most of the time of a single query. Here the preparation is done once per
snapshot; `nearest` then ranks the few points that are left, so the result is the same.
"""

import math

import torch
from torch import Tensor

ROUNDING = 2.0**-24  # of float32
LONGEST = 4096  # candidates; with more, all points are compared


class Shortlist:
    """The points (n, d) float32 of one snapshot, under "squared_euclidean", "cosine" or "inner_product"."""

    def __init__(self, vectors: Tensor, metric: str) -> None:
        self.vectors, self.metric = vectors, metric
        length = torch.cat([part.double().norm(dim=1) for part in torch.split(vectors, 65536)])  # (n,)
        self.farthest = float(length.max())
        if metric == "cosine":
            self.scale = torch.where(length > 0, 1 / length, 0.0).float()  # (n,)
        elif metric == "squared_euclidean":
            self.center = torch.stack([part.double().sum(0) for part in torch.split(vectors, 65536)]).sum(0) / len(vectors)
            halves = [(part.double() - self.center).square().sum(1) / 2 for part in torch.split(vectors, 65536)]
            self.half = torch.cat(halves).float()  # (n,) half the squared distance from the center
            self.widest = float(self.half.max())

    def candidates(self, query: Tensor, k: int, rows: Tensor | None = None) -> Tensor | None:
        """Rows, in order, among which the k nearest of `rows` (of all if not given) to a query (d,) are; None if there are too many."""
        scores, error = self._scored(query)
        scores = scores if rows is None else scores[rows]
        if k >= len(scores):
            return rows
        least = float(scores.topk(k, sorted=True).values[-1]) - 2 * error
        if not math.isfinite(least):
            return None
        found = (scores >= least).nonzero()[:, 0]
        if len(found) > LONGEST:
            return None
        return found if rows is None else rows[found]

    def _scored(self, query: Tensor) -> tuple[Tensor, float]:
        """(n,) scores that increase with affinity, and a bound on their error.

        The error of a float32 product of d terms is at most d roundings of |r| |q|; the other steps add a few more.
        """
        d = len(query)
        if self.metric == "inner_product":
            return torch.mv(self.vectors, query), (d + 8) * ROUNDING * self.farthest * float(query.double().norm())
        if self.metric == "cosine":
            length = float(query.double().norm())
            direction = query / length if length > 0 else query
            return torch.mv(self.vectors, direction) * self.scale, (d + 8) * ROUNDING
        toward = (query.double() - self.center).float()
        reach = self.farthest * float(toward.double().norm())
        return torch.mv(self.vectors, toward) - self.half, (d + 8) * ROUNDING * (reach + self.widest)
