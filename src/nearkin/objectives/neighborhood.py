"""The composition: objective = references x affinity x relation x criterion."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from nearkin.compose.affinity import Affinity
from nearkin.compose.criterion import Criterion
from nearkin.compose.metrics import product_form
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points, filled
from nearkin.compose.references import References
from nearkin.compose.relation import Relation, Supervision, related
from nearkin.compose.routes import Composition, Route, plan, streams
from nearkin.compose.validation import check_choice
from nearkin.compose.value_checks import may_read
from nearkin.kernels.engines import ENGINES, PRECISIONS
from nearkin.objectives import inputs
from nearkin.objectives.objective import Deployment, Objective
from nearkin.objectives.streaming import reads_half, recorded, select, stream

Engine = Literal["auto", "dense", "torch", "numba", "triton"]
Precision = Literal["highest", "high", "fast"]


class NeighborhoodObjective(Objective):
    """Score the gap between what IS near (affinity) and what SHOULD be near (relation).

    Any objective is this composition of four parts, ours or yours. The named objectives subclass it only to give a composition a
    constructor and a name.

    Parameters
    ----------
    references : References
        Who may be chosen as a neighbor: `InBatch()`, `Anchors(vectors)`, `Proxies(...)`, `MemoryBank(...)`, ...
    affinity : Affinity
        How near each reference is; larger is nearer. `SquaredEuclidean()`, `cosine(0.1)`, or your own function of (n, d) and (m, d).
        One that declares its `metric` is streamed, searched and deployed; one that does not is evaluated as a matrix.
    relation : Relation
        How near each reference should be: `SameLabel()`, `LabelDistance()`, `LabelOverlap()`, ...
    criterion : Criterion
        What the difference costs: `any_positive`, `expected_cost`, `each_positive`, `BestK(5)`, ...
    penalty : callable, optional
        A term on the batch's embeddings alone, such as a norm or a spread. It is added to the value of every valid query.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How many pairs are evaluated. "auto" decides by size and device: soft criteria over many pairs go through streaming kernels in
        O((n + m) d) memory. "dense" keeps the (n, m) matrix, which allows second derivatives. The others name one kernel.
    precision : {"highest", "high", "fast"}, default="highest"
        Of the kernels on CUDA: like float32, tf32, or fp16.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import InBatch, SameLabel, any_positive, cosine
    >>> objective = NeighborhoodObjective(InBatch(), cosine(0.1), SameLabel(), any_positive)
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> objective(z, torch.tensor([0, 0, 1, 1])) < 1e-3
    tensor(True)
    """

    def __init__(
        self,
        references: References,
        affinity: Affinity,
        relation: Relation,
        criterion: Criterion,
        penalty: Callable[[Tensor], Tensor] | None = None,
        *,
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        super().__init__()
        check_choice("engine", engine, ENGINES)
        check_choice("precision", precision, PRECISIONS)
        if engine not in ("auto", "dense") and not streams(Composition(references, affinity, relation, criterion)):
            raise ValueError(f"engine {engine!r} does not know this composition; use engine='dense' or leave it at 'auto'")
        self.references = references
        self.affinity = affinity
        self.relation = relation
        self.criterion = criterion
        self.penalty = penalty
        self.engine = engine
        self.precision = precision

    @property
    def supervision(self) -> Supervision:
        return self.relation.supervision

    def moves(self) -> bool:
        return bool(getattr(self.references, "moves", False))

    def known_classes(self) -> int | None:
        return self.references.known_classes()

    def known_dimension(self) -> int | None:
        return self.references.known_dimension()

    @property
    def parts(self) -> Composition:
        """The four choices, as `plan` reads them."""
        return Composition(self.references, self.affinity, self.relation, self.criterion)

    def deployment(self) -> Deployment:
        form = product_form(self.affinity)
        if form is None:
            return super().deployment()
        soft = getattr(self.criterion, "form", None) is not None
        return Deployment(form.deployed, form.temperature(self.affinity.temperature) if soft else None)  # type: ignore[attr-defined]

    def reads_half(self, batch: Points) -> bool:
        x = batch.embeddings
        own, parts = self.references.from_batch and self.references.columns is None and self.penalty is None, self.parts
        return own and reads_half(parts) and self._route(parts, batch, x.shape[0], own=True) == "streamed"

    def _route(self, parts: Composition, batch: Points, references: int, own: bool) -> Route:
        n, d = batch.embeddings.shape
        return plan(parts, n, references, batch.embeddings.device.type, d=d, engine=self.engine, own=own)

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        given, own, parts = batch, references is None, self.parts  # attributes of a module take microseconds each
        chosen = parts.references
        if references is None:
            if getattr(chosen, "from_batch", False) and batch.ids is None:
                batch = Points(batch.embeddings, batch.labels, torch.arange(len(batch.embeddings), device=batch.embeddings.device))
            references = chosen(batch)
        elif getattr(parts.affinity, "own_references", False):
            raise ValueError(f"{type(self).__name__} has its own class vectors, each with a bias, and takes no references=")
        route = self._route(parts, batch, references.embeddings.shape[0], own)
        full = own and chosen.columns == "classes"  # class vectors: no empty slots, and at least two classes
        if route == "streamed" and (chosen.slots if own else not recorded(batch.embeddings)):
            # The kernels know no empty slots. How many are filled is read back, which a recorded step cannot do.
            references, route = (references, "dense") if recorded(batch.embeddings) else (filled(references), route)
        outcome: Outcome | None = None
        if route == "streamed":
            in_batch = own and references is batch
            outcome = stream(
                parts,
                given if in_batch and self.supervision != "ids" else batch,
                None if in_batch else references,
                lookup=chosen.lookup() if own else None,
                engine=self.engine,
                precision=self.precision,
            )
        elif route == "selected":
            outcome = select(parts, batch, references)
        elif route == "column":
            outcome = self._by_column(parts, batch, references)
        if outcome is None:
            affinity = parts.affinity(batch.embeddings, references.embeddings)  # (n, m)
            outcome = parts.criterion(affinity, (parts.relation if full else partial(related, parts.relation))(batch, references))
            if isinstance(outcome, Tensor):
                raise TypeError(
                    f"criterion {_name(parts.criterion)} returned a tensor; return nearkin.compose.Outcome, with a value for each query"
                )
        if self.penalty is not None:
            outcome = outcome._replace(values=outcome.values + self.penalty(batch.embeddings) * (outcome.weight > 0))
        return outcome if full else self._contrasted(outcome, batch, references)

    def _contrasted(self, outcome: Outcome, batch: Points, references: Points) -> Outcome:
        """Skip all queries where there is one class only. It comes last: a compiler stores what reads the labels after a sum over them."""
        if self.supervision != "classes" or self.known_classes() is not None or references.labels is None:
            return outcome
        assert batch.labels is not None
        return inputs.contrasted(outcome, inputs.check_two_classes(batch.labels, references.labels, objective=type(self).__name__))

    def _by_column(self, parts: Composition, batch: Points, references: Points) -> Outcome:
        """The short way where each query has at most one positive; queries that have none are left out where they can be counted."""
        price, apart = parts.criterion.by_column, parts.relation.column == "apart"
        column, there = parts.references.column(batch, references)
        x, n = batch.embeddings, batch.embeddings.shape[0]
        rows = (column >= 0).nonzero()[:, 0] if there is not None and may_read(column) else column
        if not 0 < rows.shape[0] < n:
            whole: Outcome = price(parts.affinity(x, references.embeddings), column, there, apart)
            return whole
        some: Outcome = price(parts.affinity(x.index_select(0, rows), references.embeddings), column[rows], there, apart)
        values, weight = (x.new_zeros(n).index_copy(0, rows, part) for part in some[:2])
        return some._replace(values=values, weight=weight)

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the references: the bank takes the new embeddings, centers follow their classes."""
        self.references.update(self._checked(embeddings, labels, ids))

    def choosing_among(self, references: References) -> Self:
        """Return a copy of this objective that chooses among other references: a memory of earlier batches, a class-balanced bank, ...

        Parameters
        ----------
        references : References
            Such as `CrossBatchMemory(4096, d, delay=1000)` or `ClassBank(C, d)`.

        Returns
        -------
        NeighborhoodObjective
            The copy. Call its `update` with ids after every optimizer step, which fills the memory.

        Raises
        ------
        ValueError
            If this objective has references of its own: proxies, anchors, centers or a bank. If these references need the inputs
            (`MomentumQueue`), or keep no labels and the objective compares labels.

        Examples
        --------
        >>> import torch
        >>> from nearkin import MultiSimilarity
        >>> from nearkin.compose import CrossBatchMemory
        >>> objective = MultiSimilarity().choosing_among(CrossBatchMemory(64, 4, delay=1))
        >>> z, labels, ids = torch.randn(8, 4), torch.arange(4).repeat(2), torch.arange(8)
        >>> loss = objective(z, labels, ids=ids)
        >>> objective.update(z, labels, ids=ids)
        """
        if not self.references.from_batch or self.references.columns is not None:
            own = type(self.references).__name__
            raise ValueError(f"{type(self).__name__} has references of its own, {own}, and cannot choose among others")
        given = type(references).__name__
        if references.needs_inputs:
            raise ValueError(f"{given} embeds the inputs itself, which an objective never sees; pass references=queue(keys) in every call")
        if references.per_sample and self.supervision != "ids":
            raise ValueError(f"{given} keeps no labels, and {type(self).__name__} compares labels; use CrossBatchMemory or ClassBank")
        other = copy.deepcopy(self)
        other.references = references
        return other

    def extra_repr(self) -> str:
        parts = {"affinity": self.affinity, "relation": self.relation, "criterion": self.criterion, "penalty": self.penalty}
        return ", ".join(f"{name}={_name(part)}" for name, part in parts.items() if part is not None and not isinstance(part, nn.Module))

    def choices(self) -> dict[str, str]:
        """The four choices in words, for the documentation."""
        return {
            "references": _name(self.references),
            "affinity": _name(self.affinity),
            "relation": _name(self.relation),
            "criterion": _name(self.criterion),
        }


def _name(part: object) -> str:
    if isinstance(part, nn.Module):
        return type(part).__name__
    return part.__name__ if callable(part) and hasattr(part, "__name__") else repr(part)
