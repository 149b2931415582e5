"""The GPU engine for wide embeddings: products of blocks by the matrix library, everything between them in one pass each.

The fused kernels of `triton_engine.py` hold a row of points in registers; above 128 dimensions (256 with 16-bit operands) their gradient
has to compute all affinities again for each chunk of dimensions, and its cost grows with the square of d. Here it grows with d:

* blocks of at most `block_bytes` hold the products of some queries and some references, from one library product of split operands:
  [low, high, high] by [high, low, high], 16-bit floats in, float32 out (`fast` and `high`: high by high);
* a kernel of `triton_wide.py` reads a block once and writes log-sums (first pass) or 16-bit weights of the gradient (second pass);
* library products of the weights and the points add up to the gradient.

Where the queries are their own references only the blocks on and above the diagonal are computed, and each serves both directions.
The caller's points, of 16 or 32 bits, are read once for the operands and once for their largest coordinate: they are scaled by powers of
two, so that the low halves are not subnormal. Nothing is read back to the host.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearkin.compose.validation import check_choice, check_whole
from nearkin.kernels import triton_prepare as prepare
from nearkin.kernels.contract import Form, Values, Work, sizes
from nearkin.kernels.layout import as_two_sets
from nearkin.kernels.triton_points import CHUNK, ROWS, Framed, framed
from nearkin.kernels.triton_tuning import SCHEME_OF, Precision
from nearkin.kernels.triton_values import values_by_kernel
from nearkin.kernels.triton_wide import (
    add_kernel,
    join_kernel,
    mark_kernel,
    plan_kernel,
    pulls_kernel,
    sums_kernel,
    weight_size_kernel,
    weights_kernel,
)
from nearkin.kernels.triton_wide_points import operands_kernel, slopes_kernel, tops_kernel

BLOCK_BYTES = 512 << 20
_PAIR_BYTES = 8  # a float32 product and two 16-bit weights
_TALL = 4096  # rows of a block, where there are as many
_ROWS, _COLUMNS, _SLIVER, _WARPS = 32, 128, 16, 4  # of a tile of the elementwise passes, and of its slivers
_JOINED, _PARTS = 32, 32  # queries of one program that joins partial sums, and how many of them at a time
_WHOLE = 8  # sizes of 16-bit operands that the matrix units read at full speed
_PULLS = 256  # queries of one program that reads their pulls
_PIECE = 1024  # terms of one product of the gradient: the matrix units cut digits off a running sum, which a longer one would show


class _Side(NamedTuple):
    """One set of points as the products read it, padded with zeros to whole multiples of `_WHOLE`."""

    points: Tensor  # (n, d) the caller's
    lengths: Tensor | None  # (n,) that its rows were divided by
    operands: Tensor  # (n, 4 d) [high, low, high, high] or (n, d) [high], 16-bit; low is what the rounding left
    scale: Tensor  # () the power of two that the points were multiplied by
    bias: Tensor  # (n,) square lengths of the rounded points, or 0
    padded: int  # dimensions

    @property
    def split(self) -> bool:
        """Whether there is a low half."""
        return self.operands.shape[1] > self.padded

    def part(self, index: int) -> Tensor:
        """(n, d) the high half, 0, or the low one, 1."""
        return self.operands[:, index * self.padded : (index + 1) * self.padded]

    def across(self) -> Tensor:
        """The operand of rows, [low, high, high]; that of columns, [high, low, high], are the first three parts.

        The product of both has every term but low by low. The small terms come first: the matrix units cut off what is below the last
        digit of a running sum.
        """
        return self.operands[:, self.padded :] if self.split else self.operands

    def down(self) -> Tensor:
        """The operand of columns."""
        return self.operands[:, : 3 * self.padded]


class _Block(NamedTuple):
    """Rows top .. bottom - 1 against columns left .. right - 1."""

    top: int
    bottom: int
    left: int
    right: int


class _Ready(NamedTuple):
    """An evaluation as the passes read it."""

    work: Work
    n: int
    m: int
    d: int
    own: bool
    split: bool
    rows: _Side
    columns: _Side
    per_dot: Tensor  # () the affinity of one unit of a product
    blocks: list[_Block]
    plan: Tensor  # (n, m) in tiles: 0 for negatives, 1 for positives, 2 for mixed ones

    def products(self, block: _Block) -> Tensor:
        """(rows, columns) of a block; the columns are padded."""
        return _product(self.rows.across()[block.top : block.bottom], self.columns.down()[block.left : _whole(block.right)].T)

    def launch(self, kernel: Any, block: _Block, products: Tensor, between: tuple[Tensor, ...], **constants: Any) -> None:
        """Run an elementwise kernel over the tiles of a block; `between` are its own arguments."""
        work, height, width = self.work, block.bottom - block.top, block.right - block.left
        none, targets = products, work.targets  # a placeholder for what is absent is never read
        span, listed, skip = (none if x is None else x for x in (work.span, work.listed, work.skip))
        listed_each, skip_each = (0 if x is None else x.shape[1] for x in (work.listed, work.skip))
        kernel[(-(-height // _ROWS), -(-width // _COLUMNS))](
            products, self.rows.bias, self.columns.bias, self.per_dot, *(targets or (none, none)), span, listed, skip, self.plan, *between,
            block.top, block.left, height, width, block.bottom, products.stride(0), self.n, self.m, listed_each, skip_each,
            self.plan.shape[1], BM=_ROWS, BN=_COLUMNS, BS=_SLIVER, G=_COLUMNS, T=0 if targets is None else targets[0].shape[1],
            MODE=_mode(work), OWN=self.own,
            num_warps=_WARPS, **constants,
        )  # fmt: skip


class _Gathered(NamedTuple):
    """What the gradient of one side adds up: weights times the other side's points, and the sums of the weights."""

    push: Tensor  # (n, d), padded
    sums: Tensor  # (n,)

    @staticmethod
    def zeros(side: _Side, n: int) -> "_Gathered":
        return _Gathered(side.bias.new_zeros(len(side.operands), side.padded), side.bias.new_zeros(n))

    def add(self, where: slice, weights: Tensor, others: _Side, there: slice) -> None:
        """Weights (1 or 2, rows, columns) of the rows `where` and the other side's points `there`."""
        push, high = self.push[where.start : where.start + weights.shape[1]], others.part(0)[there]
        if others.split:
            _add_product(push, weights[1], high)
            _add_product(push, weights[0], others.part(1)[there])
        piece = _PIECE if others.split else max(1, len(high))
        for start in range(0, len(high), piece):
            _add_product(push, weights[0, :, start : start + piece], high[start : start + piece])

    def add_sums(self, parts: Tensor, start: int, skipped: int) -> None:
        """Partial sums (parts, length) of weights, but for the first `skipped`, of the points from `start` on."""
        count, length = parts.shape
        add_kernel[(-(-(length - skipped) // _JOINED),)](
            parts, self.sums, start + skipped, skipped, length - skipped, length, count, BLOCK=_JOINED, PARTS=_PARTS
        )

    def gradient(self, mine: _Side, others: _Side, size: Tensor, squared: bool) -> Tensor:
        """(n, d) in the caller's type."""
        n, d = mine.points.shape
        out = torch.empty_like(mine.points, memory_format=torch.contiguous_format)
        slopes_kernel[(-(-n // ROWS),)](
            self.push, self.sums, mine.operands, mine.scale, others.scale, size, mine.points,
            mine.bias if mine.lengths is None else mine.lengths, out, n, d, mine.padded,
            BM=ROWS, DC=CHUNK, UNIT=mine.lengths is not None, SPLIT=mine.split, SQUARED=squared,
        )  # fmt: skip
        return out


@dataclass(frozen=True)
class WideEngine:
    """The engine for wide embeddings on CUDA.

    Parameters
    ----------
    precision : {"highest", "high", "fast"}
        "highest" splits every operand into two 16-bit floats, which carry 22 bits; "high" and "fast" use one, with tf32's mantissa.
    block_bytes : int, default 512 MB
        Memory of the block of pairs that is held at a time. Where all products take at most half of it, a recorded evaluation keeps them
        from the first pass for the second.
    """

    precision: Precision
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, SCHEME_OF)
        check_whole("block_bytes", self.block_bytes, _COLUMNS**2 * _PAIR_BYTES, "a block holds at least 128 x 128 pairs")

    def recordable(self, work: Work) -> bool:
        """See `Engine.recordable`."""
        return True

    def reads_points(self, work: Work) -> bool:
        """See `Engine.reads_points`."""
        return True

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        """See `Engine.summaries`."""
        here = self._ready(work)
        first, second = (here.rows.bias.new_full((here.n,), -torch.inf, dtype=torch.float64) for _ in range(2))
        if work.targets is not None:
            second.zero_()
        kept = work.kept if 2 * sum(map(_product_bytes, here.blocks)) <= self.block_bytes else None
        if kept is not None:
            kept[:] = [here]
        for block in here.blocks:
            products = here.products(block)
            self._add_sums(here, block, products, first, second)
            if kept is not None:
                kept.append(products)
            del products  # before the next block is made
        return first, second

    def values(self, work: Work, form: Form, first: Tensor, second: Tensor, slope: float) -> Values:
        """See `Engine.values`."""
        return values_by_kernel(work.targets is not None, form, first, second, slope)

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `Engine.gradients`."""
        here, *kept = work.kept or [self._ready(work)]
        *summary, size = _pulls(here.work, first, second, pull.float().contiguous())
        mine = _Gathered.zeros(here.rows, here.n)
        theirs = mine if here.own else _Gathered.zeros(here.columns, here.m)
        for index, block in enumerate(here.blocks):
            products = kept[index] if kept else here.products(block)
            self._add_weights(here, block, products, tuple(summary), size, mine, theirs)
            del products
        squared = here.work.squared
        if here.own or not here.work.reference_gradient:
            return mine.gradient(here.rows, here.columns, size, squared), None
        if work.references is None:  # the same points in both roles
            mine.push.add_(theirs.push)
            mine.sums.add_(theirs.sums)
            return mine.gradient(here.rows, here.columns, size, squared), None
        return mine.gradient(here.rows, here.columns, size, squared), theirs.gradient(here.columns, here.rows, size, squared)

    def _ready(self, work: Work) -> _Ready:
        """Lists are not mutual, so that own points with lists are taken as two sets."""
        work = _tidy(as_two_sets(work) if work.references is None and work.listed is not None else work)
        n, m, d = sizes(work)
        own, split = work.references is None, self.precision == "highest"
        frame = framed(work)
        rows = _side(work.queries, frame, frame.query_lengths if frame.unit_queries else None, split, work.squared)
        columns = rows
        if work.references is not None and work.references is not work.queries:
            columns = _side(work.references, frame, frame.reference_lengths if frame.unit_references else None, split, work.squared)
        per_dot = (2.0 if work.squared else 1.0) / (rows.scale * columns.scale)
        return _Ready(work, n, m, d, own, split, rows, columns, per_dot, _blocks(n, m, own, self.block_bytes), _plan(work, n, m))

    def _add_sums(self, here: _Ready, block: _Block, products: Tensor, first: Tensor, second: Tensor) -> None:
        """Add a block to the running summaries of its rows and, where the queries are their own references, of its columns."""
        height, width, skipped = block.bottom - block.top, block.right - block.left, _on_diagonal(here, block)
        down, over = -(-height // _ROWS), -(-width // _COLUMNS)
        mirrored = here.own and skipped < width
        row_parts = here.rows.bias.new_empty(4, over, height)
        col_parts = here.rows.bias.new_empty(4, down, width) if mirrored else row_parts
        here.launch(sums_kernel, block, products, (row_parts, col_parts))
        _join(row_parts, first, second, block.top, 0, here.work)
        if mirrored:
            _join(col_parts, first, second, block.left, skipped, here.work)

    def _add_weights(
        self,
        here: _Ready,
        block: _Block,
        products: Tensor,
        summary: tuple[Tensor, ...],
        size: Tensor,
        mine: _Gathered,
        theirs: _Gathered,
    ) -> None:
        """Add a block's weights times points to the gradients of its rows and, where they are asked for, of its columns."""
        height, width, skipped = block.bottom - block.top, block.right - block.left, _on_diagonal(here, block)
        down, over = -(-height // _ROWS), -(-width // _COLUMNS)
        turned = (here.own or here.work.reference_gradient) and skipped < width
        weights = torch.empty(1 + here.split, *products.shape, dtype=torch.float16, device=products.device)
        row_parts = here.rows.bias.new_empty(over, height)
        col_parts = here.rows.bias.new_empty(down, width) if turned else row_parts
        here.launch(
            weights_kernel, block, products, (*summary, size, weights, row_parts, col_parts),
            SQUARED=here.work.squared, SPLIT=here.split, TURNED=turned,
        )  # fmt: skip
        mine.add(slice(block.top, block.bottom), weights, here.columns, slice(block.left, _whole(block.right)))
        if here.work.squared:
            mine.add_sums(row_parts, block.top, 0)
        if turned:
            beyond, across = slice(block.left + skipped, block.right), weights[:, :, skipped:].transpose(1, 2)
            theirs.add(beyond, across, here.rows, slice(block.top, block.bottom))
            if here.work.squared:
                theirs.add_sums(col_parts, block.left, skipped)


def _whole(n: int) -> int:
    return -(-n // _WHOLE) * _WHOLE


def _product_bytes(block: _Block) -> int:
    return 4 * (block.bottom - block.top) * (_whole(block.right) - block.left)


def _blocks(n: int, m: int, own: bool, block_bytes: int) -> list[_Block]:
    """Cut the pairs into blocks of whole tiles; where the queries are their own references, on and above the diagonal."""
    pairs = block_bytes // _PAIR_BYTES
    tall = min(_TALL, max(_COLUMNS, math.isqrt(pairs) // _COLUMNS * _COLUMNS))
    across = max(tall, pairs // min(tall, -(-n // _COLUMNS) * _COLUMNS) // _COLUMNS * _COLUMNS)
    return [
        _Block(top, min(top + tall, n), left, min(left + across, m))
        for top in range(0, n, tall)
        for left in range(top if own else 0, m, across)
    ]


def _plan(work: Work, n: int, m: int) -> Tensor:
    """(n, m) in tiles: which hold positives only or negatives only, and no skipped or listed pair."""
    high, wide = -(-n // _COLUMNS), -(-m // _COLUMNS)
    plan = torch.empty(high, wide, dtype=torch.uint8, device=work.queries.device)
    plan_kernel[(high,)](plan if work.span is None else work.span, plan, n, m, wide, G=_COLUMNS, MODE=_mode(work))
    for positions in (work.skip, work.listed):
        if positions is not None:
            mark_kernel[(high,)](positions, plan, n, positions.shape[1], wide, G=_COLUMNS, OWN=work.references is None)
    return plan


def _on_diagonal(here: _Ready, block: _Block) -> int:
    """The columns of a block that are its rows, too: as ordered pairs they serve both directions already."""
    return max(0, block.bottom - block.left) if here.own else 0


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A float32 product of 16-bit operands."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a float32 product of 16-bit operands."""
    if a.is_cuda:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        total.addmm_(a.float(), b.float())


def _side(points: Tensor, frame: Framed, lengths: Tensor | None, split: bool, squared: bool) -> _Side:
    n, d = points.shape
    padded, blocks = _whole(d), -(-n // ROWS)
    operands = torch.empty(_whole(n), padded * (4 if split else 1), dtype=torch.float16, device=points.device)
    tops, bias, scale = (torch.empty(shape, device=points.device, dtype=torch.float32) for shape in ((blocks,), (n,), ()))
    read = points, frame.center, tops if lengths is None else lengths, frame.factor, tops
    constants: dict[str, Any] = {"BM": ROWS, "DC": CHUNK, "CENTERED": frame.centered, "UNIT": lengths is not None}
    tops_kernel[(blocks,)](*read, n, d, **constants)
    operands_kernel[(blocks,)](*read, operands, bias, scale, n, len(operands), d, padded, blocks, SPLIT=split, SQUARED=squared, **constants)
    return _Side(points, lengths, operands, scale, bias, padded)


def _pulls(work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both summaries as (2, n) pairs of float32, the pulls, and () the factor of the weights."""
    n, blocks = len(pull), -(-len(pull) // _PULLS)
    pairs, tops, size = pull.new_empty(2, 2, n), pull.new_empty(blocks), pull.new_empty(())
    pulls_kernel[(blocks,)](first, second, pull, *pairs, tops, n, BLOCK=_PULLS, MODE=_mode(work))
    weight_size_kernel[(1,)](tops, tops if work.targets is None else _largest_cost(*work.targets), size, blocks, MODE=_mode(work))
    return pairs[0], pairs[1], pull, size


def _largest_cost(mine: Tensor, theirs: Tensor) -> Tensor:
    """() a bound of the costs of all pairs."""
    both = torch.cat([mine, theirs])
    return (both.amax(0) - both.amin(0)).square().sum()


def _join(parts: Tensor, first: Tensor, second: Tensor, start: int, skipped: int, work: Work) -> None:
    """Add partial sums (4, parts, length), but for the first `skipped` queries, to the summaries of the queries from `start` on."""
    _, count, length = parts.shape
    join_kernel[(-(-(length - skipped) // _JOINED),)](
        parts, first, second, start + skipped, skipped, length - skipped, length, count, BLOCK=_JOINED, PARTS=_PARTS, MODE=_mode(work)
    )


def _tidy(work: Work) -> Work:
    """Contiguous points, targets in float32, positions of 32 bits, no empty lists; not what is kept, which holds this work itself."""

    def whole(x: Tensor | None) -> Tensor | None:
        return None if x is None or x.numel() == 0 else x.to(torch.int32).contiguous()

    targets = None if work.targets is None else (work.targets[0].float().contiguous(), work.targets[1].float().contiguous())
    queries = work.queries.contiguous()
    references = queries if work.references is work.queries else None if work.references is None else work.references.contiguous()
    return work._replace(
        queries=queries, references=references, span=whole(work.span), listed=whole(work.listed), skip=whole(work.skip),
        targets=targets, kept=None,
    )  # fmt: skip


def _mode(work: Work) -> int:
    if work.targets is not None:
        return prepare.TARGETS
    return prepare.SPAN if work.span is not None else prepare.LISTED
