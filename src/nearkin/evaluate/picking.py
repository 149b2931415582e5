"""What to label next: points that stand for many unlabeled ones, and whose class the labels so far do not tell."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, unit
from nearkin.compose.points import takes_arrays
from nearkin.compose.validation import check_whole
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.evaluate.k_means import k_means
from nearkin.evaluate.label_errors import class_probabilities
from nearkin.evaluate.rendering import html_table

NEAR = 20  # neighbors whose mean distance tells how typical a point is
COMPONENTS = 2048  # principal components in which points are grouped
GROUPED = 20_000  # points that are grouped, drawn at random from more
MOST_GROUPS = 1000
MOST_COMPARED = 2000  # points of a group that are compared with each other
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

    The points are grouped into as many groups as there would be labels, and of each group the most typical point is chosen, the one with
    the nearest neighbors. While there are few labels, the largest groups without one come first (TypiClust, Hacohen et al. 2022). Once
    there are five labels a class, and a classifier predicts 90 % of them right (each without it), points count by its uncertainty.

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
        Seed of the grouping.

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
    ([0, 1, 2], 'typical of a group of 20 points without a label')
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
    some = free[torch.randperm(len(free), generator=torch.Generator().manual_seed(seed))[: max(GROUPED, budget)].sort().values]
    rows = torch.cat([some, (y >= 0).nonzero()[:, 0]])
    return _from_groups(_reduced(x)[rows], rows, y, budget, uncertainty, between, seed)


def _from_groups(x: Tensor, rows: Tensor, y: Tensor, budget: int, uncertainty: Tensor, between: list[str] | None, seed: int) -> Picks:
    """Choose typical points of groups; x (m, c) are those of the rows (m,)."""
    labeled = (y[rows] >= 0).numpy()
    groups = min(int(labeled.sum()) + budget, MOST_GROUPS, len(x))
    group, _ = k_means(x, groups, seed)
    doubt = uncertainty[rows].numpy()
    size = np.bincount(group[~labeled], minlength=groups).astype(np.float64)
    known = np.bincount(group[labeled], minlength=groups)
    weight = np.bincount(group[~labeled], weights=doubt[~labeled], minlength=groups)  # size times mean uncertainty
    taken: list[int] = []
    left = ~labeled
    reasons: list[str] = []
    while len(taken) < budget:
        open_groups = np.flatnonzero(np.bincount(group[left], minlength=groups) > 0)
        # Without labels each group once, the largest first; then what is uncertain counts more than that a group has no label.
        first = known[open_groups] if between is None else np.zeros(len(open_groups))
        order = open_groups[np.lexsort((-weight[open_groups] / (1 + known[open_groups]) ** 2, first))]
        for at in order[: budget - len(taken)].tolist():
            members = np.flatnonzero((group == at) & left)
            best = members[_typical(x[members], doubt[members], seed)]
            left[best] = False
            known[at] += 1
            taken.append(int(best))
            reasons.append(_reason(int(size[at]), int(known[at]), between, int(rows[best])))
    return Picks(rows[torch.tensor(taken)], reasons, uncertainty)


def _typical(x: Tensor, doubt: np.ndarray, seed: int) -> int:
    """The point of a group (g, c) with the largest uncertainty over mean distance to its neighbors in the group."""
    some = np.sort(np.random.default_rng(seed).permutation(len(x))[:MOST_COMPARED])
    apart = torch.cdist(x[some], x[some]).sort(dim=1).values[:, 1 : NEAR + 1].mean(1).nan_to_num().numpy()
    return int(some[((doubt[some] + 1e-9) / (apart + 1e-12)).argmax()])


def _reason(size: int, known: int, between: list[str] | None, row: int) -> str:
    group = f"a group of {size:,} point{'s' if size > 1 else ''} " + ("without a label" if known == 1 else "with few labels")
    return f"typical of {group}" if between is None else f"{between[row]}; in {group}"


def _reduced(x: Tensor) -> Tensor:
    """(n, c) principal components."""
    if x.shape[1] <= COMPONENTS:
        return x
    some = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:GROUPED]]
    center = some.mean(0)
    _, vectors = torch.linalg.eigh(((some - center).T @ (some - center)).double())
    components: Tensor = (x - center) @ vectors[:, -COMPONENTS:].float()
    return components


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
