"""Relation: how near SHOULD each reference be? It reads labels and ids, never embeddings.

A relation yields two (n, m) matrices. `cost` is what choosing that reference would cost: 0 for a positive, 1 for a negative, graded for
numbers and sets. `candidate` says whether it may be chosen at all: the denominator of a soft choice is its own decision (the published
Proxy-NCA leaves the positive out of it). A query's own copy is no candidate and no positive: its cost is 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from nearkin.compose.points import Points, filled_slots, numbered, same_point, tensor_of
from nearkin.compose.validation import check_whole

Supervision = Literal["classes", "numbers", "sets", "ids"]


class Related(NamedTuple):
    """What should be near: the result of a relation.

    Parameters
    ----------
    cost : Tensor
        (n, m) what choosing each reference costs: 0 for a positive, up to 1 for a negative; any size for numbers.
    candidate : Tensor
        (n, m) bool, whether the reference may be chosen.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Related
    >>> Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]])).cost.shape
    torch.Size([1, 2])
    """

    cost: Tensor  # (n, m), 0 right .. 1 wrong; any size for numbers
    candidate: Tensor  # (n, m) bool


class Layout(NamedTuple):
    """A relation without its matrix: what the kernels need to find the positives of every query.

    Exactly one of `classes`, `targets` and `listed` is set.

    Parameters
    ----------
    classes : tuple of Tensor, optional
        (n,) and (m,) integers. The positives of query i are the references of its class; the query itself, by id, is no candidate.
    targets : tuple of Tensor, optional
        (n, t) and (m, t) numbers. The cost of a pair is the squared distance of its targets; the query itself is no candidate.
    listed : Tensor, optional
        (n, k) ids. The positives of query i are the references whose ids stand in row i; all references are candidates.
    weight : Tensor, optional
        (n,) between 0 and 1, with `listed`: how much the ids of a row count, except for the query's own.
    labels : tuple of Tensor, optional
        (n,) and (m,) integers, with `listed`: where a class is known (not -1), the references of that class are the positives.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Layout
    >>> Layout(classes=(torch.tensor([0, 1]), torch.tensor([0, 1, 1]))).listed is None
    True
    """

    classes: tuple[Tensor, Tensor] | None = None  # (n,) and (m,) integers
    targets: tuple[Tensor, Tensor] | None = None  # (n, t) and (m, t) numbers
    listed: Tensor | None = None  # (n, k) ids
    weight: Tensor | None = None  # (n,) between 0 and 1
    labels: tuple[Tensor, Tensor] | None = None  # (n,) and (m,) integers, -1 where no class is known


Form = Literal["log", "expected", "each", "mean", "pairs"]  # what soft criteria need of a row of affinities; see `criterion`


class Relation(Protocol):
    """From two sets of points to their relation.

    A part of your own needs `supervision` and `__call__`. One that also declares `streams` and `layout` is evaluated by the
    kernels, without the (n, m) matrices:

    Attributes
    ----------
    supervision : {"classes", "numbers", "sets", "ids"}
        What it reads of the labels.
    streams : collection of {"log", "expected", "each", "mean"}, optional
        The forms of criteria for which `layout` says all that is needed.
    column : {"among", "apart"}, optional
        For references with one vector a class, whether a query's own class is among the candidates or apart from them.
    """

    @property
    def supervision(self) -> Supervision: ...

    def __call__(self, queries: Points, references: Points, /) -> Related: ...


def _labels(points: Points) -> Tensor:
    if points.labels is None:
        raise ValueError("labels are missing: this relation compares them; pass labels to queries and references")
    return points.labels


def _ids(points: Points) -> Tensor:
    if points.ids is None:
        raise ValueError("ids are missing: this objective knows a point by its id; pass ids=")
    return points.ids


def _without_self(cost: Tensor, queries: Points, references: Points) -> Related:
    itself = same_point(queries, references)
    if itself is None:
        return Related(cost, _there(queries, references, torch.ones_like(cost, dtype=torch.bool)))
    return Related(cost.masked_fill(itself, 1.0), _there(queries, references, ~itself))


def _there(queries: Points, references: Points, candidate: Tensor) -> Tensor:
    """The candidates without empty slots, which a batch that is its own reference set does not have."""
    there = None if references is queries else filled_slots(references)
    return candidate if there is None else candidate & there


def related(relation: Relation, queries: Points, references: Points) -> Related:
    """What a relation finds, without empty slots: one of another package need not know of them."""
    found = relation(queries, references)
    return Related(found.cost, _there(queries, references, found.candidate))  # `_replace` is a dozen guards more under torch.compile


@dataclass(frozen=True)
class SameLabel:
    """The same class is positive: cost 0 for the same label, 1 for another; the query itself is no candidate, nor is an empty slot.

    Parameters
    ----------
    supervision : str, default="classes"
        What it reads of the labels.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import SameLabel, Points
    >>> points = Points(torch.zeros(3, 1), torch.tensor([0, 0, 1]), torch.arange(3))
    >>> SameLabel()(points, points).cost
    tensor([[1., 0., 1.],
            [0., 1., 1.],
            [1., 1., 1.]])
    """

    supervision: Supervision = "classes"
    streams: ClassVar[tuple[Form, ...]] = ("log", "expected", "mean", "pairs")
    column: ClassVar[str] = "among"

    def layout(self, queries: Points, references: Points) -> Layout:
        """Lay the relation out by class.

        Parameters
        ----------
        queries, references : Points
            With labels.

        Returns
        -------
        Layout
            The classes of both sides.
        """
        return Layout(classes=(_labels(queries), _labels(references)))

    def __call__(self, queries: Points, references: Points) -> Related:
        differ = _labels(queries)[:, None] != _labels(references)[None, :]
        itself, dtype = same_point(queries, references), queries.embeddings.dtype
        if itself is None:
            return Related(differ.to(dtype), _there(queries, references, torch.ones_like(differ)))
        cost = (differ | itself).to(dtype)  # joined as truth values, a quarter of the bytes
        return Related(cost, _there(queries, references, ~itself))


@dataclass(frozen=True)
class SameLabelApart:
    """Like SameLabel, but positives are no candidates: they stand outside the choice, as in the published Proxy-NCA.

    Parameters
    ----------
    supervision : str, default="classes"
        What it reads of the labels.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Points, SameLabelApart
    >>> points = Points(torch.zeros(2, 1), torch.tensor([0, 1]))
    >>> SameLabelApart()(points, points).candidate
    tensor([[False,  True],
            [ True, False]])
    """

    supervision: Supervision = "classes"
    column: ClassVar[str] = "apart"

    def __call__(self, queries: Points, references: Points) -> Related:
        cost, candidate = SameLabel()(queries, references)
        return Related(cost, candidate & (cost > 0))


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return |a_i - b_j|^2 of targets, from differences: targets have few dimensions.

    Parameters
    ----------
    a : Tensor
        (n, t) targets of the queries.
    b : Tensor
        (m, t) targets of the references.

    Returns
    -------
    Tensor
        (n, m).

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import squared_distance
    >>> squared_distance(torch.tensor([[1.0]]), torch.tensor([[3.0], [1.0]]))
    tensor([[4., 0.]])
    """
    return (a[:, None, :] - b[None, :, :]).square().sum(2)


@dataclass(frozen=True)
class LabelDistance:
    """Cost = the distance between targets; the query itself is no candidate.

    Parameters
    ----------
    distance : callable, default=squared_distance
        A function of targets (n, t) and (m, t), with t = 1 for targets of shape (n,), that returns (n, m). The kernels know the squared
        Euclidean one; any other is evaluated as a matrix.
    supervision : str, default="numbers"
        What it reads of the labels.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import LabelDistance, Points
    >>> points = Points(torch.zeros(2, 1), torch.tensor([1.0, 3.0]))
    >>> LabelDistance()(points, points).cost
    tensor([[0., 4.],
            [4., 0.]])
    """

    distance: Callable[[Tensor, Tensor], Tensor] = squared_distance
    supervision: Supervision = "numbers"

    @property
    def streams(self) -> tuple[Form, ...]:
        """The kernels know the squared distance alone."""
        return ("expected",) if self.distance is squared_distance else ()

    def layout(self, queries: Points, references: Points) -> Layout:
        """Lay the relation out by targets.

        Parameters
        ----------
        queries, references : Points
            With targets as labels.

        Returns
        -------
        Layout
            The targets of both sides.
        """
        a, b = _labels(queries), _labels(references)
        dtype = torch.promote_types(queries.embeddings.dtype, torch.float32)  # kernels take points of 16 bits, but no such targets
        return Layout(targets=(a.reshape(len(a), -1).to(dtype), b.reshape(len(b), -1).to(dtype)))

    def __call__(self, queries: Points, references: Points) -> Related:
        a, b = _labels(queries), _labels(references)
        dtype = queries.embeddings.dtype
        a, b = a.reshape(len(a), -1).to(dtype), b.reshape(len(b), -1).to(dtype)
        cost, expected = self.distance(a, b), (len(a), len(b))
        if cost.shape != expected:
            raise ValueError(f"the given label distance returned shape {tuple(cost.shape)}; it must be {expected}: queries by references")
        return _without_self(cost.to(dtype), queries, references)


@dataclass(frozen=True)
class LabelOverlap:
    """For multi-hot label sets: cost = 1 - |A and B| / |A or B|. Two empty sets share nothing (cost 1).

    Parameters
    ----------
    supervision : str, default="sets"
        What it reads of the labels.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import LabelOverlap, Points
    >>> sets = Points(torch.zeros(2, 1), torch.tensor([[1, 1, 0], [1, 0, 0]]))
    >>> LabelOverlap()(sets, sets).cost
    tensor([[0.0000, 0.5000],
            [0.5000, 0.0000]])
    """

    supervision: Supervision = "sets"

    def __call__(self, queries: Points, references: Points) -> Related:
        dtype = queries.embeddings.dtype
        a, b = _labels(queries).to(dtype), _labels(references).to(dtype)
        both = a @ b.T  # (n, m)
        either = a.sum(1)[:, None] + b.sum(1)[None, :] - both
        return _without_self(1 - both / either.clamp_min(1), queries, references)


@dataclass(frozen=True)
class SameId:
    """A point's only positive is its own earlier copy, known by id; all references are candidates.

    Parameters
    ----------
    supervision : str, default="ids"
        What it reads of the labels: nothing but ids.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Points, SameId
    >>> bank = Points(torch.zeros(3, 1), None, torch.arange(3))
    >>> SameId()(Points(torch.zeros(1, 1), None, torch.tensor([2])), bank).cost
    tensor([[1., 1., 0.]])
    """

    supervision: Supervision = "ids"
    streams: ClassVar[tuple[Form, ...]] = ("log", "expected", "each")

    def layout(self, queries: Points, references: Points) -> Layout:
        """Lay the relation out as lists of one: the query's own id.

        Parameters
        ----------
        queries, references : Points
            With ids.

        Returns
        -------
        Layout
            The ids of the queries.
        """
        return Layout(listed=_ids(queries)[:, None])

    def __call__(self, queries: Points, references: Points) -> Related:
        _ids(queries), _ids(references)
        itself = same_point(queries, references)
        assert itself is not None
        return Related((~itself).to(queries.embeddings.dtype), _there(queries, references, torch.ones_like(itself)))


def truths_of(name: str, given: Any, shape: tuple[int, ...]) -> Tensor:
    """Return booleans of this shape, or raise an error."""
    found = tensor_of(name, given)
    if found.dtype != torch.bool:
        raise TypeError(f"{name} is {found.dtype}; {name} holds truth values, of type torch.bool")
    if found.shape != shape:
        each = f"each of the {shape[0]} points" if len(shape) == 1 else f"each place of the table, {shape}"
        raise ValueError(f"{name} has shape {tuple(found.shape)}; give one truth value for {each}")
    return found


def labels_of(given: Any, size: int) -> Tensor:
    """Return one class for each of `size` points, or raise an error."""
    labels = tensor_of("labels", given)
    if labels.shape != (size,):
        raise ValueError(f"labels have shape {tuple(labels.shape)} for {size} points; give one class for each, -1 where none is known")
    return labels


def table_of(given: Any) -> Tensor:
    """Return a table (n, k) of ids 0..n-1 as int64, or raise an error."""
    table = tensor_of("table", given)
    if table.ndim != 2:
        raise ValueError(f"table has shape {tuple(table.shape)}; give (n, k): for every point a row with the ids of its k neighbors")
    if table.is_floating_point() or table.is_complex() or table.dtype == torch.bool:
        raise TypeError(f"table is {table.dtype}; a table holds integer ids")
    if table.numel():
        least, most = map(int, table.aminmax())
        if least < 0 or most >= len(table):  # a negative index would silently count from the end
            raise ValueError(f"table holds ids from {least} to {most}; ids run from 0 to {len(table) - 1}, the rows of the table")
    return table.long()


class ListedNeighbors(nn.Module):
    """A point's positives are itself and, where its neighborhood is trusted, the ids in its row of a table.

    The table is state, kept in the state_dict, and changes only in `update`.

    Parameters
    ----------
    size : int
        The number of samples N: the table has one row for each, indexed by id.
    k : int, default=1
        The number of neighbors in a row.
    weighted : bool, default=False
        Whether a trusted row counts by a weight between 0 and 1: its neighbors then cost 1 - weight.
    labels : Tensor, optional
        (N,) the classes of the points that have one, -1 for the others. A point with a class has all of that class as positives, and no
        row.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import ListedNeighbors, Points
    >>> relation = ListedNeighbors(3)
    >>> relation.update(torch.tensor([[1], [0], [0]]))
    >>> bank = Points(torch.zeros(3, 1), None, torch.arange(3))
    >>> relation(bank, bank).cost
    tensor([[0., 0., 1.],
            [0., 0., 1.],
            [0., 1., 0.]])
    """

    supervision: Supervision = "ids"
    table: Tensor
    trusted: Tensor
    weight: Tensor | None
    labels: Tensor | None

    def __init__(self, size: int, k: int = 1, *, weighted: bool = False, labels: Tensor | None = None) -> None:
        super().__init__()
        check_whole("size", size, 1, "the table has one row for each point")
        check_whole("k", k, 1, "it is the number of neighbors in a row")
        self.register_buffer("table", torch.arange(size)[:, None].repeat(1, k))
        self.register_buffer("trusted", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("weight", torch.ones(size) if weighted else None)
        self.register_buffer("labels", None if labels is None else labels_of(labels, size).clone())

    @property
    def streams(self) -> tuple[Form, ...]:
        """Weights and classes are known to the kernels in the log form alone."""
        return ("log", "expected", "each") if self.weight is None and self.labels is None else ("log",)

    def layout(self, queries: Points, references: Points) -> Layout:
        """Lay the relation out by lists of ids, and by class where classes are known.

        Parameters
        ----------
        queries, references : Points
            With ids.

        Returns
        -------
        Layout
            The positives of the queries.
        """
        listed = self.right_ids(queries)
        weight = None if self.weight is None else self.weight[listed[:, 0]]
        labels = None if self.labels is None else (self.classes(queries), self.classes(references))
        return Layout(listed=listed, weight=weight, labels=labels)

    @torch.no_grad()
    def update(self, table: Tensor, trusted: Tensor | None = None, weight: Tensor | None = None) -> None:
        """Set the neighborhoods.

        Parameters
        ----------
        table : Tensor
            (N, k) ids.
        trusted : Tensor, optional
            (N,) bool, which rows to trust; all by default.
        weight : Tensor, optional
            (N,) between 0 and 1, how much each row counts, for a relation built with `weighted`.
        """
        given, (size, k) = tuple(tensor_of("table", table).shape), self.table.shape
        if given != (size, k):
            other = len(given) == 2 and given[0] == size and 0 < given[1] < size
            fix = f"build it with k={given[1]}, or discover with k={k}" if other else "give such a table"
            raise ValueError(f"table has shape {given}; this relation holds {(size, k)}: a row for every point, k in a row; {fix}")
        table = table_of(table)
        trusted = None if trusted is None else truths_of("trusted", trusted, (size,))
        weight = None if weight is None else tensor_of("weight", weight)
        if weight is not None and self.weight is None:
            raise ValueError("weight was given to a relation that counts every trusted neighbor alike; build it with weighted=True")
        if weight is not None and (weight.shape != (size,) or not bool(((weight >= 0) & (weight <= 1)).all())):
            among = f"has shape {tuple(weight.shape)}" if weight.shape != (size,) else "holds numbers below 0 or above 1, or NaN"
            raise ValueError(f"weight {among}; give a number between 0 and 1 for each of the {size} points")
        self.table.copy_(table)
        self.trusted.copy_(torch.ones_like(self.trusted) if trusted is None else trusted)
        if self.weight is not None:
            self.weight.copy_(torch.ones_like(self.weight) if weight is None else weight)

    def forward(self, queries: Points, references: Points) -> Related:
        """Compute cost and candidates as matrices.

        Parameters
        ----------
        queries, references : Points
            With ids.

        Returns
        -------
        Related
            (n, m) each.
        """

        own = self.right_ids(queries)  # (n, k + 1)
        assert references.ids is not None
        right = (own[:, :, None] == references.ids).any(1)  # (n, m)
        cost = (~right).to(queries.embeddings.dtype)
        if self.weight is not None:
            itself = own[:, :1] == references.ids
            cost = torch.where(right & ~itself, 1 - self.weight[own[:, 0], None].to(cost.dtype), cost)
        if self.labels is not None:
            mine, theirs = self.classes(queries)[:, None], self.classes(references)
            cost = torch.where(mine >= 0, ((mine != theirs) & (own[:, :1] != references.ids)).to(cost.dtype), cost)
        return Related(cost, _there(queries, references, torch.ones_like(right)))

    def right_ids(self, queries: Points) -> Tensor:
        """Return each query's own id and its trusted neighbors' (its own again where they are not trusted).

        Parameters
        ----------
        queries : Points
            With ids 0..N-1.

        Returns
        -------
        Tensor
            (n, k + 1) ids.
        """
        ids = numbered(queries, len(self.table), "discovered neighbors are looked up by id", "the table has the rows")
        listed = torch.where(self.trusted[ids][:, None], self.table[ids], ids[:, None])
        return torch.cat([ids[:, None], listed], dim=1)

    def classes(self, points: Points) -> Tensor:
        """Return the known labels of points, -1 for those that have none or no row.

        Parameters
        ----------
        points : Points
            With ids.

        Returns
        -------
        Tensor
            (n,) integers.
        """
        ids, labels = points.ids, self.labels
        assert ids is not None and labels is not None
        inside = (ids >= 0) & (ids < len(labels))
        return torch.where(inside, labels[ids.clamp(0, len(labels) - 1)], -1)
