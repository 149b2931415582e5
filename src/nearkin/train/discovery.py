"""Neighborhood discovery: which neighborhoods of an unlabeled set to trust.

The neighborhood of a point is the point and its k nearest others. It is trusted by the entropy of the point's soft choice among
all points: low entropy means that a few points are near, and much nearer than the rest. [huang2019and] eq. (1), (5), (6)
All functions accept numpy arrays for tensors.
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
from nearkin.compose.validation import check_finite, check_positive, check_share, check_whole
from nearkin.data.shards import Shards
from nearkin.search import nearest

BLOCK = 512  # rows and columns of similarities held at once: a tile that fits the cache
CUDA_BLOCK = 8192  # large enough to hide kernel launches: a tile of 256 MB


class Neighborhoods(NamedTuple):
    """The neighborhoods found by `discover`; row i belongs to the point with id i.

    Attributes
    ----------
    table : Tensor of shape (n, k)
        Ids of the nearest other points, nearest first.
    entropy : Tensor of shape (n,)
        Entropy in nats, 0 to log n. Lower is more trusted.
    """

    table: Tensor
    entropy: Tensor


@torch.no_grad()
def discover(vectors: Tensor | Shards, k: int = 1, temperature: float = 0.1, *, block: int | None = None) -> Neighborhoods:
    r"""Find the k nearest others of every point by cosine, and the entropy of its soft choice among all points.

    .. math::
        H_i = -\sum_j p_{ij} \log p_{ij}, \qquad p_{ij} = \frac{\exp(x_i \cdot x_j / t)}{\sum_k \exp(x_i \cdot x_k / t)}

    over vectors x scaled to length 1; the sums include the point itself. Nothing of size n x n is held.

    Parameters
    ----------
    vectors : Tensor of shape (n, d), or Shards
        The points. Shards may be larger than memory: two row groups are held at a time, and row i is their i-th point.
    k : int, default=1
        Neighbors per point.
    temperature : float, default=0.1
        t. Lower values look only at the nearest points.
    block : int, default=None
        Rows and columns of similarities held at once. None chooses by device.

    Returns
    -------
    Neighborhoods
        ``table`` (n, k), ids of the neighbors, nearest first, ties to the smaller id; and ``entropy`` (n,).

    Raises
    ------
    ValueError
        If there are not more than k points, or a vector holds NaN or infinity.

    References
    ----------
    [huang2019and] eq. (1) and (5)

    Examples
    --------
    >>> import torch
    >>> from nearkin.train import discover
    >>> found = discover(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]))
    >>> found.table[:, 0].tolist()
    [1, 0, 3, 2]
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
    """What `discover` finds for the points of one shard among all points."""
    check_whole("number", number, 0, "shards are numbered from 0")
    if number >= len(shards.records):
        raise ValueError(f"number ({number}) must be below the number of shards ({len(shards.records)})")
    start = shards.starts()[number]
    x = torch.from_numpy(np.array(shards.read(number).vectors))
    own = Points(x, None, torch.arange(start, start + len(x)))
    return neighborhoods_among(own, lambda: _numbered(shards), len(shards), k, temperature, block=block)


@torch.no_grad()
def neighborhoods_among(
    own: Points, others: Callable[[], Iterator[Points]], n: int, k: int, temperature: float, *, block: int | None = None
) -> Neighborhoods:
    """What `discover` finds for some points among all n. `others` yields all points in order, with ids 0..n-1; it is called twice."""
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
    """All points, one row group at a time, with their positions as ids."""
    start = 0
    for some in shards.blocks():
        yield Points(torch.from_numpy(np.array(some.vectors)), None, torch.arange(start, start + len(some.ids)))
        start += len(some.ids)


@torch.no_grad()
def entropies(vectors: Tensor, temperature: float = 0.1, *, block: int | None = None) -> Tensor:
    """(n,) entropies -sum_j p_ij log p_ij of p_ij = exp(x_i . x_j / t) / sum_k exp(x_i . x_k / t) over unit `vectors` (n, d), in nats.

    With s = x_i . x_j - 1 <= 0, which is 0 for the point itself, and Z the sum of exp(s / t): H = log Z - sum p s / t. Similarities
    are symmetric, so every block of pairs is computed once and serves its rows and its columns.
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
    """Choose the share of points with the lowest entropy.

    Parameters
    ----------
    entropy : Tensor of shape (n,)
        From `discover`.
    share : float
        Share of points to trust, 0 to 1; the number of points is rounded down.

    Returns
    -------
    Tensor of shape (n,)
        Booleans. Among equal entropies the earlier points are chosen.

    See Also
    --------
    weights : Weights by rank instead of a choice.

    References
    ----------
    [huang2019and] eq. (6)

    Examples
    --------
    >>> import torch
    >>> from nearkin.train import trusted
    >>> trusted(torch.tensor([0.3, 0.1, 0.9, 0.2]), share=0.5).tolist()
    [False, True, False, True]
    """
    entropy = _checked_entropy(entropy, share)
    chosen = torch.zeros(len(entropy), dtype=torch.bool, device=entropy.device)
    count = math.floor(len(entropy) * share + 1e-9)  # 50,000 * 0.7 is 34,999.999 in floats
    chosen[entropy.argsort(stable=True)[:count]] = True
    return chosen


def weights(entropy: Tensor, share: float) -> Tensor:
    r"""Weigh points by the rank of their entropy, instead of trusting all or nothing.

    .. math::
        w = (1 - u)^{(1 - s) / s}

    where s is the share and u runs from 0 for the lowest entropy to 1 for the highest. The mean weight is s, as in `trusted`.

    Parameters
    ----------
    entropy : Tensor of shape (n,)
        From `discover`.
    share : float
        Mean weight s, 0 to 1. At 1 all weights are 1, at 0 all are 0.

    Returns
    -------
    Tensor of shape (n,)
        Weights between 0 and 1; equal for equal entropies.

    See Also
    --------
    trusted : A choice instead of weights.

    Examples
    --------
    >>> import torch
    >>> from nearkin.train import weights
    >>> weights(torch.tensor([0.3, 0.1, 0.9, 0.2]), share=0.5).tolist()
    [0.375, 0.875, 0.125, 0.625]
    """
    entropy = _checked_entropy(entropy, share)
    if share == 0:
        return torch.zeros_like(entropy)
    _, place, count = torch.unique(entropy, return_inverse=True, return_counts=True)
    middle = (count.cumsum(0) - count / 2) / len(entropy)  # of the ranks that equals share
    found: Tensor = (1 - middle[place]).pow((1 - share) / share).to(entropy.dtype)
    return found


def curriculum(rounds: int, one_off: bool = False) -> tuple[float, ...]:
    """Return the share of points to trust in each round after the instance round.

    Parameters
    ----------
    rounds : int
        Number of rounds R.
    one_off : bool, default=False
        Trust all points in every round.

    Returns
    -------
    tuple of float
        r / R for r = 1..R, or all ones.

    References
    ----------
    [huang2019and]

    Examples
    --------
    >>> from nearkin.train import curriculum
    >>> curriculum(4)
    (0.25, 0.5, 0.75, 1.0)
    """
    check_whole("rounds", rounds, 1, "each trusts a share")
    return (1.0,) * rounds if one_off else tuple(r / rounds for r in range(1, rounds + 1))


def mutual(table: Tensor) -> Tensor:
    """Find the neighbors that have the point among their own neighbors, too.

    Parameters
    ----------
    table : Tensor of shape (n, k)
        Ids of neighbors, from `discover`.

    Returns
    -------
    Tensor of shape (n, k)
        Booleans.

    Examples
    --------
    >>> import torch
    >>> from nearkin.train import mutual
    >>> mutual(torch.tensor([[1], [0], [0]])).tolist()
    [[True], [True], [False]]
    """
    table = table_of(table)
    ids = torch.arange(len(table), device=table.device)
    return (table[table] == ids[:, None, None]).any(2)


def keep_only(table: Tensor, kept: Tensor) -> Tensor:
    """Replace the neighbors that are not kept by the point's own id, which objectives read as no neighbor.

    Parameters
    ----------
    table : Tensor of shape (n, k)
        Ids of neighbors, from `discover`.
    kept : Tensor of shape (n, k)
        Booleans, such as `mutual` returns.

    Returns
    -------
    Tensor of shape (n, k)
        The new table.

    Examples
    --------
    >>> import torch
    >>> from nearkin.train import keep_only, mutual
    >>> table = torch.tensor([[1], [0], [0]])
    >>> keep_only(table, mutual(table)).tolist()
    [[1], [0], [2]]
    """
    table = table_of(table)
    kept = truths_of("kept", kept, tuple(table.shape))
    ids = torch.arange(len(table), device=table.device)
    return torch.where(kept, table, ids[:, None])


class Agreement(NamedTuple):
    """How many (point, neighbor) pairs have the same class.

    Attributes
    ----------
    pairs : int
        Pairs whose classes are both known.
    right : int
        Pairs of the same class among them.
    """

    pairs: int
    right: int

    @property
    def share(self) -> float:
        """Share of pairs of the same class; NaN if there are no pairs."""
        return self.right / self.pairs if self.pairs else math.nan


def agreement(table: Tensor, labels: Tensor, chosen: Tensor | None = None) -> Agreement:
    """Count the pairs of points and neighbors that have the same class. For reporting only.

    Parameters
    ----------
    table : Tensor of shape (n, k)
        Ids of neighbors, from `discover`.
    labels : Tensor of shape (n,)
        Classes; -1 where the class is not known.
    chosen : Tensor of shape (n,), default=None
        Booleans: count only these points. None counts all.

    Returns
    -------
    Agreement
        ``pairs``, ``right`` and ``share``. Pairs with an unknown class are left out, and so are entries that hold the point's
        own id (see `keep_only`).

    Examples
    --------
    >>> import torch
    >>> from nearkin.train import agreement
    >>> agreement(torch.tensor([[1], [0], [0]]), torch.tensor([5, 5, 7])).share
    0.6666666666666666
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
    return check_finite("vectors", vectors)  # type: ignore[no-any-return]


def _check_settings(n: int, k: int, temperature: float, block: int | None) -> None:
    if n < 2:
        raise ValueError(f"the number of points ({n}) must be at least 2; give more points")
    check_whole("k", k, 1, "it is the number of neighbors")
    if k >= n:
        raise ValueError(f"k ({k}) must be below the number of points ({n}); lower k, or give more points")
    check_positive("temperature", temperature)
    if block is not None:
        check_whole("block", block, 1, "it is the number of rows held at once")


def _checked_entropy(given: Any, share: float) -> Tensor:
    check_share("share", share)
    entropy = tensor_of("entropy", given)
    if entropy.ndim != 1 or not entropy.is_floating_point():
        raise ValueError(f"entropy has shape {tuple(entropy.shape)} and type {entropy.dtype}; give floats (n,), one per point")
    return check_finite("entropy", entropy, "give one finite number per point")  # type: ignore[no-any-return]
