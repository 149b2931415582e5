"""The anchors of Hao et al. (2018), section 3.2, as they print them: a baseline for the layouts of ours, which spread wider."""

import math

import torch
from torch import Tensor

from nearkin.compose.references.anchors import smallest_angle


def polar_grid(num_classes: int, dimension: int) -> Tensor:
    """[hao2018anchor]'s own recipe, kept for comparison: a mesh over the polar angles, the best factorization of C.

    Only good in the plane: from three dimensions on the points bunch at the poles. [hao2018anchor] section 3.2
    """
    best, widest = None, -1.0
    for counts in _factorizations(num_classes, dimension - 1):
        grid = _mesh(counts)[:num_classes]
        angle = smallest_angle(grid)
        if angle > widest:
            best, widest = grid, angle
    assert best is not None
    return best.float()


def _factorizations(total: int, parts: int) -> list[tuple[int, ...]]:
    """Ways to lay out at least `total` points as a grid of `parts` counts, none wasteful."""
    if parts == 1:
        return [(total,)]
    ways = []
    for first in range(1, total + 1):
        ways += [(first, *rest) for rest in _factorizations(math.ceil(total / first), parts - 1)]
        if first > 1 and parts > 3:  # deep grids: every split of a few points is the same poor picture
            break
    return ways


def _mesh(counts: tuple[int, ...]) -> Tensor:
    """Unit vectors at the cell middles of the polar angles, and all round for the last angle."""
    polar = [(torch.arange(c, dtype=torch.float64) + 0.5) * (math.pi / c) for c in counts[:-1]]
    azimuth = torch.arange(counts[-1], dtype=torch.float64) * (2 * math.pi / counts[-1])
    angles = torch.cartesian_prod(*polar, azimuth) if polar else azimuth[:, None]
    angles = angles.reshape(-1, len(counts))
    columns, sine = [], torch.ones(len(angles), dtype=torch.float64)
    for axis in range(angles.shape[1]):
        columns.append(sine * angles[:, axis].cos())
        sine = sine * angles[:, axis].sin()
    return torch.stack([*columns, sine], dim=1)
