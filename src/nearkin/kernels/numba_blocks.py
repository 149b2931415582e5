"""Prepare an evaluation for the compiled loops: blocks of queries and references, and the tiles between them."""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nearkin.kernels.contract import Work, sizes
from nearkin.kernels.layout import FAR, SinglePairs, Tile, find_single_pairs, longest, square_lengths, tiles
from nearkin.kernels.numba_loops import Array

Cut = TypeVar("Cut", Tensor, Array)
_MOST = FAR * 2**29  # squared length in bits above which the loops' float64 affinities are as coarse as float32's above FAR


class Block(NamedTuple):
    """Consecutive queries or references in the layout that the loops read; sliced once, not at every tile."""

    points: Tensor  # (r, d) float32
    factors: Tensor  # (r, d): the points, in float64 where float32 dots would be too coarse
    turned_points: Tensor  # (d, r) float32
    turned: Tensor  # (d, r): the factors transposed; oneDNN on ARM loses half a millisecond a call on a transposed view
    minus: Array  # (r,) negated square lengths in the type of the factors; zeros for an inner product
    spans: Array  # (r, 2); 0, 0 where only single pairs are positive
    targets: Array | None  # (r, t) float32
    turned_targets: Array | None  # (t, r)


class Job(NamedTuple):
    """One evaluation, as all threads read it."""

    work: Work
    singles: SinglePairs
    block: int
    tiles: list[Tile]
    rows: list[Block]
    columns: list[Block]
    scale: np.floating[Any]  # of the factors' type
    far: bool  # the factors are float64
    near: bool  # float64 is precise enough


def cut(whole: Cut, block: int) -> list[Cut]:
    """Views of consecutive rows."""
    return [whole[start : start + block] for start in range(0, len(whole), block)]


def prepare(work: Work, block: int) -> Job:
    """Return blocks of at most `block` points, in float64 where points are far from the center."""
    own = work.references is None
    references = work.queries if work.references is None else work.references
    block = _even(max(sizes(work)[:2]), block)
    lengths = square_lengths(work.queries), work.queries.new_empty(0, dtype=torch.float64) if own else square_lengths(references)
    furthest = longest(*lengths)
    kind = torch.float64 if furthest > FAR else torch.float32
    mine, theirs = _centered_targets(work)
    rows = _blocks(work.queries, lengths[0] if work.squared else None, work.span, mine, kind, block)
    columns = rows if own else _blocks(references, lengths[1] if work.squared else None, None, theirs, kind, block)
    scale = (np.float64 if kind is torch.float64 else np.float32)(2 if work.squared else 1)
    singles = find_single_pairs(work)
    return Job(work, singles, block, tiles(work, singles, block), rows, columns, scale, furthest > FAR, furthest < _MOST)


def _even(n: int, block: int) -> int:
    """The smallest block size with the same number of blocks, so that the last block is not tiny; a multiple of 16 suits BLAS."""
    count = -(-n // block)
    return min(block, -(-n // (16 * count)) * 16)


def _blocks(
    points: Tensor, lengths: Tensor | None, span: Tensor | None, targets: Tensor | None, kind: torch.dtype, block: int
) -> list[Block]:
    points = points.contiguous()
    minus = points.new_zeros(len(points), dtype=kind) if lengths is None else -lengths.to(kind)
    spans = points.new_zeros(len(points), 2, dtype=torch.int64) if span is None else span.contiguous()
    found = []
    for start in range(0, len(points), block):
        here = slice(start, start + block)
        turned = points[here].T.contiguous()
        facing = (None, None) if targets is None else (targets[here].numpy(), targets[here].T.contiguous().numpy())
        found.append(Block(points[here], points[here].to(kind), turned, turned.to(kind), minus[here].numpy(), spans[here].numpy(), *facing))
    return found


def _centered_targets(work: Work) -> tuple[Tensor | None, Tensor | None]:
    """Targets around zero, so that years or timestamps keep their digits in float32."""
    if work.targets is None:
        return None, None
    queries, references = (targets.double() for targets in work.targets)
    center = references.mean(0)
    return (queries - center).float().contiguous(), (references - center).float().contiguous()
