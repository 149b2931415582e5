"""Gradients of all points in one pass, row-parallel and without atomics; organized like `triton_summaries.py`.

A tile holds H_ab, the weight of row point a and column point b, and adds H Z_b - rowsum(H) z_a to a's row:

    ROLE 0  rows are queries, columns references     H_ab = W_ab
    ROLE 1  rows are references, columns queries     H_ab = W_ba
    ROLE 2  the queries are their own references     H_ab = W_ab + W_ba = 2^(s - c) (A_a + A_b)

A shift is a query's log-sum without its own norm, so that s - (shift_q - |q|^2) = 2 q.r - |r|^2 - shift_q: the query's norm
is in no exponent. In role 2 c is the middle of shift - norm over the column block and A_a = pull_a 2^(c + |z_a|^2 - shift_a): one
exp2 per pair. Where the shifts differ too much for that, `spread_kernel` marks the tile as mixed, or selects two exps in the hot
loop.
"""
# mypy: ignore-errors
# ruff: noqa: N803, PLR0912, PLR0915, SIM102, SIM108

import triton
import triton.language as tl

from nearkin.kernels.triton_prepare import _CAST, _LISTED, _TARGETS, _TF32, to_tf32
from nearkin.kernels.triton_single_pairs import first_pair_from, mask_pairs
from nearkin.kernels.triton_tiles import _among, _column_tile, _costs, _dots, _in_span, _mixed_range, _points


@triton.jit
def _accumulated(acc, h, b, b_low, b_turned, ROUND: tl.constexpr, SPLIT: tl.constexpr, INPUT: tl.constexpr):
    """acc + h b, with h rounded as the points are."""
    if ROUND == _CAST:
        high = h.to(b.dtype)
        if SPLIT:
            low = (h - high.to(tl.float32)).to(b.dtype)
            acc = tl.dot(low, b, acc)
            acc = tl.dot(high, b_low, acc)
        acc = tl.dot(high, b, acc)
    else:
        if ROUND == _TF32:
            h = to_tf32(h)
        acc = tl.dot(h, tl.trans(b_turned), acc, input_precision=INPUT)
    return acc


@triton.jit
def _outgoing(
    u, cost, first, second, weight, span, skip, skip_each, owners, others, count,
    MODE: tl.constexpr, DOWN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """W of a mixed tile (BM, BN), whose owners (the queries) are the rows, or the columns if DOWN; u = 2 q.r - |r|^2.

    With lists every pair is a negative here; the single pairs are masked afterwards.
    """
    if DOWN:
        first, second, weight = first[None, :], second[None, :], weight[None, :]
    else:
        first, second, weight = first[:, None], second[:, None], weight[:, None]
    if MODE == _TARGETS:
        x = u - first
        weight = weight * (cost - second)
    elif MODE == _LISTED:
        x = u - second
    else:
        positive = _in_span(span, owners, others, count, DOWN)
        x = u - tl.where(positive, first, second)
        weight = tl.where(positive, -weight, weight)
    if MODE != _LISTED:
        x = tl.where(_among(skip, skip_each, owners, others, count, DOWN, BM, BN), float("-inf"), x)
    return tl.exp2(x) * weight


@triton.jit
def _one_exp(
    dots, cost, columns, kind, block, per_dot, col_bias, table, stats, line, blocks, row_norm, shift, other, weight,
    MODE: tl.constexpr, ROLE: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """H of a tile whose pairs are all of one kind; 0 for a mixed one."""
    positive = (kind == 1).to(tl.int32)
    gate = tl.where(kind == 2, float("inf"), 0.0)
    row_shift = shift
    if MODE != _TARGETS:
        row_shift = tl.where(positive == 1, shift, other)
    sign = 1.0 - 2.0 * positive
    if ROLE == 1:
        # The norm first, as in the summary: a query with one close reference then gives it a weight of exactly 1.
        e = tl.exp2(dots * per_dot - (row_norm + gate)[:, None] - tl.load(table + positive * line + columns)[None, :])
        if MODE == _TARGETS:
            h = e * (cost * tl.load(table + 4 * line + columns)[None, :] - tl.load(table + 5 * line + columns)[None, :])
        else:
            h = e * tl.load(table + (4 + positive) * line + columns)[None, :]
    elif ROLE == 0:
        e = tl.exp2(dots * per_dot - tl.load(col_bias + columns)[None, :] - (row_shift + gate - HEIGHT)[:, None])
        if MODE == _TARGETS:
            h = e * (cost - other[:, None])
        else:
            h = e * sign
    else:
        middle = tl.load(stats + positive * blocks + block)
        # Its rounding affects only the columns' share, and is no larger than that of the exponent itself.
        level = row_norm + middle
        mine = sign * weight * tl.exp2(tl.minimum(level - row_shift, 100.0))  # in a mixed tile it may be large, but must be finite
        theirs = tl.load(table + (2 + positive) * line + columns)
        e = tl.exp2(dots * per_dot - tl.load(col_bias + columns)[None, :] - (level + gate)[:, None])
        h = mine[:, None] + theirs[None, :]
        if MODE == _TARGETS:
            h = cost * h - ((mine * other)[:, None] + tl.load(table + 3 * line + columns)[None, :])
        h = e * h
    return h


@triton.jit
def _two_exps(dots, cost, columns, kind, per_dot, col_bias, table, line, row_norm, shift, other, weight, MODE: tl.constexpr):
    """The same for own references whose shifts differ too much to share an exp."""
    positive = (kind == 1).to(tl.int32)
    gate = tl.where(kind == 2, float("inf"), 0.0)
    scaled = dots * per_dot
    theirs = tl.exp2(scaled - (row_norm + gate)[:, None] - tl.load(table + positive * line + columns)[None, :])
    row_shift = shift
    if MODE != _TARGETS:
        row_shift = tl.where(positive == 1, shift, other)
    mine = tl.exp2(scaled - tl.load(col_bias + columns)[None, :] - (row_shift + gate)[:, None])
    if MODE == _TARGETS:
        back = cost * tl.load(table + 4 * line + columns)[None, :] - tl.load(table + 5 * line + columns)[None, :]
        h = mine * (weight[:, None] * (cost - other[:, None])) + theirs * back
    else:
        h = mine * ((1.0 - 2.0 * positive) * weight)[:, None] + theirs * tl.load(table + (4 + positive) * line + columns)[None, :]
    return h


@triton.jit(do_not_specialize=["row_count", "col_count", "blocks", "width", "tiles", "tiles_each"])
def gradients_kernel(
    row_z, row_bias, row_y, col_z, col_zt, col_bias, col_y, table, stats, wide, scalars, plan, span, skip, pair_columns, begins, most_pairs,
    first, second, pull, out, row_count, col_count, d, row_padded, col_padded, blocks, width, tiles, tiles_each, skip_each,
    D: tl.constexpr, DC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BS: tl.constexpr, G: tl.constexpr, T: tl.constexpr,
    MODE: tl.constexpr, ROLE: tl.constexpr, SQUARED: tl.constexpr, ROUND: tl.constexpr, SPLIT: tl.constexpr, FINE: tl.constexpr,
    INPUT: tl.constexpr, HEIGHT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradient of BM rows over a range of columns, DC of their dimensions; part s of a split goes to plane s of `out`.

    `blocks` counts the query blocks. SPLIT: affinities from split operands; FINE: the products H Z too.
    """
    row0 = tl.program_id(0) * BM
    from_tile = tl.program_id(1) * tiles_each
    to_tile = tl.minimum(from_tile + tiles_each, tiles)
    chunk = tl.program_id(2) * DC
    rows = row0 + tl.arange(0, BM)
    there = rows < row_count
    row_plane, col_plane, line = row_padded.to(tl.int64) * D, col_padded.to(tl.int64) * D, col_padded.to(tl.int64)
    a = _points(row_z, row0, 0, D, BM, DC)
    a_low = a
    if SPLIT:
        a_low = _points(row_z, row0, row_plane, D, BM, DC)
    per_dot = tl.load(scalars)
    row_norm = tl.load(row_bias + rows)
    # kinds + block * step is the kind of a tile, whether the queries are rows or columns.
    if ROLE == 1:
        kinds, step = plan + row0 // G, width
        shift, other, weight = row_norm, row_norm, row_norm
    else:
        kinds, step = plan + (row0 // G).to(tl.int64) * width, 1
        shift = tl.load(first + rows, mask=there, other=0.0)
        other = tl.load(second + rows, mask=there, other=0.0)
        if MODE == _TARGETS:
            other = other / tl.load(scalars + 4)
        # With queries as rows only, the pull is a factor of the whole row and is applied at the end.
        weight = tl.full([BM], 2.0**HEIGHT, tl.float32)
        if ROLE == 2:
            weight = tl.load(pull + rows, mask=there, other=0.0) / tl.load(scalars + 3)
    acc = tl.zeros([BM, DC], tl.float32)
    sums = tl.zeros([BM], tl.float32)
    if MODE == _LISTED:
        at = begins + tl.program_id(1).to(tl.int64) * row_count + rows
        cursor, last = tl.load(at, mask=there, other=0), tl.load(at + row_count, mask=there, other=0)
        most_pairs_of = most_pairs + tl.program_id(0) * tiles

    far = 0
    if ROLE == 2:
        far = tl.load(wide + row0 // G)
    if far == 0:
        for tile in tl.range(from_tile, to_tile, num_stages=STAGES):
            start = tile * BN
            columns = start + tl.arange(0, BN)
            b, b_low, b_turned = _column_tile(col_z, col_zt, start, chunk, col_plane, col_padded, D, DC, BN, ROUND, SPLIT, True)
            kind = tl.load(kinds + start // G * step)
            dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BN, SPLIT, INPUT)
            cost = _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BN, T)
            h = _one_exp(
                dots, cost, columns, kind, start // G, per_dot, col_bias, table, stats, line, blocks, row_norm, shift, other, weight,
                MODE, ROLE, HEIGHT,
            )  # fmt: skip
            if MODE == _LISTED:
                h, cursor = mask_pairs(h, 0.0, columns, start + BN, pair_columns, cursor, last, most_pairs_of + tile)
            if SQUARED:
                sums += tl.sum(h, 1)
            acc = _accumulated(acc, h, b, b_low, b_turned, ROUND, FINE, INPUT)
    if ROLE == 2:
        if far != 0:
            for tile in tl.range(from_tile, to_tile, num_stages=STAGES):
                start = tile * BN
                columns = start + tl.arange(0, BN)
                b, b_low, b_turned = _column_tile(col_z, col_zt, start, chunk, col_plane, col_padded, D, DC, BN, ROUND, SPLIT, True)
                kind = tl.load(kinds + start // G * step)
                dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BN, SPLIT, INPUT)
                cost = _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BN, T)
                h = _two_exps(dots, cost, columns, kind, per_dot, col_bias, table, line, row_norm, shift, other, weight, MODE)
                if MODE == _LISTED:
                    h, cursor = mask_pairs(h, 0.0, columns, start + BN, pair_columns, cursor, last, most_pairs_of + tile)
                if SQUARED:
                    sums += tl.sum(h, 1)
                acc = _accumulated(acc, h, b, b_low, b_turned, ROUND, FINE, INPUT)

    begin, end = _mixed_range(kinds, step, from_tile, to_tile, BN, G)
    for tile in tl.range(begin * (BN // BS), end * (BN // BS), num_stages=1):
        start = tile * BS
        if tl.load(kinds + start // G * step) == 2:
            columns = start + tl.arange(0, BS)
            inside = columns < col_count
            b, b_low, b_turned = _column_tile(col_z, col_zt, start, chunk, col_plane, col_padded, D, DC, BS, ROUND, SPLIT, True)
            dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BS, SPLIT, INPUT)
            cost = _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BS, T)
            h = tl.zeros([BM, BS], tl.float32)
            if ROLE != 1:
                h = _outgoing(
                    dots * per_dot - tl.load(col_bias + columns)[None, :], cost, shift, other, weight,
                    span, skip, skip_each, rows, columns, row_count, MODE, False, BM, BS,
                )  # fmt: skip
            if ROLE != 0:
                col_shift = tl.load(first + columns, mask=inside, other=0.0)
                col_other = tl.load(second + columns, mask=inside, other=0.0)
                if MODE == _TARGETS:
                    col_other = col_other / tl.load(scalars + 4)
                h += _outgoing(
                    dots * per_dot - row_norm[:, None], cost, col_shift, col_other, tl.load(table + 4 * line + columns),
                    span, skip, skip_each, columns, rows, col_count, MODE, True, BM, BS,
                )  # fmt: skip
            if MODE == _LISTED:
                # The cursor of the hot loop is past these pairs.
                earlier = tl.load(begins + tl.program_id(1).to(tl.int64) * row_count + rows, mask=there, other=0)
                h, _ = mask_pairs(
                    h,
                    0.0,
                    columns,
                    start + BS,
                    pair_columns,
                    first_pair_from(pair_columns, earlier, last, start),
                    last,
                    most_pairs_of + start // BN,
                )
            if SQUARED:
                sums += tl.sum(h, 1)
            acc = _accumulated(acc, h, b, b_low, b_turned, ROUND, FINE, INPUT)

    factor = tl.load(scalars + (2 if ROLE == 0 else 1))
    if MODE == _TARGETS:
        factor *= tl.load(scalars + 4)
    if SQUARED:
        value = _points(row_z + chunk, row0, 0, D, BM, DC).to(tl.float32)
        if FINE:
            value += _points(row_z + chunk, row0, row_plane, D, BM, DC).to(tl.float32)
        acc = 2.0 * (acc - sums[:, None] * value)
    if ROLE == 0:
        row_factor = tl.load(pull + rows, mask=there, other=0.0) * (factor * 0.5**HEIGHT)
        acc = acc * row_factor[:, None]
    else:
        acc = acc * (factor * tl.load(scalars + 3))
    dimensions = chunk + tl.arange(0, DC)
    at = (tl.program_id(1).to(tl.int64) * row_count + rows)[:, None] * d + dimensions[None, :]
    tl.store(out + at, acc, mask=there[:, None] & (dimensions < d)[None, :])
