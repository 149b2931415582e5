"""One soft-neighbor evaluation, prepared for any engine.

An engine never sees labels, ids, temperatures or units. It sees two sets of embeddings scaled so that the affinity is
a power of two, and, for every query, which references are right:

    s_ij = -|q_i - r_j|^2   or   q_i . r_j          (base-2 units)

* `span`: the right references of query i are the positions lo_i .. hi_i - 1. Classes become spans because references
  are sorted by label; queries are sorted too, so that nearly every tile is all right or all wrong.
* `listed`: the right references of query i are the positions in row i (discovered neighbors).
* `targets`: no right or wrong; the cost of a pair is the squared distance of its targets.
* `skip`: positions that are no candidates (the query itself, by id).
"""

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

Form = Literal["log", "expected"]


class Work(NamedTuple):
    """What an engine computes on. Exactly one of `span`, `listed` and `targets` is set."""

    queries: Tensor  # (n, d) float32 or float64, however it lies in memory
    references: Tensor | None  # (m, d) of the same type; None: the queries are their own references
    squared: bool  # affinity -|q - r|^2, otherwise q . r
    span: Tensor | None = None  # (n, 2) int64
    listed: Tensor | None = None  # (n, k) int64 positions, -1 where a row is shorter
    targets: tuple[Tensor, Tensor] | None = None  # (n, t), (m, t)
    skip: Tensor | None = None  # (n, e) int64 positions, -1 where a row is shorter
    reference_gradient: bool = True  # False for a detached bank: its gradient is not computed


class Values(NamedTuple):
    """What the two summaries of each query come to; (n,) each."""

    value: Tensor
    valid: Tensor  # bool: whether it counts
    weight: Tensor  # times the upstream gradient: the pull
    first: Tensor  # the summaries again, what was -inf replaced by something finite
    second: Tensor


class Engine(Protocol):
    """The two passes over all pairs, and what is between them."""

    def recordable(self, work: Work) -> bool:
        """Whether this work is evaluated without reading anything back to the host, so that a CUDA graph can hold it."""
        ...

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        """Per query, over its candidates, (n,) each.

        Span and list: log2 of the sum of 2^s over the right ones, and over the wrong ones (-inf where there are none).
        Targets: log2 of the sum of 2^s over all, and the mean target cost under that choice (-inf and 0 without candidates).
        An engine may leave one number per query out of its log-sums: only their differences are used, and `gradients` gets
        them back as they are.
        """
        ...

    def values(self, work: Work, form: Form, first: Tensor, second: Tensor, slope: float) -> Values:
        """Value and gradient weight, times `slope`, from the summaries (see `soft_neighbors.py`); the work in any units.

        Targets: the value is the mean cost and the weight 1. A query that has nobody right or nobody wrong has weight 0.
        """
        ...

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gradients (n, d) and (m, d) of sum_ij W_ij s_ij with W held constant, in base-2 units, where over candidates

            span and list: W_ij = -pull_i 2^(s_ij - first_i) if right, +pull_i 2^(s_ij - second_i) if wrong
            targets:       W_ij =  pull_i 2^(s_ij - first_i) (cost_ij - second_i)

        When the queries are their own references, the first gradient holds both roles and the second is None; it is
        None too when `reference_gradient` is off. `first` and `second` are this engine's own summaries, what was -inf
        replaced by something finite.
        """
        ...


def sizes(work: Work) -> tuple[int, int, int]:
    """n queries, m references, d dimensions."""
    n, d = work.queries.shape
    return n, n if work.references is None else len(work.references), d


def positions_of(wanted: Tensor, ids: Tensor) -> Tensor | None:
    """(n, k) ids to (n, k * e) positions in `ids`, -1 where an id is absent or rarer than the commonest; None if all are.

    An id may stand at several positions: a sample drawn twice is the same sample.
    """
    order = torch.argsort(ids, stable=True)
    ranked = ids[order]
    low = torch.searchsorted(ranked, wanted.contiguous())  # (n, k)
    count = torch.searchsorted(ranked, wanted.contiguous(), right=True) - low
    most = int(count.max()) if count.numel() else 0
    if most == 0:
        return None
    step = torch.arange(most, device=ids.device)
    there = step < count[:, :, None]  # (n, k, e)
    slot = (low[:, :, None] + step).clamp(max=len(ids) - 1)
    return torch.where(there, order[slot], -1).reshape(len(wanted), -1)
