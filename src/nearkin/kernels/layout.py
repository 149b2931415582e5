"""Cut an evaluation into tiles, and find the pairs that are handled one by one.

In a tile every pair is an ordinary positive or negative candidate. The few pairs that are not (a query and itself, a listed
neighbor) are masked in the tiles and handled one by one in `single_pairs.py`. When the queries are their own
references, s_ij = s_ji, so only the tiles on and above the diagonal are visited and each serves both directions; a pair
that is special in one direction is then a single pair in both.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.contract import Work, sizes

NO_CANDIDATE, POSITIVE, NEGATIVE = 0, 1, 2
FAR = 1024.0  # squared length in bits above which float32 affinities are off by more than a gradient's 2e-5


class SinglePairs(NamedTuple):
    """Pairs that are masked in the tiles, sorted by row, then column."""

    rows: Tensor  # (p,) int64
    columns: Tensor  # (p,) int64
    kind: Tensor  # (p,) int64: NO_CANDIDATE, POSITIVE or NEGATIVE


class Tile(NamedTuple):
    """Rows top .. bottom - 1 against columns left .. right - 1, with the masked pairs as positions inside the tile."""

    row: int  # which block of rows
    column: int  # which block of columns
    top: int
    bottom: int
    left: int
    right: int
    mirrored: bool  # this tile serves the transposed tile too
    masked_rows: Tensor
    masked_columns: Tensor


def asymmetric(work: Work) -> bool:
    """Return whether the queries are their own references, but "j is positive for i" is not "i is positive for j".

    Spans of sorted classes cut the positions into consecutive runs, the same for both directions; any other spans
    are evaluated as two separate sets.
    """
    if work.references is not None or work.span is None:
        return False
    low, high = work.span.unbind(1)
    start = torch.arange(1, len(low), device=low.device)
    same = (low[1:] == low[:-1]) & (high[1:] == high[:-1])
    next_run = (low[1:] == start) & (high[:-1] == start)
    return not bool((same | next_run).all() & (low[0] == 0) & (high[-1] == len(low)))


def as_two_sets(work: Work) -> Work:
    """The same pairs, with the queries as a separate set of references."""
    return work._replace(references=work.queries, reference_gradient=True)


def square_lengths(points: Tensor) -> Tensor:
    """(n,) |z|^2 in float64, without a float64 copy of the points."""
    length: Tensor = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64)
    return length.square()


def longest(*lengths: Tensor) -> float:
    """The largest square length; inf or nan if any embedding is. Above FAR, float32 would lose the fraction of an affinity."""
    return float(torch.cat(lengths).max())


def nan_summaries(work: Work) -> tuple[Tensor, Tensor]:
    """Summaries of nan, for embeddings that contain an inf or a nan: every sum runs over all of them."""
    broken = torch.full((len(work.queries),), torch.nan, dtype=torch.float64, device=work.queries.device)
    return broken, broken.clone()


def find_single_pairs(work: Work) -> SinglePairs:
    """Find the pairs that are listed or skipped; when the queries are their own references, their mirror images too."""
    n, m, _ = sizes(work)
    if work.references is None and work.listed is None and work.skip is not None and _only_themselves(work.skip):
        every = torch.arange(n, device=work.skip.device)
        return SinglePairs(every, every, torch.full_like(every, NO_CANDIDATE))
    skipped, listed = _keys(work.skip, n, m, work.queries), _keys(work.listed, n, m, work.queries)
    keys = torch.cat([skipped, listed])
    if work.references is None:
        keys = torch.cat([keys, keys % m * m + keys // m])
    keys = torch.unique(keys)
    rows, columns = keys // m, keys % m
    kind = torch.full_like(keys, NEGATIVE)
    if work.span is not None:
        low, high = work.span[rows].unbind(1)
        kind[(low <= columns) & (columns < high)] = POSITIVE
    kind[torch.searchsorted(keys, listed)] = POSITIVE
    kind[torch.searchsorted(keys, skipped)] = NO_CANDIDATE
    return SinglePairs(rows, columns, kind)


def _only_themselves(skip: Tensor) -> bool:
    """Whether each query skips exactly itself: the most frequent case, which needs no sorting."""
    return skip.shape[1] == 1 and torch.equal(skip[:, 0], torch.arange(len(skip), device=skip.device))


def _keys(positions: Tensor | None, n: int, m: int, like: Tensor) -> Tensor:
    if positions is None or positions.numel() == 0:
        return torch.empty(0, dtype=torch.int64, device=like.device)
    row = torch.arange(n, device=positions.device)[:, None]
    return (row * m + positions)[positions >= 0]


def tiles(work: Work, singles: SinglePairs, block: int) -> list[Tile]:
    """All tiles in row order; on and above the diagonal when the queries are their own references."""
    n, m, _ = sizes(work)
    own = work.references is None
    down, across = -(-n // block), -(-m // block)
    place = singles.rows // block * across + singles.columns // block
    order = torch.argsort(place, stable=True)
    ends = torch.searchsorted(place[order], torch.arange(down * across + 1, device=place.device)).tolist()
    rows, columns = singles.rows[order] % block, singles.columns[order] % block
    none, found = rows[:0], []
    for i in range(down):
        for j in range(i if own else 0, across):
            start, end = ends[i * across + j], ends[i * across + j + 1]
            masked = (rows[start:end], columns[start:end]) if start < end else (none, none)
            edges = (i * block, min((i + 1) * block, n), j * block, min((j + 1) * block, m))
            found.append(Tile(i, j, *edges, own and j > i, *masked))
    return found
