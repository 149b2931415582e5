"""Exact nearest neighbours under the very affinity an objective was trained with."""

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.affinity import Affinity, Normalised, SquaredEuclidean, unit
from nearkin.points import Points, same_point

BLOCK = 4096  # rows and columns of affinities held at once: 64 MB in float32


class Neighbours(NamedTuple):
    """The k nearest references of every query, nearest first; k may be lower than asked when there are fewer."""

    positions: Tensor  # (n, k) int64, rows of the references; -1 where exclusion left a query fewer than k
    affinity: Tensor  # (n, k), -inf where there is none


@torch.no_grad()
def nearest(
    queries: Points | Tensor,
    references: Points | Tensor,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    block: int = BLOCK,
) -> Neighbours:
    """The k nearest of `references` (m, d) to each of `queries` (n, d), by minus squared Euclidean distance unless told.

    Ties go to the earlier reference. With `exclude_same_id` a reference with the query's id is passed over, wherever it
    stands. k above m is lowered to m. Works through blocks, so nothing n x m is held; float16 and integers are lifted.
    """
    queries, references = _points(queries, "queries"), _points(references, "references")
    _check(queries, references, k, exclude_same_id, block)
    dtype = torch.promote_types(queries.embeddings.dtype, references.embeddings.dtype)
    queries, references = (p._replace(embeddings=p.embeddings.to(dtype)) for p in (queries, references))
    affinity = _centred(SquaredEuclidean() if affinity is None else affinity, references.embeddings)
    parts = []
    for start in range(0, len(queries.embeddings), block):
        parts.append(_search_rows(_rows(queries, start, block), references, k, affinity, exclude_same_id, block))
    return Neighbours(torch.cat([p.positions for p in parts]), torch.cat([p.affinity for p in parts]))


def _centred(affinity: Affinity, references: Tensor) -> Affinity:
    """With one centre for all blocks: a query's answer must not depend on which block a reference fell into."""
    if isinstance(affinity, SquaredEuclidean):
        return partial(affinity.around, _centre(references))
    if isinstance(affinity, Normalised):
        return replace(affinity, of=_centred(affinity.of, unit(references) if affinity.references else references))
    return affinity


def _centre(x: Tensor) -> Tensor:
    """The mean, rounded to a power of two below the spread: no digits are lost, and whole numbers keep their exact ties."""
    variance, mean = torch.var_mean(x, dim=0, correction=0)
    spread = float(variance.mean().sqrt())
    if not 0 < spread < math.inf:
        return x[0]
    step = 2.0 ** math.floor(math.log2(spread))
    return (mean / step).round() * step


def _search_rows(queries: Points, references: Points, k: int, affinity: Affinity, exclude: bool, block: int) -> Neighbours:
    """One block of queries against all references, keeping the best k so far."""
    best: Neighbours | None = None
    m = len(references.embeddings)
    for start in range(0, m, block):
        # The last block reaches back to full width: products of another shape round otherwise, and equal rows would differ.
        first = max(min(start, m - block), 0)
        some = _rows(references, first, block)
        near = affinity(queries.embeddings, some.embeddings)  # (rows, columns)
        itself = same_point(queries, some) if exclude else None
        if itself is not None:
            near = near.masked_fill(itself, -torch.inf)
        found = _top_k(near[:, start - first :], k)
        positions = torch.where(found.affinity > -torch.inf, found.positions + start, -1)
        found = Neighbours(positions, found.affinity)
        best = found if best is None else _merge(best, found, k)
    assert best is not None
    return best


def _top_k(near: Tensor, k: int) -> Neighbours:
    """Row-wise top k with ties to the earlier column, which torch.topk does not promise."""
    m = near.shape[1]
    if k >= m:
        values, columns = near.sort(dim=1, descending=True, stable=True)
        return Neighbours(columns, values)
    values, columns = near.topk(k + 1, dim=1)
    cut = values[:, k] == values[:, k - 1]  # a tie across the border: topk may have kept any of them
    values, columns = values[:, :k], columns[:, :k]
    columns, by_column = columns.sort(dim=1)
    values, by_value = values.gather(1, by_column).sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, by_value)
    if bool(cut.any()):
        values, columns = values.clone(), columns.clone()
        full_values, full_columns = near[cut].sort(dim=1, descending=True, stable=True)
        values[cut], columns[cut] = full_values[:, :k], full_columns[:, :k]
    return Neighbours(columns, values)


def _merge(a: Neighbours, b: Neighbours, k: int) -> Neighbours:
    """Both lists are in order and a's references stand before b's, so a stable sort keeps ties right."""
    values, order = torch.cat([a.affinity, b.affinity], 1).sort(dim=1, descending=True, stable=True)
    positions = torch.cat([a.positions, b.positions], 1).gather(1, order)
    return Neighbours(positions[:, :k], values[:, :k])


def _rows(points: Points, start: int, count: int) -> Points:
    ids = None if points.ids is None else points.ids[start : start + count]
    return Points(points.embeddings[start : start + count], None, ids)


def _points(points: Points | Tensor, name: str) -> Points:
    given = points if isinstance(points, Points) else Points(points)
    x = given.embeddings
    if not isinstance(x, Tensor) or x.ndim != 2 or 0 in x.shape:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must be a tensor (n, d) with at least one row, not {shape}")
    if given.ids is not None and given.ids.shape != (len(x),):
        raise ValueError(f"{name}.ids have shape {tuple(given.ids.shape)} for {len(x)} embeddings; give one integer for each")
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if not bool(torch.isfinite(x).all()):
        rows = (~torch.isfinite(x)).any(1).nonzero()[:5, 0].tolist()
        raise ValueError(f"{name} hold NaN or infinity, first in rows {rows}; nothing is near to those: drop them")
    return given._replace(embeddings=x)


def _check(queries: Points, references: Points, k: int, exclude: bool, block: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k <= 0:
        raise ValueError(f"k ({k}) must be a whole number above 0")
    if block <= 0:
        raise ValueError(f"block ({block}) must be above 0")
    a, b = queries.embeddings.shape[1], references.embeddings.shape[1]
    if a != b:
        raise ValueError(f"queries have {a} dimensions and references {b}; both must come from the same network")
    if exclude and (queries.ids is None or references.ids is None):
        raise ValueError("exclude_same_id needs ids on both sides; pass Points(embeddings, ids=...) for queries and references")
