"""Points: what queries and references are made of.

A point has an embedding, a label and an id. Identity is data, never position: a query can meet itself in a memory bank, in a cloned
tensor or in a batch that holds it twice, and only the id tells.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.value_checks import checked_range

if TYPE_CHECKING:  # for type checkers: it may be made of arrays, and what our functions read of it are tensors
    Rows = Tensor | np.ndarray[Any, Any]

    class _Fields(NamedTuple):
        embeddings: Tensor
        labels: Tensor | None = None
        ids: Tensor | None = None

    class Points(_Fields):
        """See below."""

        def __new__(cls, embeddings: Rows, labels: Rows | None = None, ids: Rows | None = None) -> Self: ...

else:

    class Points(NamedTuple):
        """A set of n points in d dimensions, used for queries and for references.

        Parameters
        ----------
        embeddings : Tensor or ndarray
            (n, d) floats.
        labels : Tensor or ndarray, optional
            (n,) integer classes, (n,) or (n, t) numbers, or (n, C) multi-hot label sets.
        ids : Tensor or ndarray, optional
            (n,) integers. Equal ids are the same sample.

        Examples
        --------
        >>> import torch
        >>> from nearkin import Points
        >>> points = Points(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        >>> points.embeddings.shape, points.ids is None
        (torch.Size([3, 2]), True)
        """

        embeddings: Tensor  # (n, d)
        labels: Tensor | None = None  # (n,) classes, (n,) or (n, t) numbers, (n, C) multi-hot sets
        ids: Tensor | None = None  # (n,) integers; equal ids are the same sample


EMPTY = torch.iinfo(torch.int64).min  # the label and the id of a slot that holds no point; no class and no sample has it


def filled_slots(points: Points) -> Tensor | None:
    """(n,) which slots hold a point, by class or else by id; None when neither is there to tell."""
    by = points.labels if points.labels is not None and points.labels.dtype == torch.int64 and points.labels.ndim == 1 else points.ids
    return None if by is None else by != EMPTY


def filled(points: Points) -> Points:
    """Return the slots that hold a point. How many is read back, so a CUDA graph cannot record it."""
    there = filled_slots(points)
    if there is None or bool(there.all()):
        return points
    return rows_of(points, there.nonzero()[:, 0])


def rows_of(points: Points, rows: Tensor) -> Points:
    """Return the points in these rows, by `index_select`, whose gradient is faster than that of an index."""
    return Points(*(None if part is None else part.index_select(0, rows) for part in points))  # type: ignore[arg-type]


P = ParamSpec("P")
R = TypeVar("R")


def takes_arrays(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of tensors take numpy arrays of numbers too, alone or in Points, without a copy where torch can share them."""

    @wraps(function)
    def taking(*given: P.args, **named: P.kwargs) -> R:
        return function(*map(as_tensors, given), **{name: as_tensors(value) for name, value in named.items()})

    return taking


def as_tensors(given: Any) -> Any:
    """Replace numpy arrays of numbers by tensors, inside tuples and Points too; memory-mapped arrays stay on disk."""
    if isinstance(given, np.ndarray) and given.dtype.kind in "fiub" and not isinstance(given, np.memmap):
        return torch.from_numpy(np.require(given, given.dtype.newbyteorder("="), ["C", "W"]))
    if isinstance(given, tuple):  # Points, or the groups of queries and of references
        if isinstance(given, Points):
            given = Points(given[0], *map(_as_array, given[1:]))
        parts = map(as_tensors, given)
        return Points(*parts) if isinstance(given, Points) else tuple(parts)
    return given


def tensor_of(name: str, given: Any) -> Tensor:
    """Return a tensor, or a numpy array of numbers as one, or raise an error."""
    found = as_tensors(given)
    if not isinstance(found, Tensor):
        raise ValueError(f"{name} must be a tensor or a numpy array of numbers in memory, not {type(given).__name__}")
    return found


def same_point(queries: Points, references: Points) -> Tensor | None:
    """(n, m), True where the reference IS the query; None when either side has no ids."""
    if queries.ids is None or references.ids is None:
        return None
    return queries.ids[:, None] == references.ids[None, :]


def numbered(points: Points, size: int, why: str, holds: str) -> Tensor:
    """Return the ids (n,), each of which must be a row of a table with one row for each of `size` samples.

    `why` says what ids are needed for, `holds` what the table is; both go into the error.
    """
    ids = points.ids
    if ids is None:
        raise ValueError(f"ids are missing: {why}; pass ids=")
    return checked_range("rows", ids, holds, size)


def fresh_ids(n: int) -> Tensor:
    """Return ids -1, -2, ..., -n for references that are none of the queries.

    Samples of a data set are numbered from 0, so these ids match no sample. Pass them when a reference set shares no sample with the batch:
    without ids an objective cannot know that, and refuses to guess.

    Parameters
    ----------
    n : int
        How many ids.

    Returns
    -------
    Tensor
        (n,) negative integers.

    Examples
    --------
    >>> from nearkin.compose import fresh_ids
    >>> fresh_ids(3).tolist()
    [-1, -2, -3]
    """
    return -torch.arange(1, n + 1)


def encode_labels(values: Sequence[Any] | np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Encode class names of any kind as integers 0..C-1.

    Parameters
    ----------
    values : sequence or ndarray
        One name for each point: strings, numbers, anything that sorts.

    Returns
    -------
    codes : Tensor
        (n,) integers.
    classes : ndarray
        (C,) the names in the order of their codes.

    Examples
    --------
    >>> from nearkin import encode_labels
    >>> codes, classes = encode_labels(["cat", "dog", "cat"])
    >>> codes.tolist(), classes.tolist()
    ([0, 1, 0], ['cat', 'dog'])
    """
    names = np.asarray(values)
    missing = [at for at, name in enumerate(names.flat) if _is_missing(name)] if names.dtype.kind in "Of" else []
    if missing:
        raise ValueError(f"values are missing in rows {missing[:5]}; leave these points out, or name their class")
    classes, codes = np.unique(names, return_inverse=True)
    return torch.from_numpy(codes.astype(np.int64)), classes


def _as_array(part: Any) -> Any:
    """Labels or ids in a list as an array, if they are numbers."""
    array = np.asarray(part) if isinstance(part, list) else None
    return part if array is None or array.dtype.kind not in "fiub" else array


def _is_missing(name: Any) -> bool:
    return name is None or (isinstance(name, float | np.floating) and bool(np.isnan(name)))
