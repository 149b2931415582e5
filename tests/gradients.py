"""The papers' hand-derived gradients as literal loops: corrected ones (marked *) and, where the
print is wrong, the printed ones, so that a test can show that nearkin does not compute them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tests import oracles as o


def chances(z: Tensor) -> Tensor:
    """p_ij of NCA, p_ii = 0, (n, n)."""
    rows = o.scalars(z)
    crowd = o.Crowd(rows, [0] * len(rows), range(len(rows)))
    p = z.new_zeros(len(rows), len(rows))
    for i in range(len(rows)):
        for j, value in o.neighbor_chances(crowd, i, crowd, o.minus_squared()).items():
            p[i, j] = value
    return p


def _kin(y: Sequence[int], k: int) -> list[int]:
    return [j for j in range(len(y)) if j != k and y[j] == y[k]]


def _others(n: int, k: int) -> list[int]:
    return [j for j in range(n) if j != k]


def _right_chance(p: Tensor, y: Sequence[int]) -> list[Tensor]:
    return [sum((p[i, j] for j in _kin(y, i)), torch.zeros_like(p[0, 0])) for i in range(len(y))]


def nca_17(z: Tensor, y: Sequence[int]) -> Tensor:
    """Taylor et al. 2010, eq. (17): dL/dz of L = -sum_i p_i."""
    p, n = chances(z), len(z)
    right, gradient = _right_chance(p, y), torch.zeros_like(z)
    for k in range(n):
        for j in _kin(y, k):
            gradient[k] += 2 * (z[k] - z[j]) * (p[k, j] + p[j, k])
        for j in _others(n, k):
            gradient[k] -= 2 * (z[k] - z[j]) * (right[k] * p[k, j] + right[j] * p[j, k])
    return gradient


def nca_18(z: Tensor, y: Sequence[int]) -> Tensor:
    """Taylor et al. 2010, eq. (18*): -dL/dz, with z_j in the second term."""
    p, n = chances(z), len(z)
    right, descent = _right_chance(p, y), torch.zeros_like(z)
    for k in range(n):
        for j in _kin(y, k):
            descent[k] += -2 * p[k, j] * (z[k] - z[j]) + 2 * p[j, k] * (z[j] - z[k])
        for j in _others(n, k):
            descent[k] += 2 * right[k] * p[k, j] * (z[k] - z[j]) - 2 * right[j] * p[j, k] * (z[j] - z[k])
    return descent


def _pair(z: Tensor, i: int, j: int) -> Tensor:
    """D^(ij): the derivative of |z_i - z_j|^2 in all of z."""
    derivative = torch.zeros_like(z)
    derivative[i] += 2 * (z[i] - z[j])
    derivative[j] += 2 * (z[j] - z[i])
    return derivative


def nca_error_5(z: Tensor, y: Sequence[int], printed: bool = False) -> Tensor:
    """Ren et al. 2014, eq. (5*): de/dz of the expected error. As printed, E_i of eq. (6) holds D_ij where D_ik belongs."""
    p, n, gradient = chances(z), len(z), torch.zeros_like(z)
    for i in range(n):
        for j in _kin(y, i):
            inner = sum(p[i, k] * _pair(z, i, j if printed else k) for k in _others(n, i))
            gradient += p[i, j] * (_pair(z, i, j) - inner) / n
    return gradient


def ncar_26(z: Tensor, y: Tensor) -> Tensor:
    """Taylor et al. 2010, eq. (26), of L = sum_i sum_j p_ij |y_i - y_j|^2."""
    p, n, gradient = chances(z), len(z), torch.zeros_like(z)
    cost = [[o.target_distance(a, b) for b in y.tolist()] for a in y.tolist()]
    delta = [sum(cost[i][j] * p[i, j] for j in _others(n, i)) for i in range(n)]
    for k in range(n):
        for j in _others(n, k):
            gradient[k] -= 2 * (z[k] - z[j]) * (p[k, j] * (cost[k][j] - delta[k]) + p[j, k] * (cost[j][k] - delta[j]))
    return gradient


def ncar_22(z: Tensor, y: Tensor, printed: bool) -> Tensor:
    """Taylor et al. 2010, eq. (22), whose last sum runs over j != k in print and over j != i in truth."""
    p, n, gradient = chances(z), len(z), torch.zeros_like(z)
    cost = [[o.target_distance(a, b) for b in y.tolist()] for a in y.tolist()]
    for k in range(n):
        inner = torch.zeros_like(z[k])
        for j in _others(n, k):
            inner += cost[k][j] * p[k, j] * (z[k] - z[j]) + cost[j][k] * p[j, k] * (z[k] - z[j])
            for m in _others(n, k):
                inner -= cost[k][j] * p[k, j] * p[k, m] * (z[k] - z[m])
        for i in range(n):
            for j in _others(n, k if printed else i):
                inner -= cost[i][j] * p[i, j] * p[i, k] * (z[k] - z[i])
        gradient[k] = -2 * inner
    return gradient


def ncm_6(f: Tensor, y: Sequence[int], anchors: Tensor, metric: str) -> Tensor:
    """Hao et al. 2018, eq. (6*): dL/df = (1/N) sum_c ([y = c] - p_c) dM(f, a_c)/df."""
    gradient = torch.zeros_like(f)
    for i in range(len(f)):
        measure, slope = [], []
        for a in anchors:
            if metric == "euclidean":
                measure.append((f[i] - a).norm())
                slope.append((f[i] - a) / (f[i] - a).norm())
            else:
                cos = f[i] @ a / (f[i].norm() * a.norm())
                measure.append(1 - cos)
                slope.append(-(a / a.norm() - cos * f[i] / f[i].norm()) / f[i].norm())
        total = sum((-m).exp() for m in measure)
        for c in range(len(anchors)):
            gradient[i] += (float(y[i] == c) - (-measure[c]).exp() / total) * slope[c] / len(f)
    return gradient


def discovery_9_10_11(x: Tensor, i: int, neighbors: set[int], temperature: float) -> Tensor:
    """Huang et al. 2019, for one query i with all x live, its neighborhood N = neighbors and itself.

    Instances (N = {i}), eq. (9); neighborhoods, eq. (10*) for x_i and (11) for the others.
    """
    right = {i, *neighbors}
    near = [(x[i] @ v / temperature).exp() for v in x]
    p = [e / sum(near) for e in near]
    share = [p[j] / sum(p[k] for k in right) if j in right else torch.zeros_like(p[j]) for j in range(len(x))]
    gradient = torch.zeros_like(x)
    for j in range(len(x)):
        if j != i:
            gradient[j] = (p[j] - share[j]) * x[i] / temperature
    pull = sum(p[k] * x[k] for k in range(len(x)))
    if right == {i}:
        gradient[i] = (pull + (p[i] - 2) * x[i]) / temperature
    else:
        gradient[i] = (pull - sum(share[k] * x[k] for k in right) + (p[i] - share[i]) * x[i]) / temperature
    return gradient
