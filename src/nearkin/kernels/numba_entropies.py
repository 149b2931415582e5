"""Sums that entropies over all pairs need, from half of the pairs: 2^u and u 2^u with u = scale (x_i . x_j - 1), on BLAS tiles."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from nearkin.kernels.numba_loops import Array, Scalar, exp2, inner, outer
from nearkin.kernels.numba_tiles import single_threaded_blas

BLOCK = 512
_F = np.float32


@inner(True)
def _row(tile: Array, i: int, scale: Scalar, total: Array, weighted: Array) -> tuple[Scalar, Scalar]:
    """Return the two sums of one row; add the terms to the sums of the columns."""
    row = tile[i]
    whole, costly = _F(0), _F(0)
    for j in range(row.size):
        u = max(scale * (row[j] - _F(1)), _F(-126))
        e = exp2(u)
        h = e * u
        whole += e
        costly += h
        total[j] += e
        weighted[j] += h
    return whole, costly


@outer
def _add(tile: Array, scale: Scalar, rows: Array, columns: Array, mirrored: bool) -> None:
    """Add a tile's sums to those of its rows (2, r) and, off the diagonal, of its columns (2, c)."""
    total, weighted = np.zeros(tile.shape[1], _F), np.zeros(tile.shape[1], _F)
    for i in range(tile.shape[0]):
        whole, costly = _row(tile, i, scale, total, weighted)
        rows[0, i] += whole
        rows[1, i] += costly
    if mirrored:
        for j in range(tile.shape[1]):
            columns[0, j] += total[j]
            columns[1, j] += weighted[j]


def pair_sums(x: Tensor, scale: float) -> Tensor:
    """(2, n) float64: the sums over all j of 2^u_ij and of u_ij 2^u_ij for unit vectors `x` (n, d) float32."""
    starts = range(0, len(x), BLOCK)
    blocks = [x[start : start + BLOCK] for start in starts]
    turned = [block.T.contiguous() for block in blocks]
    tiles = [(i, j) for i in range(len(blocks)) for j in range(i, len(blocks))]

    def share(some: list[tuple[int, int]]) -> Array:
        sums, room = np.zeros((2, len(x))), x.new_empty(BLOCK * BLOCK)
        for i, j in some:
            tile = room[: len(blocks[i]) * len(blocks[j])].view(len(blocks[i]), len(blocks[j]))
            torch.mm(blocks[i], turned[j], out=tile)
            rows, columns = (sums[:, k * BLOCK : k * BLOCK + len(blocks[k])] for k in (i, j))
            _add(tile.numpy(), _F(scale), rows, columns, j > i)
        return sums

    with single_threaded_blas() as threads:
        if threads == 1:
            return torch.from_numpy(share(tiles))
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return torch.from_numpy(sum(pool.map(share, [tiles[k::threads] for k in range(threads)]), np.zeros((2, len(x)))))
