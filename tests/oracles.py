"""Every objective as its equation: plain loops over float64 scalars, nothing of nearkin imported.

Rows are lists of torch scalars (`scalars`), so that the gradient of an oracle is autograd's through the loop. An oracle
returns one (value, weight) for each query; the mean is sum(weight * value) / sum(weight), and SKIPPED is a query that
has nothing to choose.

Some of these functions have corners (a hinge at zero, a tie at the edge of the k nearest, a distance of zero), where no
gradient exists, and one choice of triplets even jumps. Each evaluation leaves its distance from every corner and jump in
`corners` and `jumps`; `smooth` and `steady` say whether gradients and values may be compared there.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

Row = Sequence[Tensor]
Near = Callable[[Row, Row], Tensor]
Values = list[tuple[Any, float]]
SKIPPED = (0.0, 0.0)

corners: list[float] = []
jumps: list[float] = []


def fresh() -> None:
    corners.clear()
    jumps.clear()


def smooth(clearance: float = 1e-6) -> bool:
    return min(corners + jumps, default=math.inf) > clearance


def steady(clearance: float = 1e-9) -> bool:
    return min(jumps, default=math.inf) > clearance


def number(x: Any) -> float:
    return x.item() if isinstance(x, Tensor) else float(x)


def corner(distance: Any) -> None:
    corners.append(abs(number(distance)))


class Crowd(NamedTuple):
    """Points: where they are, what they are, who they are."""

    z: list[Row]
    y: Sequence[Any]
    ids: Sequence[int]


def scalars(x: Tensor) -> list[Row]:
    return [row.unbind() for row in x.reshape(len(x), -1).unbind()]


# How near: larger is nearer.


def dot(a: Row, b: Row) -> Tensor:
    return sum(x * y for x, y in zip(a, b, strict=True))


def squared(a: Row, b: Row) -> Tensor:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def distance(a: Row, b: Row) -> Tensor:
    square = squared(a, b)
    corner(square)
    return square.sqrt()


def length(a: Row) -> Tensor:
    square = dot(a, a)
    corner(square)
    return square.sqrt()


def unit(a: Row) -> Row:
    size = length(a)
    return [x / size for x in a] if size > 0 else a


def minus_squared(temperature: float = 1.0) -> Near:
    return lambda a, b: -squared(a, b) / temperature


def cosine(temperature: float = 1.0) -> Near:
    return lambda a, b: dot(unit(a), unit(b)) / temperature


def linear(x: Row, w: Row) -> Tensor:
    """A head's row carries its bias last."""
    return dot(x, w[:-1]) + w[-1]


# How near it should be.


def other_class(a: Any, b: Any) -> float:
    return float(a != b)


def target_distance(a: Sequence[float], b: Sequence[float]) -> float:
    return sum((s - t) ** 2 for s, t in zip(a, b, strict=True))


def overlap_cost(a: Sequence[int], b: Sequence[int]) -> float:
    """1 - |A and B| / |A or B|; two empty sets share nothing."""
    both = sum(1 for s, t in zip(a, b, strict=True) if s and t)
    either = sum(1 for s, t in zip(a, b, strict=True) if s or t)
    return 1 - both / either if either else 1.0


def others_of(q: Crowd, i: int, r: Crowd) -> list[int]:
    """All references except the query itself, which is known by its id."""
    return [j for j in range(len(r.z)) if r.ids[j] != q.ids[i]]


def split(q: Crowd, i: int, r: Crowd) -> tuple[list[int], list[int]]:
    others = others_of(q, i, r)
    return [j for j in others if r.y[j] == q.y[i]], [j for j in others if r.y[j] != q.y[i]]


# Soft neighbors: Ren et al. 2014, Taylor et al. 2010, Huang et al. 2019.


def chances(near: dict[int, Tensor]) -> dict[int, Tensor]:
    """p_j = exp(s_j) / sum_k exp(s_k)."""
    total = sum(s.exp() for s in near.values())
    return {j: s.exp() / total for j, s in near.items()}


def neighbor_chances(q: Crowd, i: int, r: Crowd, near: Near) -> dict[int, Tensor]:
    return chances({j: near(q.z[i], r.z[j]) for j in others_of(q, i, r)})


def nca_log(q: Crowd, r: Crowd, near: Near) -> Values:
    """-log p_i, p_i = sum of p_ij over the same class."""
    result: Values = []
    for i in range(len(q.z)):
        p = neighbor_chances(q, i, r, near)
        positives = [p[j] for j in p if r.y[j] == q.y[i]]
        result.append((-sum(positives).log(), 1.0) if positives else SKIPPED)
    return result


def nca_expected(q: Crowd, r: Crowd, near: Near) -> Values:
    """1 - p_i; without positives p_i = 0."""
    result: Values = []
    for i in range(len(q.z)):
        p = neighbor_chances(q, i, r, near)
        result.append((1 - sum(p[j] for j in p if r.y[j] == q.y[i]), 1.0) if p else SKIPPED)
    return result


def expected_cost(q: Crowd, r: Crowd, near: Near, cost: Callable[[Any, Any], float]) -> Values:
    """sum_j p_ij cost(y_i, y_j): NCA regression with the squared distance of targets."""
    result: Values = []
    for i in range(len(q.z)):
        p = neighbor_chances(q, i, r, near)
        result.append((sum(p[j] * cost(q.y[i], r.y[j]) for j in p), 1.0) if p else SKIPPED)
    return result


def shared_log(q: Crowd, r: Crowd, near: Near, cost: Callable[[Any, Any], float]) -> Values:
    """-log sum_j p_ij (1 - cost_ij): NCA on label sets."""
    result: Values = []
    for i in range(len(q.z)):
        p = neighbor_chances(q, i, r, near)
        share = {j: 1 - cost(q.y[i], r.y[j]) for j in p}
        some = any(s > 0 for s in share.values())
        result.append((-sum(p[j] * share[j] for j in p).log(), 1.0) if some else SKIPPED)
    return result


def discovery(z: list[Row], ids: Sequence[int], bank: list[Row], temperature: float, right: Callable[[int], Iterable[int]]) -> Values:
    """-log of p summed over {i} and right(i); the bank is taken as it is, the query at unit length, and i is a candidate."""
    result: Values = []
    for x, i in zip(z, ids, strict=True):
        direction = unit(x)
        p = chances({j: dot(direction, v) / temperature for j, v in enumerate(bank)})
        result.append((-sum(p[j] for j in {i, *right(i)}).log(), 1.0))
    return result


def bank_update(bank: list[list[float]], z: list[list[float]], ids: Sequence[int], momentum: float) -> list[list[float]]:
    """v_i <- unit((1 - momentum) v_i + momentum unit(x_i))."""
    moved = [list(v) for v in bank]
    for x, i in zip(z, ids, strict=True):
        size = math.hypot(*x)
        mixed = [(1 - momentum) * v + momentum * s / size for v, s in zip(bank[i], x, strict=True)]
        moved[i] = [v / math.hypot(*mixed) for v in mixed]
    return moved


# Class vectors: Hao et al. 2018 and the classification heads.


def _classify(logits: list[Tensor], y: int) -> Tensor:
    return -(logits[y].exp() / sum(s.exp() for s in logits)).log()


def nearest_class_mean(z: list[Row], y: Sequence[int], anchors: list[Row], metric: str, scale: float) -> Values:
    measure = distance if metric == "euclidean" else lambda f, a: 1 - cosine()(f, a)
    return [(_classify([-scale * measure(f, a) for a in anchors], c), 1.0) for f, c in zip(z, y, strict=True)]


def softmax(z: list[Row], y: Sequence[int], head: list[Row]) -> Values:
    return [(_classify([linear(x, w) for w in head], c), 1.0) for x, c in zip(z, y, strict=True)]


def normalized_softmax(z: list[Row], y: Sequence[int], proxies: list[Row], temperature: float) -> Values:
    return [(_classify([cosine(temperature)(x, p) for p in proxies], c), 1.0) for x, c in zip(z, y, strict=True)]


def proxy_nca(z: list[Row], y: Sequence[int], proxies: list[Row], temperature: float, form: str) -> Values:
    """The published denominator leaves the own class out."""
    result: Values = []
    for x, c in zip(z, y, strict=True):
        near = [(-squared(unit(x), unit(p)) / temperature).exp() for p in proxies]
        competitors = [e for j, e in enumerate(near) if form == "softmax" or j != c]
        result.append((-(near[c] / sum(competitors)).log(), 1.0))
    return result


def hinge(x: Tensor) -> Tensor:
    corner(x)
    return x if x > 0 else x * 0


def crammer_singer(z: list[Row], y: Sequence[int], head: list[Row], margin: float) -> Values:
    result: Values = []
    for x, c in zip(z, y, strict=True):
        s = [linear(x, w) for w in head]
        competitors = [s[j] for j in range(len(s)) if j != c]
        result.append((hinge(margin + largest(competitors) - s[c]), 1.0))
    return result


def weston_watkins(z: list[Row], y: Sequence[int], head: list[Row], margin: float) -> Values:
    result: Values = []
    for x, c in zip(z, y, strict=True):
        s = [linear(x, w) for w in head]
        gaps = [hinge(margin + s[j] - s[c]) for j in range(len(s)) if j != c]
        result.append((sum(gaps) / len(gaps), 1.0))
    return result


def one_vs_rest(z: list[Row], y: Sequence[int], head: list[Row], margin: float) -> Values:
    return [(sum(hinge(margin - (1 if j == c else -1) * linear(x, w)) for j, w in enumerate(head)), 1.0) for x, c in zip(z, y, strict=True)]


def large_margin_softmax(z: list[Row], y: Sequence[int], proxies: list[Row], m: int, mix: float) -> Values:
    """psi by the angle: (-1)^j cos(m theta) - 2 j on the j-th of m intervals; mix is the annealing's lambda."""
    result: Values = []
    for x, c in zip(z, y, strict=True):
        logits = []
        for j, w in enumerate(proxies):
            cos = dot(unit(x), unit(w))
            if j == c:
                corner(1 - number(cos) ** 2)  # acos has no slope at its ends
                theta = cos.clamp(-1, 1).acos()
                turn = min(int(number(theta) * m / math.pi), m - 1)
                psi = (-1) ** turn * (m * theta).cos() - 2 * turn
                cos = (mix * cos + psi) / (1 + mix)
            logits.append(length(x) * length(w) * cos)
        result.append((_classify(logits, c), 1.0))
    return result


def center_pull(z: list[Row], y: Sequence[int], centers: list[Row]) -> Values:
    return [(squared(x, centers[c]) / 2, 1.0) for x, c in zip(z, y, strict=True)]


def center_update(centers: list[list[float]], z: list[list[float]], y: Sequence[int], rate: float) -> list[list[float]]:
    """c_j -= rate * sum over its members of (c_j - x_i) / (1 + n_j)."""
    moved = []
    for j, c in enumerate(centers):
        members = [x for x, label in zip(z, y, strict=True) if label == j]
        moved.append([v - rate * sum(v - x[t] for x in members) / (1 + len(members)) for t, v in enumerate(c)])
    return moved


# Top k: Lu et al. 2019.


def largest(values: Sequence[Tensor]) -> Tensor:
    first, *rest = sorted(values, key=number, reverse=True)
    if rest:
        corner(first - rest[0])
    return first


def _edge(s: dict[int, Tensor], order: list[int], k: int) -> None:
    """A tie between ranks k and k + 1 is a corner."""
    if 0 < k < len(order):
        corner(s[order[k - 1]] - s[order[k]])


def misplaced(s: dict[int, Tensor], positives: Sequence[int], k: int, margin: float) -> tuple[list[int], list[int], dict[int, Tensor]]:
    """The sets P (right, outside) and N (wrong, inside) by rank, eq. (6), (7), (9), (10), and eq. (4)'s s'."""
    s = {j: v if j in positives else v + margin for j, v in s.items()}
    order = sorted(s, key=lambda j: (-number(s[j]), j))
    k = min(k, len(order))
    _edge(s, order, k)
    inside = [j for j in order[:k] if j not in positives]
    outside = [j for j in order[k:] if j in positives]
    if len(positives) < k:
        _edge(s, inside, len(inside) - len(outside))
        return outside, inside[len(inside) - len(outside) :], s
    _edge(s, outside, len(inside))
    return outside[: len(inside)], inside, s


def precision_gap(s: dict[int, Tensor], positives: Sequence[int], k: int, margin: float) -> Any:
    """Eq. (5): the sum of s' over N minus the sum over P."""
    right, wrong, helped = misplaced(s, positives, k, margin)
    return sum(helped[j] for j in wrong) - sum(helped[j] for j in right)


def _soft_peak(s: list[Tensor]) -> Tensor:
    return 2 / 40 * (1 + sum((40 * (v - 0.5)).exp() for v in s)).log()


def _top(s: dict[int, Tensor], among: Iterable[int], k: int) -> list[Tensor]:
    order = sorted(among, key=lambda j: -number(s[j]))
    _edge(s, order, k)
    return [s[j] for j in order[:k]]


def released_term(s: dict[int, Tensor], positives: Sequence[int], k: int, margin: float) -> Any:
    """What the released code adds: a soft peak in the top-k sums, but none in the sum of all right ones."""
    s = {j: v if j in positives else v + margin for j, v in s.items()}
    k = min(k, len(s))
    ideal = _top(s, positives, k) if len(positives) >= k else _top(s, [j for j in s if j not in positives], k - len(positives))
    return _soft_peak(_top(s, s, k)) - _soft_peak(ideal)


def precision_at_k(q: Crowd, k: int, margin: float, released: bool = False, covariance: float = 0.0, balanced: bool = False) -> Values:
    result: Values = []
    spread = covariance * covariance_spread(q.z) if covariance else 0.0
    for i in range(len(q.z)):
        positives, _ = split(q, i, q)
        if not positives:
            result.append(SKIPPED)
            continue
        s = {j: cosine()(q.z[i], q.z[j]) for j in others_of(q, i, q)}
        value = precision_gap(s, positives, k, margin) + (released_term(s, positives, k, margin) if released else 0.0)
        result.append((value + spread, 1 / (1 + len(positives)) if balanced else 1.0))
    return result


def covariance_spread(z: list[Row]) -> Tensor:
    """|Cov(unit z) - I|_F with n - 1 below the line."""
    rows, d = [unit(x) for x in z], len(z[0])
    mean = [sum(x[t] for x in rows) / len(rows) for t in range(d)]
    total: Any = 0.0
    for s in range(d):
        for t in range(d):
            cov = sum((x[s] - mean[s]) * (x[t] - mean[t]) for x in rows) / (len(rows) - 1)
            total = total + (cov - float(s == t)) ** 2
    corner(total)
    return total.sqrt()
