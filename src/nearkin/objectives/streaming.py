"""Compositions over many pairs: which of them do without the (n, m) matrix, and how.

The soft criteria need only running sums, so with a streamable affinity and relation the matrix never exists: `stream` lays
them out as work for the kernels. The best k need a few entries of each row: `select` finds those block by block, without a
gradient, and prices them alone. Any other composition is evaluated as it stands, which is the dense engine; all agree to rounding.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, InnerProduct, Normalized, SquaredEuclidean, unit
from nearkin.compose.criterion import BestK, Choice, Criterion, any_positive, each_positive, expected_cost
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.relation import LabelDistance, ListedNeighbors, Relation, SameId, SameLabel, squared_distance
from nearkin.kernels.autograd import soft_neighbors
from nearkin.kernels.contract import Form, Work, positions_of
from nearkin.objectives.listed_neighbors import each, pairwise, weighed

Lookup = Callable[[Tensor], Tensor | None]  # ids (n, k) to positions among the references, -1 where absent

MANY_PAIRS = 2**22  # below, the matrix is small and the composition itself is as quick
MANY_ON_CPU = 2**18  # there the kernels are ahead sooner: `python -m bench.batches`
MOST_PAIRS = 2**24  # that are looked at together when only some of each row are selected
FORMS: dict[Any, Form] = {any_positive: "log", expected_cost: "expected"}


def plain(affinity: Affinity) -> bool:
    """Whether an affinity is made of products, between points or between unit vectors."""
    return isinstance(affinity.of if isinstance(affinity, Normalized) else affinity, SquaredEuclidean | InnerProduct)


def streams(affinity: Affinity, relation: Relation, criterion: Criterion) -> bool:
    """Whether the kernels know this composition."""
    if not plain(affinity):
        return False
    if isinstance(relation, ListedNeighbors) and not (relation.plain and criterion in FORMS):
        # Each of a whole class is no short list; a neighbor that is right in part has no expected cost here.
        return criterion is any_positive or (criterion is each_positive and relation.labels is None)
    if isinstance(relation, LabelDistance):
        return relation.distance is squared_distance and criterion is expected_cost
    return isinstance(relation, SameLabel | SameId | ListedNeighbors) and criterion in FORMS


def stream(
    batch: Points,
    references: Points | None,
    affinity: Affinity,
    relation: Relation,
    criterion: Criterion,
    *,
    lookup: Lookup | None,
    engine: str,
    precision: str,
) -> Outcome:
    """The outcome by the kernels; `references` None means the batch's own points."""
    how = {"engine": engine, "precision": precision}
    queries = batch.embeddings
    others = None if references is None else references.embeddings
    if isinstance(affinity, Normalized):
        queries = unit(queries)
        others = unit(others) if others is not None and affinity.references else others
    inner = affinity.of if isinstance(affinity, Normalized) else affinity
    assert isinstance(inner, SquaredEuclidean | InnerProduct)
    work = Work(queries, others, isinstance(inner, SquaredEuclidean))
    work, order = _laid_out(work, batch, references, relation, lookup)
    if criterion is each_positive:
        return each(work, inner, lambda some: soft_neighbors(some, "log", inner.temperature, **how))
    soft = soft_neighbors(work, FORMS[criterion], inner.temperature, **how)
    if isinstance(relation, ListedNeighbors) and relation.weight is not None:
        assert work.listed is not None and batch.ids is not None
        own = _where(batch, references, lookup)(batch.ids[:, None])
        itself = torch.zeros_like(work.listed, dtype=torch.bool) if own is None else (work.listed[:, :, None] == own[:, None]).any(2)
        soft = weighed(soft, work, inner, torch.where(itself, 1.0, relation.weight[batch.ids, None].to(queries.dtype)))
    m = len(queries) if references is None else len(references.embeddings)
    candidates = torch.full((len(queries),), m, device=queries.device)
    if work.skip is not None:
        candidates = candidates - (work.skip >= 0).sum(1)
    active = (candidates * soft.valid).sum()
    values, valid = soft.values, soft.valid
    if order is not None:
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        values, valid = _permuted(values, back), valid[back]
    found = Outcome(values, valid.to(values.dtype), active)
    if not isinstance(relation, ListedNeighbors) or relation.labels is None:
        return found
    # A point with a class has all of that class. Everybody is valid both ways, and a step that is recorded reads no class back.
    known = batch if references is None else references
    mine, theirs = (Points(some.embeddings, relation.classes(some)) for some in (batch, known))  # no ids: a point is of its own class
    by_class = stream(mine, theirs, affinity, SameLabel(), criterion, lookup=None, engine=engine, precision=precision)
    labeled = relation.classes(batch) >= 0
    values, weight = (torch.where(labeled, a, b) for a, b in zip(by_class[:2], found[:2], strict=True))
    return Outcome(values, weight, m * (weight > 0).sum())


def select(batch: Points, references: Points, affinity: Affinity, relation: Relation, criterion: BestK) -> Outcome:
    """The outcome from the chosen neighbors alone; the choice takes blocks of queries."""
    queries, others = batch.embeddings, references.embeddings
    if isinstance(affinity, Normalized):
        (queries, others), affinity = affinity.directions(queries, others), affinity.of
    choice = Choice.joined(
        list(_chosen(batch._replace(embeddings=queries), references._replace(embeddings=others), affinity, relation, criterion))
    )
    assert isinstance(affinity, SquaredEuclidean | InnerProduct)
    return criterion.outcome(pairwise(queries, others[choice.columns], affinity), choice)  # (n, 2k)


@torch.no_grad()
def _chosen(batch: Points, references: Points, affinity: Affinity, relation: Relation, criterion: BestK) -> Iterator[Choice]:
    step = max(1, MOST_PAIRS // len(references.embeddings))
    for start in range(0, len(batch.embeddings), step):
        here = slice(start, start + step)
        labels, ids = (None if part is None else part[here] for part in (batch.labels, batch.ids))
        block = Points(batch.embeddings[here], labels, ids)
        yield criterion.choose(affinity(block.embeddings, references.embeddings), relation(block, references))


def _laid_out(
    work: Work, batch: Points, references: Points | None, relation: Relation, lookup: Lookup | None
) -> tuple[Work, Tensor | None]:
    """The relation as spans, lists or targets, and the order the queries were put in (None: as they came)."""
    known, where = batch if references is None else references, _where(batch, references, lookup)
    if isinstance(relation, SameId | ListedNeighbors):
        return work._replace(listed=_distinct(_listed(relation, batch, where))), None
    skip = _own_positions(batch, references, where)
    if isinstance(relation, LabelDistance):
        assert batch.labels is not None and known.labels is not None
        a, b = batch.labels.reshape(len(batch.labels), -1), known.labels.reshape(len(known.labels), -1)
        return work._replace(targets=(a.to(work.queries.dtype), b.to(work.queries.dtype)), skip=skip), None
    return _sorted_by_label(work, batch, references, skip)


def _where(batch: Points, references: Points | None, lookup: Lookup | None) -> Lookup:
    known = batch if references is None else references
    return lookup or (lambda ids: None if known.ids is None else positions_of(ids, known.ids))


def _own_positions(batch: Points, references: Points | None, where: Lookup) -> Tensor | None:
    """(n, e) positions at which each query itself stands among the references."""
    if batch.ids is not None:
        return where(batch.ids[:, None])
    # Without ids a batch that is its own reference set meets itself on the diagonal, and nowhere else.
    return torch.arange(len(batch.embeddings), device=batch.embeddings.device)[:, None] if references is None else None


def _listed(relation: SameId | ListedNeighbors, batch: Points, where: Lookup) -> Tensor:
    if batch.ids is None:
        raise ValueError("ids are missing: this objective knows a point by its id; pass ids=")
    right = batch.ids[:, None] if isinstance(relation, SameId) else relation.right_ids(batch)
    found = where(right)
    return torch.full_like(right[:, :1], -1) if found is None else found


def _distinct(positions: Tensor) -> Tensor:
    """Each position once a row; repeats become -1. Engines know a pair again, but the GPU's loops take a turn for every repeat."""
    ranked = positions.sort(dim=1).values
    repeat = torch.zeros_like(ranked, dtype=torch.bool)
    repeat[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    return ranked.masked_fill(repeat, -1)


def _sorted_by_label(work: Work, batch: Points, references: Points | None, skip: Tensor | None) -> tuple[Work, Tensor]:
    """Queries and references sorted by class, so that the right references of a query are one span."""
    assert batch.labels is not None
    labels, order = batch.labels.sort(stable=True)
    ranked, theirs = (labels, order) if references is None else _sorted_labels(references)
    span = torch.stack([torch.searchsorted(ranked, labels), torch.searchsorted(ranked, labels, right=True)], dim=1)
    if skip is not None:
        moved = torch.empty_like(theirs)
        moved[theirs] = torch.arange(len(theirs), device=theirs.device)
        skip = skip[order]
        skip = torch.where(skip >= 0, moved[skip.clamp_min(0)], -1)
    others = None if work.references is None else _permuted(work.references, theirs)
    return work._replace(queries=_permuted(work.queries, order), references=others, span=span, skip=skip), order


def _sorted_labels(points: Points) -> tuple[Tensor, Tensor]:
    assert points.labels is not None
    ranked, order = points.labels.sort(stable=True)
    return ranked, order


class _Permute(torch.autograd.Function):
    """x[order] for a permutation: its gradient is a plain scatter, where indexing would accumulate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return torch.empty_like(upstream[0]).index_copy_(0, order, upstream[0]), None


def _permuted(x: Tensor, order: Tensor) -> Tensor:
    permuted: Tensor = _Permute.apply(x, order)  # type: ignore[no-untyped-call]
    return permuted
