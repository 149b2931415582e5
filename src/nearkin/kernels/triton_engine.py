"""The GPU engine: two fused passes over all pairs in Triton, in O((n + m) d) memory, without a host synchronisation.

`fast`     16-bit floats scaled to the data's range: tf32's mantissa at twice its rate
`high`     tf32
`highest`  every operand as the sum of two 16-bit floats (22 bits), three products per product: float32 for most purposes

See `triton_prepare.py` for what the passes read and `triton_kernels.py` for the passes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
import triton
from torch import Tensor

from nearkin.kernels import triton_kernels as kernels
from nearkin.kernels import triton_prepare as prepare
from nearkin.kernels.work import Engine, Work, sizes

Precision = Literal["highest", "high", "fast"]
Pass = Literal["summaries", "gradients"]

MOST_TARGETS = 8  # costs of more dimensions are left to the plain engine
_LONGEST = 256  # dimensions that one program holds at 16 bits; with more bits, and beyond, it takes them in chunks
_CHUNK = 128
_SLIVER = 32  # columns that the loop over mixed tiles takes at a time
_PART_BYTES = 64 << 20  # what the parts of a split gradient may take together
_QUERIES, _REFERENCES, _OWN = 0, 1, 2  # roles of the rows, see `triton_kernels.py`


class Scheme(NamedTuple):
    """How operands are rounded for the matrix units."""

    dtype: torch.dtype
    rounding: int
    split: bool  # affinities from operands of two terms
    fine: bool  # the gradient's products too
    dot_input: str = "tf32"  # what Triton makes of float32 operands


SCHEMES: Mapping[str, Scheme] = {
    "fp16": Scheme(torch.float16, prepare.CAST, split=False, fine=False),
    "tf32": Scheme(torch.float32, prepare.TF32, split=False, fine=False),
    "fp16x3": Scheme(torch.float16, prepare.CAST, split=True, fine=True),
    "fp16x3-fp16": Scheme(torch.float16, prepare.CAST, split=True, fine=False),
    "bf16x3": Scheme(torch.bfloat16, prepare.CAST, split=True, fine=True),
    "tf32x3": Scheme(torch.float32, prepare.NONE, split=False, fine=False, dot_input="tf32x3"),
}
SCHEME_OF: Mapping[str, str] = {"fast": "fp16", "high": "tf32", "highest": "fp16x3"}


class Tile(NamedTuple):
    """One program's share: a block of rows, a tile of columns, warps, depth of the load pipeline, parts of a split."""

    rows: int
    columns: int
    warps: int
    stages: int
    parts: int = 0  # 0: as many as fill the chip
    registers: int | None = None


# By pass, scheme and chunk of dimensions (the next larger one listed is used). Chosen for the H200: programs of four
# warps, two to four of them on a multiprocessor, so that one's exps run under another's matrix products.
TILES: Mapping[tuple[Pass, str], Mapping[int, Tile]] = {
    ("summaries", "fp16"): {64: Tile(128, 64, 4, 3), 128: Tile(128, 64, 4, 3), 256: Tile(64, 64, 4, 2)},
    ("summaries", "tf32"): {64: Tile(128, 64, 4, 3), 128: Tile(64, 64, 4, 3)},
    ("summaries", "fp16x3"): {64: Tile(128, 64, 4, 3), 128: Tile(64, 64, 4, 2)},
    ("gradients", "fp16"): {64: Tile(64, 128, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(64, 64, 4, 2)},
    ("gradients", "tf32"): {64: Tile(64, 64, 4, 2), 128: Tile(64, 32, 4, 2)},
    ("gradients", "fp16x3"): {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 2)},
}
_ALIKE = {"fp16x3-fp16": "fp16x3", "bf16x3": "fp16x3", "tf32x3": "tf32"}


class _Shape(NamedTuple):
    """Sizes of one evaluation."""

    n: int
    m: int
    d: int
    padded: int  # dimensions, whole chunks
    chunk: int
    group: int  # rows of a block of the plan
    query_blocks: int
    reference_blocks: int  # the queries' where they are their own references

    def points(self, blocks: int) -> int:
        """Points after padding to whole blocks."""
        return blocks * self.group


class _Ready(NamedTuple):
    """What `triton_prepare.py` makes; reference buffers are the queries' own where they are their own references."""

    query_z: Tensor
    query_turned: Tensor
    query_bias: Tensor
    query_y: Tensor
    reference_z: Tensor
    reference_turned: Tensor
    reference_bias: Tensor
    reference_y: Tensor
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
    """See the module. `scheme` and `tiles` replace what the precision stands for; they exist to be tuned and timed."""

    precision: Precision
    scheme: str | None = None
    tiles: Mapping[Pass, Tile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.precision not in SCHEME_OF:
            raise ValueError(f"precision {self.precision!r} is unknown; choose one of {', '.join(SCHEME_OF)}")

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        """See `Engine.summaries`."""
        if (plain := _plain_engine(work)) is not None:
            return plain.summaries(work)
        n, m, _ = sizes(work)
        if n == 0 or m == 0:
            return _without_candidates(work)
        work, tile, scheme = _tidy(work), self._tile("summaries", work), SCHEMES[self._scheme]
        shape = _shape(work, tile, scheme)
        ready = _prepared(work, shape, scheme, None)
        tiles = -(-m // tile.columns)
        row_blocks = -(-n // tile.rows)
        parts, each = _parts(tile, row_blocks, tiles, work.queries.device)
        first, second = work.queries.new_empty(2, parts, n).unbind(0)
        kernels.summaries_kernel[(row_blocks, parts)](
            ready.query_z, ready.query_bias, ready.query_y, ready.reference_z, ready.reference_bias, ready.reference_y,
            ready.scalars, ready.plan, *_positions(work, ready), first, second,
            n, shape.points(shape.query_blocks), shape.points(shape.reference_blocks), shape.reference_blocks, tiles, each,
            *_each(work), **_passed(work, shape, tile, scheme),
        )  # fmt: skip
        if parts == 1:
            return first[0], second[0]
        return _merged(first, second, _mode(work))

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `Engine.gradients`."""
        if (plain := _plain_engine(work)) is not None:
            return plain.gradients(work, first, second, pull)
        n, m, _ = sizes(work)
        own = work.references is None
        if n == 0 or m == 0:
            no_gradient = torch.zeros_like(work.queries), None if own or not work.reference_gradient else torch.zeros_like(work.references)
            return no_gradient
        work, tile, scheme = _tidy(work), self._tile("gradients", work), SCHEMES[self._scheme]
        shape = _shape(work, tile, scheme)
        summary = _Summary(*(x.float().contiguous() for x in (first, second, pull)))
        ready = _prepared(work, shape, scheme, summary)
        if own:
            return _gradient(_OWN, work, shape, tile, scheme, ready, summary), None
        to_queries = _gradient(_QUERIES, work, shape, tile, scheme, ready, summary)
        return to_queries, _gradient(_REFERENCES, work, shape, tile, scheme, ready, summary) if work.reference_gradient else None

    @property
    def _scheme(self) -> str:
        return self.scheme or SCHEME_OF[self.precision]

    def _tile(self, which: Pass, work: Work) -> Tile:
        if which in self.tiles:
            return self.tiles[which]
        table = TILES[which, _ALIKE.get(self._scheme, self._scheme)]
        _, chunk = _dimensions(work.queries.shape[1], SCHEMES[self._scheme])
        return table[min(listed for listed in table if listed >= chunk)]


def _plain_engine(work: Work) -> Engine | None:
    """The engine for what the kernels do not cover: float64, and costs over many target dimensions."""
    many = work.targets is not None and work.targets[0].shape[1] > MOST_TARGETS
    if work.queries.dtype != torch.float64 and not many:
        return None
    from nearkin.kernels.tiled import TorchTiles

    return TorchTiles()


def _without_candidates(work: Work) -> tuple[Tensor, Tensor]:
    none = work.queries.new_full((len(work.queries),), -torch.inf, dtype=torch.float32)
    return none, torch.zeros_like(none) if work.targets is not None else none.clone()


def _tidy(work: Work) -> Work:
    """Float32, contiguous."""
    references = None if work.references is None else work.references.float().contiguous()
    targets = None if work.targets is None else (work.targets[0].float().contiguous(), work.targets[1].float().contiguous())
    span, listed, skip = (None if x is None or x.numel() == 0 else x.contiguous() for x in (work.span, work.listed, work.skip))
    return work._replace(
        queries=work.queries.float().contiguous(), references=references, span=span, listed=listed, skip=skip, targets=targets
    )


def _mode(work: Work) -> int:
    if work.targets is not None:
        return prepare.TARGETS
    return prepare.SPAN if work.span is not None else prepare.LISTED


def _dimensions(d: int, scheme: Scheme) -> tuple[int, int]:
    """Padded dimension and the chunk it is taken in."""
    plain = scheme.rounding == prepare.CAST and not scheme.split
    if d > (_LONGEST if plain else _CHUNK):
        return -(-d // _CHUNK) * _CHUNK, _CHUNK
    padded = max(16, triton.next_power_of_2(d))
    return padded, padded


def _shape(work: Work, tile: Tile, scheme: Scheme) -> _Shape:
    n, m, d = sizes(work)
    padded, chunk = _dimensions(d, scheme)
    group = max(tile.rows, tile.columns)
    return _Shape(n, m, d, padded, chunk, group, -(-n // group), -(-m // group))


@lru_cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _parts(tile: Tile, row_blocks: int, tiles: int, device: torch.device, bytes_each: int = 0) -> tuple[int, int]:
    """Into how many parts the columns are split so that few row blocks still fill the chip, and the tiles of each."""
    wanted = tile.parts
    if wanted == 0:
        fill = _processors(device)
        wanted = 1 if row_blocks >= 3 * fill else -(-6 * fill // row_blocks)
        wanted = min(wanted, -(-tiles // 2))
    if bytes_each:
        wanted = min(wanted, max(1, _PART_BYTES // bytes_each))
    each = -(-tiles // max(1, min(wanted, tiles)))
    return -(-tiles // each), each


def _empty(like: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


def _positions(work: Work, ready: _Ready) -> tuple[Tensor, Tensor, Tensor]:
    """Span, listed and skip; any tensor stands for one that is absent, since it is never read."""
    span, listed, skip = (ready.plan if x is None else x for x in (work.span, work.listed, work.skip))
    return span, listed, skip


def _each(work: Work) -> tuple[int, int]:
    """Entries per row of the lists and of the skipped positions."""
    return 0 if work.listed is None else work.listed.shape[1], 0 if work.skip is None else work.skip.shape[1]


def _count_targets(work: Work) -> int:
    return 0 if work.targets is None else work.targets[0].shape[1]


def _height(work: Work) -> int:
    return prepare.HEIGHT if work.targets is None else prepare.TARGET_HEIGHT


def _passed(work: Work, shape: _Shape, tile: Tile, scheme: Scheme) -> dict[str, Any]:
    """The compile-time arguments that both passes share, and the launch options."""
    options: dict[str, Any] = {} if tile.registers is None else {"maxnreg": tile.registers}
    return options | {
        "D": shape.padded, "DC": shape.chunk, "BM": tile.rows, "BN": tile.columns, "BS": min(tile.columns, _SLIVER), "G": shape.group, "T": _count_targets(work),
        "MODE": _mode(work), "SPLIT": scheme.split, "INPUT": scheme.dot_input, "STAGES": tile.stages,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip


def _prepared(work: Work, shape: _Shape, scheme: Scheme, summary: _Summary | None) -> _Ready:
    """Run `triton_prepare.py`."""
    own, queries, gradient = work.references is None, work.queries, summary is not None
    references = queries if work.references is None else work.references
    blocks = shape.query_blocks + (0 if own else shape.reference_blocks)
    turned = gradient and scheme.rounding != prepare.CAST
    extent = _empty(queries, prepare.EXTENT_ROWS, blocks)
    scalars = _empty(queries, prepare.SCALARS)
    plan = _empty(queries, shape.query_blocks, shape.reference_blocks, dtype=torch.uint8)
    n_padded, m_padded = shape.points(shape.query_blocks), shape.points(shape.reference_blocks)

    def side(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return (
            _empty(queries, 1 + scheme.split, count, shape.padded, dtype=scheme.dtype),
            _empty(queries, shape.padded, count) if turned else scalars,
            _empty(queries, count),
            _empty(queries, _count_targets(work), count) if work.targets is not None else scalars,
        )

    query_side = side(n_padded)
    reference_side = query_side if own else side(m_padded)
    table = _empty(queries, prepare.TABLE_ROWS, n_padded) if gradient else scalars
    stats = _empty(queries, prepare.STATS_ROWS, shape.query_blocks) if gradient else scalars
    wide = _empty(queries, shape.query_blocks, dtype=torch.int32) if gradient and own else scalars
    ready = _Ready(*query_side, *reference_side, table, stats, wide, scalars, plan)
    first, second, pull = summary if summary is not None else (scalars, scalars, scalars)
    query_y, reference_y = work.targets if work.targets is not None else (scalars, scalars)
    span, listed, skip = _positions(work, ready)
    mode = _mode(work)
    common = {"G": shape.group, "MODE": mode}
    sized = common | {
        "D": shape.padded, "DC": shape.chunk, "T": _count_targets(work), "OWN": own, "GRADIENT": gradient,
        "num_warps": 4 if shape.group * shape.chunk <= 8192 else 8,
    }  # fmt: skip
    prepare.extent_kernel[(blocks,)](
        queries, references, pull, query_y, reference_y, span, extent, plan,
        shape.n, shape.m, shape.d, shape.query_blocks, blocks, shape.reference_blocks, **sized,
    )  # fmt: skip
    prepare.prepare_kernel[(blocks,)](
        queries, references, query_y, reference_y, listed, skip, first, second, pull, extent, *ready[:8], table, stats, scalars, plan,
        shape.n, shape.m, shape.d, n_padded, m_padded, shape.query_blocks, blocks, shape.reference_blocks, *_each(work),
        SQUARED=work.squared, ROUND=scheme.rounding, SPLIT=scheme.split, TURNED=turned, HEIGHT=_height(work), **sized,
    )  # fmt: skip
    if gradient and own:
        prepare.spread_kernel[(blocks,)](stats, extent, plan, wide, shape.query_blocks, blocks, **common)
    return ready


def _gradient(role: int, work: Work, shape: _Shape, tile: Tile, scheme: Scheme, ready: _Ready, summary: _Summary) -> Tensor:
    """The pass whose rows are queries, references, or both."""
    query_side, reference_side = ready[:4], ready[4:8]
    rows, columns = (reference_side, query_side) if role == _REFERENCES else (query_side, reference_side)
    row_count, col_count = (shape.m, shape.n) if role == _REFERENCES else (shape.n, shape.m)
    row_padded, col_padded = (-(-count // shape.group) * shape.group for count in (row_count, col_count))
    tiles, row_blocks = -(-col_count // tile.columns), -(-row_count // tile.rows)
    parts, each = _parts(tile, row_blocks, tiles, work.queries.device, 4 * row_count * shape.d)
    out = _empty(work.queries, parts, row_count, shape.d)
    kernels.gradients_kernel[(row_blocks, parts, shape.padded // shape.chunk)](
        rows[0], rows[2], rows[3], *columns, ready.table, ready.stats, ready.wide, ready.scalars, ready.plan,
        *_positions(work, ready), *summary, out,
        row_count, col_count, shape.d, row_padded, col_padded, shape.query_blocks, shape.reference_blocks, tiles, each, *_each(work),
        ROLE=role, SQUARED=work.squared, ROUND=scheme.rounding, FINE=scheme.fine, HEIGHT=_height(work),
        **_passed(work, shape, tile, scheme),
    )  # fmt: skip
    return out[0] if parts == 1 else out.sum(0)


def _merged(first: Tensor, second: Tensor, mode: int) -> tuple[Tensor, Tensor]:
    parts, n = first.shape
    both = _empty(first, 2, n)
    block = 128
    kernels.merge_kernel[(-(-n // block),)](first, second, both[0], both[1], n, parts, BLOCK=block, MODE=mode)
    return both[0], both[1]
