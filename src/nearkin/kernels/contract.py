"""The contract between an evaluation and the engines: `Work` describes one soft-neighbor evaluation, `Engine` computes it.

An engine never sees labels, ids, temperatures or units. It sees two sets of embeddings, scaled so that weights are powers of
two, and which references are positives of each query:

    s_ij = -|q_i - r_j|^2   or   q_i . r_j          (base-2 units)

or the caller's own points, of 16 or 32 bits, with the `Frame` that scales, centers and normalizes them as they are read.

* `span`: the positives of query i are the references lo_i .. hi_i - 1. Classes become spans because references are sorted by
  label; queries are sorted too, so that nearly every tile holds positives only or negatives only.
* `listed`: the positives of query i are the positions in row i (discovered neighbors).
* `targets`: no positives or negatives; the cost of a pair is the squared distance of its targets.
* `skip`: positions that are not candidates (the query itself, by id).
"""

from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from nearkin.compose.value_checks import may_read

Form = Literal["log", "expected"]
KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # of points


class Frame(NamedTuple):
    """How points become what an engine computes with: z = (x / length - center) * scale, with affinities in base-2 units.

    Parameters
    ----------
    scale : float
        Of both sides.
    center : Tensor (d,), optional
        What is subtracted from both sides before they are scaled; for squared distances only.
    query_lengths, reference_lengths : Tensors (n,) and (m,), optional
        What the rows are divided by. With own references the second is the first.

    Examples
    --------
    >>> import torch
    >>> from nearkin.kernels.contract import Frame
    >>> Frame(2.0).of_queries(torch.ones(1, 3))
    tensor([[2., 2., 2.]])
    """

    scale: float
    center: Tensor | None = None
    query_lengths: Tensor | None = None
    reference_lengths: Tensor | None = None

    def of_queries(self, points: Tensor) -> Tensor:
        """(n, d) queries as a copy in the type that is computed with."""
        return self._copied(points, self.query_lengths)

    def of_references(self, points: Tensor) -> Tensor:
        """(m, d) references as a copy in the type that is computed with."""
        return self._copied(points, self.reference_lengths)

    def _copied(self, points: Tensor, lengths: Tensor | None) -> Tensor:
        kind = kind_of(points)
        if lengths is not None:
            moved = points / lengths[:, None]
            return (moved if self.center is None else moved.sub_(self.center)).mul_(self.scale)
        return (points.to(kind, copy=True) if self.center is None else points - self.center).mul_(self.scale)


class Work(NamedTuple):
    """One soft-neighbor evaluation. Exactly one of `span`, `listed` and `targets` is set.

    Parameters
    ----------
    queries : Tensor (n, d)
        float32, float64, bfloat16 or float16, with any memory layout.
    references : Tensor (m, d) or None
        Of the same type. None: the queries are their own references.
    squared : bool
        True for the affinity -|q - r|^2, False for q . r.
    span : Tensor (n, 2) of whole numbers, optional
        The positives of query i are the references span[i, 0] .. span[i, 1] - 1.
    listed : Tensor (n, k) int64, optional
        The positions of the positives, -1 where a row has fewer.
    targets : pair of Tensors (n, t) and (m, t), optional
        The cost of a pair is the squared distance of its targets.
    skip : Tensor (n, e) of whole numbers, optional
        Positions that are not candidates, -1 where a row has fewer.
    reference_gradient : bool, default True
        False skips the gradient of the references, for a detached memory bank.
    unit_queries, unit_references : bool, default False
        Whether rows are taken at length 1, for cosines. With own references the first counts for both.
    frame : Frame, optional
        For an engine that reads the caller's points: how they become points in base-2 units. None: they are.
    kept : list, optional
        Where the first pass may leave what the second one would have to compute again. None: nothing is kept.

    Examples
    --------
    >>> import torch
    >>> from nearkin.kernels import Work
    >>> work = Work(torch.zeros(3, 2), None, True, listed=torch.tensor([[1], [2], [-1]]), skip=torch.arange(3)[:, None])
    >>> work.references is None
    True
    """

    queries: Tensor  # (n, d)
    references: Tensor | None  # (m, d)
    squared: bool
    span: Tensor | None = None  # (n, 2)
    listed: Tensor | None = None  # (n, k)
    targets: tuple[Tensor, Tensor] | None = None  # (n, t), (m, t)
    skip: Tensor | None = None  # (n, e)
    reference_gradient: bool = True
    unit_queries: bool = False
    unit_references: bool = False
    frame: Frame | None = None
    kept: list[Any] | None = None


class Values(NamedTuple):
    """Loss and gradient weight of each query, from its two summaries; (n,) each."""

    value: Tensor
    valid: Tensor  # bool: whether the query counts
    weight: Tensor  # times the upstream gradient, this is the `pull` of a query
    first: Tensor  # the summaries again, with -inf replaced by a finite number
    second: Tensor


class Engine(Protocol):
    """The protocol of an engine: two passes over all pairs, and the step between them.

    `summaries` is the first pass, `values` turns its result into losses and gradient weights, `gradients` is the second pass.
    """

    def recordable(self, work: Work) -> bool:
        """Return whether a CUDA graph can hold this evaluation: nothing is read back to the host.

        Parameters
        ----------
        work : Work

        Returns
        -------
        bool
        """
        ...

    def reads_points(self, work: Work) -> bool:
        """Return whether the engine reads the caller's points by the frame of the work, and returns gradients of their type.

        Otherwise it gets a float32 or float64 copy of them in base-2 units.

        Parameters
        ----------
        work : Work

        Returns
        -------
        bool
        """
        ...

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        """Sum over the candidates of each query.

        With spans and lists: log2 of the sum of 2^s over the positives, and over the negatives (-inf where there are none).
        With targets: log2 of the sum of 2^s over all candidates, and the mean target cost under the softmax (-inf and 0 without
        candidates). An engine may leave one constant per query out of its log-sums: only their differences are used, and
        `gradients` gets them back unchanged.

        Parameters
        ----------
        work : Work
            Points in base-2 units.

        Returns
        -------
        first, second : Tensor (n,)
        """
        ...

    def values(self, work: Work, form: Form, first: Tensor, second: Tensor, slope: float) -> Values:
        """Turn the summaries into losses and gradient weights (see `autograd.py`).

        With targets, the loss is the mean cost and the weight 1. A query without a positive or without a negative has weight 0.

        Parameters
        ----------
        work : Work
            Only its relation is read.
        form : {"log", "expected"}
        first, second : Tensor (n,)
            The summaries.
        slope : float
            Multiplies every weight.

        Returns
        -------
        Values
        """
        ...

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        """Differentiate sum_ij W_ij s_ij with W held constant, in base-2 units, where over the candidates

            span and list: W_ij = -pull_i 2^(s_ij - first_i) for a positive, +pull_i 2^(s_ij - second_i) for a negative
            targets:       W_ij =  pull_i 2^(s_ij - first_i) (cost_ij - second_i)

        With a frame the gradients are those of the caller's points, in their type, but for the factor `frame.scale`.

        Parameters
        ----------
        work : Work
            Points in base-2 units.
        first, second : Tensor (n,)
            The summaries of this engine, with -inf replaced by a finite number.
        pull : Tensor (n,)
            The weight of each query times its upstream gradient.

        Returns
        -------
        to_queries : Tensor (n, d)
            When the queries are their own references, the gradient of both roles.
        to_references : Tensor (m, d) or None
            None when the queries are their own references, or `reference_gradient` is off.
        """
        ...


def sizes(work: Work) -> tuple[int, int, int]:
    """n queries, m references, d dimensions."""
    n, d = work.queries.shape
    return n, n if work.references is None else len(work.references), d


def kind_of(points: Tensor) -> torch.dtype:
    """The type that is computed with: float32 for points of 16 bits."""
    return torch.float64 if points.dtype == torch.float64 else torch.float32


COPIES = 8  # of one sample among the references, where their number cannot be read


class Positions(NamedTuple):
    """Where ids stand among the references."""

    at: Tensor | None  # (n, k * e), -1 where there are fewer than e of an id; None if no id is found
    most: Tensor | None = None  # () how often an id occurs; None where e is large enough for it


def positions_of(searched: Tensor, ids: Tensor) -> Positions:
    """Find (n, k) ids among `ids` (m,).

    e is the largest number of times that an id occurs: a sample drawn twice has two positions. Where the host may not read that number
    back, because it would wait for the device, e is COPIES, and `most` says whether that was enough.
    """
    order = torch.argsort(ids, stable=True)
    ranked = ids[order]
    low = torch.searchsorted(ranked, searched.contiguous())  # (n, k)
    count = torch.searchsorted(ranked, searched.contiguous(), right=True) - low
    if not count.numel():
        return Positions(None)
    if may_read(ids):
        most, largest = int(count.max()), None
    else:
        most, largest = min(COPIES, len(ids)), count.max() if len(ids) > COPIES else None
    if most == 0:
        return Positions(None)
    step = torch.arange(most, device=ids.device)
    there = step < count[:, :, None]  # (n, k, e)
    slot = (low[:, :, None] + step).clamp(max=len(ids) - 1)
    return Positions(torch.where(there, order[slot], -1).reshape(len(searched), -1), largest)
