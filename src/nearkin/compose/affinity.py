"""Affinity: how near IS each reference to each query? Larger is nearer, always.

An affinity is a pure function of two sets of embeddings, (n, d) and (m, d), to an (n, m) matrix, divided by a
temperature. The one an objective was trained with is the one to search with.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from nearkin.compose.derivatives import apply
from nearkin.compose.near_pairs import NEAR, blocks, doubled, expanded, slopes
from nearkin.compose.value_checks import READ_FROM, may_read


class Affinity(Protocol):
    """How near is each of m references to each of n queries; larger is nearer.

    A part of your own needs only `__call__`. What it declares beyond that makes it as fast, and as deployable, as ours:

    Attributes
    ----------
    metric : str, optional
        A name of `nearkin.compose.FORMS`: the affinity is that metric's score over `temperature`. It is then streamed by the kernels,
        searched exactly and deployed in the index. Without it the affinity is evaluated as it stands, as an (n, m) matrix.
    temperature : float, optional
        What the score is divided by.
    """

    def __call__(self, queries: Tensor, references: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class SquaredEuclidean:
    """Minus the squared Euclidean distance, -|q - r|^2 / temperature.

    Both sides are centered on the mean of the references first. The expansion |q|^2 + |r|^2 - 2 q.r loses half of float32's digits when
    the data sit far from the origin; distances do not change under a shift, so the shift is free.

    Parameters
    ----------
    temperature : float, default=1.0
        What the score is divided by. Smaller values make a softmax over references sharper.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import SquaredEuclidean
    >>> SquaredEuclidean()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([[-25.,  -1.]])
    """

    temperature: float = 1.0
    metric: ClassVar[str] = "squared_euclidean"

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return self.around(references.detach().mean(0), queries, references)

    def between_units(self, queries: Tensor, references: Tensor) -> Tensor:
        """Compute the same between rows that `unit` has made, in fewer passes: without a shift, for they are near the origin.

        Parameters
        ----------
        queries : Tensor
            (n, d) floats, each of length 1 or 0.
        references : Tensor
            (m, d) floats, each of length 1 or 0.

        Returns
        -------
        Tensor
            (n, m) affinities.
        """
        return _between_units(queries, references, self.temperature)

    def around(self, center: Tensor, queries: Tensor, references: Tensor) -> Tensor:
        """Compute the same, centered on a given point.

        Blocks of one search must share the center, or equal rows would stop being tied.

        Parameters
        ----------
        center : Tensor
            (d,) the point to center on.
        queries : Tensor
            (n, d) floats.
        references : Tensor
            (m, d) floats.

        Returns
        -------
        Tensor
            (n, m) affinities.
        """
        mine, others = queries - center, None if references is queries else references - center
        found = _expanded(mine.detach(), None if others is None else others.detach(), -1 / self.temperature)
        squared: Tensor = apply(_Squared, mine, others, -1 / self.temperature, found)
        return squared


def _between_units(queries: Tensor, references: Tensor, temperature: float) -> Tensor:
    """-|q - r|^2 / temperature of rows of length 1 or 0: the lengths are constants, and a gradient along a row is no gradient of `unit`."""
    mine = torch.linalg.vector_norm(queries.detach(), dim=1).square_()
    theirs = mine if references is queries else torch.linalg.vector_norm(references.detach(), dim=1).square_()
    lengths = (mine[:, None] + theirs).mul_(-1 / temperature)  # (n, m)
    return torch.addmm(lengths, queries, references.T, alpha=2 / temperature)


def _expanded(queries: Tensor, references: Tensor | None, factor: float) -> Tensor:
    """(n, m) factor |q - r|^2 by the expansion."""
    mine = queries.square().sum(1)
    theirs = mine if references is None else references.square().sum(1)
    others = queries if references is None else references
    return (mine[:, None] + theirs).addmm_(queries, others.T, alpha=-2).clamp_min_(0).mul_(factor)  # rounding may dip below zero


class _Squared(torch.autograd.Function):
    """Squared distances that were found before, and their gradient by products: autograd's own takes the matrix four times more.

    Queries that are their own references come once, and take half of the products backwards.
    """

    @staticmethod
    def forward(queries: Tensor, references: Tensor | None, factor: float, found: Tensor) -> Tensor:
        return found.view_as(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.factor = inputs[2]

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        queries, references = ctx.saved_tensors
        pull, twice = upstream[0], 2 * ctx.factor
        of_queries = of_references = None
        if references is None:
            pull, references = pull + pull.T, queries
        if ctx.needs_input_grad[0]:
            of_queries = torch.addmm(queries * pull.sum(1)[:, None], pull, references, beta=twice, alpha=-twice)
        if ctx.needs_input_grad[1]:
            of_references = torch.addmm(references * pull.sum(0)[:, None], pull.T, queries, beta=twice, alpha=-twice)
        return of_queries, of_references, None, None


@dataclass(frozen=True)
class Euclidean:
    """Minus the Euclidean distance, -|q - r| / temperature.

    It is computed from differences where points are near, not from the expansion: a root magnifies the error of a small square. Many pairs
    on a CPU, and all under torch.compile there, take the expansion for points that are far apart, where it is as good; float32 points on a
    GPU take it in float64, which is as good everywhere. The gradient at distance zero, where none exists, is zero.

    Parameters
    ----------
    temperature : float, default=1.0
        What the score is divided by. Smaller values make a softmax over references sharper.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Euclidean
    >>> Euclidean()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[-5.]])
    """

    temperature: float = 1.0
    metric: ClassVar[str] = "euclidean"

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        if queries.dtype == torch.float32 and not may_read(queries):
            way = _in_a_graph if queries.device.type in READ_FROM else _in_float64
            return way(queries, references, self.temperature)
        spread = _spread(queries, references) if _many(queries, references) else None
        if spread is None:
            spread = _Spread(torch.cdist(queries.detach(), references.detach(), compute_mode="donot_use_mm_for_euclid_dist"))
        distance, *near = spread
        found: Tensor = apply(
            _Distance, queries, None if references is queries else references, distance.mul_(-1 / self.temperature), self.temperature, *near
        )
        return found


def _many(queries: Tensor, references: Tensor) -> bool:
    pairs = len(queries) * len(references)
    return may_read(queries) and (pairs >= 2**13 or pairs * queries.shape[1] >= 2**19)


class _Spread(NamedTuple):
    """Distances, and which of them are of near pairs."""

    distance: Tensor  # (n, m)
    rows: Tensor | None = None  # (p,) of the near pairs; None: all pairs count as near
    columns: Tensor | None = None  # (p,)
    queries: Tensor | None = None  # (n, d) and (m, d), around the mean of the references
    references: Tensor | None = None


@torch.no_grad()
def _spread(queries: Tensor, references: Tensor) -> _Spread | None:
    """Distances by a product of matrices, and by differences for the near pairs; None where these are more than a few."""
    center = references.mean(0)
    q = queries - center
    r = q if references is queries else references - center
    mine = q.square().sum(1)
    theirs = mine if r is q else r.square().sum(1)
    most = theirs.max()
    if not math.isfinite(float(most) if mine is theirs else float(most) + float(mine.max())):
        return None
    squared = torch.addmm(theirs, q, r.T, alpha=-2).add_(mine[:, None])
    near = squared <= NEAR * (mine + most)[:, None]
    if references is queries:
        near.fill_diagonal_(False)  # a point is at 0 from itself, and nothing pulls there
        squared.fill_diagonal_(0.0)
    if int(torch.count_nonzero(near)) > max(len(q), len(r)) + near.numel() // 32:
        return None
    rows, columns = near.nonzero(as_tuple=True)
    distance = squared.clamp_min_(0).sqrt_()
    for here in blocks(len(rows)):
        some, others = rows[here], columns[here]
        distance[some, others] = (queries[some] - references[others]).norm(dim=1)
    return _Spread(distance, rows, columns, q, r)


def _in_float64(queries: Tensor, references: Tensor, temperature: float) -> Tensor:
    """Minus distances of float32 points by a product in float64, whose expansion keeps 29 bits more than the points have."""
    parts = doubled(queries.detach(), None if references is queries else references.detach(), temperature)
    found: Tensor = apply(_DistanceInFloat64, queries, None if references is queries else references, *parts, temperature)
    return found


class _DistanceInFloat64(torch.autograd.Function):
    """Minus distances that were found before, and their gradient by products in float64: differences would take n m d numbers."""

    @staticmethod
    def forward(queries: Tensor, references: Tensor | None, minus: Tensor, q: Tensor, r: Tensor | None, temperature: float) -> Tensor:
        return minus.view_as(minus)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        queries, references, _, q, r, ctx.temperature = inputs
        ctx.save_for_backward(queries, references, output, q, r)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, references, minus, q, r = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            pull, distance = upstream[0] / -ctx.temperature, minus * -ctx.temperature
            of_queries, of_references = _known_to_autograd(pull, queries, references, distance)
            return of_queries, of_references, None, None, None, None
        pull = torch.where(minus < 0, upstream[0].double() / minus, 0.0) / ctx.temperature**2  # over minus the distance, twice
        if references is None:
            pull = pull + pull.T
        mine = q * pull.sum(1)[:, None] - pull @ (q if references is None else r)
        theirs = None if references is None else (r * pull.sum(0)[:, None] - pull.T @ q).float()
        return mine.float(), theirs, None, None, None, None


def _in_a_graph(queries: Tensor, references: Tensor, temperature: float) -> Tensor:
    """Minus distances of float32 points in a graph of torch.compile on a CPU: see `near_pairs.py`."""
    others = None if references is queries else references
    parts = expanded(queries.detach(), None if others is None else others.detach(), temperature)
    found: Tensor = apply(_DistanceInGraph, queries, others, *parts, temperature)
    return found


class _DistanceInGraph(torch.autograd.Function):
    """Minus distances that were found before, and their gradient by products of matrices but for the near pairs."""

    @staticmethod
    def forward(queries: Tensor, references: Tensor | None, minus: Tensor, near: Tensor, number: Tensor, temperature: float) -> Tensor:
        return minus.view_as(minus)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        queries, references, _, near, number, ctx.temperature = inputs
        ctx.save_for_backward(queries, references, output, near, number)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, references, minus, near, number = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            pull, distance = upstream[0] / -ctx.temperature, minus * -ctx.temperature
            of_queries, of_references = _known_to_autograd(pull, queries, references, distance)
        else:
            pull = torch.where(minus < 0, upstream[0] / minus, 0.0) / ctx.temperature**2  # over minus the distance, twice
            of_queries, of_references = slopes(pull, near, number, queries, references)
        return of_queries, of_references, None, None, None, None


class _Distance(torch.autograd.Function):
    """Minus distances over the temperature that were found before, and their gradient: by products of matrices, and by differences for the
    near pairs.

    The gradient at distance zero is zero. For a second derivative it is taken by operations that autograd knows, of the distances as they
    depend on the points.
    """

    @staticmethod
    def forward(queries: Tensor, references: Tensor | None, minus: Tensor, temperature: float, *spread: Tensor | None) -> Tensor:
        return minus.view_as(minus)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        queries, references, _, ctx.temperature, *spread = inputs
        ctx.save_for_backward(queries, references, output, *spread)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, references, minus, *spread = ctx.saved_tensors
        if spread[0] is not None and not torch.is_grad_enabled():
            of_queries, of_references = _by_products(upstream[0] / minus, queries, references, _Spread(minus, *spread))
            if ctx.temperature != 1.0:
                of_queries = of_queries / ctx.temperature**2
                of_references = None if of_references is None else of_references / ctx.temperature**2
        else:
            pull, distance = upstream[0] / -ctx.temperature, minus * -ctx.temperature
            slopes = _known_to_autograd if torch.is_grad_enabled() else _by_differences  # the first for a second derivative
            of_queries, of_references = slopes(pull, queries, references, distance)
        return of_queries, of_references, *[None] * 6


def _known_to_autograd(pull: Tensor, queries: Tensor, references: Tensor | None, distance: Tensor) -> tuple[Tensor, Tensor | None]:
    """Both gradients by operations that have derivatives of their own."""
    apart = distance > 0
    pull = torch.where(apart, pull / torch.where(apart, distance, 1), 0)
    if references is None:
        pull = pull + pull.T
    others = queries if references is None else references
    center = others.detach().mean(0)  # far from the origin, products would cancel
    q, r = queries - center, others - center
    of_queries = q * pull.sum(1)[:, None] - pull @ r
    return of_queries, None if references is None else r * pull.sum(0)[:, None] - pull.T @ q


def _by_differences(pull: Tensor, queries: Tensor, references: Tensor | None, distance: Tensor) -> tuple[Tensor, Tensor | None]:
    """Both gradients, by torch's own."""
    slopes = torch.ops.aten._cdist_backward
    if references is None:  # distances are symmetric
        return slopes(pull + pull.T, queries, queries, 2.0, distance), None
    mine = slopes(pull.contiguous(), queries, references, 2.0, distance)
    return mine, slopes(pull.T.contiguous(), references, queries, 2.0, distance.T.contiguous())


def _by_products(pull: Tensor, queries: Tensor, references: Tensor | None, spread: _Spread) -> tuple[Tensor, Tensor | None]:
    """Both gradients; `pull` (n, m) is the upstream one over the distance, or over any multiple of it, which is in `spread`."""
    distance, rows, columns, q, r = spread
    assert rows is not None and columns is not None and q is not None and r is not None
    if references is None:
        pull.fill_diagonal_(0.0)
        pull = pull + pull.T
    if len(rows):
        pull_near = pull[rows, columns].masked_fill_(distance[rows, columns] == 0, 0.0)
        pull.index_put_((rows, columns), pull.new_zeros(()))
    others = queries if references is None else references
    of_queries = (q * pull.sum(1)[:, None]).addmm_(pull, r, alpha=-1)
    of_references = None if references is None else (r * pull.sum(0)[:, None]).addmm_(pull.T, q, alpha=-1)
    for here in blocks(len(rows)):
        force = (queries[rows[here]] - others[columns[here]]).mul_(pull_near[here, None])
        of_queries.index_add_(0, rows[here], force)
        if of_references is not None:
            of_references.index_add_(0, columns[here], force, alpha=-1)
    return of_queries, of_references


@dataclass(frozen=True)
class InnerProduct:
    """The inner product, q . r / temperature.

    Parameters
    ----------
    temperature : float, default=1.0
        What the score is divided by. Smaller values make a softmax over references sharper.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import InnerProduct
    >>> InnerProduct(2.0)(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[5.5000]])
    """

    temperature: float = 1.0
    metric: ClassVar[str] = "inner_product"

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return (queries / self.temperature) @ references.T  # the matrix is larger than the queries

    def between_directions(self, queries: Tensor, references: Tensor) -> Tensor:
        """Compute the same between the directions of rows of any length, in fewer passes than `unit` of both sides and a product.

        Parameters
        ----------
        queries : Tensor
            (n, d) floats.
        references : Tensor
            (m, d) floats.

        Returns
        -------
        Tensor
            (n, m) cosines over the temperature.
        """
        parts = _directed(queries.detach(), None if references is queries else references.detach(), self.temperature)
        found: Tensor = apply(_Cosine, queries, None if references is queries else references, *parts, self.temperature)
        return found


def _directed(queries: Tensor, references: Tensor | None, temperature: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Cosines over the temperature (n, m); queries over length and temperature, and that divisor; unit references, and their lengths."""
    length = _length(queries)
    if references is None:
        rows, theirs = queries / length, length
        scaled = rows / temperature
    else:
        theirs = _length(references)
        rows = references / theirs
    length = length * temperature
    if references is not None:
        scaled = queries / length
    return _products(scaled, rows), scaled, length, rows, theirs


SMALL = 2**15  # numbers: transposing so few takes less than what products with a transposed matrix take more


def _products(a: Tensor, b: Tensor) -> Tensor:
    """a @ b.T. On some processors (ARM) a small matrix that is read transposed takes twice as long as one that is transposed first."""
    return a @ (b.T.contiguous() if b.numel() <= SMALL and b.device.type == "cpu" else b.T)


class _Cosine(torch.autograd.Function):
    """Cosines that were found before. The gradient of each side is what the product's has across its rows, over their lengths."""

    @staticmethod
    def forward(queries: Tensor, references: Tensor | None, cosines: Tensor, *parts: Any) -> Tensor:
        return cosines.view_as(cosines)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        queries, references, _, *parts, ctx.temperature = inputs
        ctx.save_for_backward(queries, references, *parts)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, references, *parts = ctx.saved_tensors
        pull, temperature = upstream[0], ctx.temperature
        if torch.is_grad_enabled():  # for a second derivative
            parts = _directed(queries, references, temperature)[1:]
        scaled, length, rows, theirs = parts
        of_queries = of_references = None
        if references is None:
            pull = pull + pull.T
        if ctx.needs_input_grad[0]:
            of_queries = _across(pull @ rows, scaled, length, temperature**2)
        if ctx.needs_input_grad[1]:
            of_references = _across(pull.T @ scaled, rows, theirs, 1.0)
        return of_queries, of_references, *[None] * 6


def _across(pull: Tensor, rows: Tensor, length: Tensor, share: float) -> Tensor:
    """What a gradient has across `rows`, over their length; `share` is one over the square of the length that they have now."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():  # a compiler keeps no room, and takes no transposed one
        return torch.addcmul(pull, rows, (pull * rows).sum(-1, keepdim=True), value=-share) / length
    room = pull * rows  # one of the size of the rows is enough
    along = room.sum(-1, keepdim=True)
    return torch.addcmul(pull, rows, along, value=-share, out=room).div_(length)


class Affine(nn.Module):
    """The linear classification head: w . q + b, with a learned bias b for each reference.

    Parameters
    ----------
    count : int
        The number of references, each with a bias.
    dimension : int
        The embedding's size d. Biases start uniform in +-1/sqrt(d), as torch's linear layers do.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Affine
    >>> affinity = Affine(1, 2)
    >>> _ = affinity.bias.data.fill_(0.5)
    >>> affinity(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[11.5000]], grad_fn=<AddmmBackward0>)
    """

    own_references: ClassVar[bool] = True  # no references but the objective's own have a bias here

    def __init__(self, count: int, dimension: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(count).uniform_(-1 / math.sqrt(dimension), 1 / math.sqrt(dimension)))

    def forward(self, queries: Tensor, references: Tensor) -> Tensor:
        return torch.nn.functional.linear(queries, references, self.bias.to(queries.dtype))


@dataclass(frozen=True)
class Normalized:
    """Another affinity between unit vectors.

    Parameters
    ----------
    of : Affinity
        The affinity between the normalized rows.
    references : bool, default=True
        Whether references are normalized too. False leaves them as they are, for a memory bank that keeps its own length.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Normalized, SquaredEuclidean
    >>> Normalized(SquaredEuclidean())(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]]))
    tensor([[-2.]])
    """

    of: Affinity
    references: bool = True

    @property
    def metric(self) -> str | None:
        """The metric of the inner affinity between unit vectors."""
        inner = getattr(self.of, "metric", None)
        if inner not in ("squared_euclidean", "euclidean", "inner_product"):
            return None
        if self.references:
            return "cosine" if inner == "inner_product" else f"unit_{inner}"
        return f"query_unit_{inner}"

    @property
    def temperature(self) -> float:
        """That of the inner affinity; 1 where it declares none."""
        return float(getattr(self.of, "temperature", 1.0))

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        at_once: Affinity | None = getattr(self.of, "between_directions", None) if self.references else None
        if at_once is not None:
            return at_once(queries, references)
        queries, references = self.directions(queries, references)
        between: Affinity = getattr(self.of, "between_units", self.of) if self.references else self.of
        return between(queries, references)

    def directions(self, queries: Tensor, references: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sides as the inner affinity gets them, computed once where they are the same tensor.

        Parameters
        ----------
        queries : Tensor
            (n, d) floats.
        references : Tensor
            (m, d) floats.

        Returns
        -------
        tuple of Tensor
            (n, d) and (m, d).
        """
        mine = unit(queries)
        return mine, (mine if references is queries else unit(references)) if self.references else references


def cosine(temperature: float = 1.0) -> Normalized:
    """Return the cosine affinity, cos(q, r) / temperature. The cosine with a zero vector is 0.

    Parameters
    ----------
    temperature : float, default=1.0
        What the score is divided by. Smaller values make a softmax over references sharper.

    Returns
    -------
    Normalized
        `Normalized(InnerProduct(temperature))`.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import cosine
    >>> cosine(0.5)(torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 2.0], [-1.0, -1.0]])).round(decimals=4)
    tensor([[ 2., -2.]])
    """
    return Normalized(InnerProduct(temperature))


def signs(x: Tensor) -> Tensor:
    """Return +1 where x is not negative and -1 elsewhere, in the type of x."""
    return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)


@dataclass(frozen=True)
class Hamming:
    """Minus the number of dimensions in which the signs differ: the affinity of binary codes. A zero counts as positive.

    It is computed by a product of signs, whose sums are whole numbers and exact. It has no gradient.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Hamming
    >>> Hamming()(torch.tensor([[1.0, -1.0, 1.0]]), torch.tensor([[1.0, 1.0, -1.0]]))
    tensor([[-2.]])
    """

    metric: ClassVar[str] = "hamming"

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        agreeing = signs(queries) @ signs(references).T
        return (agreeing - queries.shape[1]) / 2


@dataclass(frozen=True)
class MinusDistance:
    """A distance of your own, negated and scaled: -scale * distance(queries, references).

    Parameters
    ----------
    distance : callable
        A differentiable function of (n, d) queries and (m, d) references that returns (n, m) distances.
    scale : float, default=1.0
        What distances are multiplied by.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import MinusDistance
    >>> MinusDistance(lambda q, r: (q[:, None] - r).abs().sum(2))(torch.zeros(1, 2), torch.ones(1, 2))
    tensor([[-2.]])
    """

    distance: Callable[[Tensor, Tensor], Tensor]
    scale: float = 1.0
    any_width: ClassVar[bool] = True  # the two sides may have different sizes

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        distance, expected = self.distance(queries, references), (len(queries), len(references))
        if distance.shape != expected:
            raise ValueError(f"the given distance returned shape {tuple(distance.shape)}; it must be {expected}: queries by references")
        return -self.scale * distance


def unit(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return rows of length 1. A zero row stays zero, with a gradient of ordinary size (an epsilon would make it 1e12).

    Parameters
    ----------
    x : Tensor
        (n, d) floats.
    dtype : torch.dtype, optional
        Type of the result, if it is not that of x: of 16 bits, x is read as it is, and its gradient rounded once.

    Returns
    -------
    Tensor
        (n, d).

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import unit
    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    fixed = x.detach()
    length = _length(fixed, dtype)
    found: Tensor = apply(_Unit, x, fixed / length, length)
    return found


class _Unit(torch.autograd.Function):
    """The gradient is what the upstream one has across the row, over its length: four operations, where autograd's own takes fourteen."""

    @staticmethod
    def forward(x: Tensor, rows: Tensor, length: Tensor) -> Tensor:
        return rows.view_as(rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        x, rows, length = ctx.saved_tensors
        pull = upstream[0]
        if torch.is_grad_enabled():  # for a second derivative
            length = _length(x, length.dtype)
            rows = x / length
        return _across(pull, rows, length, 1.0).to(x.dtype), None, None


def _length(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """(..., 1) lengths of rows, 1 for those of length 0."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
    return length.masked_fill(length == 0, 1.0)
