"""Triplets: a query, a right and a wrong neighbor, [s_wrong - s_right + margin]+, and which of them to look at.

A choice reads affinities, so it belongs to the criterion and not to the relation. On cosine this is [lu2019sampling]'s
eq. (1); on minus squared distances it is [d_right^2 - d_wrong^2 + margin]+. A query's value is the mean over its
chosen triplets. Where right ones are not few, rows are sorted once, so that all triplets of a batch cost O(m log m) a query, not O(m^2).
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from nearkin.compose.criterion import count, misplaced, right_and_wrong
from nearkin.compose.derivatives import Linear, apply
from nearkin.compose.outcome import Outcome
from nearkin.compose.relation import Related
from nearkin.compose.value_checks import may_read

Choice = Literal["uniform", "hard", "semi-hard", "distance-weighted", "misplaced"]
CHOICES = ("uniform", "hard", "semi-hard", "distance-weighted", "misplaced")


class _Chosen(NamedTuple):
    """Per query: the summed hinge, how many triplets were chosen, how many of them cost anything."""

    total: Tensor
    triplets: Tensor
    active: Tensor


@dataclass(frozen=True)
class Triplets:
    """The mean hinge over the chosen triplets of each query, [s_negative - s_positive + margin]+.

    Parameters
    ----------
    choice : {"uniform", "hard", "semi-hard", "distance-weighted", "misplaced"}, default="uniform"
        Which triplets. "uniform": all of them, which is the mean of a uniform draw. "hard": the farthest positive and the nearest negative.
        "semi-hard": with each positive, the nearest negative that is farther but inside the margin; if there is none, the farthest
        negative.
        "distance-weighted": with each positive, a negative drawn so that distances come out evenly spread (unit vectors, cosine affinity).
        "misplaced": all pairs of a positive outside and a negative inside the k nearest [lu2019sampling].
    margin : float, default=0.1
        How much nearer the positive must be.
    dimension : int, default=0
        The embedding's size, which "distance-weighted" needs.
    nearest : float, default=0.5
        "distance-weighted" treats smaller distances as this one.
    farthest : float, default=1.4
        "distance-weighted" draws no negative beyond this distance.
    k : int, default=5
        The k of "misplaced".

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Related, Triplets
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> Triplets("hard", 0.1)(torch.tensor([[0.2, 0.5]]), related).values
    tensor([0.4000])
    """

    choice: Choice = "uniform"
    margin: float = 0.1
    dimension: int = 0
    nearest: float = 0.5
    farthest: float = 1.4
    k: int = 5

    def __call__(self, affinity: Tensor, relation: Related) -> Outcome:
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


def _hinge(affinity: Tensor, negative: Tensor, chosen: Tensor, margin: float) -> Tensor:
    gap = torch.where(chosen, negative - affinity + margin, torch.zeros_like(affinity))
    return gap.clamp_min(0)


def _paired(affinity: Tensor, right: Tensor, negative: Tensor, margin: float) -> _Chosen:
    """One wrong affinity for every right one, both (n, m)."""
    chosen = right & (negative != -torch.inf)  # a nan is a negative: it must show
    hinge = _hinge(affinity, negative, chosen, margin)
    return _Chosen(hinge.sum(1), chosen.sum(1), (hinge > 0).sum(1))


def _hard(affinity: Tensor, right: Tensor, wrong: Tensor, margin: float) -> _Chosen:
    chosen = right.any(1) & wrong.any(1)
    farthest = affinity.masked_fill(~right, torch.inf).amin(1)
    nearest = affinity.masked_fill(~wrong, -torch.inf).amax(1)
    if torch.compiler.is_compiling():
        farthest, nearest = (apply(_Found, affinity, mask, found.detach()) for mask, found in ((right, farthest), (wrong, nearest)))
    hinge = _hinge(farthest, nearest, chosen, margin)
    return _Chosen(hinge, chosen.long(), (hinge > 0).long())


class _Found(torch.autograd.Function):
    """Gives what was found in every row (n,) the gradient of torch's amin and amax: the entries that are equal to it share it evenly.

    By floats alone: of torch's own, a compiler would keep truth values (n, m), which take it longer to store than all the rest takes.
    """

    @staticmethod
    def forward(affinity: Tensor, mask: Tensor, found: Tensor) -> Tensor:
        return found.view_as(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        affinity, mask, found = ctx.saved_tensors
        equal = torch.where(mask, 1 - (affinity - found[:, None]).abs().sign(), 0.0)  # 1 or 0
        return (upstream[0] / equal.sum(1).clamp_min(1))[:, None] * equal, None, None


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


FEW, AT_ONCE = 32, 2**20  # right ones a query, up to which each looks at every wrong one; entries of a block


class _Slopes(NamedTuple):
    """Of every query's triplets, those that cost something."""

    total: Tensor  # (n,) what they cost
    slope: Tensor  # (n, m) how many of them each wrong one is in, minus that of each right one
    inside: Tensor  # (n,) their number


def _all(affinity: Tensor, right: Tensor, wrong: Tensor, margin: float) -> _Chosen:
    """Every pair of a right and a wrong one."""
    pairs = count(right)
    few = may_read(affinity) and int(pairs.sum()) <= FEW * len(right)
    found = (_of_few if few else _by_rank)(affinity, right, wrong, affinity.detach() - margin)
    total: Tensor = apply(Linear, affinity, found.total, found.slope)
    return _Chosen(total, pairs * count(wrong), found.inside)


@torch.no_grad()
def _by_rank(affinity: Tensor, right: Tensor, wrong: Tensor, floor: Tensor) -> _Slopes:
    """With wrong ones ranked, those above a right one's floor are the first few."""
    ranked, order = torch.where(wrong, -affinity, torch.inf).sort(1)
    inside = torch.searchsorted(ranked, -floor).mul_(right)
    ends = affinity.new_zeros(len(affinity), affinity.shape[1] + 1).scatter_add_(1, inside, right.to(affinity.dtype))
    over = right.sum(1, keepdim=True) - ends.cumsum(1)[:, :-1]  # right ones whose floor is below the wrong one of this rank
    slope = torch.empty_like(affinity).scatter_(1, order, over)
    total = (affinity.double() * slope - floor.double() * inside).sum(1)  # a small difference of long sums
    return _Slopes(total.to(affinity.dtype), slope.sub_(inside), inside.sum(1))


@torch.no_grad()
def _of_few(affinity: Tensor, right: Tensor, wrong: Tensor, floor: Tensor) -> _Slopes:
    """Every right one beside the whole row, a block of them at a time."""
    negatives, slope = torch.where(wrong, affinity, -torch.inf), torch.zeros_like(affinity)
    total, inside = torch.zeros_like(affinity[:, 0]), torch.zeros_like(affinity[:, 0])
    rows, columns = right.nonzero(as_tuple=True)
    step = max(1, AT_ONCE // affinity.shape[1])
    for some, own in zip(torch.split(rows, step), torch.split(columns, step), strict=True):
        gap = negatives[some].sub_(floor[some, own][:, None]).clamp_min_(0)  # (p, m)
        total.index_add_(0, some, gap.sum(1))
        reach = gap.gt_(0).sum(1)
        inside.index_add_(0, some, reach)
        slope.index_add_(0, some, gap)[some, own] = -reach
    return _Slopes(total, slope, inside.long())
