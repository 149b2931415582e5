"""Distances in a graph of torch.compile on a CPU: a product of matrices, and differences for the pairs that are near.

The expansion |q|^2 + |r|^2 - 2 q.r loses the digits of a square that is small beside the lengths, and a root magnifies what is lost. Which
pairs are near is known only when the graph runs, so an operator looks at them: it costs next to nothing where there are none, takes the
differences of a few, and computes all in float64 where they are many.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from nearkin.compose.value_checks import define_operator, pass_gradients_by

NEAR = 1 / 8  # of the squared lengths, from the middle: above, the expansion of a square is off by some ten roundings at most
SAME = 2.0**-48  # of the squared lengths: below, two points are one to rounding


def blocks(count: int) -> Iterator[slice]:
    """Pairs taken together: their differences stay in the cache."""
    return (slice(start, start + 2**13) for start in range(0, count, 2**13))


def doubled(queries: Tensor, references: Tensor | None, temperature: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """Minus the distances over the temperature (n, m) in float32; both sides in float64, around the mean of the references."""
    center = (queries if references is None else references).double().mean(0)
    q = queries - center
    r = q if references is None else references - center
    mine = q.square().sum(1)
    lengths = mine[:, None] + (mine if references is None else r.square().sum(1))  # (n, m)
    squared = torch.addmm(lengths, q, r.T, alpha=-2)
    squared = torch.where(squared > SAME * lengths, squared, 0.0)
    return (squared.sqrt() * (-1 / temperature)).float(), q, None if references is None else r


def expanded(queries: Tensor, references: Tensor | None, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Minus the distances over the temperature (n, m), 1 for each near pair (n, m), and () how many; a point is not near itself.

    Floats, for a compiled loop takes longer to store truth values than for all the rest.
    """
    q, r = _centered(queries, references)
    mine = q.square().sum(1)
    theirs = mine if references is None else r.square().sum(1)
    lengths = mine[:, None] + theirs  # (n, m)
    squared = lengths - 2 * (q @ r.T)
    near = (squared <= NEAR * lengths).float()
    if references is None:
        place = torch.arange(queries.shape[0], dtype=torch.int32, device=queries.device)
        itself = place[:, None] == place
        squared, near = torch.where(itself, 0.0, squared), torch.where(itself, 0.0, near)
    minus = squared.clamp_min(0).sqrt() * (-1 / temperature)
    number = near.sum(1).sum()
    torch.ops.nearkin.near_distances_(minus, near, number, queries, references, temperature)
    return minus, near, number


def slopes(pull: Tensor, near: Tensor, number: Tensor, queries: Tensor, references: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The gradients of both sides; `pull` (n, m) is the upstream one over minus the distance and over the temperature."""
    q, r = _centered(queries, references)
    both = pull + pull.T if references is None else pull
    far = torch.where(near > 0, 0.0, both)
    of_queries = q * far.sum(1)[:, None] - far @ r
    of_references = None if references is None else r * far.sum(0)[:, None] - far.T @ q
    torch.ops.nearkin.near_slopes_(of_queries, of_references, pull, near, number, queries, references)
    return of_queries, of_references


def _centered(queries: Tensor, references: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both sides around the mean of the references."""
    center = (queries if references is None else references).mean(0)
    q = queries - center
    return q, q if references is None else references - center


def _many(near: Tensor, number: Tensor) -> bool:
    """Whether differences of the near pairs take longer than products in float64."""
    return int(number) > max(near.shape) + near.numel() // 32


def _near_distances(minus: Tensor, near: Tensor, number: Tensor, queries: Tensor, references: Tensor | None, temperature: float) -> None:
    if not number:
        return
    if _many(near, number):
        minus.copy_(doubled(queries, references, temperature)[0])
        return
    others = queries if references is None else references
    rows, columns = near.nonzero(as_tuple=True)
    for here in blocks(len(rows)):
        some, theirs = rows[here], columns[here]
        minus[some, theirs] = (queries[some] - others[theirs]).norm(dim=1).mul_(-1 / temperature)


def _near_slopes(
    of_queries: Tensor, of_references: Tensor | None, pull: Tensor, near: Tensor, number: Tensor, queries: Tensor, references: Tensor | None
) -> None:
    if not number:
        return
    others = queries if references is None else references
    if _many(near, number):
        _all_slopes(of_queries, of_references, pull, queries, others)
        return
    rows, columns = near.nonzero(as_tuple=True)
    weight = pull[rows, columns]
    if references is None:
        weight = weight + pull[columns, rows]
    for here in blocks(len(rows)):
        force = (queries[rows[here]] - others[columns[here]]).mul_(weight[here, None])
        of_queries.index_add_(0, rows[here], force)
        if of_references is not None:
            of_references.index_add_(0, columns[here], force, alpha=-1)


def _all_slopes(of_queries: Tensor, of_references: Tensor | None, pull: Tensor, queries: Tensor, others: Tensor) -> None:
    """The gradients of all pairs by products in float64."""
    center = others.double().mean(0)
    q, r, pull = queries - center, others - center, pull.double()
    if of_references is None:
        pull = pull + pull.T
    else:
        of_references.copy_((r * pull.sum(0)[:, None]).addmm_(pull.T, q, alpha=-1))
    of_queries.copy_((q * pull.sum(1)[:, None]).addmm_(pull, r, alpha=-1))


def _nothing(*_: object) -> None:
    """They return nothing, whatever the shapes."""


define_operator(
    "near_distances_(Tensor(a!) minus, Tensor near, Tensor number, Tensor queries, Tensor? references, float temperature) -> ()",
    _near_distances,
    _nothing,
)
define_operator(
    "near_slopes_(Tensor(a!) of_queries, Tensor(b!)? of_references, Tensor pull, Tensor near, Tensor number, Tensor queries, "
    "Tensor? references) -> ()",
    _near_slopes,
    _nothing,
)
pass_gradients_by("near_distances_")
pass_gradients_by("near_slopes_")
