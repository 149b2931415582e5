"""k-means on the device of the points: scikit-learn on a CPU, the same algorithm in matrix products on an accelerator."""

import math
import warnings

import numpy as np
import torch
from torch import Tensor

ROUNDS = 300  # as scikit-learn's


def k_means(x: Tensor, clusters: int, seed: int) -> tuple[np.ndarray, float]:
    """Return the cluster (n,) of each point of x (n, d) and the inertia, from one start by k-means++."""
    if x.device.type != "cpu":
        found, inertia = lloyd(x, clusters, seed)
        return found.cpu().numpy(), inertia
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # with fewer distinct points than clusters, some stay empty
        fitted = KMeans(clusters, n_init=1, random_state=seed).fit(x.numpy())
    return fitted.labels_.astype(np.int64), float(fitted.inertia_)


@torch.no_grad()
def lloyd(x: Tensor, clusters: int, seed: int) -> tuple[Tensor, float]:
    """Run Lloyd's algorithm from k-means++ until no point moves; return clusters (n,) and inertia. An empty cluster keeps its center."""
    x = x - x.mean(0)  # distances from products lose precision far from the origin
    lengths = x.square().sum(1)
    centers = x[_starts(x, lengths, clusters, seed)]
    before = torch.full((len(x),), -1, device=x.device)
    for _ in range(ROUNDS):
        distances = centers.square().sum(1) - 2 * x @ centers.T  # (n, c), without |x|^2
        found = distances.argmin(1)
        if torch.equal(found, before):
            break
        before = found
        sums = torch.zeros_like(centers).index_add_(0, found, x)
        counts = lengths.new_zeros(clusters).index_add_(0, found, torch.ones_like(lengths))[:, None]
        centers = torch.where(counts > 0, sums / counts.clamp_min(1), centers)
    return before, float((x - centers[before]).square().sum())


def _starts(x: Tensor, lengths: Tensor, clusters: int, seed: int) -> Tensor:
    """(c,) rows by greedy k-means++: of a few drawn by squared distance, the one with the least remaining inertia."""
    generator = torch.Generator().manual_seed(seed)
    tries = 2 + int(math.log(clusters))
    chances = torch.rand(clusters, tries, generator=generator, dtype=torch.float64).to(x.device)
    chosen = [torch.randint(len(x), (1,), generator=generator).to(x.device)]
    nearest = _square_distances(x, lengths, chosen[0])[0]
    for step in range(1, clusters):
        reach = nearest.double().cumsum(0)
        drawn = torch.searchsorted(reach, chances[step] * reach[-1], right=True).clamp_max(len(x) - 1)  # (tries,)
        left = torch.minimum(_square_distances(x, lengths, drawn), nearest)  # (tries, n)
        best = left.sum(1).argmin(0, keepdim=True)  # (1,): a plain index would be read back and make the device wait
        chosen.append(drawn[best])
        nearest = left[best][0]
    return torch.cat(chosen)


def _square_distances(x: Tensor, lengths: Tensor, rows: Tensor) -> Tensor:
    """(r, n) squared distances of some rows to all."""
    return (lengths[rows, None] + lengths - 2 * x[rows] @ x.T).clamp_min(0)
