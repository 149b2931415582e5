"""Measure: a known affinity taken apart, into what is fast (products of float32 factors) and what is exact (pairs in float64).

The fast part finds candidates, the exact part ranks them, and `slack` bounds how far the two can differ. So a ranking never
depends on rounding, on block sizes or on where the data sit, and equal rows are equal.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.metrics import product_form

SAMPLED = 1000  # rows that show how far the data spread
PAIRED = 1 << 22  # numbers gathered at once for exact pairs
GRAIN = 2.0**-42
SAFE = 1e15  # coordinates between its inverse and it can be squared and summed in float32


class Measure(NamedTuple):
    """A product form over a temperature; see `nearkin.compose.metrics`."""

    squared: bool
    root: bool = False
    unit_queries: bool = False
    unit_references: bool = False
    temperature: float = 1.0

    @property
    def step(self) -> float:
        """Scores are rounded to multiples of it, so that parallel vectors tie; 0 leaves them: only lengths brought to 1 leave errors."""
        return GRAIN if self.unit_queries and self.unit_references else 0.0

    def affinity(self, scores: Tensor) -> Tensor:
        """The affinity of a score: its root where the form has one, over the temperature; -inf stays."""
        return (-(-scores).sqrt() if self.root else scores) / self.temperature


class Factors(NamedTuple):
    """Queries and references made ready: products 2 q.r - |r|^2 (or q.r) of `queries` and `references` rank like the scores."""

    queries: Tensor  # (n, d)
    references: Tensor  # (m, d)
    minus: Tensor  # (m,) -|r|^2, or zeros
    squares: Tensor  # (n,) float64, square lengths of the queries
    longest: float  # of the references


def measure(affinity: Affinity) -> Measure | None:
    """The affinity taken apart, by the metric it declares; None for one that declares none."""
    if not callable(affinity):
        raise TypeError(f"affinity must be a function of queries and references, such as nearkin.compose.cosine(), not {affinity!r}")
    form, temperature = product_form(affinity), float(getattr(affinity, "temperature", 1.0))
    return None if form is None or not temperature > 0 else Measure(*form, temperature)


def inverse_lengths(x: Tensor, unit: bool) -> Tensor:
    """(n,) float64: what brings rows to length 1, zero rows left as they are; ones when they keep their length."""
    if not unit:
        return torch.ones(len(x), dtype=torch.float64, device=x.device)
    lengths = torch.cat([part.double().norm(dim=1) for part in torch.split(x, max(PAIRED // x.shape[1], 1))])
    return torch.where(lengths > 0, 1 / lengths, 1.0)


def factors(how: Measure, queries: Tensor, references: Tensor, to_unit: tuple[Tensor, Tensor]) -> Factors:
    """Both sides on unit length if the measure says so, and around the references' mean for distances."""
    q, r = (queries, references) if not how.unit_queries else (queries * to_unit[0][:, None].to(queries.dtype), references)
    r = r * to_unit[1][:, None].to(r.dtype) if how.unit_references else r
    if how.squared:
        middle = center(r)
        q, r = q - middle, r - middle
    # a norm is much faster than a sum of squares, and its root costs a digit: the slack allows for it in float32
    sizes = torch.linalg.vector_norm(r, dim=1).square() if r.dtype == torch.float32 else _squares(r)
    minus = -sizes if how.squared else torch.zeros_like(sizes)
    return Factors(2 * q if how.squared else q, r, minus, _squares(q), float(sizes.max().sqrt()))


def slack(how: Measure, made: Factors, scores: Tensor) -> Tensor:
    """(n,) how far a product may be from its score, for any reference whose true score is not below `scores` (n,).

    d roundings of the sum and a few of the factors. A reference half as far again from the center as the score allows is
    too far off to be mistaken, so one outlier among them does not spoil the bound.
    """
    d, roundoff = made.queries.shape[1], torch.finfo(made.queries.dtype).eps / 2
    tiny = torch.finfo(made.queries.dtype).tiny * (d + 1) * 4
    lengths = made.squares.sqrt()
    reach = torch.full_like(lengths, made.longest)
    if not how.squared:
        return (d + 32) * roundoff * reach * lengths + tiny
    reach = torch.minimum(reach, (lengths + (-scores).sqrt()) * 1.5)
    return roundoff * ((2 * d + 32) * reach * (lengths + reach) + 32 * made.squares) + tiny


def grain(how: Measure, made: Factors) -> Tensor:
    """(n,) float64: scores that differ by less are equal but for rounding; 0 where squared distances round well by themselves.

    A cosine of 0, or the distance of parallel vectors, comes out as 1e-17 or 3e-17: small numbers that rounding to float32
    would keep apart.
    """
    if how.squared and not how.unit_queries:
        return torch.zeros_like(made.squares)
    unit = how.unit_queries and how.unit_references
    return torch.ones_like(made.squares) * GRAIN if unit else made.squares.sqrt() * made.longest * GRAIN


def shown(how: Measure, made: Factors, scores: Tensor) -> Tensor:
    """Exact scores (n,) in the units of the products."""
    return scores + made.squares if how.squared else scores


def exact_scores(how: Measure, queries: Tensor, references: Tensor, to_unit: tuple[Tensor, Tensor], columns: Tensor) -> Tensor:
    """(n, k) float64: the score of each query with the references at `columns` (n, k), -inf where a column is -1."""
    n, k = columns.shape
    rows = torch.arange(n, device=columns.device)[:, None].expand(n, k).reshape(-1)
    scores = pair_scores(how, queries, references, to_unit, rows, columns.clamp_min(0).reshape(-1)).view(n, k)
    return scores.masked_fill(columns < 0, -torch.inf)


def pair_scores(how: Measure, queries: Tensor, references: Tensor, to_unit: tuple[Tensor, Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """(p,) float64: the scores of pairs, each summed over differences, independent of its block."""
    parts = []
    step = max(PAIRED // queries.shape[1], 1)
    for some, others in zip(torch.split(rows, step), torch.split(columns, step), strict=True):
        q, r = queries[some].double(), references[others].double()
        q = q * to_unit[0][some, None] if how.unit_queries else q
        r = r * to_unit[1][others, None] if how.unit_references else r
        parts.append(-(q - r).square().sum(1) if how.squared else (q * r).sum(1))
    found = torch.cat(parts)
    return (found / how.step).round() * how.step + 0.0 if how.step else found  # not -0


def center(x: Tensor) -> Tensor:
    """The mean, rounded to a power of two below the spread: no digits are lost, and whole numbers keep their exact ties."""
    mean = x.mean(0)
    some = x[:: max(len(x) // SAMPLED, 1)]
    spread = float((some - mean).square().mean().sqrt())
    if not 0 < spread < math.inf:
        return x[0]
    step = 2.0 ** math.floor(math.log2(spread))
    return (mean / step).round() * step


def _squares(x: Tensor) -> Tensor:
    """(n,) float64 square lengths."""
    return torch.cat([part.double().square().sum(1) for part in torch.split(x, max(PAIRED // x.shape[1], 1))])


def in_range(x: Tensor) -> Tensor:
    """The same rows, in float64 when float32 could not hold their squares."""
    largest = max(abs(float(end)) for end in torch.aminmax(x))
    return x if largest == 0 or 1 / SAFE < largest < SAFE else x.double()
