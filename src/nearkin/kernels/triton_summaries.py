"""Summaries of all queries in one pass: two running log-sum-exps per row, row-parallel and without atomics.

Each program owns a block of queries and a range of reference tiles, and visits the range twice. The hot loop takes tiles of one
kind (all positive or all negative, none skipped); it has no branch and no mask, and a mixed tile passes through it with
weight 2^-inf. The second loop takes the mixed tiles: class borders and skipped pairs. It works on slivers of BS columns, so
that its masks do not cost the hot loop registers. With lists there is no second loop: listed and skipped pairs are masked in
the first, and are added in `triton_single_pairs.py`.

The |q|^2 of a query is part of all of its affinities and is left out of its log-sums, which are of 2 q.r - |r|^2: far from the
center it would cost their last digits, and it cancels in everything that is computed from them.
"""
# mypy: ignore-errors
# ruff: noqa: N803, PLR0912, PLR0915

import triton
import triton.language as tl

from nearkin.kernels.triton_prepare import _LISTED, _TARGETS
from nearkin.kernels.triton_single_pairs import mask_pairs
from nearkin.kernels.triton_tiles import LOWEST, _among, _column_tile, _costs, _dots, _in_span, _mixed_range, _points, log_sum


@triton.jit
def _grown(top, total, u, gate):
    """Add one tile to a running log-sum-exp (top, total); a gate of +inf leaves it unchanged."""
    new = tl.maximum(top, tl.max(u, 1) - gate)
    e = tl.exp2(u - (new + gate)[:, None])
    return new, total * tl.exp2(top - new), e


@triton.jit(do_not_specialize=["n", "width", "tiles", "tiles_each"])
def summaries_kernel(
    row_z, row_y, col_z, col_bias, col_y, scalars, plan, span, skip, pair_columns, begins, most_pairs, first, second,
    n, row_padded, col_padded, width, tiles, tiles_each, skip_each,
    D: tl.constexpr, DC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BS: tl.constexpr, G: tl.constexpr, T: tl.constexpr,
    MODE: tl.constexpr, SPLIT: tl.constexpr, INPUT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Both summaries of BM queries over a range of references; part s of a split goes to row s of the outputs."""
    row0 = tl.program_id(0) * BM
    from_tile = tl.program_id(1) * tiles_each
    to_tile = tl.minimum(from_tile + tiles_each, tiles)
    rows = row0 + tl.arange(0, BM)
    row_plane, col_plane = row_padded.to(tl.int64) * D, col_padded.to(tl.int64) * D
    a = _points(row_z, row0, 0, D, BM, DC)
    a_low = a
    if SPLIT:
        a_low = _points(row_z, row0, row_plane, D, BM, DC)
    per_dot = tl.load(scalars)
    kinds = plan + (row0 // G).to(tl.int64) * width
    # Labels: the sums over positives and negatives; targets: one sum, and in `positive_total` its cost-weighted twin.
    top, total = tl.full([BM], LOWEST, tl.float32), tl.zeros([BM], tl.float32)
    positive_top, positive_total = top, total
    if MODE == _LISTED:
        at = begins + tl.program_id(1).to(tl.int64) * n + rows
        cursor, last = tl.load(at, mask=rows < n, other=0), tl.load(at + n, mask=rows < n, other=0)

    for tile in tl.range(from_tile, to_tile, num_stages=STAGES):
        start = tile * BN
        b, b_low, _ = _column_tile(col_z, col_z, start, 0, col_plane, col_padded, D, DC, BN, 0, SPLIT, False)
        columns = start + tl.arange(0, BN)
        bias = tl.load(col_bias + columns)
        kind = tl.load(kinds + start // G)
        gate = tl.where(kind == 2, float("inf"), 0.0)
        dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BN, SPLIT, INPUT)
        u = dots * per_dot - bias[None, :]
        if MODE == _TARGETS:
            new, scaled, e = _grown(top, total, u, gate)
            positive_total = positive_total * tl.exp2(top - new)
            positive_total += tl.sum(e * _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BN, T), 1)
            top, total = new, scaled + tl.sum(e, 1)
        elif MODE == _LISTED:
            u, cursor = mask_pairs(
                u, float("-inf"), columns, start + BN, pair_columns, cursor, last, most_pairs + tl.program_id(0) * tiles + tile
            )
            top, total, e = _grown(top, total, u, gate)
            total += tl.sum(e, 1)
        else:
            positive = kind == 1
            new, sums, e = _grown(tl.where(positive, positive_top, top), tl.where(positive, positive_total, total), u, gate)
            sums += tl.sum(e, 1)
            positive_top, positive_total = tl.where(positive, new, positive_top), tl.where(positive, sums, positive_total)
            top, total = tl.where(positive, top, new), tl.where(positive, total, sums)

    begin, end = from_tile, from_tile
    if MODE != _LISTED:
        begin, end = _mixed_range(kinds, 1, from_tile, to_tile, BN, G)
    for tile in tl.range(begin * (BN // BS), end * (BN // BS), num_stages=1):
        start = tile * BS
        if tl.load(kinds + start // G) == 2:
            b, b_low, _ = _column_tile(col_z, col_z, start, 0, col_plane, col_padded, D, DC, BS, 0, SPLIT, False)
            columns = start + tl.arange(0, BS)
            dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BS, SPLIT, INPUT)
            u = dots * per_dot - tl.load(col_bias + columns)[None, :]
            u = tl.where(_among(skip, skip_each, rows, columns, n, False, BM, BS), float("-inf"), u)
            if MODE == _TARGETS:
                new, scaled, e = _grown(top, total, u, 0.0)
                positive_total = positive_total * tl.exp2(top - new)
                positive_total += tl.sum(e * _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BS, T), 1)
                top, total = new, scaled + tl.sum(e, 1)
            else:
                positive = _in_span(span, rows, columns, n, False)
                top, total, e = _grown(top, total, tl.where(positive, float("-inf"), u), 0.0)
                total += tl.sum(e, 1)
                positive_top, positive_total, e = _grown(positive_top, positive_total, tl.where(positive, u, float("-inf")), 0.0)
                positive_total += tl.sum(e, 1)

    at = tl.program_id(1).to(tl.int64) * n + rows
    if MODE == _TARGETS:
        tl.store(first + at, log_sum(top, total), mask=rows < n)
        mean = tl.where(total == 0, 0.0, positive_total / total) * tl.load(scalars + 4)
        tl.store(second + at, mean, mask=rows < n)
    else:
        tl.store(first + at, log_sum(positive_top, positive_total), mask=rows < n)
        tl.store(second + at, log_sum(top, total), mask=rows < n)


@triton.jit(do_not_specialize=["n", "parts"])
def merge_kernel(first_parts, second_parts, first, second, n, parts, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """Merge the summaries of the parts of a split, in order."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = rows < n
    top, total = tl.full([BLOCK], LOWEST, tl.float32), tl.zeros([BLOCK], tl.float32)
    other_top, other = top, total
    for part in range(parts):
        at = part * n.to(tl.int64) + rows
        x = tl.load(first_parts + at, mask=there, other=float("-inf"))
        y = tl.load(second_parts + at, mask=there, other=float("-inf"))
        new = tl.maximum(top, x)
        e = tl.exp2(x - new)
        if MODE == _TARGETS:
            other = other * tl.exp2(top - new) + e * y
        else:
            other_new = tl.maximum(other_top, y)
            other = other * tl.exp2(other_top - other_new) + tl.exp2(y - other_new)
            other_top = other_new
        total = total * tl.exp2(top - new) + e
        top = new
    tl.store(first + rows, log_sum(top, total), mask=there)
    if MODE == _TARGETS:
        tl.store(second + rows, tl.where(total == 0, 0.0, other / total), mask=there)
    else:
        tl.store(second + rows, log_sum(other_top, other), mask=there)
