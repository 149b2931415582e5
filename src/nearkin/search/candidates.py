"""Candidates for the k nearest, from products alone, in torch: for CUDA, and for a CPU without numba.

The K best of a row lie in the K groups of columns with the largest maxima. So `topk`, which is slow, first sees one number
for each group and then only the columns of the best groups.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nearkin.search.exclusion import Exclusion
from nearkin.search.measure import Factors

GROUP = 32  # columns that share one maximum
CPU_TILE = (1024, 8192)
CUDA_NUMBERS = 1 << 28  # products held at once: 1 GB in float32


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch tf32 off: the error bound of the products assumes full float32 precision."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def candidates(made: Factors, count: int, excluded: Exclusion) -> tuple[Tensor, Tensor]:
    """Return the `count` largest products of every query and their columns, unordered; -inf and -1 where there are fewer."""
    n, m = len(made.queries), len(made.references)
    rows, columns = _tile(made.queries.device, m)
    parts = []
    for top in range(0, n, rows):
        best: tuple[Tensor, Tensor] | None = None
        for left in range(0, m, columns):
            values, found = _largest(_products(made, slice(top, top + rows), slice(left, left + columns), excluded), count)
            here = values, torch.where(values > -torch.inf, found + left, -1)
            best = here if best is None else _merge_largest(best, here, count)
        assert best is not None
        parts.append(best)
    return torch.cat([values for values, _ in parts]), torch.cat([found for _, found in parts])


def pairs_reaching(made: Factors, rows: Tensor, floor: Tensor, excluded: Exclusion) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the pairs (index in `rows`, column) whose product reaches the `floor` of the row, sorted by row, tile after tile."""
    m = len(made.references)
    _, columns = _tile(made.queries.device, m)
    for left in range(0, m, columns):
        products = _products(made, rows, slice(left, left + columns), excluded)
        found = ((products.double() >= floor[:, None]) & (products > -torch.inf)).nonzero()
        yield found[:, 0], found[:, 1] + left


def _products(made: Factors, rows: slice | Tensor, columns: slice, excluded: Exclusion) -> Tensor:
    """(rows, columns) products, -inf where excluded."""
    products = torch.addmm(made.minus[columns], made.queries[rows], made.references[columns].T)
    hidden = excluded.mask(rows, columns)
    return products if hidden is None else products.masked_fill_(hidden, -torch.inf)


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Row-wise: the `count` largest of x (n, m) and their columns, unordered; any of them among equals."""
    n, m = x.shape
    if m <= count:
        return x, torch.arange(m, device=x.device).expand(n, m)
    whole = m // GROUP  # groups; group g holds the columns g, g + whole, ...: its maximum is a fast reduction over rows
    if whole < 2 * count:
        values, columns = x.topk(count, dim=1, sorted=False)
        return values, columns
    tops = x[:, : whole * GROUP].view(n, GROUP, whole).amax(1)  # (n, whole)
    groups = tops.topk(count, dim=1, sorted=False).indices  # (n, count)
    columns = (groups[:, :, None] + whole * torch.arange(GROUP, device=x.device)).flatten(1)
    if whole * GROUP < m:
        rest = torch.arange(whole * GROUP, m, device=x.device).expand(n, -1)
        columns = torch.cat([columns, rest], 1)
    values, at = x.gather(1, columns).topk(count, dim=1, sorted=False)
    return values, columns.gather(1, at)


def _merge_largest(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    values, columns = torch.cat([a[0], b[0]], 1), torch.cat([a[1], b[1]], 1)
    if values.shape[1] <= count:
        return values, columns
    values, at = values.topk(count, dim=1, sorted=False)
    return values, columns.gather(1, at)


def _tile(device: torch.device, m: int) -> tuple[int, int]:
    """Rows and columns of products held at once."""
    return CPU_TILE if device.type == "cpu" else (max(CUDA_NUMBERS // m, 1), m)
