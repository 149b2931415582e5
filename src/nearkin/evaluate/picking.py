"""What to label next: points that stand for many unlabeled ones whose class the labels so far do not tell.

A labeled point covers another one by a Gaussian kernel of their distance. Each pick is the point that raises the cover of all points most,
weighted by how uncertain their class is (uncertainty herding, Bae et al. 2025; without labels MaxHerding, Bae et al. 2024).
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, unit
from nearkin.compose.points import takes_arrays
from nearkin.compose.validation import check_whole
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.evaluate.label_errors import class_probabilities
from nearkin.evaluate.rendering import html_table

WIDTH = 0.5  # of the kernel, over the squared distance within which a label's share of the points lies
MOST_COMPARED = 5000  # points that are compared with each other, drawn at random from more
NEARBY = math.exp(-2)  # kernel from which a point counts as near
LEAST = 1e-3  # weight of a point whose class is certain
FEW = 5  # labels a class from which a classifier is fitted
TRUSTED = 0.9  # share of the labels that it must predict right, each without it, for its uncertainty to count


class Picks(NamedTuple):
    """What `pick` chose.

    Parameters
    ----------
    rows : Tensor (b,) int64
        Points to label, the most useful first.
    reasons : list of str
        Why each was chosen.
    uncertainty : Tensor (n,)
        1 minus the margin between the two most probable classes of every point; 1 while too few labels are known.

    Examples
    --------
    >>> from nearkin.evaluate import Picks
    >>> Picks._fields
    ('rows', 'reasons', 'uncertainty')
    """

    rows: Tensor
    reasons: list[str]
    uncertainty: Tensor

    def _repr_html_(self) -> str:
        cells = [
            [str(row), f"{float(self.uncertainty[row]):.3f}", reason] for row, reason in zip(self.rows.tolist(), self.reasons, strict=True)
        ]
        return html_table(f"{len(cells):,} points to label next.", ("row", "uncertainty", "reason"), cells)


@takes_arrays
@torch.no_grad()
def pick(
    embeddings: Tensor,
    labels: Tensor | None = None,
    budget: int = 100,
    affinity: Affinity | None = None,
    *,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> Picks:
    """Choose the points whose labels would help most.

    A label tells about the points near it. Each point that is chosen is the one that tells most about points of which the labels so far,
    and the points chosen before it, tell little. Once there are five labels a class, and a classifier predicts 90 % of them right (each
    without it), points count by how uncertain it is of their class.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point. Those of a pretrained encoder are best.
    labels : Tensor or ndarray (n,), optional
        Classes as whole numbers, -1 for points without a label. None if there are no labels at all.
    budget : int, default=100
        How many points to choose; all that have no label, if they are fewer.
    affinity : Affinity, optional
        `cosine()` compares directions; otherwise Euclidean distances are used.
    classes : sequence of str, optional
        Class names by number, for the reasons.
    seed : int, default=0
        Seed of the draw, if there are more than 5,000 points.

    Returns
    -------
    Picks

    Raises
    ------
    ValueError
        If every point has a label, sizes do not fit, or a number is not finite.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import pick
    >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0)) + torch.arange(60)[:, None] % 3 * 20
    >>> found = pick(x, budget=3)
    >>> sorted((found.rows % 3).tolist()), found.reasons[0]
    ([0, 1, 2], 'typical of 23 points without a label')
    """
    x = finite(embeddings, "embeddings")
    check_whole("budget", budget)
    y = torch.full((len(x),), -1) if labels is None else class_labels(labels, len(x), "labels")
    free = (y < 0).nonzero()[:, 0]
    if not len(free):
        raise ValueError(f"labels: all {len(x):,} points have one, so there is nothing to choose; mark points without a label by -1")
    budget = min(budget, len(free))
    x = unit(x.float()) if getattr(affinity, "metric", None) == "cosine" else x.float()
    uncertainty, between = _uncertainty(x, y, classes, seed)
    draw, known = torch.Generator().manual_seed(seed), (y >= 0).nonzero()[:, 0]
    rows: list[int] = []
    reasons: list[str] = []
    while len(rows) < budget:
        left = free[~torch.isin(free, torch.tensor(rows, dtype=torch.int64))]
        some = left[torch.randperm(len(left), generator=draw)[:MOST_COMPARED].sort().values]
        count = min(budget - len(rows), max(len(some) // 2, 1) if len(left) > len(some) else len(some))
        told = torch.cat([known, torch.tensor(rows, dtype=torch.int64)])
        for at, size in _herded(x[some], x[told], uncertainty[some].float(), count, len(known) + budget):
            rows.append(int(some[at]))
            reasons.append(_reason(size, between, rows[-1]))
    return Picks(torch.tensor(rows), reasons, uncertainty)


def _herded(x: Tensor, told: Tensor, doubt: Tensor, count: int, labels: int) -> Iterator[tuple[int, int]]:
    """Choose `count` of the points (m, d), given others (l, d) with labels; yields each with the number of points that it tells most about.

    There will be so many `labels`, so that the kernel of each reaches about the points that it has to stand for.
    """
    square = torch.cdist(x, x).square_()
    reach = min(max(2, round(len(x) / labels)) + 1, len(x))
    width = WIDTH * float(square.kthvalue(reach, dim=1).values.median())
    kernel = square.mul_(-1 / max(width, 1e-12)).exp_()  # (m, m)
    cover = torch.zeros(len(x))
    for part in torch.split(told, MOST_COMPARED) if len(told) else ():
        cover = torch.maximum(cover, torch.cdist(x, part).square_().mul_(-1 / max(width, 1e-12)).exp_().amax(1))
    weight = doubt.clamp_min(LEAST)
    gain = torch.cat([(part - cover).clamp_min(0) @ weight for part in torch.split(kernel, 500)])
    for _ in range(count):
        while True:  # gains only shrink as the cover grows: the largest one is computed again until it stays the largest
            at = int(gain.argmax())
            gain[at] = (kernel[at] - cover).clamp_min(0) @ weight
            if int(gain.argmax()) == at:
                break
        gain[at] = -1.0
        yield at, max(int((kernel[at] > cover.clamp_min(NEARBY)).sum()), 1)
        cover = torch.maximum(cover, kernel[at])


def _reason(size: int, between: list[str] | None, row: int) -> str:
    near = f"{size:,} point{'s' if size > 1 else ''} without a label"
    return f"typical of {near}" if between is None else f"{between[row]}; near {near}"


def _uncertainty(x: Tensor, y: Tensor, classes: Sequence[str], seed: int) -> tuple[Tensor, list[str] | None]:
    """(n,) 1 minus the margin of the two most probable classes, and their numbers in words; ones and None if the labels do not tell."""
    counts = torch.bincount(y[y >= 0])
    seen = int((counts > 0).sum())
    if seen < 2 or int((counts > 1).sum()) < 2 or int(counts.sum()) < FEW * seen:
        return torch.ones(len(x), dtype=torch.float64), None
    found, numbers = class_probabilities(x, y, seed=seed)
    known = y >= 0
    if float((numbers[found[known].argmax(1)] == y[known]).double().mean()) < TRUSTED:
        return torch.ones(len(x), dtype=torch.float64), None
    best = found.exp().topk(2, dim=1)
    names = [[classes[one] if one < len(classes) else str(one) for one in pair] for pair in numbers[best.indices].tolist()]
    doubt = 1 - (best.values[:, 0] - best.values[:, 1])
    words = [f"uncertain between {a} and {b} (margin {1 - float(gap):.2f})" for (a, b), gap in zip(names, doubt, strict=True)]
    return doubt, words
