"""Settings of the Triton engine: how operands are rounded, and the shape of the tiles. Importing this needs no GPU."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch

Precision = Literal["highest", "high", "fast"]
Pass = Literal["summaries", "gradients"]

# How points are rounded: to the 16-bit type of the buffer, to tf32 inside float32, or not at all.
CAST, TF32, NONE = 0, 1, 2


class Scheme(NamedTuple):
    """How operands are rounded for the matrix units."""

    dtype: torch.dtype
    rounding: int
    split: bool  # affinities from operands of two terms; the product of the two small terms is left out
    fine: bool  # the gradient's products too
    dot_input: str = "tf32"  # how Triton multiplies float32 operands


SCHEMES: Mapping[str, Scheme] = {
    "fp16": Scheme(torch.float16, CAST, split=False, fine=False),
    "tf32": Scheme(torch.float32, TF32, split=False, fine=False),
    "fp16x3": Scheme(torch.float16, CAST, split=True, fine=True),
    "fp16x3-fp16": Scheme(torch.float16, CAST, split=True, fine=False),
    "bf16x3": Scheme(torch.bfloat16, CAST, split=True, fine=True),
    "tf32x3": Scheme(torch.float32, NONE, split=False, fine=False, dot_input="tf32x3"),
}
# The scheme of each precision. fp16x3 carries 22 bits where bf16x3 carries 16, at the same cost.
SCHEME_OF: Mapping[str, str] = {"fast": "fp16", "high": "tf32", "highest": "fp16x3"}
# Dimensions up to which these kernels are ahead of `wide_engine.py`, whose cost does not grow with the square of d: as many as one program
# holds. Measured by `python -m bench.crossover`; the number of points makes no difference.
NARROW: Mapping[str, int] = {"fast": 256, "high": 256, "highest": 128}


def scheme_of(precision: str, d: int) -> str:
    """The scheme of a precision. Above 128 dimensions "high" takes 16-bit operands, as the wide engine does: their mantissa is tf32's."""
    return SCHEME_OF["fast"] if precision == "high" and d > _CHUNK else SCHEME_OF[precision]


class Tile(NamedTuple):
    """One program's share: a block of rows, a tile of columns, warps, depth of the load pipeline, parts of a split."""

    rows: int
    columns: int
    warps: int
    stages: int
    parts: int = 0  # 0: as many as fill the chip
    registers: int | None = None  # the most a thread may use, so that more programs fit on a multiprocessor


# By pass, scheme and chunk of dimensions (the next larger one listed is used). Tuned on the H200: programs of four warps, two to
# four of them on a multiprocessor, so that the exps of one overlap with the matrix products of another.
TILES: Mapping[tuple[Pass, str], Mapping[int, Tile]] = {
    ("summaries", "fp16"): {64: Tile(128, 64, 4, 3, registers=128), 128: Tile(128, 64, 4, 3), 256: Tile(64, 64, 4, 2)},
    ("summaries", "tf32"): {64: Tile(128, 64, 4, 3), 128: Tile(64, 64, 4, 3)},
    ("summaries", "fp16x3"): {64: Tile(128, 64, 4, 3), 128: Tile(64, 64, 4, 2)},
    ("gradients", "fp16"): {64: Tile(64, 128, 4, 3, registers=168), 128: Tile(64, 64, 4, 3), 256: Tile(64, 64, 4, 2)},
    ("gradients", "tf32"): {64: Tile(64, 64, 4, 2), 128: Tile(64, 32, 4, 2)},
    ("gradients", "fp16x3"): {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 2)},
}
_ALIKE: Mapping[str, str] = {"fp16x3-fp16": "fp16x3", "bf16x3": "fp16x3", "tf32x3": "tf32"}

_LONGEST = 256  # dimensions that one program holds at 16 bits; with more bits, and beyond, it takes them in chunks
_CHUNK = 128
_SCATTERED = 64


def dimensions(d: int, scheme: Scheme) -> tuple[int, int]:
    """Padded dimension, and the chunk in which it is taken."""
    plain = scheme.rounding == CAST and not scheme.split
    if d > (_LONGEST if plain else _CHUNK):
        return -(-d // _CHUNK) * _CHUNK, _CHUNK
    padded = max(16, 1 << (d - 1).bit_length())
    return padded, padded


def tile_of(which: Pass, scheme: str, d: int, scattered: bool) -> Tile:
    """Return the tile to use. Scattered single pairs (skipped positions in a bank) make whole tiles slow, so they get smaller ones."""
    table = TILES[which, _ALIKE.get(scheme, scheme)]
    _, chunk = dimensions(d, SCHEMES[scheme])
    tile = table[min(listed for listed in table if listed >= chunk)]
    if scattered:
        return tile._replace(rows=min(tile.rows, _SCATTERED), columns=min(tile.columns, _SCATTERED))
    return tile
