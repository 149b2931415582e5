"""The losses of other papers as their equations: plain loops over float64 scalars, as in tests/oracles.py."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests import oracles as o
from tests.oracles import SKIPPED, Crowd, Row, Values, corner, number

Rows = list[Row]


def cosines(q: Crowd, i: int) -> dict[int, Tensor]:
    return {j: o.dot(o.unit(q.z[i]), o.unit(q.z[j])) for j in o.others_of(q, i, q)}


def log_sum(terms: Sequence[Any]) -> Any:
    return sum(t.exp() for t in terms).log()


def plus(x: Any) -> Any:
    corner(x)
    return x if number(x) > 0 else 0 * x


def at_cosine_one(s: Tensor) -> None:
    """The angle has no gradient at 0 and pi."""
    corner(1 - abs(number(s)))


def supcon(q: Crowd, temperature: float, inside: bool) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        p = o.chances({j: s / temperature for j, s in cosines(q, i).items()})
        mine = [p[j] for j in p if q.y[j] == q.y[i]]
        if not mine:
            result.append(SKIPPED)
        elif inside:
            result.append((-(sum(mine) / len(mine)).log(), 1.0))
        else:
            result.append((sum(-x.log() for x in mine) / len(mine), 1.0))
    return result


def each_against_negatives(q: Crowd, temperature: float, slack: float = 0.0) -> Values:
    """NT-Xent and the tuplet margin loss."""
    result: Values = []
    for i in range(len(q.z)):
        s = cosines(q, i)
        right, wrong = o.split(q, i, q)
        if not right or not wrong:
            result.append(SKIPPED)
            continue
        terms = []
        for j in right:
            near = s[j]
            if slack:
                at_cosine_one(near)
                near = torch.cos(torch.acos(near.clamp(-1, 1)) - slack)
            terms.append((1 + sum(((s[k] - near) / temperature).exp() for k in wrong)).log())
        result.append((sum(terms) / len(terms), float(len(terms))))
    return result


def info_nce(q: Crowd, r: Crowd, temperature: float) -> Values:
    def one_way(a: Crowd, b: Crowd) -> Values:
        found: Values = []
        for i in range(len(a.z)):
            p = o.chances({j: o.dot(o.unit(a.z[i]), o.unit(b.z[j])) / temperature for j in range(len(b.z))})
            mine = [p[j] for j in p if b.ids[j] == a.ids[i]]
            found.append((-sum(mine).log(), 1.0) if mine else SKIPPED)
        return found

    there, back = one_way(q, r), one_way(r, q)
    total = sum(w for _, w in back)
    mean = sum(v * w for v, w in back) / total if total else 0.0
    return [((v + mean) / 2, w) if w else SKIPPED for v, w in there]


def margin_softmax(
    z: Rows, labels: Sequence[int], w: Rows, kind: str, margin: float, temperature: float, count: int, soft: float = 0
) -> Values:
    """CosFace, ArcFace, sub-center ArcFace and SoftTriple without its regularizer; `count` vectors of each class in a row."""
    result: Values = []
    d = len(z[0])
    for x, y in zip(z, labels, strict=True):
        logits = []
        for c, row in enumerate(w):
            all_of = [o.dot(o.unit(x), o.unit(row[k * d : (k + 1) * d])) for k in range(count)]
            if soft:
                p = o.chances({k: s / soft for k, s in enumerate(all_of)})
                s = sum(p[k] * all_of[k] for k in p)
            else:
                ranked = sorted(all_of, key=number)
                s = ranked[-1]
                if count > 1:
                    corner(ranked[-1] - ranked[-2])
            if c == y and kind == "cosine":
                s = s - margin
            elif c == y:
                at_cosine_one(s)
                angle = torch.acos(s.clamp(-1, 1))
                corner(angle - (math.pi - margin))
                s = torch.cos(angle + margin) if number(angle) <= math.pi - margin else s - margin * math.sin(margin)
            logits.append(s / temperature)
        result.append((-(logits[y].exp() / sum(s.exp() for s in logits)).log(), 1.0))
    return result


def merging(w: Rows, d: int, count: int) -> Any:
    total: Any = 0.0
    for row in w:
        for k in range(count):
            for m in range(k):
                a, b = (o.unit(row[at * d : (at + 1) * d]) for at in (k, m))
                total = total + o.distance(a, b)
    return total / (len(w) * count * (count - 1))


def sphereface(z: Rows, labels: Sequence[int], w: Rows, m: int, mix: float) -> Values:
    return o.large_margin_softmax(z, labels, [o.unit(row) for row in w], m, mix)


def multi_similarity(q: Crowd, alpha: float, beta: float, base: float, epsilon: float | None) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        s = cosines(q, i)
        right, wrong = o.split(q, i, q)
        if not s:
            result.append(SKIPPED)
            continue
        if epsilon is not None:
            nearest = max((number(s[j]) for j in wrong), default=-math.inf)
            farthest = min((number(s[j]) for j in right), default=math.inf)
            o.jumps.extend(abs(number(s[j]) - epsilon - nearest) for j in right)
            o.jumps.extend(abs(number(s[j]) + epsilon - farthest) for j in wrong)
            right = [j for j in right if number(s[j]) - epsilon < nearest]
            wrong = [j for j in wrong if number(s[j]) + epsilon > farthest]
        pull = sum((-alpha * (s[j] - base)).exp() for j in right)
        push = sum((beta * (s[j] - base)).exp() for j in wrong)
        value = torch.as_tensor(1 + pull).double().log() / alpha + torch.as_tensor(1 + push).double().log() / beta
        result.append((value, 1.0))
    return result


def circle(q: Crowd, m: float, temperature: float) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        s = cosines(q, i)
        right, wrong = o.split(q, i, q)
        if not right or not wrong:
            result.append(SKIPPED)
            continue
        push = sum((max(number(s[j]) + m, 0) * (s[j] - m) / temperature).exp() for j in wrong)
        pull = sum((-max(1 + m - number(s[j]), 0) * (s[j] - (1 - m)) / temperature).exp() for j in right)
        result.append(((1 + push * pull).log(), 1.0))
    return result


def balanced(q: Crowd, distance: Callable[[Row, Row], Tensor], margin: float) -> Values:
    """The mean over active positives plus the mean over active negatives, shared out to the queries."""
    far: list[list[Any]] = []
    near: list[list[Any]] = []
    for i in range(len(q.z)):
        right, wrong = o.split(q, i, q)
        far.append([plus(distance(q.z[i], q.z[j])) for j in right])
        near.append([plus(margin - distance(q.z[i], q.z[j])) for j in wrong])
    counts = [max(sum(1 for row in side for x in row if number(x) > 0), 1) for side in (far, near)]
    valid = [1.0 if f or g else 0.0 for f, g in zip(far, near, strict=True)]
    return [((sum(f) / counts[0] + sum(g) / counts[1]) * sum(valid), v) for f, g, v in zip(far, near, valid, strict=True)]


def noise_to_signal(a: Row, b: Row) -> Tensor:
    def variance(x: Sequence[Tensor]) -> Tensor:
        mean = sum(x) / len(x)
        return sum((v - mean) ** 2 for v in x)

    signal = variance(a)
    corner(signal)
    noise = variance([x - y for x, y in zip(a, b, strict=True)])
    return noise / signal if number(signal) > 0 else noise


def margin_loss(q: Crowd, margin: float, beta: Any) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        right, wrong = o.split(q, i, q)
        total: Any = 0.0
        active = 0
        for j in right:
            for k in wrong:
                for hinge in (
                    plus(o.distance(o.unit(q.z[i]), o.unit(q.z[j])) - beta + margin),
                    plus(beta - o.distance(o.unit(q.z[i]), o.unit(q.z[k])) + margin),
                ):
                    total, active = total + hinge, active + (number(hinge) > 0)
        result.append((total / active, float(active)) if active else SKIPPED)
    return result


def ranked_list(q: Crowd, margin: float, boundary: float, sharp: float, sharp_positive: float, balance: float) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        right, wrong = o.split(q, i, q)
        d = {j: o.distance(o.unit(q.z[i]), o.unit(q.z[j])) for j in right + wrong}
        far = [x for x in (plus(d[j] - (boundary - margin)) for j in right) if number(x) > 0]
        near = [x for x in (plus(boundary - d[j]) for j in wrong) if number(x) > 0]
        value: Any = torch.zeros((), dtype=torch.float64)
        for side, sharpness, share in ((far, sharp_positive, 1 - balance), (near, sharp, balance)):
            if side:
                weights = [(sharpness * x).exp() for x in side]
                value = value + share * sum(w * x for w, x in zip(weights, side, strict=True)) / sum(weights)
        result.append((value, 1.0) if d else SKIPPED)
    return result


def _soft_counts(values: Sequence[Any], low: float, width: float, bins: int) -> list[Any]:
    """Triangular counts at the bins + 1 nodes."""
    counts: list[Any] = [0.0] * (bins + 1)
    for x in values:
        place = (x - low) / width
        corner(number(place) - round(number(place)))
        for node in range(bins + 1):
            share = 1 - abs(place - node)
            if number(share) > 0:
                counts[node] = counts[node] + share
    return counts


def histogram(q: Crowd, bins: int) -> Values:
    n = len(q.z)
    near = {(i, j): s.clamp(-1, 1) for i in range(n) for j, s in cosines(q, i).items()}
    right = [s for (i, j), s in near.items() if q.y[i] == q.y[j]]
    wrong = {at: s for at, s in near.items() if q.y[at[0]] != q.y[at[1]]}
    if not right or not wrong:
        return [SKIPPED] * n
    reached: list[Any] = []
    for count in _soft_counts(right, -1, 2 / bins, bins):
        reached.append((reached[-1] if reached else 0.0) + count / len(right))
    valid = [1.0 if o.others_of(q, i, q) else 0.0 for i in range(n)]
    result: Values = []
    for i in range(n):
        counts = _soft_counts([s for (a, _), s in wrong.items() if a == i], -1, 2 / bins, bins)
        result.append((sum(c * r for c, r in zip(counts, reached, strict=True)) / len(wrong) * sum(valid), valid[i]))
    return result


def fast_ap(q: Crowd, bins: int) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        right, wrong = o.split(q, i, q)
        if not right:
            result.append(SKIPPED)
            continue
        d = {j: o.squared(o.unit(q.z[i]), o.unit(q.z[j])).clamp(0, 4) for j in right + wrong}
        mine = _soft_counts([d[j] for j in right], 0, 4 / bins, bins)
        every = _soft_counts(list(d.values()), 0, 4 / bins, bins)
        total: Any = 0.0
        before: Any = 0.0
        reached: Any = 0.0
        for h, g in zip(mine, every, strict=True):
            before, reached = before + h, reached + g
            if number(reached) > 0:
                total = total + h * before / reached
        result.append((1 - total / len(right), 1.0))
    return result


def _place(s: dict[int, Tensor], j: int, among: Sequence[int], temperature: float) -> Any:
    return 1 + sum(1 / (1 + (-(s[k] - s[j]) / temperature).exp()) for k in among if k != j)


def smooth_ap(q: Crowd, temperature: float) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        s = cosines(q, i)
        right, wrong = o.split(q, i, q)
        shares = [_place(s, j, right, temperature) / _place(s, j, right + wrong, temperature) for j in right]
        result.append((1 - sum(shares) / len(shares), 1.0) if shares else SKIPPED)
    return result


def recall_at_k(q: Crowd, ks: Sequence[int], temperature: float, rank_temperature: float) -> Values:
    result: Values = []
    for i in range(len(q.z)):
        s = cosines(q, i)
        right, wrong = o.split(q, i, q)
        if not right:
            result.append(SKIPPED)
            continue
        places = [_place(s, j, right + wrong, temperature) for j in right]
        recalls = [sum(1 / (1 + torch.as_tensor(-(k - p) / rank_temperature).exp()) for p in places) / min(k, len(right)) for k in ks]
        result.append((1 - sum(recalls) / len(recalls), 1.0))
    return result


def proxy_anchor(z: Rows, labels: Sequence[int], w: Rows, margin: float, temperature: float) -> Values:
    s = [[o.dot(o.unit(x), o.unit(p)) for p in w] for x in z]
    present = sorted(set(labels))
    pull = sum((1 + sum((-(s[i][c] - margin) / temperature).exp() for i in range(len(z)) if labels[i] == c)).log() for c in present)
    push: Any = 0.0
    for c in range(len(w)):
        others = [((s[i][c] + margin) / temperature).exp() for i in range(len(z)) if labels[i] != c]
        push = push + (1 + sum(others)).log() if others else push
    return [(pull / len(present) + push / len(w), 1.0)] * len(z)


def _moments(a: list[Row], b: list[Row], unbiased: int) -> list[list[Any]]:
    n, d = len(a), len(a[0])
    mean_a, mean_b = ([sum(row[j] for row in side) / n for j in range(d)] for side in (a, b))
    return [
        [sum((x[j] - mean_a[j]) * (y[k] - mean_b[k]) for x, y in zip(a, b, strict=True)) / max(n - unbiased, 1) for k in range(d)]
        for j in range(d)
    ]


def vicreg(a: Rows, b: Rows, invariance: float, variance: float, covariance: float, eps: float) -> Any:
    n, d = len(a), len(a[0])
    value = invariance * sum(o.squared(x, y) for x, y in zip(a, b, strict=True)) / (n * d)
    for view in (a, b):
        c = _moments(view, view, 1)
        value = value + variance * sum(plus(1 - (c[j][j] + eps).sqrt()) for j in range(d)) / d / 2
        value = value + covariance * sum(c[j][k] ** 2 for j in range(d) for k in range(d) if j != k) / d
    return value


def neighbor_targets(students: Rows, teachers: Rows, bank: Rows, ids: list[int], own: float, temperature: float, sharp: float) -> Any:
    value = 0.0
    for student, teacher, i in zip(students, teachers, ids, strict=True):
        x, y = o.unit(student), o.unit(teacher)
        others = [o.unit(row) for j, row in enumerate(bank) if j != i]
        near = [(o.dot(y, v) / sharp).exp() for v in others]
        itself = (o.dot(x, y) / temperature).exp()
        chosen = [(o.dot(x, v) / temperature).exp() for v in others]
        below = itself + sum(chosen)
        drawn = sum(t / sum(near) * (p / below).log() for t, p in zip(near, chosen, strict=True))
        value = value - own * (itself / below).log() - (1 - own) * drawn
    return value / len(students)


def barlow_twins(a: Rows, b: Rows, redundancy: float, eps: float) -> Any:
    d = len(a[0])
    c, va, vb = _moments(a, b, 0), _moments(a, a, 0), _moments(b, b, 0)
    value: Any = 0.0
    for j in range(d):
        for k in range(d):
            r = c[j][k] / ((va[j][j] + eps).sqrt() * (vb[k][k] + eps).sqrt())
            value = value + ((1 - r) ** 2 if j == k else redundancy * r**2)
    return value
