"""Triplets: a query, a right and a wrong neighbour, [s_wrong - s_right + margin]+, and which of them to look at.

A choice reads affinities, so it belongs to the criterion and not to the relation. On cosine this is [lu2019sampling]'s
eq. (1); on minus squared distances it is [d_right^2 - d_wrong^2 + margin]+. A query's value is the mean over its
chosen triplets. Rows are sorted once, so that all triplets of a batch cost O(m log m) a query, not O(m^2).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from nearkin.criterion import misplaced, right_and_wrong
from nearkin.outcome import Outcome
from nearkin.relation import Relation

Choice = Literal["uniform", "hard", "semi-hard", "distance-weighted", "misplaced"]
CHOICES = ("uniform", "hard", "semi-hard", "distance-weighted", "misplaced")


class _Chosen(NamedTuple):
    """Per query: the summed hinge, how many triplets were chosen, how many of them cost anything."""

    total: Tensor
    triplets: Tensor
    active: Tensor


@dataclass(frozen=True)
class Triplets:
    """Mean hinge over the chosen triplets of each query.

    * uniform: all of them, which is the mean of a uniform draw;
    * hard: the farthest right one and the nearest wrong one;
    * semi-hard: with each right one, the nearest wrong one that is farther but inside the margin; if there is none, the farthest wrong one;
    * distance-weighted: with each right one, a wrong one drawn so that distances come out even (unit vectors, cosine affinity;
      `dimension` is the embedding's), distances held above `nearest` and none taken beyond `farthest`;
    * misplaced: [lu2019sampling]'s sets for its `k`: all pairs of a right one outside and a wrong one inside the k nearest.
    """

    choice: Choice = "uniform"
    margin: float = 0.1
    dimension: int = 0
    nearest: float = 0.5
    farthest: float = 1.4
    k: int = 5

    def __call__(self, affinity: Tensor, relation: Relation) -> Outcome:
        right, wrong = right_and_wrong(relation)
        if self.choice == "uniform":
            chosen = _all(affinity, right, wrong, self.margin)
        elif self.choice == "hard":
            chosen = _hard(affinity, right, wrong, self.margin)
        elif self.choice == "semi-hard":
            chosen = _paired(affinity, right, _semi_hard(affinity, wrong, self.margin), self.margin)
        elif self.choice == "distance-weighted":
            chosen = _paired(affinity, right, self._drawn(affinity, right, wrong), self.margin)
        else:
            out, taken = misplaced(affinity, relation, self.k, self.margin)
            chosen = _all(affinity, out, taken, self.margin)
        values = chosen.total / chosen.triplets.clamp_min(1)
        return Outcome(values, (chosen.triplets > 0).to(values.dtype), chosen.active.sum())

    def _drawn(self, affinity: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
        """(n, m): for every right one, the affinity of the wrong one drawn with it (-inf where there is none)."""
        square = (2 - 2 * affinity.detach()).clamp(self.nearest**2, 3.999)
        log_weight = -(self.dimension - 2) / 2 * square.log() - (self.dimension - 3) / 2 * (1 - square / 4).log()
        log_weight = log_weight.masked_fill(~wrong | (square > self.farthest**2), -torch.inf)
        some = (log_weight != -torch.inf).any(1)
        weight = torch.where(some[:, None], log_weight - log_weight.amax(1, keepdim=True), 0.0).exp()
        return affinity.gather(1, drawn_by(weight)).masked_fill(~some[:, None], -torch.inf)


def drawn_by(weight: Tensor) -> Tensor:
    """(n, m): for every entry of a row, a column drawn by the row's weights. On CUDA torch.multinomial ends the whole process at a NaN."""
    reach = weight.double().cumsum(1)
    total = reach[:, -1:]
    below = torch.nextafter(total, torch.zeros_like(total))  # a product rounded up to the total would pass behind the last column
    at = torch.minimum(torch.rand_like(reach) * total, below)
    return torch.searchsorted(reach, at, right=True).clamp_max(weight.shape[1] - 1)


def _hinge(affinity: Tensor, rival: Tensor, chosen: Tensor, margin: float) -> Tensor:
    gap = torch.where(chosen, rival - affinity + margin, torch.zeros_like(affinity))
    return gap.clamp_min(0)


def _paired(affinity: Tensor, right: Tensor, rival: Tensor, margin: float) -> _Chosen:
    """One wrong affinity for every right one, both (n, m)."""
    chosen = right & (rival != -torch.inf)  # a nan is a rival: it must show
    hinge = _hinge(affinity, rival, chosen, margin)
    return _Chosen(hinge.sum(1), chosen.sum(1), (hinge > 0).sum(1))


def _hard(affinity: Tensor, right: Tensor, wrong: Tensor, margin: float) -> _Chosen:
    chosen = right.any(1) & wrong.any(1)
    farthest = affinity.masked_fill(~right, torch.inf).amin(1)
    nearest = affinity.masked_fill(~wrong, -torch.inf).amax(1)
    hinge = _hinge(farthest, nearest, chosen, margin)
    return _Chosen(hinge, chosen.long(), (hinge > 0).long())


def _ranked(affinity: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Wrong affinities in descending order, (n, m), -inf behind the last; and their number (n,)."""
    return affinity.masked_fill(~wrong, -torch.inf).sort(1, descending=True).values, wrong.sum(1)


def _semi_hard(affinity: Tensor, wrong: Tensor, margin: float) -> Tensor:
    """(n, m): for every right one, the wrong affinity its triplet takes."""
    ranked, count = _ranked(affinity, wrong)
    fixed = affinity.detach().contiguous()
    nearer = torch.searchsorted(-ranked.detach(), -fixed, right=True)  # wrong ones at least as near as the right one
    farther = ranked.gather(1, nearer.clamp(max=affinity.shape[1] - 1))
    last = ranked.gather(1, (count - 1).clamp_min(0)[:, None])
    inside = (nearer < count[:, None]) & (farther > fixed - margin)
    return torch.where(inside, farther, last.expand_as(farther))


def _all(affinity: Tensor, right: Tensor, wrong: Tensor, margin: float) -> _Chosen:
    """Every pair of a right and a wrong one: with wrong ones ranked, those inside the margin are the first few."""
    ranked, count = _ranked(affinity, wrong)
    floor = affinity - margin
    inside = torch.searchsorted(-ranked.detach(), -floor.detach())  # (n, m) wrong ones above s_right - margin
    inside = torch.minimum(inside, count[:, None]) * right
    running = torch.nn.functional.pad(ranked.double().cumsum(1), (1, 0))  # -inf behind the last wrong one, where nobody looks
    hinge = (running.gather(1, inside) - inside * floor.double()).to(affinity.dtype)  # a small difference of long sums
    return _Chosen((hinge * right).sum(1), right.sum(1) * count, inside.sum(1))
