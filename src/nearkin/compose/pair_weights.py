"""Pair weights: criteria that look at every pair, and differ in how much each of them counts."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearkin.compose.criterion import count, declares, each_positive, right_and_wrong, soft_hinge
from nearkin.compose.derivatives import Linear, apply
from nearkin.compose.log_sums import logsumexp
from nearkin.compose.margins import turned
from nearkin.compose.outcome import Outcome
from nearkin.compose.relation import Related
from nearkin.compose.value_checks import may_read


@declares("pairs")
def each_pair(affinity: Tensor, relation: Related, /) -> Outcome:
    """Each positive against all negatives, as `each_positive`, with the pair as unit: a query counts by its number of positives.

    Parameters
    ----------
    affinity : Tensor
        (n, m) how near each reference is.
    relation : Related
        How near each should be.

    Returns
    -------
    Outcome
        The value and the weight of every query.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Related, each_pair
    >>> related = Related(torch.tensor([[0.0, 0.0, 1.0]]), torch.ones(1, 3, dtype=torch.bool))
    >>> each_pair(torch.zeros(1, 3), related).weight
    tensor([2.])
    """
    right, _ = right_and_wrong(relation)
    found = each_positive(affinity, relation)
    return found._replace(weight=found.weight * right.sum(1))


@dataclass(frozen=True)
class TupletPairs:
    """Each positive against all negatives on cosines, with the angle of the positive made `slack` smaller; the unit is the pair.

    Parameters
    ----------
    slack : float, default=0.1
        What is taken off the angle of a positive, in radians.
    temperature : float, default=1/64
        Divides the cosines afterwards.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Related, TupletPairs
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> TupletPairs(0.0, 1.0)(torch.zeros(1, 2), related).values
    tensor([0.6931])
    """

    slack: float = 0.1
    temperature: float = 1 / 64

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, _ = right_and_wrong(relation)
        return each_pair(torch.where(right, turned(affinity, -self.slack), affinity) / self.temperature, relation)


@dataclass(frozen=True)
class MultiSimilarityPairs:
    """Positives and negatives weighted by their own affinity and by those of the others of their query.

        1/alpha log(1 + sum_P exp(-alpha (s - base))) + 1/beta log(1 + sum_N exp(beta (s - base)))

    With `epsilon`, only hard pairs enter: positives below the nearest negative plus epsilon, and negatives above the farthest positive
    minus epsilon.

    Parameters
    ----------
    alpha : float, default=2.0
        Weight of positives.
    beta : float, default=50.0
        Weight of negatives.
    base : float, default=0.5
        The cosine that pairs are compared with.
    epsilon : float or None, default=0.1
        The margin of the mining; None uses all pairs.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import MultiSimilarityPairs, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> MultiSimilarityPairs()(torch.tensor([[0.9, 0.1]]), related).values  # both pairs are easy
    tensor([0.])
    """

    alpha: float = 2.0
    beta: float = 50.0
    base: float = 0.5
    epsilon: float | None = 0.1

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, wrong = right_and_wrong(relation)
        if self.epsilon is not None:
            near = affinity.detach()
            nearest = near.masked_fill(~wrong, -torch.inf).amax(1, keepdim=True)
            farthest = near.masked_fill(~right, torch.inf).amin(1, keepdim=True)
            right, wrong = right & (near - self.epsilon < nearest), wrong & (near + self.epsilon > farthest)
        values = soft_hinge(logsumexp(-self.alpha * (affinity - self.base), right)) / self.alpha
        values = values + soft_hinge(logsumexp(self.beta * (affinity - self.base), wrong)) / self.beta
        return Outcome(values, relation.candidate.any(1).to(values.dtype), right.sum() + wrong.sum())


@dataclass(frozen=True)
class CirclePairs:
    """Every positive against every negative, each weighted by how far it is from its optimum; on cosines.

        log(1 + sum_N exp(gamma a_n (s_n - m)) sum_P exp(-gamma a_p (s_p - 1 + m))),   a_n = [s_n + m]+,   a_p = [1 + m - s_p]+

    The weights a carry no gradient.

    Parameters
    ----------
    margin : float, default=0.4
        m: positives should exceed 1 - m, negatives stay below m.
    temperature : float, default=1/80
        1 / gamma.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import CirclePairs, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> CirclePairs(0.25, 1.0)(torch.tensor([[0.75, 0.25]]), related).values  # both at their margin
    tensor([0.6931])
    """

    margin: float = 0.4
    temperature: float = 1 / 80

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, wrong = right_and_wrong(relation)
        fixed, m = affinity.detach(), self.margin
        toward = -(1 + m - fixed).clamp_min(0) * (affinity - (1 - m)) / self.temperature
        away = (fixed + m).clamp_min(0) * (affinity - m) / self.temperature
        valid = right.any(1) & wrong.any(1)
        sums = torch.where(valid, logsumexp(toward, right), 0.0) + torch.where(valid, logsumexp(away, wrong), 0.0)
        values = torch.where(valid, soft_hinge(sums), 0.0)
        return Outcome(values, valid.to(values.dtype), ((right | wrong) & valid[:, None]).sum())


@dataclass(frozen=True)
class BalancedPairs:
    """The mean over the active positive pairs plus the mean over the active negative pairs, on minus a distance d.

    Positives cost [d - positive_margin]+, negatives [margin - d]+; a pair is active if it costs something.

    Parameters
    ----------
    margin : float, default=1.0
        The distance from which on a negative costs nothing.
    positive_margin : float, default=0.0
        The distance up to which a positive costs nothing.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import BalancedPairs, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> BalancedPairs()(torch.tensor([[-0.5, -0.8]]), related).values  # 0.5 + 0.2
    tensor([0.7000])
    """

    margin: float = 1.0
    positive_margin: float = 0.0

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        wrong = relation.cost.sign()  # by floats: on a CPU torch.where takes as long as sixteen sums
        near = affinity.detach()
        off = (near + self.positive_margin).clamp_max_(0)  # below 0 for positives that are too far, above 0 for negatives that are too near
        off += ((near + self.margin).clamp_min_(0) - off).mul_(wrong)
        off *= relation.candidate
        positives, both = torch.count_nonzero(off.clamp_max(0)), torch.count_nonzero(off)
        far, close = (_one_over(number, off.dtype) for number in (positives, both - positives))
        slope = (wrong * (close - far)).add_(far).mul_(off.sign())
        weight = relation.candidate.any(1).to(affinity.dtype)
        values = apply(Linear, affinity, torch.linalg.vecdot(off, slope), slope) * weight.sum()
        return Outcome(values, weight, both)


def _one_over(number: Tensor, dtype: torch.dtype) -> Tensor | float:
    """1 / number, and 1 for 0; a plain number where the host may read it, which spares three small operators."""
    return 1 / max(int(number), 1) if may_read(number) else 1 / number.clamp_min(1).to(dtype)


class ThresholdPairs(nn.Module):
    """Positives inside a distance beta, negatives outside it, each by a margin; the mean over what is active.

        positive: [d - beta + margin]+,   negative: [beta - d + margin]+

    The affinity is minus a distance. A positive counts once for every negative of its query and the other way round, as in triplets.

    Parameters
    ----------
    margin : float, default=0.2
        How far inside or outside of beta a pair must be.
    beta : float, default=1.2
        The threshold; where it starts, if it is learned.
    learn_beta : bool, default=True
        Whether beta is a parameter.
    nu : float, default=0.0
        Weight of beta itself in every value.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Related, ThresholdPairs
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> ThresholdPairs(0.5, 1.0, learn_beta=False)(torch.tensor([[-1.0, -1.0]]), related).values
    tensor([0.5000])
    """

    beta: Tensor

    def __init__(self, margin: float = 0.2, beta: float = 1.2, learn_beta: bool = True, nu: float = 0.0) -> None:
        super().__init__()
        self.margin, self.nu = margin, nu
        start = torch.tensor(float(beta))
        if learn_beta:
            self.beta = nn.Parameter(start)
        else:
            self.register_buffer("beta", start)

    def forward(self, affinity: Tensor, relation: Related, /) -> Outcome:
        """Compute the value of every query.

        Parameters
        ----------
        affinity : Tensor
            (n, m) minus distances.
        relation : Related
            How near each should be.

        Returns
        -------
        Outcome
            The value and the weight of every query.
        """
        right, wrong = right_and_wrong(relation)
        beta = self.beta.to(affinity.dtype)
        far = torch.where(right, (self.margin - affinity - beta).clamp_min(0), 0.0)
        near = torch.where(wrong, (self.margin + affinity + beta).clamp_min(0), 0.0)
        positives, negatives = count(right), count(wrong)
        total = far.sum(1) * negatives + near.sum(1) * positives
        active = (far > 0).sum(1) * negatives + (near > 0).sum(1) * positives
        values = total / active.clamp_min(1) + self.nu * beta * (active > 0)
        return Outcome(values, active.to(total.dtype), active.sum())


@dataclass(frozen=True)
class RankedPairs:
    """Positives are pulled inside one distance, negatives pushed outside a larger one; within both sets nearer violations weigh more.

        (1 - balance) sum_P w_p [d - (boundary - margin)]+ / sum w_p + balance sum_N w_n [boundary - d]+ / sum w_n
        w_p = exp(positive_sharpness (d - (boundary - margin))),   w_n = exp(sharpness (boundary - d)),   over the pairs that violate

    Parameters
    ----------
    margin : float, default=0.4
        Between the two distances.
    boundary : float, default=1.2
        The distance that negatives should exceed.
    sharpness : float, default=10.0
        How much more a nearer negative weighs.
    positive_sharpness : float, default=0.0
        How much more a farther positive weighs.
    balance : float, default=0.5
        Share of the negatives.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import RankedPairs, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> RankedPairs()(torch.tensor([[-1.0, -1.0]]), related).values  # (1.0 - 0.8) / 2 + (1.2 - 1.0) / 2
    tensor([0.2000])
    """

    margin: float = 0.4
    boundary: float = 1.2
    sharpness: float = 10.0
    positive_sharpness: float = 0.0
    balance: float = 0.5

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, wrong = right_and_wrong(relation)
        far = -affinity - (self.boundary - self.margin)
        near = affinity + self.boundary
        violated = right & (far > 0), wrong & (near > 0)
        pull = _softly(far, violated[0], self.positive_sharpness)
        push = _softly(near, violated[1], self.sharpness)
        values = (1 - self.balance) * pull + self.balance * push
        return Outcome(values, relation.candidate.any(1).to(values.dtype), violated[0].sum() + violated[1].sum())


def _softly(x: Tensor, mask: Tensor, sharpness: float) -> Tensor:
    """(n,) the mean of x over the mask, weighted by exp(sharpness x); 0 where a row has none."""
    shares = torch.where(mask, sharpness * x, -torch.inf).masked_fill(~mask.any(1, keepdim=True), 0.0).softmax(1)
    return (shares * torch.where(mask, x, 0.0)).sum(1)


@dataclass(frozen=True)
class HistogramOverlap:
    """The probability that a random negative pair has a larger cosine than a random positive pair, from soft histograms of all pairs.

    Parameters
    ----------
    bins : int, default=100
        Bins of the range of cosines, -1 to 1.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import HistogramOverlap, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> HistogramOverlap()(torch.tensor([[0.9, 0.1]]), related).values
    tensor([0.])
    """

    bins: int = 100

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, wrong = right_and_wrong(relation)
        place = (affinity.clamp(-1, 1) + 1) * (self.bins / 2)  # in bins
        low = place.detach().floor().clamp_max(self.bins - 1)
        share, at = place - low, low.long()
        positives, negatives = right.sum(), wrong.sum()
        some = (positives > 0) & (negatives > 0)
        nodes = affinity.new_zeros(self.bins + 1)
        density = nodes.scatter_add(0, at.flatten(), ((1 - share) * right).flatten()).scatter_add(
            0, (at + 1).flatten(), (share * right).flatten()
        )
        reached = (density / positives.clamp_min(1)).cumsum(0)  # the share of positives up to each node
        above = (1 - share) * reached[at] + share * reached[at + 1]
        weight = relation.candidate.any(1).to(affinity.dtype)
        values = torch.where(wrong, above, 0.0).sum(1) / negatives.clamp_min(1) * weight.sum()
        return Outcome(values * some, weight * some, (positives + negatives) * some)


@dataclass(frozen=True)
class ProxyPairs:
    """Every reference of a class against the samples of the batch: references are the anchors, on cosines.

        1/|C+| sum_(c in C+) log(1 + sum_(i in c) exp(-(s_ic - margin) / temperature))
        + 1/|C| sum_c log(1 + sum_(i not in c) exp((s_ic + margin) / temperature))

    C+ are the references with a sample in the batch. The value belongs to the batch; every query has the same.

    Parameters
    ----------
    margin : float, default=0.1
        Added to what is asked of both sides.
    temperature : float, default=1/32
        Divides the cosines.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import ProxyPairs, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> round(ProxyPairs(0.0, 1.0)(torch.zeros(1, 2), related).values.item(), 4)  # log 2 + (log 2) / 2
    1.0397
    """

    margin: float = 0.1
    temperature: float = 1 / 32

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, wrong = right_and_wrong(relation)
        toward = soft_hinge(logsumexp((self.margin - affinity).T / self.temperature, right.T))  # (m,)
        away = soft_hinge(logsumexp((self.margin + affinity).T / self.temperature, wrong.T))
        value = toward.sum() / right.any(0).sum().clamp_min(1) + away.mean()
        return Outcome(value.expand(len(affinity)), torch.ones_like(affinity[:, 0]), (right | wrong).sum())
