"""The two routes over many pairs that do without the (n, m) matrix.

The soft criteria need only running sums: `stream` hands a relation's layout to the kernels. The best k need a few entries of each row:
`select` finds those block by block, without a gradient, and evaluates them alone. Both agree with the dense form to rounding.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nearkin.compose.affinity import InnerProduct, SquaredEuclidean, unit
from nearkin.compose.criterion import Choice
from nearkin.compose.derivatives import apply
from nearkin.compose.metrics import ProductForm, product_form
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.relation import Layout, related
from nearkin.compose.routes import Composition
from nearkin.compose.value_checks import checked, held, may_read
from nearkin.kernels.autograd import soft_neighbors
from nearkin.kernels.class_order import ByClass, by_class
from nearkin.kernels.contract import COPIES, Form, Work, kind_of, positions_of
from nearkin.objectives.listed_neighbors import each, pairwise, weighed
from nearkin.objectives.mean_of_positives import mean_of_positives

Lookup = Callable[[Tensor], Tensor | None]  # ids (n, k) to positions among the references, -1 where absent

MOST_PAIRS = 2**24  # that are looked at together when only some of each row are selected
LISTED = 16  # points of a class up to which each positive is listed for itself; of larger classes these pairs are nearly a matrix


def recorded(x: Tensor) -> bool:
    """Whether the step is being recorded, by torch.compile or in a CUDA graph."""
    return torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def stream(
    parts: Composition, batch: Points, references: Points | None, *, lookup: Lookup | None, engine: str, precision: str
) -> Outcome | None:
    """The outcome by the kernels; `references` None means the batch's own points. None where a matrix of pairs is small enough."""
    form, temperature = product_form(parts.affinity), float(parts.affinity.temperature)
    assert form is not None
    layout: Layout = parts.relation.layout(batch, batch if references is None else references)
    criterion = parts.criterion.form
    alike = references is None or references.embeddings.dtype == batch.embeddings.dtype
    alone = criterion in ("log", "expected") and layout.weight is None
    others = None if references is None else references.embeddings
    if alone and alike:
        both = form.unit_queries if references is None else form.unit_references
        work = Work(batch.embeddings, others, form.squared, unit_queries=form.unit_queries, unit_references=both)
    else:  # their gradients are sums that cancel in part, so that they are added in float32
        work = Work(*_directions(form, batch.embeddings, others), form.squared)
    queries = work.queries

    def evaluate(some: Work, form: Form = "log") -> Any:
        return soft_neighbors(some, form, temperature, engine=engine, precision=precision)

    where = _Where(batch if references is None else references, lookup)
    if criterion == "mean" and layout.classes is not None:
        skip = _own_positions(batch, references, where)
        return where.trusted(mean_of_positives(work, layout.classes, skip, temperature, evaluate))
    if criterion == "pairs" and layout.classes is not None:
        skip = _own_positions(batch, references, where)
        listed = _positives(*layout.classes, skip) if may_read(queries) or (engine != "auto" and not recorded(queries)) else None
        if listed is None:
            return _in_blocks(parts, batch, batch if references is None else references)
        found = each(work._replace(listed=listed, skip=skip), temperature, evaluate)
        return where.trusted(found._replace(weight=found.weight * (listed >= 0).sum(1)))
    if layout.listed is None:
        work, queries_by = _laid_out(work, batch, references, layout, where)
        return where.trusted(_found(work, evaluate(work, criterion), queries_by, alone=_alone(batch, references)))
    work = work._replace(listed=_distinct(_positions(layout.listed, where)))
    if criterion == "each":
        return where.trusted(each(work, temperature, evaluate))
    soft = evaluate(work, criterion)
    if layout.weight is not None:
        soft = weighed(soft, work, temperature, _shares(work, batch, where, layout.weight))
    found = _found(work, soft, None)
    if layout.labels is not None:
        found = _by_class_where_known(work, layout.labels, found, lambda some: evaluate(some, criterion))
    return where.trusted(found)


def _in_blocks(parts: Composition, batch: Points, references: Points) -> Outcome | None:
    """A criterion that looks at one row at a time, for a block of queries after another; each block is computed again for the gradient.

    Nothing is read back. None where one block holds all pairs, and while torch.compile records.
    """
    step = max(1, MOST_PAIRS // len(references.embeddings))
    if len(batch.embeddings) <= step or torch.compiler.is_compiling():
        return None
    if batch.ids is None and references is batch:
        batch = references = batch._replace(ids=torch.arange(len(batch.embeddings), device=batch.embeddings.device))

    def block(start: int) -> Outcome:
        rows = slice(start, start + step)
        queries = Points(*(None if part is None else part[rows] for part in batch))  # type: ignore[arg-type]
        affinity = parts.affinity(queries.embeddings, references.embeddings)
        return parts.criterion(affinity, related(parts.relation, queries, references))  # type: ignore[no-any-return]

    starts = range(0, len(batch.embeddings), step)
    found = [checkpoint(block, start, use_reentrant=False, preserve_rng_state=False) for start in starts]
    values, weight = (torch.cat(parts) for parts in list(zip(*found, strict=True))[:2])
    return Outcome(values, weight, torch.stack([part.active for part in found]).sum())


def reads_half(parts: Composition) -> bool:
    """Whether a streamed composition takes points of 16 bits as they are: none that may end in affinities of pairs does."""
    return getattr(parts.criterion, "form", None) in ("log", "expected", "mean")


class _Where:
    """From ids (n, k) to positions among the references, -1 where absent; None where none is known."""

    def __init__(self, references: Points, lookup: Lookup | None) -> None:
        self.ids, self.lookup = references.ids, lookup
        self.most: Tensor | None = None  # () how often a sample occurs, where that may be too often

    def __call__(self, ids: Tensor) -> Tensor | None:
        if self.lookup is not None:
            return self.lookup(ids)
        if self.ids is None:
            return None
        found = positions_of(ids, self.ids)
        self.most = found.most
        return found.at

    def trusted(self, outcome: Outcome) -> Outcome:
        """The outcome, or NaN where a sample had more copies than could be left out: the error comes later, but nothing is silent."""
        if self.most is None:
            return outcome
        most = held(self.most, checked("copies", [self.most], "ids", COPIES))
        return outcome._replace(values=outcome.values.masked_fill(most > COPIES, torch.nan))


def _directions(form: ProductForm, queries: Tensor, references: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both sides in float32 or float64, at length 1 where the form says so: one copy of points of 16 bits."""

    def directed(x: Tensor, turned: bool) -> Tensor:
        kind = kind_of(x)
        return unit(x, dtype=kind) if turned else x.to(kind)

    others = None if references is None else directed(references, form.unit_queries and form.unit_references)
    return directed(queries, form.unit_queries), others


def _found(work: Work, soft: Any, by: ByClass | None, alone: bool = False) -> Outcome:
    """The outcome of soft values in the order the queries came in; `alone` says that each of them skips itself and nothing else."""
    values, valid = soft.values, soft.valid
    m = len(work.queries if work.references is None else work.references)
    candidates = m - alone if alone or work.skip is None else m - (work.skip >= 0).sum(1)
    active = (candidates * valid).sum()
    if by is not None:
        values, valid = _permuted(values, by.place, by.order), valid[by.place]
    return Outcome(values, valid.to(values.dtype), active)


def _shares(work: Work, batch: Points, where: Lookup, weight: Tensor) -> Tensor:
    """(n, k) how much each listed position counts: the query itself in full, the others by the query's weight."""
    assert work.listed is not None and batch.ids is not None
    own = where(batch.ids[:, None])
    itself = torch.zeros_like(work.listed, dtype=torch.bool) if own is None else (work.listed[:, :, None] == own[:, None]).any(2)
    return torch.where(itself, 1.0, weight[:, None].to(work.queries.dtype))


def _by_class_where_known(work: Work, labels: tuple[Tensor, Tensor], found: Outcome, evaluate: Callable[[Work], Any]) -> Outcome:
    """A query with a class has all of that class. Every query is evaluated both ways, and a step that is recorded reads no class back."""
    mine, theirs = labels
    others = work.queries if work.references is None else work.references  # a point is of its own class, so no symmetric sweep
    ordered, by = _sorted_by_label(work._replace(references=others, listed=None), mine, theirs, None)
    whole = _found(ordered, evaluate(ordered), by)
    values, weight = (torch.where(mine >= 0, a, b) for a, b in zip(whole[:2], found[:2], strict=True))
    return Outcome(values, weight, len(others) * (weight > 0).sum())


def select(parts: Composition, batch: Points, references: Points) -> Outcome:
    """The outcome from the chosen neighbors alone; the choice takes blocks of queries."""
    form, temperature = product_form(parts.affinity), float(parts.affinity.temperature)
    assert form is not None
    queries, others = batch.embeddings, references.embeddings
    alike = queries is others
    queries, directed = _directions(form, queries, None if alike else others)
    others = queries if directed is None else directed
    choice = Choice.joined(_chosen(parts, form, batch._replace(embeddings=queries), references._replace(embeddings=others)))
    return parts.criterion.outcome(pairwise(queries, others[choice.columns], form.squared, temperature), choice)  # type: ignore[no-any-return]


@torch.no_grad()
def _chosen(parts: Composition, form: ProductForm, batch: Points, references: Points) -> list[Choice]:
    affinity = (SquaredEuclidean if form.squared else InnerProduct)(float(parts.affinity.temperature))  # of directions
    step = max(1, MOST_PAIRS // len(references.embeddings))
    found = []  # torch.compile of torch 2.11 cannot follow a generator without gradients
    for start in range(0, len(batch.embeddings), step):
        here = slice(start, start + step)
        labels, ids = (None if part is None else part[here] for part in (batch.labels, batch.ids))
        block = Points(batch.embeddings[here], labels, ids)
        found.append(parts.criterion.choose(affinity(block.embeddings, references.embeddings), related(parts.relation, block, references)))
    return found


def _laid_out(work: Work, batch: Points, references: Points | None, layout: Layout, where: Lookup) -> tuple[Work, ByClass | None]:
    """Classes or targets as the kernels take them, and the order the queries were put in (None: as they came)."""
    skip = _own_positions(batch, references, where)
    if layout.targets is not None:
        return work._replace(targets=layout.targets, skip=skip), None
    assert layout.classes is not None
    if _alone(batch, references):  # in any order a query skips its own place
        work, by = _sorted_by_label(work, *layout.classes, None)
        return work._replace(skip=skip), by
    return _sorted_by_label(work, *layout.classes, skip)


def _alone(batch: Points, references: Points | None) -> bool:
    """Whether each query skips itself and nothing else, by its position."""
    return batch.ids is None and references is None


def _own_positions(batch: Points, references: Points | None, where: Lookup) -> Tensor | None:
    """(n, e) positions at which each query itself stands among the references."""
    if batch.ids is not None:
        return where(batch.ids[:, None])
    # Without ids a batch that is its own reference set meets itself on the diagonal, and nowhere else.
    return torch.arange(len(batch.embeddings), device=batch.embeddings.device)[:, None] if references is None else None


def _positives(mine: Tensor, theirs: Tensor, own: Tensor | None) -> Tensor | None:
    """(n, e) where the references of each query's class stand, without itself; -1 where there are fewer. None if e is above LISTED.

    The size of the largest class is read back to the host.
    """
    ranked, order = theirs.sort(stable=True)
    low = torch.searchsorted(ranked, mine)
    count = torch.searchsorted(ranked, mine, right=True) - low
    most = int(count.max())
    if not 0 < most <= LISTED:
        return None
    step = torch.arange(most, device=mine.device)
    found = torch.where(step < count[:, None], order[(low[:, None] + step).clamp_max(len(order) - 1)], -1)
    return found if own is None else found.masked_fill((found[:, :, None] == own[:, None]).any(2), -1)


def _positions(ids: Tensor, where: Lookup) -> Tensor:
    """(n, k * e) where listed ids stand among the references."""
    found = where(ids)
    return torch.full_like(ids[:, :1], -1) if found is None else found


def _distinct(positions: Tensor) -> Tensor:
    """Each position once a row; repeats become -1. Engines know a pair again, but the GPU's loops take a turn for every repeat."""
    ranked = positions.sort(dim=1).values
    repeat = torch.zeros_like(ranked, dtype=torch.bool)
    repeat[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    return ranked.masked_fill(repeat, -1)


def _sorted_by_label(work: Work, mine: Tensor, theirs: Tensor, skip: Tensor | None) -> tuple[Work, ByClass]:
    """Queries and references sorted by class, so that the positives of a query are one span; and the order of the queries."""
    queries = by_class(mine)
    references, span = queries, queries.span
    if work.references is not None:
        references = by_class(theirs)
        labels, ranked = mine[queries.order], theirs[references.order]
        span = torch.stack([torch.searchsorted(ranked, labels), torch.searchsorted(ranked, labels, right=True)], dim=1)
        work = work._replace(references=_permuted(work.references, references.order, references.place))
    if skip is not None:
        skip = skip[queries.order]
        skip = torch.where(skip >= 0, references.place[skip.clamp_min(0)], -1)
    return work._replace(queries=_permuted(work.queries, queries.order, queries.place), span=span, skip=skip), queries


class _Permute(torch.autograd.Function):
    """x[order] for a permutation and its inverse: the gradient is a plain gather, where indexing would accumulate."""

    @staticmethod
    def forward(x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        return x[order]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return upstream[0][inverse], None, None


def _permuted(x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    permuted: Tensor = apply(_Permute, x, order, inverse)
    return permuted
