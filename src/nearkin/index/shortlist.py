"""A shortlist for single queries: who can be among the k nearest at all, by one product over all points and a bound on its error.

`nearest` prepares its references anew at every call, which is nothing for a thousand queries and nearly everything for one.
Here the preparation is done once for a snapshot; `nearest` then ranks the few that are left, so the answer is its own.
"""

import math

import torch
from torch import Tensor

ROUNDING = 2.0**-24  # of float32
LONGEST = 4096  # candidates; beyond, everything is compared


class Shortlist:
    """The points (n, d) float32 of one snapshot, under squared Euclidean distance or cosine."""

    def __init__(self, vectors: Tensor, unit: bool) -> None:
        self.vectors, self.unit = vectors, unit
        length = torch.cat([part.double().norm(dim=1) for part in torch.split(vectors, 65536)])  # (n,)
        self.farthest = float(length.max())
        if unit:
            self.scale = torch.where(length > 0, 1 / length, 0.0).float()  # (n,)
        else:
            self.center = torch.stack([part.double().sum(0) for part in torch.split(vectors, 65536)]).sum(0) / len(vectors)
            halves = [(part.double() - self.center).square().sum(1) / 2 for part in torch.split(vectors, 65536)]
            self.half = torch.cat(halves).float()  # (n,) half the squared distance from the center
            self.widest = float(self.half.max())

    def candidates(self, query: Tensor, k: int, rows: Tensor | None = None) -> Tensor | None:
        """Rows, in order, among which the k nearest of `rows` (of all if not given) to a query (d,) must be; None if they are too many."""
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
        """(n,) scores that rise with affinity, and how far each may be off.

        A float32 product of d terms is off by at most d roundings of |r| |q|; the rest of the steps take a few more.
        """
        d = len(query)
        if self.unit:
            length = float(query.double().norm())
            direction = query / length if length > 0 else query
            return torch.mv(self.vectors, direction) * self.scale, (d + 8) * ROUNDING
        toward = (query.double() - self.center).float()
        reach = self.farthest * float(toward.double().norm())
        return torch.mv(self.vectors, toward) - self.half, (d + 8) * ROUNDING * (reach + self.widest)
