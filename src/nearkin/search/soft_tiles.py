"""The mean target of soft neighbors on a CPU: tiles of distances that stay in a core's cache, from the product to the sums."""

from collections.abc import Iterator

import torch
from torch import Tensor

from nearkin.search.threads import run_in_threads

ROWS, COLUMNS = 256, 1024  # of a tile: 1 MB in float32
LONGEST = 80.0  # e^-80 adds nothing to a sum, and is no subnormal number, with which processors are slow
LEAST = 1e-22  # a sum above it has a reference so near that all others may end at LONGEST


def tiled_mean(
    queries: Tensor, references: Tensor, log_weights: Tensor, targets: Tensor, *, squared: bool, temperature: float, without: Tensor | None
) -> Tensor:
    """(n, t): the mean of `targets` (m, t), weighted by the softmax of `log_weights` (m,) minus the distances over the temperature.

    `without` (n,) is for each query the position of a reference that does not count, or -1.
    """
    center = references.mean(0)  # squares are differences of large products, which lose fewer digits around the middle
    scale = temperature**-0.5 if squared else 1 / temperature
    asked, known = (queries - center) * scale, (references - center) * scale
    left = torch.cat([-2 * asked, asked.square().sum(1, keepdim=True), asked.new_ones(len(asked), 1)], 1)
    right = torch.cat([known, known.new_ones(len(known), 1), known.square().sum(1, keepdim=True)], 1).T.contiguous()  # (d + 2, m)
    counted = torch.cat([targets.to(known), known.new_ones(len(known), 1)], 1)  # the last column adds up the weights
    weights = log_weights.to(known) if bool(log_weights.any()) else None
    found = queries.new_empty(len(queries), targets.shape[1])

    def work(piece: slice) -> None:
        asking, own = left[piece], None if without is None else without[piece]
        if weights is None:
            sums = _near_sums(asking, right, counted, own, squared)
            far = (sums[:, -1] < LEAST).nonzero()[:, 0]
        else:
            sums, far = left.new_empty(len(asking), counted.shape[1]), torch.arange(len(asking))
        if len(far):
            sums[far] = _far_sums(asking[far], right, counted, weights, None if own is None else own[far], squared)
        found[piece] = sums[:, :-1] / sums[:, -1:]

    run_in_threads(work, len(queries), ROWS)
    return found


def _near_sums(left: Tensor, right: Tensor, counted: Tensor, without: Tensor | None, squared: bool) -> Tensor:
    """(b, t + 1): the sums over all references of e^-distance times `counted`; too small for a row without a near reference."""
    sums = left.new_zeros(len(left), counted.shape[1])
    for start, tile in _tiles(left, right):
        tile.clamp_(0, LONGEST if squared else LONGEST**2)
        if not squared:
            tile.sqrt_()
        _leave_out(tile, start, without)
        sums.addmm_(tile.neg_().exp_(), counted[start : start + COLUMNS])
    return sums


def _far_sums(left: Tensor, right: Tensor, counted: Tensor, weights: Tensor | None, without: Tensor | None, squared: bool) -> Tensor:
    """The same sums, with the log weights, each row relative to its nearest reference."""
    nearest, sums = left.new_full((len(left), 1), torch.inf), left.new_zeros(len(left), counted.shape[1])
    for start, tile in _tiles(left, right):
        tile.clamp_min_(0)
        if not squared:
            tile.sqrt_()
        if weights is not None:
            tile.sub_(weights[start : start + COLUMNS])
        _leave_out(tile, start, without)
        nearer = torch.minimum(nearest, tile.amin(1, keepdim=True))
        base = torch.where(nearer.isinf(), 0.0, nearer)  # nothing but the row itself so far
        shares = torch.sub(base, tile, out=tile).clamp_min_(-LONGEST).exp_()
        sums.mul_((base - nearest).exp_()).addmm_(shares, counted[start : start + COLUMNS])
        nearest = nearer
    return sums


def _tiles(left: Tensor, right: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The squared distances (b, COLUMNS) to some references after the others, in one buffer, and the position of the first."""
    buffer = left.new_empty(len(left) * COLUMNS)
    for start in range(0, right.shape[1], COLUMNS):
        columns = right[:, start : start + COLUMNS]
        yield start, torch.mm(left, columns, out=buffer[: len(left) * columns.shape[1]].view(len(left), -1))


def _leave_out(tile: Tensor, start: int, without: Tensor | None) -> None:
    if without is not None:
        rows = ((without >= start) & (without < start + tile.shape[1])).nonzero()[:, 0]
        tile[rows, without[rows] - start] = torch.inf
