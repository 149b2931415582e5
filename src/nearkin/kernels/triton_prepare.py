"""Prepare what the Triton passes read instead of the caller's tensors: rounded points, their norms, and a plan of the tiles.

The caller's points are read here, of 16 or 32 bits (`triton_points.py`): no copy of them in float32 is ever made.

Two launches. `extent_kernel` finds the largest magnitudes (16-bit floats are used relative to them) and sorts tiles into
all negative, all positive and mixed; `prepare_kernel` then rounds the points, takes the norms OF THE ROUNDED values (so that
duplicates stay at distance zero) and marks the tiles with a skipped pair as mixed (for lists, `triton_single_pairs.py` does
that). Everything is padded to whole blocks: padded points are zeros whose bias is +inf, so that no load of the hot loops
needs a mask.
"""
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from nearkin.kernels.triton_points import load_points
from nearkin.kernels.triton_tuning import CAST, TF32

# How the positives are given.
SPAN, LISTED, TARGETS = 0, 1, 2
# Kinds of tiles in the plan: 0 all negative (or, with targets, no skipped pair), 1 all positive, 2 mixed.

_SPAN, _LISTED, _TARGETS = tl.constexpr(SPAN), tl.constexpr(LISTED), tl.constexpr(TARGETS)
_CAST, _TF32 = tl.constexpr(CAST), tl.constexpr(TF32)
_MANY = tl.constexpr(1 << 30)
_SCAN = tl.constexpr(512)
# Shifts up to this many bits from the middle share an exp: what underflows is then below 2^(90 - 126) of a weight.
_SPREAD = tl.constexpr(90.0)

# Exponents: points are scaled to 2^13 .. 2^14 (of 2^16), targets below a half (so that a cost is below t).
_POINT_EXPONENT = tl.constexpr(13)
_TARGET_EXPONENT = tl.constexpr(-2)
# Weights are at most 2^HEIGHT (labels; costs of targets add up to 3 bits): small ones stay clear of fp16's subnormals.
HEIGHT, TARGET_HEIGHT = 12, 10

# Rows of the column table: what the column of a query contributes to a gradient tile.
#   labels:  0, 1 shift (negatives, positives)   2, 3 signed weight relative to the block's middle   4, 5 signed weight
#   targets: 0 shift   2 relative weight   3 the same times the mean cost   4 weight   5 weight times the mean cost
# A shift is a log-sum without the query's own norm (see `triton_summaries.py`).
TABLE_ROWS = 6
# Rows of the block statistics: middle of shift - norm (negatives, positives), their half width (negatives, positives).
STATS_ROWS = 4
# Rows of the extents: largest |point|, |pull|, |target|; 1 where spans are not classes.
EXTENT_ROWS = 4
# Scalars: affinity per dot product; 1 / scale of queries and of references; largest pull / 2^height; cost per scaled cost.
SCALARS = 5


@triton.jit
def power_of_two(top, exponent: tl.constexpr):
    """2^k with top * 2^k in [2^exponent, 2^(exponent + 1)); 1 for top 0."""
    high = (top.to(tl.int32, bitcast=True) >> 23) & 255
    power = tl.minimum(tl.maximum(254 + exponent - high, 67), 187)  # 2^-60 .. 2^60: its square must not overflow
    return tl.where(top > 0, (power << 23).to(tl.float32, bitcast=True), 1.0)


@triton.jit
def largest(values, count):
    """The largest of `count` non-negative numbers."""
    top = tl.zeros([_SCAN], tl.float32)
    for start in range(0, count, _SCAN):
        at = start + tl.arange(0, _SCAN)
        top = tl.maximum(top, tl.load(values + at, mask=at < count, other=0.0))
    return tl.max(top, 0)


@triton.jit
def _largest_point(
    points, block, count, d, center, lengths, factor,
    G: tl.constexpr, D: tl.constexpr, DC: tl.constexpr, CENTERED: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    rows = block * G + tl.arange(0, G)
    top = tl.zeros([G], tl.float32)
    for chunk in range(0, D, DC):
        x = load_points(points, rows, chunk + tl.arange(0, DC), count, d, center, lengths, factor, CENTERED, UNIT)
        top = tl.maximum(top, tl.max(tl.abs(x), 1))
    return tl.max(top, 0)


@triton.jit
def _largest_target(targets, origin, block, count, G: tl.constexpr, T: tl.constexpr):
    rows = block * G + tl.arange(0, G)
    top = tl.zeros([G], tl.float32)
    for c in tl.static_range(T):
        y = tl.load(targets + rows.to(tl.int64) * T + c, mask=rows < count, other=0.0) - tl.load(origin + c)
        top = tl.maximum(top, tl.where(rows < count, tl.abs(y), 0.0))
    return tl.max(top, 0)


@triton.jit
def _plan_row(span, plan, block, n, m, width, G: tl.constexpr, MODE: tl.constexpr):
    """Store the kinds of the tiles of one query block, from the outermost and innermost ends of its spans."""
    rows = block * G + tl.arange(0, G)
    there = rows < n
    if MODE == _SPAN:
        low = tl.load(span + rows.to(tl.int64) * 2, mask=there, other=0).to(tl.int32)
        high = tl.load(span + rows.to(tl.int64) * 2 + 1, mask=there, other=0).to(tl.int32)
        some = there & (low < high)
        wide_low = tl.min(tl.where(some, low, _MANY), 0)
        wide_high = tl.max(tl.where(some, high, -1), 0)
        tight_low = tl.max(tl.where(some, low, tl.where(there, _MANY, -1)), 0)
        tight_high = tl.min(tl.where(some, high, tl.where(there, -1, _MANY)), 0)
    for start in range(0, width, _SCAN):
        at = start + tl.arange(0, _SCAN)
        left, right = at * G, tl.minimum(at * G + G, m)
        kind = tl.zeros([_SCAN], tl.int32)
        if MODE == _SPAN:
            outside = (left >= wide_high) | (right <= wide_low)
            within = (left >= tight_low) & (right <= tight_high)
            kind = tl.where(outside, 0, tl.where(within, 1, 2))
        tl.store(plan + block.to(tl.int64) * width + at, kind.to(tl.uint8), mask=at < width)


@triton.jit
def _not_classes(span, block, n, G: tl.constexpr):
    """1 if some row's span is not a run of rows with that same span around it, so that positive(i, j) may differ from positive(j, i)."""
    rows = block * G + tl.arange(0, G)
    there = rows < n
    at = span + rows.to(tl.int64) * 2
    low, high = tl.load(at, mask=there, other=0), tl.load(at + 1, mask=there, other=0)
    before, after = there & (rows > 0), there & (rows < n - 1)
    as_before = (tl.load(at - 2, mask=before, other=-1) == low) & (tl.load(at - 1, mask=before, other=-1) == high)
    as_after = (tl.load(at + 2, mask=after, other=-1) == low) & (tl.load(at + 3, mask=after, other=-1) == high)
    run = (low <= rows) & (rows < high) & ((low == rows) | as_before) & ((high == rows + 1) | as_after)
    return tl.max(tl.where(there & (low < high) & (run == 0), 1.0, 0.0), 0)


@triton.jit(do_not_specialize=["n", "m", "query_blocks", "blocks", "width"])
def extent_kernel(
    queries, references, pull, query_targets, reference_targets, span, extent, plan, center, query_lengths, reference_lengths, factor,
    n, m, d, query_blocks, blocks, width,
    G: tl.constexpr, D: tl.constexpr, DC: tl.constexpr, T: tl.constexpr, MODE: tl.constexpr, OWN: tl.constexpr, GRADIENT: tl.constexpr,
    CENTERED: tl.constexpr, UNIT_QUERIES: tl.constexpr, UNIT_REFERENCES: tl.constexpr,
):  # fmt: skip
    """Launch 1, one program per block of either side."""
    pid = tl.program_id(0)
    if pid < query_blocks:
        top = _largest_point(queries, pid, n, d, center, query_lengths, factor, G, D, DC, CENTERED, UNIT_QUERIES)
        tl.store(extent + pid, top)
        if GRADIENT:
            rows = pid * G + tl.arange(0, G)
            tl.store(extent + blocks + pid, tl.max(tl.abs(tl.load(pull + rows, mask=rows < n, other=0.0)), 0))
        if MODE == _TARGETS:
            tl.store(extent + 2 * blocks + pid, _largest_target(query_targets, reference_targets, pid, n, G, T))
        if GRADIENT and OWN and MODE == _SPAN:
            tl.store(extent + 3 * blocks + pid, _not_classes(span, pid, n, G))
        _plan_row(span, plan, pid, n, m, width, G, MODE)
    else:
        block = pid - query_blocks
        top = _largest_point(references, block, m, d, center, reference_lengths, factor, G, D, DC, CENTERED, UNIT_REFERENCES)
        tl.store(extent + pid, top)
        if MODE == _TARGETS:
            tl.store(extent + 2 * blocks + pid, _largest_target(reference_targets, reference_targets, block, m, G, T))


@triton.jit
def _round_block(
    points, z, zt, bias, block, count, padded, d, scale, center, lengths, factor,
    G: tl.constexpr, D: tl.constexpr, DC: tl.constexpr, CENTERED: tl.constexpr, UNIT: tl.constexpr,
    SQUARED: tl.constexpr, ROUND: tl.constexpr, SPLIT: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Rounded points, once more transposed for tf32 (whose second operand must lie along the sum), and their norms."""
    rows = block * G + tl.arange(0, G)
    norm = tl.zeros([G], tl.float32)
    plane = padded.to(tl.int64) * D
    for chunk in range(0, D, DC):
        columns = chunk + tl.arange(0, DC)
        x = scale * load_points(points, rows, columns, count, d, center, lengths, factor, CENTERED, UNIT)
        at = rows.to(tl.int64)[:, None] * D + columns[None, :]
        if ROUND == _CAST:
            high = x.to(z.dtype.element_ty)
            value = high.to(tl.float32)
            tl.store(z + at, high)
            if SPLIT:
                low = (x - value).to(z.dtype.element_ty)
                tl.store(z + plane + at, low)
                value += low.to(tl.float32)
        else:
            value = x
            if ROUND == _TF32:
                value = tl.where(x == x, to_tf32(x), x)  # noqa: PLR0124 - CUDA's own nan has every bit set; rounded up it is -0
            tl.store(z + at, value)
        if TURNED:
            tl.store(zt + columns.to(tl.int64)[None, :] * padded + rows[:, None], value)
        norm += tl.sum(value * value, 1)
    if not SQUARED:
        norm = tl.zeros([G], tl.float32)
    norm = tl.where(rows < count, norm / (scale * scale), float("inf"))
    tl.store(bias + rows, norm)
    return norm


@triton.jit
def to_tf32(x):
    """Rounded to 10 bits of mantissa, away from zero at a tie: the matrix units would truncate instead."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & ~0x1FFF).to(tl.float32, bitcast=True)


@triton.jit
def _scale_targets(targets, origin, y, block, count, padded, scale, G: tl.constexpr, T: tl.constexpr):
    rows = block * G + tl.arange(0, G)
    for c in tl.static_range(T):
        value = tl.load(targets + rows.to(tl.int64) * T + c, mask=rows < count, other=0.0) - tl.load(origin + c)
        tl.store(y + c * padded.to(tl.int64) + rows, tl.where(rows < count, value * scale, 0.0))


@triton.jit
def _mark(positions, plan, block, n, each, width, G: tl.constexpr, OWN: tl.constexpr):
    """Tiles with a skipped pair are mixed; with own references the mirrored tile too."""
    rows = block * G + tl.arange(0, G)
    for e in range(each):
        position = tl.load(positions + rows.to(tl.int64) * each + e, mask=rows < n, other=-1)
        valid = position >= 0
        other = tl.where(valid, position, 0) // G
        mixed = tl.full([G], 2, tl.uint8)
        tl.store(plan + block.to(tl.int64) * width + other, mixed, mask=valid)
        if OWN:
            tl.store(plan + other * width + block, mixed, mask=valid)


@triton.jit
def _middle(shift, norm, there):
    low = tl.min(tl.where(there, shift - norm, float("inf")), 0)
    high = tl.max(tl.where(there, shift - norm, float("-inf")), 0)
    return 0.5 * (low + high), 0.5 * (high - low)


@triton.jit
def _from_middle(middle, norm, shift):
    """2^(middle - (shift - norm)), the difference of large numbers in float64.

    A shift may be far below the middle; then the power is not used (see `spread_kernel`) but must be finite.
    """
    difference = middle.to(tl.float64) + norm.to(tl.float64) - shift.to(tl.float64)
    return tl.exp2(tl.minimum(difference.to(tl.float32), 100.0))


@triton.jit
def _table_block(
    first, second, pull, table, stats, norm, block, n, padded, blocks, pull_scale, cost_scale, G: tl.constexpr, MODE: tl.constexpr
):
    """A query block's rows of the column table (see TABLE_ROWS) and its statistics."""
    rows = block * G + tl.arange(0, G)
    there = rows < n
    weight = pull_scale * tl.load(pull + rows, mask=there, other=0.0)
    positive = tl.load(first + rows, mask=there, other=0.0)
    negative = tl.load(second + rows, mask=there, other=0.0)
    if MODE == _TARGETS:
        mean = negative * cost_scale
        negative = positive
    middle, half = _middle(negative, norm, there)
    relative = weight * _from_middle(middle, norm, negative)
    line = padded.to(tl.int64)
    tl.store(table + rows, tl.where(there, negative, float("inf")))
    tl.store(table + 2 * line + rows, relative)
    tl.store(table + 4 * line + rows, weight)
    tl.store(stats + block, middle)
    tl.store(stats + 2 * blocks + block, half)
    if MODE == _TARGETS:
        tl.store(table + 3 * line + rows, relative * mean)
        tl.store(table + 5 * line + rows, weight * mean)
    else:
        middle, half = _middle(positive, norm, there)
        tl.store(table + line + rows, tl.where(there, positive, float("inf")))
        tl.store(table + 3 * line + rows, -weight * _from_middle(middle, norm, positive))
        tl.store(table + 5 * line + rows, -weight)
        tl.store(stats + blocks + block, middle)
        tl.store(stats + 3 * blocks + block, half)


@triton.jit(do_not_specialize=["n", "m", "query_blocks", "blocks", "width"])
def prepare_kernel(
    queries, references, query_targets, reference_targets, skip, first, second, pull, extent,
    query_z, query_zt, query_bias, query_y, reference_z, reference_zt, reference_bias, reference_y, table, stats, scalars, plan,
    center, query_lengths, reference_lengths, factor,
    n, m, d, query_padded, reference_padded, query_blocks, blocks, width, skip_each,
    G: tl.constexpr, D: tl.constexpr, DC: tl.constexpr, T: tl.constexpr, MODE: tl.constexpr, OWN: tl.constexpr, GRADIENT: tl.constexpr,
    CENTERED: tl.constexpr, UNIT_QUERIES: tl.constexpr, UNIT_REFERENCES: tl.constexpr,
    SQUARED: tl.constexpr, ROUND: tl.constexpr, SPLIT: tl.constexpr, TURNED: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """Launch 2, one program per block of either side."""
    pid = tl.program_id(0)
    query_top, reference_top = largest(extent, query_blocks), largest(extent + query_blocks, blocks - query_blocks)
    if OWN:
        reference_top = query_top
    if SQUARED:
        # One scale for both, so that a query and its copy among the references round alike.
        query_top = tl.maximum(query_top, reference_top)
        reference_top = query_top
    query_scale, reference_scale = power_of_two(query_top, _POINT_EXPONENT), power_of_two(reference_top, _POINT_EXPONENT)
    target_scale = 1.0
    if MODE == _TARGETS:
        target_scale = power_of_two(largest(extent + 2 * blocks, blocks), _TARGET_EXPONENT)
    top = 1.0
    if GRADIENT:
        top = tl.maximum(largest(extent + blocks, query_blocks), 1e-30)
    if pid == 0:
        tl.store(scalars, (2.0 if SQUARED else 1.0) / query_scale / reference_scale)
        tl.store(scalars + 1, 1.0 / query_scale)
        tl.store(scalars + 2, 1.0 / reference_scale)
        tl.store(scalars + 3, top * 0.5**HEIGHT)
        tl.store(scalars + 4, 1.0 / target_scale / target_scale)
    if pid < query_blocks:
        norm = _round_block(
            queries, query_z, query_zt, query_bias, pid, n, query_padded, d, query_scale, center, query_lengths, factor,
            G, D, DC, CENTERED, UNIT_QUERIES, SQUARED, ROUND, SPLIT, TURNED,
        )  # fmt: skip
        if MODE == _TARGETS:
            _scale_targets(query_targets, reference_targets, query_y, pid, n, query_padded, target_scale, G, T)
        if MODE != _LISTED:
            _mark(skip, plan, pid, n, skip_each, width, G, OWN)
        if GRADIENT:
            pull_scale, cost_scale = 2.0**HEIGHT / top, target_scale * target_scale
            _table_block(first, second, pull, table, stats, norm, pid, n, query_padded, query_blocks, pull_scale, cost_scale, G, MODE)
    else:
        block = pid - query_blocks
        _round_block(
            references, reference_z, reference_zt, reference_bias, block, m, reference_padded, d, reference_scale, center,
            reference_lengths, factor, G, D, DC, CENTERED, UNIT_REFERENCES, SQUARED, ROUND, SPLIT, TURNED,
        )  # fmt: skip
        if MODE == _TARGETS:
            _scale_targets(reference_targets, reference_targets, reference_y, block, m, reference_padded, target_scale, G, T)


@triton.jit(do_not_specialize=["blocks", "extents"])
def spread_kernel(stats, extent, plan, wide, blocks, extents, MODE: tl.constexpr):
    """Launch 3, for the gradient of own references: find the tiles that may use one exp for both directions of a pair.

    2^(s - middle) serves both if all shifts lie within _SPREAD bits of the middle of the column block. Tiles where they do
    not become mixed; a row with many such tiles uses two exps in its hot loop instead (`wide`).
    """
    block = tl.program_id(0)
    skewed = 0.0
    if MODE == _SPAN:
        skewed = largest(extent + 3 * extents, blocks)
    row = plan + block.to(tl.int64) * blocks
    count = 0
    for start in range(0, blocks, _SCAN):
        at = start + tl.arange(0, _SCAN)
        kind = tl.load(row + at, mask=at < blocks, other=2)
        count += tl.sum(_too_far(stats, block, at, kind, blocks).to(tl.int32), 0)
    many = (count * 8 > blocks).to(tl.int32)
    tl.store(wide + block, many)
    for start in range(0, blocks, _SCAN):
        at = start + tl.arange(0, _SCAN)
        kind = tl.load(row + at, mask=at < blocks, other=2)
        leave = skewed + _too_far(stats, block, at, kind, blocks).to(tl.int32) * (1 - many)
        tl.store(row + at, tl.where(leave > 0, 2, kind).to(tl.uint8), mask=at < blocks)


@triton.jit
def _too_far(stats, block, others, kind, blocks):
    """Whether the shifts of a tile of one kind are too far from the middle of the column block."""
    lot = (kind == 1).to(tl.int32) * blocks
    mine, my_half = tl.load(stats + lot + block), tl.load(stats + lot + 2 * blocks + block)
    middle = tl.load(stats + lot + others, mask=others < blocks, other=0.0)
    half = tl.load(stats + lot + 2 * blocks + others, mask=others < blocks, other=0.0)
    return (kind != 2) & ((half > _SPREAD) | (tl.abs(mine - middle) + my_half > _SPREAD))
