"""Discovery: which neighborhoods of an unlabeled set to trust, and when.

A point's neighborhood is its k nearest others and itself. It is trusted by the entropy of the point's own soft choice among all
points: a low one says that few others are near, and that they are much nearer than the rest. [huang2019and] eq. (1), (5), (6)
Wherever a tensor is asked for, a numpy array will do.
"""

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import cosine, unit
from nearkin.compose.points import Points, tensor_of
from nearkin.compose.relation import labels_of, table_of, truths_of
from nearkin.compose.validation import check_positive, check_share, check_whole
from nearkin.data.shards import Shards
from nearkin.search import nearest

BLOCK = 512  # rows and columns of similarities held at once: a tile that stays in the cache
CUDA_BLOCK = 8192  # there a tile must be large enough that launches do not count: 256 MB


class Neighborhoods(NamedTuple):
    """What was found for every point, row i for id i."""

    table: Tensor  # (n, k) ids of the nearest others, nearest first
    entropy: Tensor  # (n,) nats, 0 to log n; the lower, the more trusted


@torch.no_grad()
def discover(vectors: Tensor | Shards, k: int = 1, temperature: float = 0.1, *, block: int | None = None) -> Neighborhoods:
    """The k nearest others by cosine of each of `vectors` (n, d), and the entropy of its soft choice among all n, itself included.

    Ties go to the smaller id. Nothing n x n is held. Of shards, which may be larger than memory, row i is their i-th point, and two
    row groups are held at a time.
    """
    if isinstance(vectors, Shards):
        full = [number for number, record in enumerate(vectors.records) if record["rows"]]
        parts = [neighborhoods_of(vectors, number, k, temperature, block=block) for number in full]
        return Neighborhoods(torch.cat([part.table for part in parts]), torch.cat([part.entropy for part in parts]))
    x = _checked(vectors, k, temperature, block)
    ids = torch.arange(len(x), device=x.device)
    found = nearest(Points(x, None, ids), Points(x, None, ids), k, cosine(), exclude_same_id=True)
    return Neighborhoods(found.positions, entropies(x, temperature, block=block))


@torch.no_grad()
def neighborhoods_of(shards: Shards, number: int, k: int = 1, temperature: float = 0.1, *, block: int | None = None) -> Neighborhoods:
    """What `discover` finds for the points of one shard among those of all."""
    check_whole("number", number, 0, "shards are numbered from 0")
    if number >= len(shards.records):
        raise ValueError(f"number ({number}) is no shard; there are {len(shards.records)}, numbered from 0")
    start = shards.starts()[number]
    x = torch.from_numpy(np.array(shards.read(number).vectors))
    own = Points(x, None, torch.arange(start, start + len(x)))
    return neighborhoods_among(own, lambda: _numbered(shards), len(shards), k, temperature, block=block)


@torch.no_grad()
def neighborhoods_among(
    own: Points, others: Callable[[], Iterator[Points]], n: int, k: int, temperature: float, *, block: int | None = None
) -> Neighborhoods:
    """What `discover` finds for some points among all n, which `others` yields in order, part by part, with ids 0..n-1; twice."""
    _check_settings(n, k, temperature, block)
    found = nearest(own, others(), k, cosine(), exclude_same_id=True)
    x, scale, step = unit(own.embeddings), math.log2(math.e) / temperature, block or _block_on(own.embeddings)
    total, weighted = sums = torch.zeros(2, len(x), dtype=torch.float64, device=x.device)
    for some in others():
        theirs = unit(some.embeddings)
        for top in range(0, len(x), step):
            rows = slice(top, top + step)
            for columns in torch.split(theirs, step):
                u = torch.addmm(x.new_full((), -scale), x[rows], columns.T, alpha=scale)
                e = u.exp2()
                total[rows] += e.sum(1)
                weighted[rows] += (u * e).sum(1)
    return Neighborhoods(found.positions, _entropy(sums).to(x.dtype))


def _numbered(shards: Shards) -> Iterator[Points]:
    """All points, a row group at a time, with their numbers for ids."""
    start = 0
    for some in shards.blocks():
        yield Points(torch.from_numpy(np.array(some.vectors)), None, torch.arange(start, start + len(some.ids)))
        start += len(some.ids)


@torch.no_grad()
def entropies(vectors: Tensor, temperature: float = 0.1, *, block: int | None = None) -> Tensor:
    """(n,) entropies -sum_j p_ij log p_ij of p_ij = exp(x_i . x_j / t) / sum_k exp(x_i . x_k / t) over unit `vectors` (n, d), in nats.

    With s = x_i . x_j - 1 <= 0, the largest being the point's own 0, and Z the sum of exp(s / t): H = log Z - sum p s / t. Every block of
    pairs serves both of its sides.
    """
    x = unit(_checked(vectors, 1, temperature, block))
    scale = math.log2(math.e) / temperature
    if x.device.type == "cpu" and x.dtype == torch.float32 and find_spec("numba"):
        from nearkin.kernels.numba_entropies import pair_sums

        sums = pair_sums(x, scale)
    else:
        sums = _pair_sums(x, scale, block or _block_on(x))
    return _entropy(sums).to(x.dtype)


def _entropy(sums: Tensor) -> Tensor:
    """(n,) nats from the sums (2, n) of 2^u and u 2^u."""
    total, weighted = sums
    entropy: Tensor = (total.log() - weighted * math.log(2) / total).clamp_min(0)
    return entropy


def _pair_sums(x: Tensor, scale: float, block: int) -> Tensor:
    """(2, n) float64: the sums over all j of 2^u_ij and of u_ij 2^u_ij, u_ij = scale (x_i . x_j - 1)."""
    n = len(x)
    total, weighted = sums = torch.zeros(2, n, dtype=torch.float64, device=x.device)
    for top in range(0, n, block):
        rows = slice(top, top + block)
        for left in range(top, n, block):
            columns = slice(left, left + block)
            u = torch.addmm(x.new_full((), -scale), x[rows], x[columns].T, alpha=scale)  # (r, c), at most 0
            e = u.exp2()
            u *= e
            total[rows] += e.sum(1)
            weighted[rows] += u.sum(1)
            if left > top:
                total[columns] += e.sum(0)
                weighted[columns] += u.sum(0)
    return sums


def trusted(entropy: Tensor, share: float) -> Tensor:
    """(n,) truth values: the `share` of points with the lowest entropy, rounded down; among equals the earlier. [huang2019and] eq. (6)"""
    entropy = _checked_entropy(entropy, share)
    chosen = torch.zeros(len(entropy), dtype=torch.bool, device=entropy.device)
    count = math.floor(len(entropy) * share + 1e-9)  # 50,000 * 0.7 is 34,999.999 in floats
    chosen[entropy.argsort(stable=True)[:count]] = True
    return chosen


def weights(entropy: Tensor, share: float) -> Tensor:
    """(n,) trust by rank instead of all or nothing: (1 - u)^((1 - share) / share), u = 0 .. 1 from the lowest entropy to the highest.

    The mean weight is the share, as in `trusted`; everybody counts in full at 1 and nobody at 0. Points of equal entropy weigh alike.
    """
    entropy = _checked_entropy(entropy, share)
    if share == 0:
        return torch.zeros_like(entropy)
    _, place, count = torch.unique(entropy, return_inverse=True, return_counts=True)
    middle = (count.cumsum(0) - count / 2) / len(entropy)  # of the ranks that equals share
    found: Tensor = (1 - middle[place]).pow((1 - share) / share).to(entropy.dtype)
    return found


def curriculum(rounds: int, one_off: bool = False) -> tuple[float, ...]:
    """The share trusted in each round after the instance round: r / R, or everything at once."""
    check_whole("rounds", rounds, 1, "each trusts a share")
    return (1.0,) * rounds if one_off else tuple(r / rounds for r in range(1, rounds + 1))


def mutual(table: Tensor) -> Tensor:
    """(n, k) truth values: whether a neighbor has the point among its own neighbors, too."""
    table = table_of(table)
    ids = torch.arange(len(table), device=table.device)
    return (table[table] == ids[:, None, None]).any(2)


def keep_only(table: Tensor, kept: Tensor) -> Tensor:
    """The table (n, k) with the point's own id in the place of what is not `kept` (n, k)."""
    table = table_of(table)
    kept = truths_of("kept", kept, tuple(table.shape))
    ids = torch.arange(len(table), device=table.device)
    return torch.where(kept, table, ids[:, None])


class Agreement(NamedTuple):
    """How many (point, neighbor) pairs there are whose classes are both known, and how many of them are of one class."""

    pairs: int
    right: int

    @property
    def share(self) -> float:
        """Of the pairs that are of one class; NaN without any pair."""
        return self.right / self.pairs if self.pairs else math.nan


def agreement(table: Tensor, labels: Tensor, chosen: Tensor | None = None) -> Agreement:
    """How many pairs of the `chosen` (n,) points and their neighbors are of one class; for reporting only.

    Pairs in which a class is not known (-1), and a point's own id, which stands for a neighbor that was not kept, are left out.
    """
    table = table_of(table)
    labels = labels_of(labels, len(table))
    ids = torch.arange(len(table), device=table.device)
    counted = (labels[table] >= 0) & (labels[:, None] >= 0) & (table != ids[:, None])
    if chosen is not None:
        counted &= truths_of("chosen", chosen, (len(table),))[:, None]
    return Agreement(int(counted.sum()), int((counted & (labels[table] == labels[:, None])).sum()))


def _block_on(vectors: Tensor) -> int:
    return CUDA_BLOCK if vectors.is_cuda else BLOCK


def _checked(given: Any, k: int, temperature: float, block: int | None) -> Tensor:
    vectors = tensor_of("vectors", given)
    if vectors.ndim != 2 or not vectors.is_floating_point():
        raise ValueError(f"vectors have shape {tuple(vectors.shape)} and type {vectors.dtype}; give floats (n, d)")
    _check_settings(len(vectors), k, temperature, block)
    if not bool(torch.isfinite(vectors).all()):
        raise ValueError("vectors hold NaN or infinity; nothing is near to those")
    return vectors


def _check_settings(n: int, k: int, temperature: float, block: int | None) -> None:
    if n < 2:
        raise ValueError(f"the number of points ({n}) must be at least 2, for a point's neighbors are others; give more points")
    check_whole("k", k, 1, "it is the number of neighbors")
    if k >= n:
        others = f"a point has {n - 1} others; choose such a k, or give more points"
        raise ValueError(f"k ({k}) must be at least 1 and below the number of points ({n}): {others}")
    check_positive("temperature", temperature)
    if block is not None:
        check_whole("block", block, 1, "it is the number of rows held at once")


def _checked_entropy(given: Any, share: float) -> Tensor:
    check_share("share", share)
    entropy = tensor_of("entropy", given)
    if entropy.ndim != 1 or not entropy.is_floating_point():
        raise ValueError(f"entropy has shape {tuple(entropy.shape)} and type {entropy.dtype}; give floats (n,), one for each point")
    bad = (~torch.isfinite(entropy)).nonzero()[:, 0]
    if len(bad):
        where = f"in {len(bad)} of {len(entropy)} places, first in {bad[:5].tolist()}"
        raise ValueError(f"entropy holds NaN or infinity {where}; give one finite number for each point")
    return entropy
