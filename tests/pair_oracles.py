"""The oracles of the losses that look at two or three points at a time: see oracles.py."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from torch import Tensor

from tests.oracles import (
    SKIPPED,
    Crowd,
    Near,
    Values,
    corner,
    distance,
    dot,
    hinge,
    jumps,
    largest,
    misplaced,
    number,
    split,
    squared,
    unit,
)

Triples = list[tuple[int, int]]
Choose = Callable[[dict[int, Tensor], list[int], list[int], float], Triples]


def contrastive(q: Crowd, margin: float, normalize: bool) -> Values:
    """Over all pairs: d^2 for positives, [margin - d]+^2 for others. The squared hinge has no corner."""
    z = [unit(x) for x in q.z] if normalize else q.z
    result: Values = []
    for i in range(len(z)):
        positives, others = split(q, i, q)
        total: Any = sum(squared(z[i], z[j]) for j in positives)
        for j in others:
            short = margin - distance(z[i], z[j])
            total = total + (short**2 if short > 0 else 0.0)
        pairs = len(positives) + len(others)
        result.append((total / pairs, float(pairs)) if pairs else SKIPPED)
    return result


def triplets(q: Crowd, near: Near, margin: float, choose: Choose) -> Values:
    """The mean of [s_wrong - s_right + margin]+ over the chosen triples of each query."""
    result: Values = []
    for i in range(len(q.z)):
        positives, others = split(q, i, q)
        s = {j: near(q.z[i], q.z[j]) for j in positives + others}
        chosen = choose(s, positives, others, margin)
        result.append(mean_hinge(s, chosen, margin))
    return result


def mean_hinge(s: dict[int, Tensor], chosen: Triples, margin: float) -> tuple[Any, float]:
    if not chosen:
        return SKIPPED
    return sum(hinge(s[wrong] - s[right] + margin) for right, wrong in chosen) / len(chosen), 1.0


def uniform(s: dict[int, Tensor], positives: list[int], others: list[int], margin: float) -> Triples:
    return [(right, wrong) for right in positives for wrong in others]


def _position(s: dict[int, Tensor], among: list[int], value: Tensor) -> int:
    return next(j for j in among if s[j] is value)


def hard(s: dict[int, Tensor], positives: list[int], others: list[int], margin: float) -> Triples:
    """The farthest right one and the nearest wrong one."""
    if not positives or not others:
        return []
    farthest = min(positives, key=lambda j: number(s[j]))
    for j in positives:
        if j != farthest:
            corner(s[j] - s[farthest])
    return [(farthest, _position(s, others, largest([s[j] for j in others])))]


def semi_hard(s: dict[int, Tensor], positives: list[int], others: list[int], margin: float) -> Triples:
    """With each right one, the nearest wrong one that is farther and inside the margin; none: the farthest wrong one."""
    chosen = []
    for right in positives if others else []:
        jumps.extend(abs(number(s[j] - s[right])) for j in others)
        jumps.extend(abs(number(s[j] - s[right] + margin)) for j in others)
        band = [j for j in others if s[right] - margin < s[j] < s[right]]
        if band:
            chosen.append((right, _position(s, band, largest([s[j] for j in band]))))
            continue
        farthest = min(others, key=lambda j: number(s[j]))
        for j in others:
            if j != farthest:
                corner(s[j] - s[farthest])
        chosen.append((right, farthest))
    return chosen


def misplaced_pairs(k: int) -> Choose:
    """The P x N of Lu et al. 2019. Which of two tied ones is misplaced depends on their order, so every tie is a jump."""

    def choose(s: dict[int, Tensor], positives: list[int], others: list[int], margin: float) -> Triples:
        right, wrong, helped = misplaced(s, positives, k, margin)
        ranked = sorted(number(v) for v in helped.values())
        jumps.extend(b - a for a, b in pairwise(ranked))
        return [(p, n) for p in right for n in wrong]

    return choose


def draw_log_weight(s: float, dimension: int, nearest: float = 0.5, farthest: float = 1.4) -> float:
    """log of 1 / q(d), q(d) = d^(n-2) (1 - d^2/4)^((n-3)/2), on unit vectors; -inf beyond the farthest."""
    d = math.sqrt(max(2 - 2 * s, 0.0))
    if d > farthest:
        return -math.inf
    d = max(d, nearest)
    return -(dimension - 2) * math.log(d) - (dimension - 3) / 2 * math.log(1 - d * d / 4)


def lifted(q: Crowd, margin: float) -> Values:
    """Half the squared hinge of every right pair, both ends against their wrong ones; the squared hinge has no corner."""
    d = {(i, j): distance(q.z[i], q.z[j]) for i in range(len(q.z)) for j in range(len(q.z)) if i != j and q.ids[i] != q.ids[j]}
    result: Values = []
    for i in range(len(q.z)):
        positives, others = split(q, i, q)
        total: Any = 0.0
        for j in positives:
            push = sum((margin - d[i, k]).exp() for k in others) + sum((margin - d[j, k]).exp() for k in split(q, j, q)[1])
            value = push.log() + d[i, j]
            total = total + (value**2 if value > 0 else 0.0)
        result.append((total / (2 * len(positives)), float(len(positives))) if positives else SKIPPED)
    return result


def n_pair(q: Crowd, l2: float) -> Values:
    """log(1 + sum exp(x . p_c - x . p_y)) over the answers p of the classes: the second member of each."""
    answer: dict[int, int] = {}
    for c in set(q.y):
        members = [i for i in range(len(q.z)) if q.y[i] == c]
        if len(members) > 1:
            answer[c] = members[1]
    size = 2 * l2 * sum(dot(x, x) for x in q.z) / len(q.z)
    result: Values = []
    for i, x in enumerate(q.z):
        own = answer.get(q.y[i])
        competitors = [p for c, p in answer.items() if c != q.y[i]]
        if own is None or q.ids[own] == q.ids[i] or not competitors:
            result.append(SKIPPED)
            continue
        total = sum((dot(x, q.z[p]) - dot(x, q.z[own])).exp() for p in competitors)
        result.append(((1 + total).log() + size, 1.0))
    return result


def angular(q: Crowd, alpha: float) -> Values:
    """log(1 + sum_n exp(4 t (a + p) . n - 2 (1 + t) a . p)), t = tan(alpha)^2, over right pairs of unit vectors."""
    t = math.tan(math.radians(alpha)) ** 2
    z = [unit(x) for x in q.z]
    result: Values = []
    for i, a in enumerate(z):
        positives, others = split(q, i, q)
        total: Any = 0.0
        for j in positives:
            p = z[j]
            inner = sum((4 * t * (dot(a, z[n]) + dot(p, z[n])) - 2 * (1 + t) * dot(a, p)).exp() for n in others)
            total = total + (1 + inner).log()
        result.append((total / len(positives), float(len(positives))) if positives and others else SKIPPED)
    return result


def angular_misplaced(q: Crowd, alpha: float, k: int, margin: float) -> Values:
    """The same with the right ones outside the k nearest of a, against the wrong ones inside that took their place."""
    t = math.tan(math.radians(alpha)) ** 2
    z = [unit(x) for x in q.z]
    choose = misplaced_pairs(k)
    result: Values = []
    for i, a in enumerate(z):
        positives, others = split(q, i, q)
        chosen = choose({j: dot(a, z[j]) for j in positives + others}, positives, others, margin)
        right, wrong = sorted({p for p, _ in chosen}), sorted({n for _, n in chosen})
        total: Any = 0.0
        for j in right:
            inner = sum((4 * t * (dot(a, z[n]) + dot(z[j], z[n])) - 2 * (1 + t) * dot(a, z[j])).exp() for n in wrong)
            total = total + (1 + inner).log()
        result.append((total / len(right), float(len(right))) if right else SKIPPED)
    return result
