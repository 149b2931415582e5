"""The inputs of `nearest`: checked, converted to floats, and cut into blocks."""

import math
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import Points, as_tensors
from nearkin.compose.validation import check_finite, check_whole
from nearkin.data.shards import Shard, Shards
from nearkin.search.exclusion import Exclusion

SEGMENT = 1 << 26  # numbers of references taken at once: 256 MB in float32
WHOLE = 1 << 27  # numbers of references up to which those that are the queries are taken at once: each pair is then computed once

References = Points | Tensor | np.ndarray | Shards | Iterable[Points | Tensor | np.ndarray]


def blocks(references: References, like: Tensor, block: int | None) -> Iterator[Points]:
    """Yield consecutive blocks of references, on the device of the queries."""
    parts: Iterable[Points | Tensor | np.ndarray]
    if isinstance(references, Shards):
        references = map(_shard_points, references.blocks())
    parts = [references] if isinstance(references, Points | Tensor | np.ndarray) else references
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise ValueError(f"references must be a tensor (n, d) with at least one row, not {type(references).__name__}")
    return chain.from_iterable(_blocks_of(some, like, block) for some in parts)


def is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same numbers in memory."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def _shard_points(shard: Shard) -> Points:
    """The points of a shard; text ids are left out, since only integers can be compared with the ids of queries."""
    ids = torch.from_numpy(np.array(shard.ids)) if shard.ids.dtype == np.int64 else None
    return Points(shard.vectors, None, ids)


def _blocks_of(some: Points | Tensor | np.ndarray, like: Tensor, block: int | None) -> Iterator[Points]:
    whole = some if isinstance(some, Points) else Points(some)
    whole = whole._replace(ids=as_tensors(whole.ids))
    _check_shape(whole, "references")
    x: Tensor | np.ndarray = whole.embeddings
    step = block or max(SEGMENT // x.shape[1], 1)
    if block is None and isinstance(x, Tensor) and is_same(x, like) and x.numel() <= WHOLE:
        step = len(x)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        # a copy: a memory-mapped array may be read-only
        tensor = torch.from_numpy(np.array(part)).to(like.device) if isinstance(part, np.ndarray) else part
        ids = None if whole.ids is None else whole.ids[start : start + step]
        yield _as_float(Points(tensor, None, ids), "references", start)


def exclusion(queries: Points, some: Points, same_id: bool, groups: tuple[Tensor, Tensor] | None, start: int) -> Exclusion:
    """The exclusion of one block of references, the first of which has position `start`."""
    excluded = Exclusion(queries.ids, some.ids) if same_id else Exclusion()
    if groups is None:
        return excluded
    theirs = groups[1][start : start + len(some.embeddings)]
    if len(theirs) < len(some.embeddings):
        raise ValueError(f"groups hold {len(groups[1])} numbers for more references; give one for each")
    return excluded._replace(groups=groups[0], reference_groups=theirs.to(some.embeddings.device))


def checked_points(points: Points | Tensor, name: str) -> Points:
    """Return points in float32 or float64, finite, with at least one row."""
    checked = as_tensors(points if isinstance(points, Points) else Points(points))
    if not isinstance(checked.embeddings, Tensor):
        kind = type(checked.embeddings).__name__
        raise ValueError(f"{name} must be a tensor (n, d) with at least one row, not {kind}; convert it with torch.as_tensor(...)")
    _check_shape(checked, name)
    return _as_float(checked, name, 0)


def _as_float(points: Points, name: str, start: int) -> Points:
    """Convert to float32 unless float64, and check that all values are finite."""
    x = points.embeddings
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if not all(math.isfinite(end) for end in torch.aminmax(x)):  # NaN shows in both ends; faster than a mask
        check_finite(name, x, first=start)
    return points._replace(embeddings=x)


def _check_shape(points: Points, name: str) -> None:
    x = points.embeddings
    if not isinstance(x, Tensor | np.ndarray) or x.ndim != 2 or 0 in x.shape:
        shape = tuple(x.shape) if isinstance(x, Tensor | np.ndarray) else type(x).__name__
        raise ValueError(f"{name} must be a tensor (n, d) with at least one row, not {shape}")
    check_ids(points, name)


def check_ids(points: Points, name: str) -> None:
    """Check that there is a whole number for each point, if there are ids."""
    ids, n = points.ids, len(points.embeddings)
    if ids is None:
        return
    if not isinstance(ids, Tensor | np.ndarray) or not (ids.dtype.kind in "iu" if isinstance(ids, np.ndarray) else _whole(ids)):
        kind = ids.dtype if isinstance(ids, Tensor | np.ndarray) else type(ids).__name__
        raise ValueError(f"{name}.ids must be whole numbers, not {kind}; number the samples 0, 1, 2, ... and keep their names beside")
    if ids.shape != (n,):
        raise ValueError(f"{name}.ids have shape {tuple(ids.shape)} for {n} embeddings; give one integer for each")


def _whole(x: Tensor) -> bool:
    return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool


def check_numbers(k: int, block: int | None) -> None:
    """Check that k and the block size are whole numbers above 0."""
    check_whole("k", k)
    if block is not None:
        check_whole("block", block)


def check_groups(groups: tuple[Tensor, Tensor] | None, queries: Tensor) -> tuple[Tensor, Tensor] | None:
    """Check that there is one group for each query; those of the references are counted block by block."""
    if groups is None:
        return None
    groups = as_tensors(groups)
    if not isinstance(groups, tuple) or len(groups) != 2 or not all(isinstance(some, Tensor) and some.ndim == 1 for some in groups):
        raise ValueError("groups must be two tensors of whole numbers: (n,) for the queries and (m,) for the references")
    if len(groups[0]) != len(queries):
        raise ValueError(f"groups hold {len(groups[0])} numbers for {len(queries)} queries; give one for each")
    return groups[0].to(queries.device), groups[1]


def check_sides(queries: Points, references: Points, exclude: bool) -> None:
    """Check that both sides have the same dimension, and ids where they are needed."""
    a, b = queries.embeddings.shape[1], references.embeddings.shape[1]
    if a != b:
        raise ValueError(f"queries have {a} dimensions and references {b}; both must come from the same network")
    if exclude and (queries.ids is None or references.ids is None):
        raise ValueError("exclude_same_id needs ids on both sides; pass Points(embeddings, ids=...) for queries and references")
