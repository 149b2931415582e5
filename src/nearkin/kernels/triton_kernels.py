"""The two passes over all pairs as Triton kernels: row-parallel, without atomics, so that results are deterministic.

Each program owns a block of rows and a range of column tiles, and goes over the range twice. The hot loop takes tiles
in which every pair is alike (all right, or all wrong, nobody skipped); it has no branch and no mask, and a tile of the
other sort passes through it with weight 2^-inf. The second loop takes those: class borders, skipped and listed pairs,
and, where one exp must serve two queries, tiles whose shifts lie too far apart for it. It works on slivers of BS
columns, so that its masks do not cost the hot loop registers.

A gradient tile holds H_ab, the weight of row point a and column point b, and adds H Z_b - rowsum(H) z_a to a's row:

    ROLE 0  rows are queries, columns references     H_ab = W_ab
    ROLE 1  rows are references, columns queries     H_ab = W_ba
    ROLE 2  the queries are their own references     H_ab = W_ab + W_ba = 2^(s - c) (A_a + A_b)

where in role 2 c is the middle of the column block's shifts and A_a = pull_a 2^(c - shift_a): one exp2 per pair.
"""
# mypy: ignore-errors
# ruff: noqa: N803, N806, D103

import triton
import triton.language as tl

from nearkin.kernels.triton_prepare import _CAST, _LISTED, _SPAN, _TARGETS, _TF32, to_tf32

_SCAN = tl.constexpr(256)
_MANY = tl.constexpr(1 << 24)  # tiles; times slivers it must still fit 32 bits
_LOWEST = tl.constexpr(-1e30)  # below any affinity, yet finite: the difference of two is no nan


@triton.jit
def _points(z, start, low_plane, stride: tl.constexpr, BN: tl.constexpr, DC: tl.constexpr):
    """A tile of points (BN, DC) from row `start` on."""
    at = tl.arange(0, BN)[:, None] * stride + tl.arange(0, DC)[None, :]
    return tl.load(z + start.to(tl.int64) * stride + low_plane + at)


@triton.jit
def _product(a, a_low, b, b_low, SPLIT: tl.constexpr, INPUT: tl.constexpr):
    """a b^T; split operands leave out low x low. The sum starts at 0, with the small terms: norms are subtracted last."""
    if SPLIT:
        dots = tl.dot(a_low, tl.trans(b))
        dots = tl.dot(a, tl.trans(b_low), dots)
        dots = tl.dot(a, tl.trans(b), dots)
    else:
        dots = tl.dot(a, tl.trans(b), input_precision=INPUT)
    return dots


@triton.jit
def _dots(
    a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start,
    D: tl.constexpr, DC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SPLIT: tl.constexpr, INPUT: tl.constexpr,
):  # fmt: skip
    """Dot products (BM, BN) of a row block and a column tile; long points in chunks, which are loaded here."""
    if D == DC:
        dots = _product(a, a_low, b, b_low, SPLIT, INPUT)
    else:
        dots = tl.zeros([BM, BN], tl.float32)
        for chunk in range(0, D, DC):
            p = _points(row_z + chunk, row0, 0, D, BM, DC)
            q = _points(col_z + chunk, start, 0, D, BN, DC)
            p_low, q_low = p, q
            if SPLIT:
                p_low = _points(row_z + chunk, row0, row_plane, D, BM, DC)
                q_low = _points(col_z + chunk, start, col_plane, D, BN, DC)
            dots += _product(p, p_low, q, q_low, SPLIT, INPUT)
    return dots


@triton.jit
def _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM: tl.constexpr, BN: tl.constexpr, T: tl.constexpr):
    """Squared distances of the scaled targets (BM, BN)."""
    cost = tl.zeros([BM, BN], tl.float32)
    for c in tl.static_range(T):
        difference = tl.load(row_y + c * row_padded + rows)[:, None] - tl.load(col_y + c * col_padded + columns)[None, :]
        cost += difference * difference
    return cost


@triton.jit
def _among(positions, each, owners, others, count, DOWN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """(BM, BN): is the other point among its owner's positions? Owners are the rows, or the columns if DOWN."""
    found = tl.zeros([BM, BN], tl.int1)
    for e in range(each):
        position = tl.load(positions + owners.to(tl.int64) * each + e, mask=owners < count, other=-1).to(tl.int32)
        if DOWN:
            found = found | (position[None, :] == others[:, None])
        else:
            found = found | (position[:, None] == others[None, :])
    return found


@triton.jit
def _is_right(span, listed, listed_each, owners, others, count, MODE: tl.constexpr, DOWN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """(BM, BN): is the other point a right reference of its owner?"""
    if MODE == _LISTED:
        right = _among(listed, listed_each, owners, others, count, DOWN, BM, BN)
    else:
        low = tl.load(span + owners.to(tl.int64) * 2, mask=owners < count, other=0).to(tl.int32)
        high = tl.load(span + owners.to(tl.int64) * 2 + 1, mask=owners < count, other=0).to(tl.int32)
        if DOWN:
            right = (others[:, None] >= low[None, :]) & (others[:, None] < high[None, :])
        else:
            right = (others[None, :] >= low[:, None]) & (others[None, :] < high[:, None])
    return right


@triton.jit
def _grown(top, total, u, gate):
    """A running log-sum-exp (top, total) after one more tile; a gate of +inf leaves it as it was."""
    new = tl.maximum(top, tl.max(u, 1) - gate)
    e = tl.exp2(u - (new + gate)[:, None])
    return new, total * tl.exp2(top - new), e


@triton.jit
def _log_sum(top, total, bias):
    return tl.where(total > 0, top + tl.log2(tl.where(total > 0, total, 1.0)) - bias, float("-inf"))


@triton.jit
def _mixed_range(kinds, step, from_tile, to_tile, BN: tl.constexpr, G: tl.constexpr):
    """The first mixed tile and the one after the last: mostly a short stretch about the rows' own class."""
    begin, end = from_tile + _MANY, from_tile
    for start in range(from_tile, to_tile, _SCAN):
        at = start + tl.arange(0, _SCAN)
        mixed = tl.load(kinds + at * BN // G * step, mask=at < to_tile, other=0) == 2
        begin = tl.minimum(begin, tl.min(tl.where(mixed, at, _MANY), 0))
        end = tl.maximum(end, tl.max(tl.where(mixed, at + 1, 0), 0))
    return begin, end


@triton.jit(do_not_specialize=["n", "width", "tiles", "tiles_each"])
def summaries_kernel(
    row_z, row_bias, row_y, col_z, col_bias, col_y, scalars, plan, span, listed, skip, first, second,
    n, row_padded, col_padded, width, tiles, tiles_each, listed_each, skip_each,
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
    # Labels: the sums over right and wrong ones; targets: one sum, and in `right` its cost-weighted twin.
    top, total = tl.full([BM], _LOWEST, tl.float32), tl.zeros([BM], tl.float32)
    right_top, right_total = top, total

    for tile in tl.range(from_tile, to_tile, num_stages=STAGES):
        start = tile * BN
        b = _points(col_z, start, 0, D, BN, DC)
        b_low = b
        if SPLIT:
            b_low = _points(col_z, start, col_plane, D, BN, DC)
        columns = start + tl.arange(0, BN)
        bias = tl.load(col_bias + columns)
        kind = tl.load(kinds + start // G)
        gate = tl.where(kind == 2, float("inf"), 0.0)
        dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BN, SPLIT, INPUT)
        u = dots * per_dot - bias[None, :]
        if MODE == _TARGETS:
            new, scaled, e = _grown(top, total, u, gate)
            right_total = right_total * tl.exp2(top - new)
            right_total += tl.sum(e * _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BN, T), 1)
            top, total = new, scaled + tl.sum(e, 1)
        elif MODE == _LISTED:
            top, total, e = _grown(top, total, u, gate)
            total += tl.sum(e, 1)
        else:
            right = kind == 1
            new, sums, e = _grown(tl.where(right, right_top, top), tl.where(right, right_total, total), u, gate)
            sums += tl.sum(e, 1)
            right_top, right_total = tl.where(right, new, right_top), tl.where(right, sums, right_total)
            top, total = tl.where(right, top, new), tl.where(right, total, sums)

    begin, end = _mixed_range(kinds, 1, from_tile, to_tile, BN, G)
    for tile in tl.range(begin * (BN // BS), end * (BN // BS), num_stages=1):
        start = tile * BS
        if tl.load(kinds + start // G) == 2:
            b = _points(col_z, start, 0, D, BS, DC)
            b_low = b
            if SPLIT:
                b_low = _points(col_z, start, col_plane, D, BS, DC)
            columns = start + tl.arange(0, BS)
            dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BS, SPLIT, INPUT)
            u = dots * per_dot - tl.load(col_bias + columns)[None, :]
            u = tl.where(_among(skip, skip_each, rows, columns, n, False, BM, BS), float("-inf"), u)
            if MODE == _TARGETS:
                new, scaled, e = _grown(top, total, u, 0.0)
                right_total = right_total * tl.exp2(top - new)
                right_total += tl.sum(e * _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BS, T), 1)
                top, total = new, scaled + tl.sum(e, 1)
            else:
                right = _is_right(span, listed, listed_each, rows, columns, n, MODE, False, BM, BS)
                top, total, e = _grown(top, total, tl.where(right, float("-inf"), u), 0.0)
                total += tl.sum(e, 1)
                right_top, right_total, e = _grown(right_top, right_total, tl.where(right, u, float("-inf")), 0.0)
                right_total += tl.sum(e, 1)

    row_norm = tl.load(row_bias + rows)
    at = tl.program_id(1).to(tl.int64) * n + rows
    if MODE == _TARGETS:
        tl.store(first + at, _log_sum(top, total, row_norm), mask=rows < n)
        mean = tl.where(total > 0, right_total / total, 0.0) * tl.load(scalars + 4)
        tl.store(second + at, mean, mask=rows < n)
    else:
        tl.store(first + at, _log_sum(right_top, right_total, row_norm), mask=rows < n)
        tl.store(second + at, _log_sum(top, total, row_norm), mask=rows < n)


@triton.jit(do_not_specialize=["n", "parts"])
def merge_kernel(first_parts, second_parts, first, second, n, parts, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """Summaries of the parts of a split, in order, as one."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = rows < n
    top, total = tl.full([BLOCK], _LOWEST, tl.float32), tl.zeros([BLOCK], tl.float32)
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
    tl.store(first + rows, _log_sum(top, total, 0.0), mask=there)
    if MODE == _TARGETS:
        tl.store(second + rows, tl.where(total > 0, other / total, 0.0), mask=there)
    else:
        tl.store(second + rows, _log_sum(other_top, other, 0.0), mask=there)


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
def _turned(zt, start, chunk, padded, BN: tl.constexpr, DC: tl.constexpr):
    """A tile of transposed points (DC, BN)."""
    at = tl.arange(0, DC)[:, None] * padded + tl.arange(0, BN)[None, :]
    return tl.load(zt + chunk * padded.to(tl.int64) + start + at)


@triton.jit
def _outgoing(
    s, cost, first, second, weight, span, listed, skip, listed_each, skip_each, owners, others, count,
    MODE: tl.constexpr, DOWN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """W of a mixed tile (BM, BN), whose owners (the queries) are the rows, or the columns if DOWN."""
    if DOWN:
        first, second, weight = first[None, :], second[None, :], weight[None, :]
    else:
        first, second, weight = first[:, None], second[:, None], weight[:, None]
    if MODE == _TARGETS:
        x = s - first
        weight = weight * (cost - second)
    else:
        right = _is_right(span, listed, listed_each, owners, others, count, MODE, DOWN, BM, BN)
        x = s - tl.where(right, first, second)
        weight = tl.where(right, -weight, weight)
    x = tl.where(_among(skip, skip_each, owners, others, count, DOWN, BM, BN), float("-inf"), x)
    return tl.exp2(x) * weight


@triton.jit
def _column_tile(
    col_z, col_zt, start, chunk, plane, padded, D: tl.constexpr, DC: tl.constexpr, BN: tl.constexpr, ROUND: tl.constexpr, SPLIT: tl.constexpr
):
    """A tile of column points: as rounded, what the rounding left, and transposed; the latter two where there are such."""
    b = _points(col_z + chunk, start, 0, D, BN, DC)
    b_low, b_turned = b, b
    if SPLIT:
        b_low = _points(col_z + chunk, start, plane, D, BN, DC)
    if ROUND != _CAST:
        b_turned = _turned(col_zt, start, chunk, padded, BN, DC)
    return b, b_low, b_turned


@triton.jit
def _one_exp(
    dots, cost, columns, kind, block, per_dot, col_bias, table, stats, line, blocks, row_norm, shift, other, weight,
    MODE: tl.constexpr, ROLE: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """H of a tile whose pairs are all alike; 0 for a mixed one."""
    right = (kind == 1).to(tl.int32)
    gate = tl.where(kind == 2, float("inf"), 0.0)
    row_shift = shift
    if MODE != _TARGETS:
        row_shift = tl.where(right == 1, shift, other)
    sign = 1.0 - 2.0 * right
    if ROLE == 1:
        e = tl.exp2(dots * per_dot - tl.load(table + right * line + columns)[None, :] - (row_norm + gate)[:, None])
        if MODE == _TARGETS:
            h = e * (cost * tl.load(table + 4 * line + columns)[None, :] - tl.load(table + 5 * line + columns)[None, :])
        else:
            h = e * tl.load(table + (4 + right) * line + columns)[None, :]
    elif ROLE == 0:
        e = tl.exp2(dots * per_dot - tl.load(col_bias + columns)[None, :] - (row_norm + row_shift + gate - HEIGHT)[:, None])
        if MODE == _TARGETS:
            h = e * (cost - other[:, None])
        else:
            h = e * sign
    else:
        middle = tl.load(stats + right * blocks + block)
        mine = sign * weight * tl.exp2(tl.minimum(middle - row_shift, 100.0))  # a mixed tile's may be large, but must be finite
        theirs = tl.load(table + (2 + right) * line + columns)
        e = tl.exp2(dots * per_dot - tl.load(col_bias + columns)[None, :] - (row_norm + middle + gate)[:, None])
        h = mine[:, None] + theirs[None, :]
        if MODE == _TARGETS:
            h = cost * h - ((mine * other)[:, None] + tl.load(table + 3 * line + columns)[None, :])
        h = e * h
    return h


@triton.jit
def _two_exps(
    dots, cost, columns, kind, per_dot, col_bias, table, line, row_norm, shift, other, weight, MODE: tl.constexpr
):
    """The same for own references whose shifts lie too far apart to share an exp."""
    right = (kind == 1).to(tl.int32)
    gate = tl.where(kind == 2, float("inf"), 0.0)
    scaled = dots * per_dot
    theirs = tl.exp2(scaled - tl.load(table + right * line + columns)[None, :] - (row_norm + gate)[:, None])
    row_shift = shift
    if MODE != _TARGETS:
        row_shift = tl.where(right == 1, shift, other)
    mine = tl.exp2(scaled - tl.load(col_bias + columns)[None, :] - (row_norm + row_shift + gate)[:, None])
    if MODE == _TARGETS:
        back = cost * tl.load(table + 4 * line + columns)[None, :] - tl.load(table + 5 * line + columns)[None, :]
        h = mine * (weight[:, None] * (cost - other[:, None])) + theirs * back
    else:
        h = mine * ((1.0 - 2.0 * right) * weight)[:, None] + theirs * tl.load(table + (4 + right) * line + columns)[None, :]
    return h


@triton.jit(do_not_specialize=["row_count", "col_count", "blocks", "width", "tiles", "tiles_each"])
def gradients_kernel(
    row_z, row_bias, row_y, col_z, col_zt, col_bias, col_y, table, stats, wide, scalars, plan, span, listed, skip, first, second, pull, out,
    row_count, col_count, d, row_padded, col_padded, blocks, width, tiles, tiles_each, listed_each, skip_each,
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
    # kinds + block * step is the kind of a tile, whichever side the queries stand on.
    if ROLE == 1:
        kinds, step = plan + row0 // G, width
        shift, other, weight = row_norm, row_norm, row_norm
    else:
        kinds, step = plan + (row0 // G).to(tl.int64) * width, 1
        shift = tl.load(first + rows, mask=there, other=0.0)
        other = tl.load(second + rows, mask=there, other=0.0)
        if MODE == _TARGETS:
            other = other / tl.load(scalars + 4)
        # With queries in the rows alone, the pull is a factor of the whole row, left for the end.
        weight = tl.full([BM], 2.0**HEIGHT, tl.float32)
        if ROLE == 2:
            weight = tl.load(pull + rows, mask=there, other=0.0) / tl.load(scalars + 3)
    acc = tl.zeros([BM, DC], tl.float32)
    sums = tl.zeros([BM], tl.float32)

    far = 0
    if ROLE == 2:
        far = tl.load(wide + row0 // G)
    if far == 0:
        for tile in tl.range(from_tile, to_tile, num_stages=STAGES):
            start = tile * BN
            columns = start + tl.arange(0, BN)
            b, b_low, b_turned = _column_tile(col_z, col_zt, start, chunk, col_plane, col_padded, D, DC, BN, ROUND, SPLIT)
            kind = tl.load(kinds + start // G * step)
            dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BN, SPLIT, INPUT)
            cost = _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BN, T)
            h = _one_exp(
                dots, cost, columns, kind, start // G, per_dot, col_bias, table, stats, line, blocks, row_norm, shift, other, weight,
                MODE, ROLE, HEIGHT,
            )  # fmt: skip
            if SQUARED:
                sums += tl.sum(h, 1)
            acc = _accumulated(acc, h, b, b_low, b_turned, ROUND, FINE, INPUT)
    if ROLE == 2:
        if far != 0:
            for tile in tl.range(from_tile, to_tile, num_stages=STAGES):
                start = tile * BN
                columns = start + tl.arange(0, BN)
                b, b_low, b_turned = _column_tile(col_z, col_zt, start, chunk, col_plane, col_padded, D, DC, BN, ROUND, SPLIT)
                kind = tl.load(kinds + start // G * step)
                dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BN, SPLIT, INPUT)
                cost = _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BN, T)
                h = _two_exps(dots, cost, columns, kind, per_dot, col_bias, table, line, row_norm, shift, other, weight, MODE)
                if SQUARED:
                    sums += tl.sum(h, 1)
                acc = _accumulated(acc, h, b, b_low, b_turned, ROUND, FINE, INPUT)

    begin, end = _mixed_range(kinds, step, from_tile, to_tile, BN, G)
    for tile in tl.range(begin * (BN // BS), end * (BN // BS), num_stages=1):
        start = tile * BS
        if tl.load(kinds + start // G * step) == 2:
            columns = start + tl.arange(0, BS)
            inside = columns < col_count
            b, b_low, b_turned = _column_tile(col_z, col_zt, start, chunk, col_plane, col_padded, D, DC, BS, ROUND, SPLIT)
            dots = _dots(a, a_low, b, b_low, row_z, col_z, row_plane, col_plane, row0, start, D, DC, BM, BS, SPLIT, INPUT)
            cost = _costs(row_y, col_y, rows, columns, row_padded, col_padded, BM, BS, T)
            s = dots * per_dot - tl.load(col_bias + columns)[None, :] - row_norm[:, None]
            h = tl.zeros([BM, BS], tl.float32)
            if ROLE != 1:
                h = _outgoing(
                    s, cost, shift, other, weight, span, listed, skip, listed_each, skip_each, rows, columns, row_count,
                    MODE, False, BM, BS,
                )  # fmt: skip
            if ROLE != 0:
                col_shift = tl.load(first + columns, mask=inside, other=0.0)
                col_other = tl.load(second + columns, mask=inside, other=0.0)
                if MODE == _TARGETS:
                    col_other = col_other / tl.load(scalars + 4)
                h += _outgoing(
                    s, cost, col_shift, col_other, tl.load(table + 4 * line + columns), span, listed, skip, listed_each, skip_each,
                    columns, rows, col_count, MODE, True, BM, BS,
                )  # fmt: skip
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
