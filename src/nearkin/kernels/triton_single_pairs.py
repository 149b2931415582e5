"""Lists under Triton: the passes mask listed and skipped pairs in the tiles, and the kernels here handle them one by one.

A tile with a single pair stays in the hot loop: every row holds the position of its next single pair, and every tile has the
largest number of them in one row (`most_pairs`), mostly 0. A tile costs one comparison for each of those, whatever the
length of the lists.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearkin.kernels.contract import Work, sizes
from nearkin.kernels.triton_tiles import LOWEST, log_sum

ENTRIES = 16  # single pairs that a program handles at a time
_LAID = 512  # the same in `_lay_out_kernel`
# The kind of a pair: listed or skipped by the query in the row (0, 1), or by the one in the column (2, 3). Flags have one bit each.
KINDS = 4
_KINDS = tl.constexpr(KINDS)
_LISTED, _SKIPPED, _THEIRS = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4)


class PairLists(NamedTuple):
    """The single pairs of all rows, sorted by row, then column; a pair may occur several times."""

    columns: Tensor  # (pairs,) int32
    kinds: Tensor  # (pairs,) int32
    begins: Tensor  # (parts + 1, rows) int32: where the pairs of a row within a part of the columns begin
    most_pairs: Tensor  # (row blocks, tiles) int32: the largest number of single pairs of one row in a tile


def pair_lists(work: Work, mine: bool, theirs: bool, block: tuple[int, int], tiles_each: int) -> PairLists:
    """Return the single pairs of rows that are queries (`mine`), references (`theirs`), or both.

    `block` is the shape of a tile, `tiles_each` the number of tiles in a part. Nothing is read back to the host: empty places of a list
    are sorted behind all others.
    """
    n, m, _ = sizes(work)
    row_count, width = (n, m) if mine else (m, n)
    tall, wide = block
    keys = _keys(work, mine, theirs).sort()[0]  # pair, then kind
    tiles = -(-width // wide)
    parts = -(-tiles // tiles_each)
    edges = (torch.arange(parts + 1, device=keys.device) * (tiles_each * wide)).clamp(max=width)
    begins = torch.searchsorted(keys, KINDS * (edges[:, None] + width * torch.arange(row_count, device=keys.device)))
    columns, kinds = torch.empty(2, len(keys), dtype=torch.int32, device=keys.device).unbind(0)
    most_pairs = torch.zeros(-(-row_count // tall), tiles, dtype=torch.int32, device=keys.device)
    if len(keys):
        _lay_out_kernel[(-(-len(keys) // _LAID),)](
            keys, columns, kinds, most_pairs, len(keys), row_count, width, tiles, TALL=tall, WIDE=wide, BLOCK=_LAID
        )
    return PairLists(columns, kinds, begins.int(), most_pairs)


def _keys(work: Work, mine: bool, theirs: bool) -> Tensor:
    n, m, _ = sizes(work)
    nowhere = KINDS * n * m
    found = []
    for kind, positions in enumerate((work.listed, work.skip)):
        if positions is None:
            continue
        owner = torch.arange(n, device=positions.device)[:, None]
        if mine:
            found.append(torch.where(positions < 0, nowhere, KINDS * (owner * m + positions) + kind).flatten())
        if theirs:
            found.append(torch.where(positions < 0, nowhere, KINDS * (positions * n + owner) + kind + 2).flatten())
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64, device=work.queries.device)


@triton.jit(do_not_specialize=["count", "row_count", "width", "tiles"])
def _lay_out_kernel(
    keys, columns, kinds, most_pairs, count, row_count, width, tiles, TALL: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """Store columns and kinds of sorted keys, and in `most_pairs` the largest number of pairs of one row in each tile."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < count, other=0)
    pair = key // _KINDS
    row, column = pair // width, pair % width
    tl.store(columns + at, column.to(tl.int32), mask=at < count)
    tl.store(kinds + at, (key % _KINDS).to(tl.int32), mask=at < count)
    same = (at < count) & (row < row_count)
    place = most_pairs + row // TALL * tiles + column // WIDE
    there, turn, back, more = same, tl.full([BLOCK], 1, tl.int32), 1, 1
    while more > 0:
        same = same & (at >= back)
        before = tl.load(keys + at - back, mask=same, other=0) // _KINDS
        same = same & (before // width == row) & (before % width // WIDE == column // WIDE)
        turn += same.to(tl.int32)
        back += 1
        more = tl.max(same.to(tl.int32), 0)
    tl.atomic_max(place, turn, mask=there)


@triton.jit
def mask_pairs(x, fill, columns, end, pair_columns, cursor, last, most_pairs):
    """Write `fill` into x at the next single pairs of its rows; return x and the cursors after a tile that ends before column `end`.

    The loop is inside a condition: Triton does not pipeline a loop with another directly inside it.
    """
    turns = tl.load(most_pairs)
    if turns > 0:
        for _ in range(turns):
            at = tl.load(pair_columns + cursor, mask=cursor < last, other=-1)
            x = tl.where(columns[None, :] == at[:, None], fill, x)
            cursor += ((at >= 0) & (at < end)).to(tl.int32)
    return x, cursor


@triton.jit
def first_pair_from(pair_columns, cursor, last, start):
    """For every row, the position of the first single pair at or after column `start`."""
    after = last
    for _ in range(31):
        middle = (cursor + after) // 2
        before = (cursor < after) & (tl.load(pair_columns + middle, mask=cursor < after, other=0) < start)
        after = tl.where(before | (cursor >= after), after, middle)
        cursor = tl.where(before, middle + 1, cursor)
    return cursor


@triton.jit
def _flags(pair_columns, kinds, entry, at, begin, last):
    """The flags of the pairs at some entries, at the first entry of each pair; 0 at repeated entries."""
    there = entry < last
    first = there & (tl.load(pair_columns + entry - 1, mask=there & (entry > begin), other=-1) != at)
    flag = tl.where(first, 1 << tl.load(kinds + entry, mask=there, other=0), 0)
    same, step, more = first, 1, 1
    while more > 0:
        inside = entry + step < last
        same = same & (tl.load(pair_columns + entry + step, mask=inside, other=-1) == at)
        flag = flag | tl.where(same, 1 << tl.load(kinds + entry + step, mask=inside, other=0), 0)
        step += 1
        more = tl.max(same.to(tl.int32), 0)
    return flag


@triton.jit
def _point(z, at, chunk, plane, there, D: tl.constexpr, DC: tl.constexpr, SPLIT: tl.constexpr):
    """(entries, DC) of the rounded points at some positions."""
    where = at.to(tl.int64)[:, None] * D + chunk + tl.arange(0, DC)[None, :]
    value = tl.load(z + where, mask=there[:, None], other=0.0).to(tl.float32)
    if SPLIT:
        value += tl.load(z + plane + where, mask=there[:, None], other=0.0).to(tl.float32)
    return value


@triton.jit
def _dots_of(row_z, col_z, row, at, row_plane, col_plane, there, E: tl.constexpr, D: tl.constexpr, DC: tl.constexpr, SPLIT: tl.constexpr):
    """(E,) dot products of the point of one row and those at some positions."""
    dots = tl.zeros([E], tl.float32)
    one = tl.zeros([1], tl.int32)
    for chunk in range(0, D, DC):
        mine = _point(row_z, one + row, chunk, row_plane, one == 0, D, DC, SPLIT)
        dots += tl.sum(mine * _point(col_z, at, chunk, col_plane, there, D, DC, SPLIT), 1)
    return dots


@triton.jit(do_not_specialize=["last_part"])
def listed_sums_kernel(
    row_z, col_z, col_bias, scalars, pair_columns, kinds, begins, first, n, row_padded, col_padded, last_part,
    D: tl.constexpr, DC: tl.constexpr, SPLIT: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """The log-sum of one query over its listed references."""
    row = tl.program_id(0)
    begin, last = tl.load(begins + row), tl.load(begins + last_part.to(tl.int64) * n + row)
    per_dot = tl.load(scalars)
    row_plane, col_plane = row_padded.to(tl.int64) * D, col_padded.to(tl.int64) * D
    top, total = tl.full([1], LOWEST, tl.float32), tl.zeros([1], tl.float32)
    for start in range(begin, last, E):
        entry = start + tl.arange(0, E)
        at = tl.load(pair_columns + entry, mask=entry < last, other=0)
        flag = _flags(pair_columns, kinds, entry, at, begin, last)
        positive = (flag & (_LISTED | _SKIPPED)) == _LISTED
        dots = _dots_of(row_z, col_z, row, at, row_plane, col_plane, positive, E, D, DC, SPLIT)
        u = tl.where(positive, dots * per_dot - tl.load(col_bias + at), float("-inf"))
        new = tl.maximum(top, tl.max(u, 0))
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(u - new), 0)
        top = new
    tl.store(first + row + tl.arange(0, 1), log_sum(top, total))


@triton.jit
def _weight(u, flag, first, second, pull):
    """W of some pairs, from the two bits of the owner."""
    listed = (flag & _LISTED) != 0
    weight = tl.where(listed, -pull, pull) * tl.exp2(u - tl.where(listed, first, second))
    return tl.where((flag & _SKIPPED) != 0, 0.0, weight)


@triton.jit(do_not_specialize=["last_part"])
def listed_gradients_kernel(
    row_z, row_bias, col_z, col_bias, scalars, pair_columns, kinds, begins, first, second, pull, out,
    row_count, d, row_padded, col_padded, last_part,
    D: tl.constexpr, DC: tl.constexpr, SPLIT: tl.constexpr, ROLE: tl.constexpr, SQUARED: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """Add the single pairs of one row to DC dimensions of its gradient; the roles are those of `triton_gradients.py`."""
    row, chunk = tl.program_id(0), tl.program_id(1) * DC
    begin, last = tl.load(begins + row), tl.load(begins + last_part.to(tl.int64) * row_count + row)
    per_dot = tl.load(scalars)
    row_plane, col_plane = row_padded.to(tl.int64) * D, col_padded.to(tl.int64) * D
    one = tl.zeros([1], tl.int32)
    own = _point(row_z, one + row, chunk, row_plane, one == 0, D, DC, SPLIT)
    acc = tl.zeros([DC], tl.float32)
    for start in range(begin, last, E):
        entry = start + tl.arange(0, E)
        at = tl.load(pair_columns + entry, mask=entry < last, other=0)
        flag = _flags(pair_columns, kinds, entry, at, begin, last)
        there = flag != 0
        dots = per_dot * _dots_of(row_z, col_z, row, at, row_plane, col_plane, there, E, D, DC, SPLIT)
        h = tl.zeros([E], tl.float32)
        if ROLE != 1:
            h += _weight(dots - tl.load(col_bias + at), flag, tl.load(first + row), tl.load(second + row), tl.load(pull + row))
        if ROLE != 0:
            h += _weight(dots - tl.load(row_bias + row), flag // _THEIRS, tl.load(first + at), tl.load(second + at), tl.load(pull + at))
        h = tl.where(there, h, 0.0)
        other = _point(col_z, at, chunk, col_plane, there, D, DC, SPLIT)
        if SQUARED:
            other = 2.0 * (other - own)
        acc += tl.sum(h[:, None] * other, 0)
    dimensions = chunk + tl.arange(0, DC)
    place = out + row.to(tl.int64) * d + dimensions
    inside = dimensions < d
    factor = tl.load(scalars + (2 if ROLE == 0 else 1))
    tl.store(place, tl.load(place, mask=inside, other=0.0) + acc * factor, mask=inside)
