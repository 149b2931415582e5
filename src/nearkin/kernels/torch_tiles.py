"""The engine that runs anywhere: tiles in plain torch, on any device, in float32 or float64.

Each pass takes one exponential per pair where a shift shared by the tile suits all of its rows and columns, two where it does
not. Far points are evaluated in float64 whatever their type: float32 affinities would have lost their fraction.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.kernels import single_pairs
from nearkin.kernels.contract import Form, Values, Work, sizes
from nearkin.kernels.layout import (
    FAR,
    NEGATIVE,
    POSITIVE,
    Tile,
    as_two_sets,
    asymmetric,
    find_single_pairs,
    longest,
    nan_summaries,
    square_lengths,
    tiles,
)
from nearkin.kernels.single_pairs import join_summaries
from nearkin.kernels.values import values_of

_MASKED = {torch.float32: -1e30, torch.float64: -1e300}  # finite, so that a masked pair never makes inf - inf
_NEARLY_MASKED = {torch.float32: -1e29, torch.float64: -1e299}
_NO_PULL = 1e300  # the log-sum of a point without a pull: every exponential relative to it is 0
_MOST = 1e298  # squared length up to which no affinity can be mistaken for _MASKED
_RANGE = {torch.float32: 86.0, torch.float64: 900.0}  # bits on either side of a shift within which sums lose nothing
_LEAST = {torch.float32: 2.0**-100, torch.float64: 2.0**-1000}  # gradient weights below this become 0 (the largest is about 1)


class _Sides(NamedTuple):
    queries: Tensor  # (n, d)
    references: Tensor  # (m, d)
    minus_rows: Tensor | None  # (n, 1) level minus square lengths; None for an inner product
    minus_columns: Tensor | None  # (m,) minus square lengths
    level: float  # added to every affinity, so that the near ones are small numbers and round finely
    longest: float


def _sides(work: Work) -> _Sides:
    queries, references = work.queries, work.queries if work.references is None else work.references
    rows = square_lengths(queries)
    columns = rows if work.references is None else square_lengths(references)
    furthest = longest(rows, columns)
    if furthest > FAR:
        queries, references = queries.double(), references.double()
    if not work.squared:
        return _Sides(queries, references, None, None, 0.0, furthest)
    level = float(rows.mean() + columns.mean()) if math.isfinite(furthest) else 0.0
    return _Sides(queries, references, (level - rows)[:, None].to(queries.dtype), -columns.to(queries.dtype), level, furthest)


def _affinities(sides: _Sides, tile: Tile, buffer: Tensor) -> Tensor:
    """(rows, columns) s_ij + level of one tile; lengths are added last, so that near points keep their digits."""
    height, width = tile.bottom - tile.top, tile.right - tile.left
    out = buffer[: height * width].view(height, width)
    torch.mm(sides.queries[tile.top : tile.bottom], sides.references[tile.left : tile.right].T.contiguous(), out=out)
    if sides.minus_rows is not None and sides.minus_columns is not None:
        out.mul_(2).add_(sides.minus_rows[tile.top : tile.bottom]).add_(sides.minus_columns[tile.left : tile.right])
    if len(tile.masked_rows):
        out[tile.masked_rows, tile.masked_columns] = _MASKED[out.dtype]
    return out


def _by_kind(spans: Tensor | None, tile: Tile, affinity: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the tile once for each kind of pair in it, with the other kind masked. The last one may be changed in place."""
    if spans is None:
        yield NEGATIVE, affinity
        return
    low, high = spans[tile.top : tile.bottom].unbind(1)
    if bool(((high <= tile.left) | (low >= tile.right) | (low >= high)).all()):
        yield NEGATIVE, affinity
    elif bool(((low <= tile.left) & (high >= tile.right)).all()):
        yield POSITIVE, affinity
    else:
        column = torch.arange(tile.left, tile.right, device=low.device)
        positive = ((low[:, None] <= column) & (column < high[:, None])).to(affinity)
        yield POSITIVE, torch.add(affinity, 1 - positive, alpha=_MASKED[affinity.dtype])
        yield NEGATIVE, affinity.add_(positive, alpha=_MASKED[affinity.dtype])


def _costs(work: Work, tile: Tile, like: Tensor) -> Tensor | None:
    """(rows, columns) squared distances of targets, from differences."""
    if work.targets is None:
        return None
    kind = torch.promote_types(work.targets[0].dtype, like.dtype)
    here, there = work.targets[0][tile.top : tile.bottom].to(kind), work.targets[1][tile.left : tile.right].to(kind)
    cost = torch.zeros_like(like)
    for a, b in zip(here.T, there.T, strict=True):
        cost += (a[:, None] - b).to(like.dtype).square_()
    return cost


class _Sums:
    """Running log-sums of every query over positives and negatives, and the mean cost under the negatives."""

    def __init__(self, work: Work) -> None:
        self.mean = torch.zeros(len(work.queries), dtype=torch.float64, device=work.queries.device)
        self.logs = {POSITIVE: self.mean - torch.inf, NEGATIVE: self.mean - torch.inf}

    def update(self, kind: int, where: slice, log: Tensor, mean: Tensor | None) -> None:
        if mean is None:
            self.logs[kind][where] = torch.logaddexp2(self.logs[kind][where], log)
        else:
            self.logs[kind][where], self.mean[where] = join_summaries(self.logs[kind][where], self.mean[where], log, mean)


def _powers(exponents: Tensor) -> Tensor:
    """2^x without subnormal numbers, which are a hundred times slower on x86."""
    return torch.hardshrink(torch.exp2(exponents), torch.finfo(exponents.dtype).tiny)


def _row_sums(x: Tensor) -> Tensor:
    """(n,) in float64, by BLAS; with `out`, so that autocast does not change the type."""
    return torch.mv(x, x.new_ones(x.shape[1]), out=x.new_empty(len(x))).double()


def _along(weights: Tensor, shift: Tensor, cost: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sums of 2^(s - shift) over columns, their logs, and the mean cost."""
    total = _row_sums(weights)
    mean = None if cost is None else torch.where(total > 0, _row_sums(weights * cost) / total, 0.0)
    return total, torch.where(total > 0, torch.log2(total) + shift, -torch.inf), mean


def _own_shifts(affinity: Tensor, cost: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Log-sums of rows (and mean costs), each under its own largest affinity."""
    top = affinity.amax(1)
    _, log, mean = _along(_powers(affinity - top[:, None]), top.double(), cost)
    some = top > _NEARLY_MASKED[top.dtype]
    return torch.where(some, log, -torch.inf), None if mean is None else torch.where(some, mean, 0.0)


def _add_tile(sums: _Sums, kind: int, tile: Tile, affinity: Tensor, cost: Tensor | None) -> None:
    """Add both directions of a tile from one exponential if the sums of rows and columns stay in range; else from two."""
    rows, columns = slice(tile.top, tile.bottom), slice(tile.left, tile.right)
    cost_back = None if cost is None else cost.T
    reach = _RANGE[affinity.dtype]
    tops = affinity[:: max(1, len(affinity) // 8)].amax(1)
    shift = tops[tops > _NEARLY_MASKED[tops.dtype]].double().mean().nan_to_num()
    weights = _powers(affinity - shift.to(affinity.dtype))
    sides = [(rows, affinity, weights, cost), (columns, affinity.T, weights.T, cost_back)][: 1 + tile.mirrored]
    for where, s, e, c in sides:
        total, log, mean = _along(e, shift, c)
        fits = (total < 2.0**reach) & ((total > 2.0**-reach) | (sums.logs[kind][where] > shift - reach))
        if not bool(fits.all()):
            log, mean = _own_shifts(s, c)
        sums.update(kind, where, log, mean)


class _Pulls(NamedTuple):
    """Log-sums, pulls and mean costs of one side; the log-sum of a point without a pull is _NO_PULL."""

    logs: dict[int, Tensor]  # (n,) float64 for POSITIVE and NEGATIVE
    pull: Tensor  # (n,) float64
    mean: Tensor  # (n,) float64

    @staticmethod
    def of(work: Work, first: Tensor, second: Tensor, pull: Tensor, level: float) -> "_Pulls":
        logs = {POSITIVE: first + level, NEGATIVE: (second if work.targets is None else first) + level}
        return _Pulls({kind: torch.where(pull == 0, _NO_PULL, log) for kind, log in logs.items()}, pull, second)

    @staticmethod
    def none(m: int, like: "_Pulls") -> "_Pulls":
        """Separate references have no pull."""
        zeros = like.pull.new_zeros(m)
        return _Pulls(dict.fromkeys(like.logs, zeros + _NO_PULL), zeros, zeros)

    def part(self, where: slice) -> "_Pulls":
        return _Pulls({kind: log[where] for kind, log in self.logs.items()}, self.pull[where], self.mean[where])


def _weights(kind: int, affinity: Tensor, here: _Pulls, there: _Pulls, cost: Tensor | None) -> Tensor:
    """W_ij + W_ji of one tile."""
    sign, dtype, reach = (-1.0 if kind == POSITIVE else 1.0), affinity.dtype, _RANGE[affinity.dtype]
    logs = torch.cat([here.logs[kind], there.logs[kind]])
    logs = logs[logs < _NO_PULL]
    shared = len(logs) == 0 or bool(logs.max() - logs.min() < 2 * reach)
    shift = (logs.max() + logs.min()) / 2 if len(logs) else affinity.new_zeros((), dtype=torch.float64)
    if shared:
        e = f = torch.exp2((affinity - shift.to(dtype)).clamp_(max=reach + 14))
        mine, theirs = (sign * side.pull * torch.exp2((shift - side.logs[kind]).clamp(max=reach)) for side in (here, there))
    else:
        e, f = (torch.exp2((affinity - log.to(dtype)).clamp_(max=0)) for log in (here.logs[kind][:, None], there.logs[kind]))
        mine, theirs = sign * here.pull, sign * there.pull
    mine, theirs = mine[:, None].to(dtype), theirs.to(dtype)
    if cost is not None:
        mine, theirs = mine * (cost - here.mean[:, None].to(dtype)), theirs * (cost - there.mean.to(dtype))
    weights = e.mul_(mine + theirs) if shared else e.mul_(mine).add_(f.mul_(theirs))
    return torch.hardshrink(weights, _LEAST[dtype])  # products of smaller weights with points would be subnormal


class _Gathered:
    """H Z and the row sums of H for one side."""

    def __init__(self, points: Tensor) -> None:
        self.points = points
        self.push = torch.zeros_like(points)
        self.sums = points.new_zeros(len(points), dtype=torch.float64)

    def add(self, where: slice, weights: Tensor, others: Tensor) -> None:
        self.push[where].addmm_(weights, others)
        self.sums[where] += _row_sums(weights)

    def gradient(self, squared: bool) -> Tensor:
        """2 (H Z - rowsum(H) Z) for squared distances, H Z for inner products."""
        return 2 * (self.push - self.points * self.sums[:, None].to(self.points.dtype)) if squared else self.push


@dataclass(frozen=True)
class TorchTiles:
    """Tiles of block x block; memory O((n + m) d + block^2)."""

    block: int = 512

    def recordable(self, work: Work) -> bool:
        """See `Engine.recordable`."""
        return False

    def reads_points(self, work: Work) -> bool:
        """See `Engine.reads_points`."""
        return False

    def summaries(self, work: Work) -> tuple[Tensor, Tensor]:
        if asymmetric(work):
            return self.summaries(as_two_sets(work))
        sides, singles, sums = _sides(work), find_single_pairs(work), _Sums(work)
        if not sides.longest < _MOST:  # or nan
            return nan_summaries(work)
        spans = None if work.span is None else work.span.cpu()
        for tile, affinity in self._tiles(work, sides, tiles(work, singles, self._side(work))):
            cost = _costs(work, tile, affinity)
            for kind, part in _by_kind(spans, tile, affinity):
                _add_tile(sums, kind, tile, part, cost)
        first, second = sums.logs[POSITIVE] - sides.level, sums.logs[NEGATIVE] - sides.level
        if work.targets is not None:
            first, second = second, sums.mean
        pairs = single_pairs.candidates(singles)
        return single_pairs.add_single_pairs(work, pairs, single_pairs.affinities(work, pairs), first, second)

    def values(self, work: Work, form: Form, first: Tensor, second: Tensor, slope: float) -> Values:
        """See `Engine.values`."""
        return values_of(work, form, first, second, slope)

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor | None]:
        if asymmetric(work):
            to_queries, to_references = self.gradients(as_two_sets(work), first, second, pull)
            return to_queries if to_references is None else to_queries + to_references, None
        sides, singles = _sides(work), find_single_pairs(work)
        size = float(pull.abs().max()) or 1.0  # the pulls of a mean over many well-placed queries would underflow
        summary = (first.double(), second.double(), pull.double())
        here = _Pulls.of(work, *summary[:2], summary[2] / size, sides.level)
        own = work.references is None
        rows = _Gathered(sides.queries)
        columns = rows if own else _Gathered(sides.references)
        there = here if own else _Pulls.none(len(sides.references), here)
        spans = None if work.span is None else work.span.cpu()
        for tile, affinity in self._tiles(work, sides, tiles(work, singles, self._side(work))):
            cost = _costs(work, tile, affinity)
            top, left = slice(tile.top, tile.bottom), slice(tile.left, tile.right)
            parts = [_weights(kind, part, here.part(top), there.part(left), cost) for kind, part in _by_kind(spans, tile, affinity)]
            weights = parts[0] if len(parts) == 1 else parts[0].add_(parts[1])
            rows.add(top, weights, sides.references[left])
            if tile.mirrored or (not own and work.reference_gradient):
                columns.add(left, weights.T, sides.queries[top])
        to_queries = size * rows.gradient(work.squared)
        to_references = size * columns.gradient(work.squared) if not own and work.reference_gradient else None
        pairs = single_pairs.candidates(singles)
        single_pairs.add_gradients(
            work, pairs, single_pairs.weights(work, pairs, single_pairs.affinities(work, pairs), *summary), to_queries, to_references
        )
        return to_queries, to_references

    def _side(self, work: Work) -> int:
        return min(self.block, max(sizes(work)[:2]))

    def _tiles(self, work: Work, sides: _Sides, found: list[Tile]) -> Iterator[tuple[Tile, Tensor]]:
        buffer = sides.queries.new_empty(self._side(work) ** 2)
        for tile in found:
            yield tile, _affinities(sides, tile, buffer)
