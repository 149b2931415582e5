"""The composition: objective = references x affinity x relation x criterion."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nearkin.compose.affinity import Affine, Affinity
from nearkin.compose.criterion import BestK, Criterion, any_positive, each_positive, one_answer, own_column
from nearkin.compose.log_sums import may_read
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.references import Anchors, Centers, InBatch, OnePerClass, Proxies, References
from nearkin.compose.references.in_batch import answered, filled
from nearkin.compose.relation import Relation, SameLabel, SameLabelApart, SameLabelOfFilled, Supervision
from nearkin.compose.validation import check_choice
from nearkin.kernels.engines import ENGINES, PRECISIONS
from nearkin.objectives import inputs as door
from nearkin.objectives.objective import Objective
from nearkin.objectives.streaming import MANY_ON_CPU, MANY_PAIRS, plain, select, stream, streams

Engine = Literal["auto", "dense", "torch", "numba", "triton"]
Precision = Literal["highest", "high", "fast"]


class NeighborhoodObjective(Objective):
    """Prices the gap between what IS near (affinity) and what SHOULD be near (relation).

    Soft criteria over many pairs go through the streaming kernels, in O((n + m) d) memory: `engine` "auto" decides by
    size, "dense" keeps the whole matrix (and allows double backward), "torch", "numba" and "triton" name one.
    `precision` is CUDA's: "highest" (like float32), "high" (tf32) or "fast" (fp16).
    The best k of many pairs are chosen in blocks, and only the chosen ones have a gradient.
    `penalty` is a term on the batch's embeddings alone that no neighbor enters (a norm, a spread); it is added to every value.
    The named objectives subclass this only to give a composition a constructor and a name.
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
        if engine not in ("auto", "dense") and not streams(affinity, relation, criterion):
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

    def known_classes(self) -> int | None:
        return self.references.known_classes()

    def known_dimension(self) -> int | None:
        return self.references.known_dimension()

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        given, own = batch, references is None
        if references is None:
            if isinstance(self.references, InBatch | OnePerClass) and batch.ids is None:
                batch = batch._replace(ids=torch.arange(len(batch.embeddings), device=batch.embeddings.device))
            references = self.references(batch)
            if isinstance(self.references, OnePerClass) and may_read(batch.embeddings):
                references = filled(references)
        elif isinstance(self.affinity, Affine):
            raise ValueError(f"{type(self).__name__} has its own class vectors, each with a bias, and takes no references=")
        if self.supervision == "classes" and self.known_classes() is None and references.labels is not None:
            assert batch.labels is not None
            door.check_two_classes(batch.labels, references.labels)
        pairs = len(batch.embeddings) * len(references.embeddings)
        by_column = own and (self._classifies() or self._answers(len(references.embeddings)))
        if self._streams(pairs, batch.embeddings.device.type, by_column):
            in_batch = own and isinstance(self.references, InBatch)
            outcome = stream(
                given if in_batch and self.supervision != "ids" else batch,
                None if in_batch else references,
                self.affinity,
                self.relation,
                self.criterion,
                lookup=self.references.lookup() if own else None,
                engine=self.engine,
                precision=self.precision,
            )
        elif self.engine == "auto" and pairs >= MANY_PAIRS and isinstance(self.criterion, BestK) and plain(self.affinity):
            outcome = select(batch, references, self.affinity, self.relation, self.criterion)
        else:
            affinity = self.affinity(batch.embeddings, references.embeddings)  # (n, m)
            if by_column and isinstance(self.references, OnePerClass):
                outcome = one_answer(affinity, *answered(batch, references))
            elif by_column:
                assert batch.labels is not None
                outcome = own_column(affinity, batch.labels, isinstance(self.relation, SameLabelApart))
            else:
                outcome = self.criterion(affinity, self.relation(batch, references))
        if self.penalty is None:
            return outcome
        valid = outcome.weight > 0
        return outcome._replace(values=outcome.values + self.penalty(batch.embeddings) * valid)

    def _classifies(self) -> bool:
        """Whether row c of the references is class c's only one and a query's class is asked for: a label is then a column."""
        by_class = isinstance(self.references, Anchors | Proxies | Centers) and isinstance(self.relation, SameLabel | SameLabelApart)
        return by_class and self.criterion is any_positive

    def _answers(self, references: int) -> bool:
        """Whether each query is asked for its class's one answer, and there may be others: where that stands is a column, too."""
        of_class = isinstance(self.references, OnePerClass) and isinstance(self.relation, SameLabelOfFilled)
        return of_class and self.criterion is each_positive and references > 1

    def recordable(self, queries: int) -> bool:
        """Whether a step with so many queries reads nothing back, so that a CUDA graph can hold it.

        A batch that is its own reference set may hold a sample twice; before it is streamed the host asks how often.
        """
        asks = isinstance(self.references, InBatch) and self.supervision != "ids"
        return not (asks and self._streams(queries * queries, "cuda"))

    def _streams(self, pairs: int, device: str, by_column: bool = False) -> bool:
        if self.engine == "auto":
            many = MANY_ON_CPU if device == "cpu" and not by_column else MANY_PAIRS
            return pairs >= many and streams(self.affinity, self.relation, self.criterion)
        return self.engine != "dense"

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the references: the bank takes the new embeddings, centers follow their classes."""
        self.references.update(self._checked(embeddings, labels, ids))

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
