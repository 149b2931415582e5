"""A memory bank spread over ranks: each keeps a part of the vectors, and together they give the values of one process.

The objective is -log of a ratio of two sums over the bank. Each rank sums over its own part; the logs of the sums are joined, and the
gradients of the batch, of which every rank finds the part that its vectors cause, are added up. Checkpoints hold the whole bank, so
that a training can resume with any number of ranks.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nearkin.compose.affinity import unit
from nearkin.compose.criterion import any_positive
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.references import MemoryBank
from nearkin.compose.references.abstract import References
from nearkin.compose.relation import SameId
from nearkin.objectives import NeighborhoodObjective
from nearkin.train import ranks
from nearkin.train.discovery import Neighborhoods, discover, neighborhoods_among

Evaluate = Callable[[Points, Points | None], Outcome]


class BankPart(References):
    """This rank's slots of a memory bank, one after the other; `collect` gathers the whole bank on the first rank."""

    per_sample: ClassVar[bool] = True
    spread: ClassVar[bool] = True
    vectors: Tensor
    ids: Tensor

    def __init__(self, bank: MemoryBank) -> None:
        super().__init__()
        self.size, self.momentum = len(bank.vectors), bank.momentum
        own = torch.arange(self.size).tensor_split(ranks.count())[dist.get_rank()].to(bank.vectors.device)
        self.register_buffer("vectors", bank.vectors[own].clone())
        self.register_buffer("ids", own, persistent=False)
        self.whole: Tensor | None = None  # on the first rank, between `collect` and the next update

    def forward(self, batch: Points) -> Points:
        return Points(self.vectors.to(batch.embeddings.dtype, copy=True), None, self.ids)

    @torch.no_grad()
    def update(self, batch: Points) -> None:
        assert batch.ids is not None
        self.whole = None
        here = (batch.ids >= self.ids[0]) & (batch.ids <= self.ids[-1])
        slots = batch.ids[here] - self.ids[0]
        fresh = unit(batch.embeddings[here]).to(self.vectors.dtype)
        copies = (slots[:, None] == slots).to(fresh.dtype)  # as in the whole bank: copies move it by their mean
        fresh = copies @ fresh / copies.sum(1, keepdim=True)
        self.vectors[slots] = unit((1 - self.momentum) * self.vectors[slots] + self.momentum * fresh)

    def known_dimension(self) -> int:
        return self.vectors.shape[1]

    @torch.no_grad()
    def collect(self) -> None:
        """The whole bank on the first rank; every rank must call this."""
        together = self.everyone()
        self.whole = together.cpu() if ranks.is_first() else None

    def everyone(self) -> Tensor:
        """(N, d) the vectors of all ranks, which all must ask for at once."""
        return ranks.gather(self.vectors)

    @torch.no_grad()
    def discover(self, k: int, temperature: float) -> Neighborhoods:
        """Neighborhoods of all points; each rank looks for those of its own part, among parts that are sent round one by one."""
        own = Points(self.vectors, None, self.ids)
        found = neighborhoods_among(own, self._round, self.size, k, temperature)
        return Neighborhoods(ranks.gather(found.table), ranks.gather(found.entropy))

    def _round(self) -> Iterator[Points]:
        for rank, ids in enumerate(torch.arange(self.size, device=self.ids.device).tensor_split(ranks.count())):
            part = self.vectors.clone() if rank == dist.get_rank() else self.vectors.new_empty(len(ids), self.vectors.shape[1])
            dist.broadcast(part, rank)
            yield Points(part, None, ids)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # Before `collect`, and on the other ranks, only the shape: such a tensor can be compared, and cannot be written by mistake.
        shape = self.size, self.vectors.shape[1]
        destination[prefix + "vectors"] = torch.empty(shape, device="meta") if self.whole is None else self.whole

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        whole = state[prefix + "vectors"]
        super()._load_from_state_dict({**state, prefix + "vectors": whole[self.ids.to(whole.device)]}, prefix, *rest)


def spread(objective: nn.Module) -> None:
    """Spread the bank of an objective over the ranks, if it has one that can be; values stay the same up to rounding."""
    if ranks.count() == 1 or not isinstance(objective, NeighborhoodObjective) or not objective.references.per_sample:
        return
    bank = cast(MemoryBank, objective.references)
    known = objective.supervision == "ids" and objective.parts.criterion.form == "log"
    if bank.labels is not None or not known or len(bank.vectors) < ranks.count():
        return
    objective.references = BankPart(bank)
    objective.outcome = partial(_outcome_over_ranks, objective, objective.outcome)  # type: ignore[method-assign]


def collect(objective: nn.Module) -> None:
    """Every rank calls this before the first one saves the objective."""
    bank = getattr(objective, "references", None)
    if bank is not None:
        bank.collect()


def neighborhoods_in(bank: References, k: int, temperature: float) -> Neighborhoods:
    """Neighborhoods of all points of a bank, whole or spread over ranks."""
    part = cast(BankPart, bank)
    return part.discover(k, temperature) if bank.spread else discover(part.vectors, k, temperature)


def whole_bank(bank: References) -> Tensor:
    """(N, d) all vectors of a bank, whole or spread over ranks."""
    part = cast(BankPart, bank)
    return part.everyone() if bank.spread else part.vectors


def _outcome_over_ranks(objective: NeighborhoodObjective, evaluate: Evaluate, batch: Points, references: Points | None) -> Outcome:
    """The outcome for the whole bank, on every rank: `evaluate` knows this rank's part, by the kernels where that is large.

    With C and A the logs of the sums over all vectors and over the positives, `evaluate` gives C - A of the part. C of it is what its
    first vector would cost as the only positive, and that one's affinity.
    """
    if references is not None:
        return evaluate(batch, references)
    batch = batch._replace(embeddings=_SumGradient.apply(batch.embeddings))  # type: ignore[no-untyped-call]
    bank, affinity = cast(BankPart, objective.references), objective.affinity
    part = bank(batch)
    alone = NeighborhoodObjective(bank, affinity, SameId(), any_positive, engine=objective.engine, precision=objective.precision)
    first = alone.outcome(batch._replace(ids=bank.ids[:1].expand(len(batch.embeddings))), part)
    chosen = first.values + affinity(batch.embeddings, part.embeddings[:1])[:, 0]
    here = evaluate(batch, part)
    right = _joined(torch.where(here.weight > 0, chosen - here.values, -torch.inf))
    valid = right > -torch.inf
    values = torch.where(valid, _joined(chosen) - torch.where(valid, right, 0.0), 0.0)
    return Outcome(values, valid.to(values.dtype), bank.size * valid.sum())


def _joined(part: Tensor) -> Tensor:
    joined: Tensor = _JoinedLogSumExp.apply(part)  # type: ignore[no-untyped-call]
    return joined


class _JoinedLogSumExp(torch.autograd.Function):
    """log of the sum over ranks of exp(part); the gradient of this rank's part."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        parts = [torch.empty_like(part) for _ in range(ranks.count())]
        dist.all_gather(parts, part.contiguous())
        whole = torch.logsumexp(torch.stack(parts), 0)
        ctx.save_for_backward((part - whole).exp().nan_to_num(0.0))  # -inf - -inf: no positive on any rank
        return whole

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        (share,) = ctx.saved_tensors
        mine: Tensor = upstream[0] * share
        return mine


class _SumGradient(torch.autograd.Function):
    """The batch, whose gradient is added up over ranks: each has some of the references."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        whole = upstream[0].contiguous().clone()
        dist.all_reduce(whole)
        return whole
