"""The elementwise half of the wide engine: from a block of products to sums, and to the weights of the gradient.

The products z_i . z_j of a block come from the matrix library (`wide_engine.py`); each kernel reads them once. A tile serves its rows as
queries and, where the queries are their own references, its columns as queries too. Nearly every tile holds positives only or negatives
only, and takes the short way without masks; class borders, skipped and listed pairs and the edges of a block are taken in slivers of a
few columns. Tiles write partial results, which are added in a fixed order, so that results are deterministic.

    u_ij = per_dot z_i . z_j - bias_j        for a row i as query; the bias of the query itself is left out of its log-sums
"""
# mypy: ignore-errors
# ruff: noqa: ARG001, N803, PLR0124, SIM102

import triton
import triton.language as tl

from nearkin.kernels.triton_prepare import _LISTED, _SPAN, _TARGETS, _mark, _plan_row, largest, power_of_two

_LOWEST = tl.constexpr(-3.0e38)
_NO_PULL = tl.constexpr(3.0e38)  # the log-sum of a query without a pull: every power relative to it is 0
_WEIGHT_EXPONENT = tl.constexpr(13)  # of the largest weight; fp16 ends at 2^16
_MIXED = tl.constexpr(2)


@triton.jit
def _entry(positions, each, e, queries, n):
    """Entry e of the lists of these queries; -1 where there is none."""
    return tl.load(positions + queries.to(tl.int64) * each + e, mask=queries < n, other=-1)


@triton.jit
def _kinds(
    span, listed, skip, queries, others, n, listed_each, skip_each,
    MODE: tl.constexpr, TURNED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """(BM, BN) which pairs are candidates and which are positive, for the rows as queries or, TURNED, for the columns."""
    across = others[:, None] if TURNED else others[None, :]
    candidate = tl.full([BM, BN], 1, tl.int1)
    for e in range(skip_each):
        at = _entry(skip, skip_each, e, queries, n)
        candidate = candidate & (across != (at[None, :] if TURNED else at[:, None]))
    positive = tl.full([BM, BN], 0, tl.int1)
    if MODE == _SPAN:
        low, high = _entry(span, 2, 0, queries, n), _entry(span, 2, 1, queries, n)
        low, high = (low[None, :], high[None, :]) if TURNED else (low[:, None], high[:, None])
        positive = (across >= low) & (across < high)
    if MODE == _LISTED:
        for e in range(listed_each):
            at = _entry(listed, listed_each, e, queries, n)
            positive = positive | (across == (at[None, :] if TURNED else at[:, None]))
    return candidate, positive


@triton.jit
def _costs(row_y, col_y, rows, columns, n, m, BM: tl.constexpr, BN: tl.constexpr, T: tl.constexpr):
    """(BM, BN) squared distances of targets, from differences."""
    cost = tl.zeros([BM, BN], tl.float32)
    for t in tl.static_range(T):
        mine = tl.load(row_y + rows.to(tl.int64) * T + t, mask=rows < n, other=0.0)
        theirs = tl.load(col_y + columns.to(tl.int64) * T + t, mask=columns < m, other=0.0)
        gap = mine[:, None] - theirs[None, :]
        cost += gap * gap
    return cost


@triton.jit(do_not_specialize=["n", "m", "width"])
def plan_kernel(span, plan, n, m, width, G: tl.constexpr, MODE: tl.constexpr):
    """Sort the tiles of one block of queries into those of negatives, 0, of positives, 1, and mixed ones, 2."""
    _plan_row(span, plan, tl.program_id(0), n, m, width, G, MODE)


@triton.jit(do_not_specialize=["n", "each", "width"])
def mark_kernel(positions, plan, n, each, width, G: tl.constexpr, OWN: tl.constexpr):
    """Tiles with a skipped or listed pair are mixed."""
    _mark(positions, plan, tl.program_id(0), n, each, width, G, OWN)


@triton.jit
def _tile_kind(plan, row0, col0, plan_width, both, whole, G: tl.constexpr, OWN: tl.constexpr):
    """The kind of a tile, for `both` directions where the queries are their own references; mixed if it is not `whole`."""
    i, j = row0 // G, col0 // G
    kind = tl.load(plan + i.to(tl.int64) * plan_width + j).to(tl.int32)
    if OWN:
        if both:
            back = tl.load(plan + j.to(tl.int64) * plan_width + i).to(tl.int32)
            kind = tl.where(back == kind, kind, _MIXED)
    return tl.where(whole, kind, _MIXED)


@triton.jit
def _store_pure(out, where, plane, kind, u, cost, AXIS: tl.constexpr, MODE: tl.constexpr):
    """Write the largest exponent and the sum of powers relative to it, for pairs of one kind; the other kind is empty."""
    top = tl.max(u, AXIS)
    e = tl.exp2(u - (top[:, None] if AXIS == 1 else top[None, :]))
    total = tl.sum(e, AXIS)
    if MODE == _TARGETS:
        tl.store(out + where, top)
        tl.store(out + plane + where, total)
        tl.store(out + 3 * plane + where, tl.sum(e * cost, AXIS))
    else:
        here, there = tl.where(kind == 1, 0, 2 * plane), tl.where(kind == 1, 2 * plane, 0)
        tl.store(out + here + where, top)
        tl.store(out + here + plane + where, total)
        tl.store(out + there + where, tl.full(top.shape, _LOWEST, tl.float32))
        tl.store(out + there + plane + where, tl.zeros_like(total))


@triton.jit
def _grown(top, total, u, among):
    """Add a sliver to running sums by row; also the powers relative to the new top."""
    v = tl.where(among, u, _LOWEST)
    new = tl.maximum(top, tl.max(v, 1))
    e = tl.where(among, tl.exp2(v - new[:, None]), 0.0)
    return new, total * tl.exp2(top - new) + tl.sum(e, 1), e


@triton.jit
def _store_columns(out, where, there, plane, u, cost, candidate, positive, MODE: tl.constexpr):
    """Write the sums of a sliver by column."""
    for kind in tl.static_range(2):
        among = candidate
        if MODE != _TARGETS:
            among = (candidate & positive) if kind == 0 else (candidate & (positive == 0))
        v = tl.where(among, u, _LOWEST)
        top = tl.max(v, 0)
        e = tl.where(among, tl.exp2(v - top[None, :]), 0.0)
        if MODE == _TARGETS and kind == 1:
            tl.store(out + 3 * plane + where, tl.sum(e * cost, 0), mask=there)
        else:
            tl.store(out + 2 * kind * plane + where, top, mask=there)
            tl.store(out + (2 * kind + 1) * plane + where, tl.sum(e, 0), mask=there)


@triton.jit(do_not_specialize=["top", "left", "height", "width", "bottom", "listed_each", "skip_each", "plan_width"])
def sums_kernel(
    products, row_bias, col_bias, per_dot, row_y, col_y, span, listed, skip, plan, row_parts, col_parts,
    top, left, height, width, bottom, stride, n, m, listed_each, skip_each, plan_width,
    BM: tl.constexpr, BN: tl.constexpr, BS: tl.constexpr, G: tl.constexpr, T: tl.constexpr, MODE: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """Partial log-sums of one tile: (4, column tiles, height) for its rows, (4, row tiles, width) for its columns."""
    r0, c0 = tl.program_id(0) * BM, tl.program_id(1) * BN
    both = left + c0 >= bottom  # below, the square on the diagonal holds both directions of every pair
    whole = (r0 + BM <= height) & (c0 + BN <= width)
    kind = _tile_kind(plan, top + r0, left + c0, plan_width, both, whole, G, OWN)
    r = r0 + tl.arange(0, BM)
    rows = tl.where(r < height, top + r, n)
    mine = tl.load(row_bias + rows, mask=r < height, other=0.0)
    at_rows, row_plane = tl.program_id(1) * height + r, tl.num_programs(1) * height
    unit, col_plane = tl.load(per_dot), tl.num_programs(0) * width
    if kind != _MIXED:
        c = c0 + tl.arange(0, BN)
        s = tl.load(products + r.to(tl.int64)[:, None] * stride + c[None, :]) * unit
        cost = _costs(row_y, col_y, rows, left + c, n, m, BM, BN, T)
        _store_pure(row_parts, at_rows, row_plane, kind, s - tl.load(col_bias + left + c)[None, :], cost, 1, MODE)
        if OWN:
            if both:
                _store_pure(col_parts, tl.program_id(0) * width + c, col_plane, kind, s - mine[:, None], cost, 0, MODE)
    else:
        best, total = tl.full([BM], _LOWEST, tl.float32), tl.zeros([BM], tl.float32)
        best_other, total_other = best, total
        for sliver in range(BN // BS):
            c = c0 + sliver * BS + tl.arange(0, BS)
            columns = tl.where(c < width, left + c, m)
            inside = (r < height)[:, None] & (c < width)[None, :]
            s = tl.load(products + r.to(tl.int64)[:, None] * stride + c[None, :], mask=inside, other=0.0) * unit
            u = s - tl.load(col_bias + columns, mask=c < width, other=0.0)[None, :]
            cost = _costs(row_y, col_y, rows, columns, n, m, BM, BS, T)
            candidate, positive = _kinds(span, listed, skip, rows, columns, n, listed_each, skip_each, MODE, False, BM, BS)
            if MODE == _TARGETS:
                before = best
                best, total, e = _grown(best, total, u, candidate & inside)
                total_other = total_other * tl.exp2(before - best) + tl.sum(e * cost, 1)
            else:
                best, total, e = _grown(best, total, u, candidate & positive & inside)
                best_other, total_other, e = _grown(best_other, total_other, u, candidate & (positive == 0) & inside)
            if OWN:
                if both:
                    candidate, positive = _kinds(span, listed, skip, columns, rows, n, listed_each, skip_each, MODE, True, BM, BS)
                    at = tl.program_id(0) * width + c
                    _store_columns(col_parts, at, c < width, col_plane, s - mine[:, None], cost, candidate & inside, positive, MODE)
        tl.store(row_parts + at_rows, best, mask=r < height)
        tl.store(row_parts + row_plane + at_rows, total, mask=r < height)
        tl.store(row_parts + 2 * row_plane + at_rows, best_other, mask=r < height)
        tl.store(row_parts + 3 * row_plane + at_rows, total_other, mask=r < height)


@triton.jit
def _grown_by(top, total, tops, sums):
    """Running sums of powers in float64 under their largest exponent, with some more of (parts, queries) added."""
    new = tl.maximum(top, tl.max(tops, 0))
    shift = tl.exp2(tops - new[None, :])
    return new, total * tl.exp2(top - new) + tl.sum((sums * shift).to(tl.float64), 0), shift


@triton.jit(do_not_specialize=["start", "count", "parts", "offset"])
def join_kernel(partial, first, second, start, offset, count, length, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr, MODE: tl.constexpr):
    """Add `parts` partial sums (4, parts, length) of `count` queries, from column `offset` on, to the running summaries in float64."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = x < count
    plane = parts * length
    top, other = tl.full([BLOCK], _LOWEST, tl.float32), tl.full([BLOCK], _LOWEST, tl.float32)
    total, rest = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for begin in range(0, parts, PARTS):
        part = begin + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & there[None, :]
        at = partial + part[:, None] * length + offset + x[None, :]
        before = top
        sums = tl.load(at + plane, mask=inside, other=0.0)
        top, total, shift = _grown_by(top, total, tl.load(at, mask=inside, other=_LOWEST), sums)
        sums = tl.load(at + 3 * plane, mask=inside, other=0.0)
        if MODE == _TARGETS:
            rest = rest * tl.exp2(before - top) + tl.sum((sums * shift).to(tl.float64), 0)
        else:
            other, rest, shift = _grown_by(other, rest, tl.load(at + 2 * plane, mask=inside, other=_LOWEST), sums)
    x += start
    a, b = tl.load(first + x, mask=there, other=0.0), tl.load(second + x, mask=there, other=0.0)
    found = tl.where(total == 0, float("-inf"), top + tl.log2(total))  # nan stays nan: broken embeddings must show in the loss
    joined = _log_add(a, found)
    if MODE == _TARGETS:
        old = tl.where(a == float("-inf"), 0.0, tl.exp2(a - joined) * b)
        b = old + tl.where(found == float("-inf"), 0.0, tl.exp2(found - joined) * (rest / total))
    else:
        b = _log_add(b, tl.where(rest == 0, float("-inf"), other + tl.log2(rest)))
    tl.store(first + x, joined, mask=there)
    tl.store(second + x, b, mask=there)


@triton.jit(do_not_specialize=["start", "count", "parts", "offset"])
def add_kernel(partial, sums, start, offset, count, length, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Add `parts` partial sums (parts, length) of `count` points, from column `offset` on, to their sums."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, parts, PARTS):
        part = begin + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & (x < count)[None, :]
        total += tl.sum(tl.load(partial + part[:, None] * length + offset + x[None, :], mask=inside, other=0.0), 0)
    at = sums + start + x
    tl.store(at, tl.load(at, mask=x < count, other=0.0) + total, mask=x < count)


@triton.jit
def _log_add(a, b):
    """log2(2^a + 2^b); -inf is an empty sum."""
    top = tl.where((a > b) | (a != a), a, b)
    low = tl.where((a > b) | (a != a), b, a)
    return tl.where(low == float("-inf"), top, top + tl.log2(1.0 + tl.exp2(low - top)))


@triton.jit
def _query(first, second, pull, queries, n):
    """Log-sums, as pairs of float32 that add up to a float64, and pulls of some queries."""
    there = queries < n
    a, a_low = tl.load(first + queries, mask=there, other=0.0), tl.load(first + n + queries, mask=there, other=0.0)
    b, b_low = tl.load(second + queries, mask=there, other=0.0), tl.load(second + n + queries, mask=there, other=0.0)
    return a, a_low, b, b_low, tl.load(pull + queries, mask=there, other=0.0)


@triton.jit
def _store_two_floats(out, n, rows, there, x):
    """Store float64 numbers as pairs of float32 that add up to them."""
    high = x.to(tl.float32)
    tl.store(out + rows, high, mask=there)
    tl.store(out + n + rows, (x - high.to(tl.float64)).to(tl.float32), mask=there)


@triton.jit(do_not_specialize=["n"])
def pulls_kernel(first, second, pull, first_pair, second_pair, tops, n, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """Log-sums as pairs of float32, those of queries without a pull out of reach; and the largest pull of each block."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = rows < n
    p = tl.load(pull + rows, mask=there, other=0.0)
    a, b = tl.load(first + rows, mask=there, other=0.0).to(tl.float64), tl.load(second + rows, mask=there, other=0.0).to(tl.float64)
    none = tl.full([BLOCK], _NO_PULL, tl.float64)
    _store_two_floats(first_pair, n, rows, there, tl.where(p == 0, none, a))
    _store_two_floats(second_pair, n, rows, there, b if MODE == _TARGETS else tl.where(p == 0, none, b))
    tl.store(tops + tl.program_id(0), tl.max(tl.abs(p), 0))


@triton.jit(do_not_specialize=["blocks"])
def weight_size_kernel(tops, spread, size, blocks, MODE: tl.constexpr):
    """The power of two that brings the largest weight of a pair near 2^13; a weight is at most twice a pull, times the largest cost."""
    top = 2.0 * largest(tops, blocks)
    if MODE == _TARGETS:
        top = top * tl.load(spread)
    tl.store(size, power_of_two(top, _WEIGHT_EXPONENT))


@triton.jit
def _pure_weights(u, cost, first, second, pull, queries, n, kind, MODE: tl.constexpr, TURNED: tl.constexpr):
    """W_ij of pairs of one kind, for the rows as queries or, TURNED, for the columns."""
    a, a_low, b, b_low, p = _query(first, second, pull, queries, n)
    if MODE == _TARGETS:
        b, b_low = (b[None, :], b_low[None, :]) if TURNED else (b[:, None], b_low[:, None])
        cost = (cost - b) - b_low
    else:
        a, a_low = tl.where(kind == 1, a, b), tl.where(kind == 1, a_low, b_low)
        p = tl.where(kind == 1, -p, p)
    a, a_low, p = (a[None, :], a_low[None, :], p[None, :]) if TURNED else (a[:, None], a_low[:, None], p[:, None])
    weights = p * tl.exp2((u - a) - a_low)
    return weights * cost if MODE == _TARGETS else weights


@triton.jit
def _mixed_weights(u, cost, first, second, pull, queries, n, candidate, positive, MODE: tl.constexpr, TURNED: tl.constexpr):
    """W_ij of any pairs, 0 where they are no candidates."""
    a, a_low, b, b_low, p = _query(first, second, pull, queries, n)
    if TURNED:
        a, a_low, b, b_low, p = a[None, :], a_low[None, :], b[None, :], b_low[None, :], p[None, :]
    else:
        a, a_low, b, b_low, p = a[:, None], a_low[:, None], b[:, None], b_low[:, None], p[:, None]
    if MODE == _TARGETS:
        weights = p * tl.exp2((u - a) - a_low) * ((cost - b) - b_low)
    else:
        weights = tl.where(positive, -p, p) * tl.exp2(tl.where(positive, (u - a) - a_low, (u - b) - b_low))
    return tl.where(candidate, weights, 0.0)


@triton.jit
def _store_weights(weights, at, there, low_plane, w, SPLIT: tl.constexpr):
    """Write weights as one or two 16-bit floats; return what was written."""
    high = w.to(weights.dtype.element_ty)
    tl.store(weights + at, high, mask=there)
    written = high.to(tl.float32)
    if SPLIT:
        low = (w - written).to(weights.dtype.element_ty)
        tl.store(weights + low_plane + at, low, mask=there)
        written += low.to(tl.float32)
    return written


@triton.jit(do_not_specialize=["top", "left", "height", "width", "bottom", "listed_each", "skip_each", "plan_width"])
def weights_kernel(
    products, row_bias, col_bias, per_dot, row_y, col_y, span, listed, skip, plan, first, second, pull, size, weights, row_parts, col_parts,
    top, left, height, width, bottom, stride, n, m, listed_each, skip_each, plan_width,
    BM: tl.constexpr, BN: tl.constexpr, BS: tl.constexpr, G: tl.constexpr, T: tl.constexpr, MODE: tl.constexpr, OWN: tl.constexpr,
    SQUARED: tl.constexpr, SPLIT: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """W_ij, or W_ij + W_ji where OWN, of one tile, times `size`, as one or two 16-bit floats; and its sums by row and by column."""
    r0, c0 = tl.program_id(0) * BM, tl.program_id(1) * BN
    whole = (r0 + BM <= height) & (c0 + BN <= width)
    kind = _tile_kind(plan, top + r0, left + c0, plan_width, True, whole, G, OWN)
    r = r0 + tl.arange(0, BM)
    rows = tl.where(r < height, top + r, n)
    mine = tl.load(row_bias + rows, mask=r < height, other=0.0)
    unit, factor, low_plane = tl.load(per_dot), tl.load(size), height.to(tl.int64) * stride
    if kind != _MIXED:
        c = c0 + tl.arange(0, BN)
        at = r.to(tl.int64)[:, None] * stride + c[None, :]
        s = tl.load(products + at) * unit
        cost = _costs(row_y, col_y, rows, left + c, n, m, BM, BN, T)
        theirs = tl.load(col_bias + left + c)
        w = _pure_weights(s - theirs[None, :], cost, first, second, pull, rows, n, kind, MODE, False)
        if OWN:
            w += _pure_weights(s - mine[:, None], cost, first, second, pull, left + c, n, kind, MODE, True)
        written = _store_weights(weights, at, None, low_plane, w * factor, SPLIT)
        if SQUARED:
            tl.store(row_parts + tl.program_id(1) * height + r, tl.sum(written, 1))
            if TURNED:
                tl.store(col_parts + tl.program_id(0) * width + c, tl.sum(written, 0))
    else:
        total = tl.zeros([BM], tl.float32)
        for sliver in range(BN // BS):
            c = c0 + sliver * BS + tl.arange(0, BS)
            columns = tl.where(c < width, left + c, m)
            inside = (r < height)[:, None] & (c < width)[None, :]
            at = r.to(tl.int64)[:, None] * stride + c[None, :]
            s = tl.load(products + at, mask=inside, other=0.0) * unit
            cost = _costs(row_y, col_y, rows, columns, n, m, BM, BS, T)
            theirs = tl.load(col_bias + columns, mask=c < width, other=0.0)
            candidate, positive = _kinds(span, listed, skip, rows, columns, n, listed_each, skip_each, MODE, False, BM, BS)
            w = _mixed_weights(s - theirs[None, :], cost, first, second, pull, rows, n, candidate & inside, positive, MODE, False)
            if OWN:
                candidate, positive = _kinds(span, listed, skip, columns, rows, n, listed_each, skip_each, MODE, True, BM, BS)
                w += _mixed_weights(s - mine[:, None], cost, first, second, pull, columns, n, candidate & inside, positive, MODE, True)
            there = (r < height)[:, None] & (c < stride)[None, :]  # the padding of the columns is 0
            written = _store_weights(weights, at, there, low_plane, w * factor, SPLIT)
            if SQUARED:
                total += tl.sum(written, 1)
                if TURNED:
                    tl.store(col_parts + tl.program_id(0) * width + c, tl.sum(written, 0), mask=c < width)
        if SQUARED:
            tl.store(row_parts + tl.program_id(1) * height + r, total, mask=r < height)
