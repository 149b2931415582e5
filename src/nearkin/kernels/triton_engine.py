"""The GPU engine: two fused passes over all pairs in Triton, in O((n + m) d) memory, without host synchronization.

`fast`     16-bit floats scaled to the data's range: tf32's mantissa at twice its rate
`high`     tf32; above 128 dimensions as `fast`
`highest`  every operand as the sum of two 16-bit floats (22 bits), three products per product: float32 for most purposes

The passes are in `triton_summaries.py` and `triton_gradients.py`; `triton_prepare.py` prepares what they read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearkin.compose.validation import check_choice
from nearkin.kernels import triton_prepare as prepare
from nearkin.kernels.contract import Engine, Form, Values, Work, sizes
from nearkin.kernels.torch_tiles import TorchTiles
from nearkin.kernels.triton_gradients import gradients_kernel
from nearkin.kernels.triton_points import finished, framed
from nearkin.kernels.triton_single_pairs import ENTRIES, PairLists, listed_gradients_kernel, listed_sums_kernel, pair_lists
from nearkin.kernels.triton_summaries import merge_kernel, summaries_kernel
from nearkin.kernels.triton_tuning import (
    CAST,
    NARROW,
    SCHEME_OF,
    SCHEMES,
    Pass,
    Precision,
    Scheme,
    Tile,
    dimensions,
    scheme_of,
    tile_of,
)
from nearkin.kernels.triton_values import values_by_kernel
from nearkin.kernels.wide_engine import WideEngine

__all__ = ["MOST_TARGETS", "Precision", "TritonEngine"]

MOST_TARGETS = 8  # with more target dimensions the torch engine computes the costs
_SLIVER = 32  # columns that the loops over mixed tiles take at a time
_PART_BYTES = 64 << 20  # memory of all parts of a split gradient
_QUERIES, _REFERENCES, _OWN = 0, 1, 2  # whose gradient a pass computes: the roles of `triton_gradients.py`


class _Setting(NamedTuple):
    """What is known before any data is read."""

    n: int
    m: int
    d: int
    padded: int  # dimensions, whole chunks
    chunk: int
    group: int  # points of a block of the plan
    query_blocks: int
    reference_blocks: int
    targets: int
    mode: int
    own: bool
    squared: bool
    tile: Tile
    scheme: Scheme

    @property
    def height(self) -> int:
        """Exponent of the largest weight."""
        return prepare.TARGET_HEIGHT if self.targets else prepare.HEIGHT


class _Points(NamedTuple):
    """One side as the passes read it, padded to whole blocks."""

    z: Tensor  # (terms, points, dimensions) rounded, and what the rounding left
    turned: Tensor  # (dimensions, points), for tf32
    bias: Tensor  # (points,) squared norms, or 0
    y: Tensor  # (t, points) scaled targets


class _Ready(NamedTuple):
    """The output of `triton_prepare.py`."""

    queries: _Points
    references: _Points
    table: Tensor
    stats: Tensor
    wide: Tensor
    scalars: Tensor
    plan: Tensor


class _Summary(NamedTuple):
    first: Tensor
    second: Tensor
    pull: Tensor


@dataclass(frozen=True)
class TritonEngine:
    """The Triton engine. `scheme` and `tiles` override the choices of the precision; use them for tuning only."""

    precision: Precision
    scheme: str | None = None
    tiles: Mapping[Pass, Tile] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, SCHEME_OF)

    def recordable(self, work: Work) -> bool:
        """See `Engine.recordable`."""
        other = self._other_engine(work)
        return other is None or other.recordable(work)

    def reads_points(self, work: Work) -> bool:
        """See `Engine.reads_points`."""
        other = self._other_engine(work)
        return other is None or other.reads_points(work)

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        """See `Engine.summaries`."""
        if (other := self._other_engine(work)) is not None:
            return other.summaries(work)
        work = _tidy(work)
        here = self._setting("summaries", work)
        if here.n == 0 or here.m == 0:
            none = _empty(work.queries, here.n).fill_(-torch.inf)
            return none, torch.zeros_like(none) if here.targets else none.clone()
        ready = _prepared(work, here, None)
        return _summaries(work, here, ready)

    def values(self, work: Work, form: Form, first: Tensor, second: Tensor, slope: float) -> Values:
        """See `Engine.values`."""
        if (other := self._other_engine(work)) is not None:
            return other.values(work, form, first, second, slope)
        return values_by_kernel(work.targets is not None, form, first, second, slope)

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `Engine.gradients`."""
        if (other := self._other_engine(work)) is not None:
            return other.gradients(work, first, second, pull)
        work = _tidy(work)
        here = self._setting("gradients", work)
        roles = [_OWN] if here.own else [_QUERIES, _REFERENCES] if work.reference_gradient else [_QUERIES]
        if here.n == 0 or here.m == 0:
            found = [work.queries.new_zeros(here.m if role == _REFERENCES else here.n, here.d) for role in roles]
        else:
            summary = _Summary(*(x.float().contiguous() for x in (first, second, pull)))
            ready = _prepared(work, here, summary)
            found = [_gradient(role, work, here, ready, summary) for role in roles]
        return found[0], found[1] if len(found) > 1 else None

    def _other_engine(self, work: Work) -> Engine | None:
        """The engine for what these kernels do not cover: float64, costs over many target dimensions, and wide embeddings."""
        many = work.targets is not None and work.targets[0].shape[1] > MOST_TARGETS
        if many or work.queries.dtype == torch.float64:
            return TorchTiles()
        wide = work.queries.shape[1] > NARROW[self.precision] and not (self.scheme or self.tiles)
        return WideEngine(self.precision) if wide else None

    def _setting(self, which: Pass, work: Work) -> _Setting:
        n, m, d = sizes(work)
        name = self.scheme or scheme_of(self.precision, d)
        own = work.references is None
        scattered = work.skip is not None and not own and _mode(work) != prepare.LISTED
        tile = self.tiles.get(which) or tile_of(which, name, d, scattered)
        group = max(tile.rows, tile.columns)
        return _Setting(
            n, m, d, *dimensions(d, SCHEMES[name]), group, -(-n // group), -(-m // group),
            0 if work.targets is None else work.targets[0].shape[1], _mode(work), own, work.squared, tile, SCHEMES[name],
        )  # fmt: skip


def _tidy(work: Work) -> Work:
    """Contiguous, with targets in float32, without empty lists."""
    references = None if work.references is None else work.references.contiguous()
    targets = None if work.targets is None else (work.targets[0].float().contiguous(), work.targets[1].float().contiguous())
    span, listed, skip = (None if x is None or x.numel() == 0 else x.contiguous() for x in (work.span, work.listed, work.skip))
    return work._replace(queries=work.queries.contiguous(), references=references, span=span, listed=listed, skip=skip, targets=targets)


def _mode(work: Work) -> int:
    if work.targets is not None:
        return prepare.TARGETS
    return prepare.SPAN if work.span is not None else prepare.LISTED


@lru_cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _parts(tile: Tile, row_blocks: int, tiles: int, device: torch.device, bytes_each: int = 0) -> tuple[int, int]:
    """Return how many parts the columns are split into, so that few row blocks still fill the chip, and the tiles of each part."""
    count = tile.parts
    if count == 0:
        fill = _processors(device)
        count = 1 if row_blocks >= 3 * fill else -(-6 * fill // row_blocks)
        count = min(count, -(-tiles // 2))
    if bytes_each:
        count = min(count, max(1, _PART_BYTES // bytes_each))
    each = -(-tiles // max(1, min(count, tiles)))
    return -(-tiles // each), each


def _empty(like: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


def _positions(work: Work, absent: Tensor) -> tuple[Tensor, Tensor]:
    """Return span and skip, with a placeholder for an absent one, which is never read."""
    span, skip = (absent if x is None else x for x in (work.span, work.skip))
    return span, skip


def _skip_each(work: Work) -> int:
    return 0 if work.skip is None else work.skip.shape[1]


def _pair_lists(role: int, work: Work, here: _Setting, tiles_each: int, absent: Tensor) -> PairLists:
    """Return the single pairs of a pass; placeholders where there are no lists."""
    if here.mode != prepare.LISTED:
        return PairLists(absent, absent, absent, absent)
    return pair_lists(work, role != _REFERENCES, role != _QUERIES, here.tile[:2], tiles_each)


def _constants(here: _Setting) -> dict[str, Any]:
    """The compile-time arguments that both passes share, and the launch options."""
    tile = here.tile
    options: dict[str, Any] = {} if tile.registers is None else {"maxnreg": tile.registers}
    return options | {
        "D": here.padded, "DC": here.chunk, "BM": tile.rows, "BN": tile.columns, "BS": min(tile.columns, _SLIVER), "G": here.group,
        "T": here.targets, "MODE": here.mode, "SPLIT": here.scheme.split, "INPUT": here.scheme.dot_input, "STAGES": tile.stages,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip


def _buffers(like: Tensor, here: _Setting, gradient: bool) -> _Ready:
    """Allocate what the passes read; `scalars` is the placeholder for what is not needed."""
    scalars = _empty(like, prepare.SCALARS)
    turned = gradient and here.scheme.rounding != CAST

    def side(blocks: int) -> _Points:
        count = blocks * here.group
        return _Points(
            _empty(like, 1 + here.scheme.split, count, here.padded, dtype=here.scheme.dtype),
            _empty(like, here.padded, count) if turned else scalars,
            _empty(like, count),
            _empty(like, here.targets, count) if here.targets else scalars,
        )

    queries = side(here.query_blocks)
    return _Ready(
        queries,
        queries if here.own else side(here.reference_blocks),
        _empty(like, prepare.TABLE_ROWS, len(queries.bias)) if gradient else scalars,
        _empty(like, prepare.STATS_ROWS, here.query_blocks) if gradient else scalars,
        _empty(like, here.query_blocks, dtype=torch.int32) if gradient and here.own else scalars,
        scalars,
        _empty(like, here.query_blocks, here.reference_blocks, dtype=torch.uint8),
    )


def _prepared(work: Work, here: _Setting, summary: _Summary | None) -> _Ready:
    """Run the kernels of `triton_prepare.py`."""
    queries, gradient = work.queries, summary is not None
    references = queries if work.references is None else work.references
    ready = _buffers(queries, here, gradient)
    blocks = here.query_blocks + (0 if here.own else here.reference_blocks)
    extent = _empty(queries, prepare.EXTENT_ROWS, blocks)
    first, second, pull = summary or (ready.scalars,) * 3
    targets = work.targets or (ready.scalars,) * 2
    span, skip = _positions(work, ready.plan)
    *frame, centered, unit_queries, unit_references = framed(work)
    constants = {
        "CENTERED": centered, "UNIT_QUERIES": unit_queries, "UNIT_REFERENCES": unit_references,
        "G": here.group, "D": here.padded, "DC": here.chunk, "T": here.targets, "MODE": here.mode, "OWN": here.own, "GRADIENT": gradient,
        "num_warps": 4 if here.group * here.chunk <= 8192 else 8,
    }  # fmt: skip
    prepare.extent_kernel[(blocks,)](
        queries, references, pull, *targets, span, extent, ready.plan, *frame,
        here.n, here.m, here.d, here.query_blocks, blocks, here.reference_blocks, **constants,
    )  # fmt: skip
    prepare.prepare_kernel[(blocks,)](
        queries, references, *targets, skip, first, second, pull, extent,
        *ready.queries, *ready.references, ready.table, ready.stats, ready.scalars, ready.plan, *frame,
        here.n, here.m, here.d, len(ready.queries.bias), len(ready.references.bias), here.query_blocks, blocks, here.reference_blocks,
        _skip_each(work), SQUARED=here.squared, ROUND=here.scheme.rounding, SPLIT=here.scheme.split,
        TURNED=gradient and here.scheme.rounding != CAST, HEIGHT=here.height, **constants,
    )  # fmt: skip
    if gradient and here.own:
        prepare.spread_kernel[(blocks,)](ready.stats, extent, ready.plan, ready.wide, blocks, blocks, MODE=here.mode)
    return ready


def _summaries(work: Work, here: _Setting, ready: _Ready) -> tuple[Tensor, Tensor]:
    """Run the first pass, merge its parts where the references were split, then add the listed pairs."""
    row_blocks, tiles = -(-here.n // here.tile.rows), -(-here.m // here.tile.columns)
    parts, each = _parts(here.tile, row_blocks, tiles, work.queries.device)
    first, second = _empty(work.queries, 2, parts, here.n).unbind(0)
    rows, columns = ready.queries, ready.references
    pairs = _pair_lists(_QUERIES, work, here, each, ready.plan)
    summaries_kernel[(row_blocks, parts)](
        rows.z, rows.y, columns.z, columns.bias, columns.y, ready.scalars, ready.plan, *_positions(work, ready.plan),
        pairs.columns, pairs.begins, pairs.most_pairs, first, second,
        here.n, len(rows.bias), len(columns.bias), here.reference_blocks, tiles, each, _skip_each(work), **_constants(here),
    )  # fmt: skip
    positive, negative = first[0], second[0]
    if parts > 1:
        positive, negative = _empty(first, 2, here.n).unbind(0)
        merge_kernel[(-(-here.n // 128),)](first, second, positive, negative, here.n, parts, BLOCK=128, MODE=here.mode)
    if here.mode == prepare.LISTED:
        listed_sums_kernel[(here.n,)](
            rows.z, columns.z, columns.bias, ready.scalars, pairs.columns, pairs.kinds, pairs.begins, positive,
            here.n, len(rows.bias), len(columns.bias), parts,
            D=here.padded, DC=here.chunk, SPLIT=here.scheme.split, E=ENTRIES, num_warps=1,
        )  # fmt: skip
    return positive, negative


def _gradient(role: int, work: Work, here: _Setting, ready: _Ready, summary: _Summary) -> Tensor:
    """Run the gradient pass whose rows are queries, references, or both."""
    rows, columns, row_count, col_count = ready.queries, ready.references, here.n, here.m
    if role == _REFERENCES:
        rows, columns, row_count, col_count = columns, rows, col_count, row_count
    row_blocks, tiles = -(-row_count // here.tile.rows), -(-col_count // here.tile.columns)
    parts, each = _parts(here.tile, row_blocks, tiles, work.queries.device, 4 * row_count * here.d)
    pairs = _pair_lists(role, work, here, each, ready.plan)
    points, lengths = (work.queries if role != _REFERENCES or work.references is None else work.references), None
    if work.frame is not None:
        lengths = work.frame.reference_lengths if role == _REFERENCES else work.frame.query_lengths
    whole = parts == 1 and lengths is None and here.mode != prepare.LISTED
    out = _empty(points, parts, row_count, here.d, dtype=points.dtype if whole else torch.float32)
    gradients_kernel[(row_blocks, parts, here.padded // here.chunk)](
        rows.z, rows.bias, rows.y, *columns, ready.table, ready.stats, ready.wide, ready.scalars, ready.plan,
        *_positions(work, ready.plan), pairs.columns, pairs.begins, pairs.most_pairs, *summary, out,
        row_count, col_count, here.d, len(rows.bias), len(columns.bias),
        here.query_blocks, here.reference_blocks, tiles, each, _skip_each(work),
        ROLE=role, SQUARED=here.squared, ROUND=here.scheme.rounding, FINE=here.scheme.fine, HEIGHT=here.height, **_constants(here),
    )  # fmt: skip
    if here.mode == prepare.LISTED:
        listed_gradients_kernel[(row_count, here.padded // here.chunk)](
            rows.z, rows.bias, columns.z, columns.bias, ready.scalars, pairs.columns, pairs.kinds, pairs.begins, *summary, out,
            row_count, here.d, len(rows.bias), len(columns.bias), parts,
            D=here.padded, DC=here.chunk, SPLIT=here.scheme.split, ROLE=role, SQUARED=here.squared, E=ENTRIES, num_warps=1,
        )  # fmt: skip
    return out[0] if whole else finished(out, points, lengths)
