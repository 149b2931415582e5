"""Criterion: what does the difference between what IS near and what SHOULD be near cost?

Every criterion is a pure function of (n, m) affinities and a relation, and gives a value for each query. The quantifier over positives is
in its name: any of them, each of them, the best k. Sums of exponentials are differences of logsumexps, masks come before the reduction,
and a row without anything to choose is skipped by weight, never by an epsilon. Triplets have their own file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad, softplus

from nearkin.compose.derivatives import apply
from nearkin.compose.log_sums import log_ratio, logsumexp
from nearkin.compose.outcome import Outcome
from nearkin.compose.relation import Form, Related
from nearkin.compose.value_checks import may_read


class Criterion(Protocol):
    """What the affinities and the relation of every query cost.

    A part of your own needs only `__call__`. What it declares beyond that lets it be evaluated without the (n, m) matrix:

    Attributes
    ----------
    form : {"log", "expected", "each", "mean", "pairs"}, optional
        It is that soft sum, which the kernels stream: "log" is `any_positive`, "expected" is `expected_cost`, "each" is `each_positive`,
        "mean" is `mean_positive`, "pairs" is `each_pair`.
    needs : {"all", "best"}, optional
        "best": it looks only at the best few of each row. It then has `choose(affinity, related)`, which finds them without a gradient,
        and `outcome(affinity, choice)`, which takes their affinities.
    columns : {"classes", "answers"}, optional
        It has `by_column(affinity, column, there, apart)`, a shorter way for references of which each query has at most one positive at a
        known column: vectors that stand for one class each, of which every query has one, or one answer a class.
    """

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome: ...


ByColumn = Callable[[Tensor, Tensor, Tensor | None, bool], Outcome]


class NamedCriterion:
    """A criterion that is a function, with what it declares."""

    needs = "all"

    def __init__(self, function: Callable[[Tensor, Related], Outcome], form: Form | None, columns: str | None, by_column: ByColumn | None):
        self.function, self.form, self.columns, self.by_column = function, form, columns, by_column
        update_wrapper(self, function)

    def __call__(self, affinity: Tensor, relation: Related) -> Outcome:
        return self.function(affinity, relation)

    def __repr__(self) -> str:
        return str(self.function.__name__)

    def __hash__(self) -> int:  # it never changes, unlike other objects of which only the address is known
        return id(self)

    def __reduce__(self) -> str:
        return str(self.function.__name__)  # a copy is the same criterion, and a pickle its name


def declares(
    form: Form | None = None, columns: str | None = None, by_column: ByColumn | None = None
) -> Callable[[Callable[[Tensor, Related], Outcome]], NamedCriterion]:
    """Turn a function into a criterion that declares what engines need to know."""
    return lambda function: NamedCriterion(function, form, columns, by_column)


def right_and_wrong(relation: Related) -> tuple[Tensor, Tensor]:
    """(n, m) masks over the candidates: cost 0 is right, anything above is wrong."""
    right = relation.cost == 0
    return right & relation.candidate, ~right & relation.candidate


def count(mask: Tensor) -> Tensor:
    """(n,) how many of each row: on a CPU a few rows at a time, for torch copies truth values to integers to sum them."""
    if torch.compiler.is_compiling():
        return mask.float().sum(1).long()  # a compiled loop sums floats several times as fast as integers
    if not may_read(mask) or mask.numel() < 2**17:
        return mask.sum(1)
    step = max(1, 2**16 // mask.shape[1])
    return torch.cat([mask[start : start + step].sum(1) for start in range(0, len(mask), step)])


def count_all(mask: Tensor) -> Tensor:
    """() how many of all."""
    return count(mask).sum() if torch.compiler.is_compiling() else torch.count_nonzero(mask)


def soft_hinge(x: Tensor) -> Tensor:
    """log(1 + e^x). torch's default turns into a straight line at 20, which is 2e-9 off in float64; at 40 it is exact."""
    return softplus(x, threshold=40)


def _soft(values: Tensor, valid: Tensor, candidates: Tensor) -> Outcome:
    """`values` are 0 where they are not `valid`; `candidates` (n,): how many each query has."""
    return Outcome(values, valid.to(values.dtype), (candidates * valid).sum())


def own_column(affinity: Tensor, column: Tensor, there: Tensor | None = None, apart: bool = False) -> Outcome:
    """any_positive where the one positive of query i stands in column[i] and all columns are candidates, or all others if `apart`."""
    assert there is None
    n, m = affinity.shape
    if apart:
        at = column[:, None]
        chosen = logsumexp(affinity, torch.ones_like(affinity, dtype=torch.bool).scatter_(1, at, False))
        values = chosen - affinity.gather(1, at)[:, 0]
    else:
        values = cross_entropy(affinity, column, reduction="none")  # with nothing to mask, at a quarter of the time
    return Outcome(values, torch.ones_like(values), torch.full((), n * (m - apart), device=values.device), even=True)


def one_answer(affinity: Tensor, column: Tensor, there: Tensor | None, apart: bool = False) -> Outcome:
    """each_positive where the one positive of query i stands in column[i], -1 if it has none; the columns `there` (m,) are candidates."""
    assert there is not None and not apart
    if not (may_read(affinity) and bool(there.all()) and len(there) > 1):
        column = torch.where(there.sum() > 1, column, -1)  # an answer alone has no negative
        affinity = affinity.masked_fill(~there, torch.finfo(affinity.dtype).min)
    weight = (column >= 0).to(affinity.dtype)
    return Outcome(cross_entropy(affinity, column, reduction="none", ignore_index=-1), weight, weight.sum())


@declares("expected")
def expected_cost(affinity: Tensor, relation: Related) -> Outcome:
    """The mean cost of a neighbor drawn by softmax, sum_j p_ij cost_ij.

    A query without a candidate is skipped.

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
    >>> from nearkin.compose import Related, expected_cost
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> expected_cost(torch.zeros(1, 2), related).values
    tensor([0.5000])
    """
    cost, candidate = relation
    log_p = affinity - logsumexp(affinity, candidate).clamp_min(torch.finfo(affinity.dtype).min)[:, None]
    p = log_p.masked_fill(~candidate, -torch.inf).exp()
    candidates = candidate.sum(1)
    return _soft((p * cost).sum(1), candidates > 0, candidates)  # without candidates every p is 0


@declares("log", "classes", own_column)
def any_positive(affinity: Tensor, relation: Related) -> Outcome:
    """Minus the log of the probability that a neighbor drawn by softmax is a positive: it is enough that ANY positive is near.

    A graded cost counts with its share 1 - cost; a cost of 1 or more is a negative. A query without a positive or without a candidate is
    skipped.

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
    >>> from nearkin.compose import Related, any_positive
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> any_positive(torch.zeros(1, 2), related).values
    tensor([0.6931])
    """
    share = 1 - relation.cost.clamp(0, 1)
    candidates = count(relation.candidate)
    valid = (candidates > 0) & (share.sum(1) > 0)
    return _soft(log_ratio(affinity, relation.candidate, share), valid, candidates)


@declares("each", "answers", one_answer)
def each_positive(affinity: Tensor, relation: Related) -> Outcome:
    """EACH positive against all negatives, mean_j log(1 + sum_k exp(s_ik - s_ij)).

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
    >>> from nearkin.compose import Related, each_positive
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> each_positive(torch.zeros(1, 2), related).values
    tensor([0.6931])
    """
    right, wrong = right_and_wrong(relation)
    negative = logsumexp(affinity, wrong)
    positives = count(right)
    valid = (positives > 0) & wrong.any(1)
    negative = torch.where(valid, negative, torch.zeros_like(negative))
    if may_read(affinity) and int(positives.sum()) <= right.numel() // 8:  # where they are few, these alone
        rows, columns = right.nonzero(as_tuple=True)
        sums = torch.zeros_like(negative).index_add(0, rows, soft_hinge(negative[rows] - affinity[rows, columns]))
    else:
        sums = (soft_hinge(negative[:, None] - affinity) * right).sum(1)
    return _soft(torch.where(valid, sums / positives.clamp_min(1), 0.0), valid, positives)


@declares("mean", "classes", own_column)
def mean_positive(affinity: Tensor, relation: Related) -> Outcome:
    """The mean over the positives of minus the log of their probability, mean_j -log p_ij: EVERY positive should take its share.

    A query without a positive is skipped.

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
    >>> from nearkin.compose import Related, mean_positive
    >>> related = Related(torch.tensor([[0.0, 0.0, 1.0]]), torch.ones(1, 3, dtype=torch.bool))
    >>> mean_positive(torch.zeros(1, 3), related).values  # log 3; any_positive gives log 3/2
    tensor([1.0986])
    """
    right, _ = right_and_wrong(relation)
    positives = count(right)
    valid = positives > 0
    whole = torch.where(valid, logsumexp(affinity, relation.candidate), 0.0)
    mean = (affinity * right).sum(1) / positives.clamp_min(1)
    return _soft(whole - mean, valid, count(relation.candidate))


@declares()
def attraction(affinity: Tensor, relation: Related) -> Outcome:
    """Minus the mean affinity of the positives. Negatives are not looked at, so the embedding may collapse.

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
    >>> from nearkin.compose import Related, attraction
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> attraction(torch.zeros(1, 2), related).values
    tensor([-0.])
    """
    right, _ = right_and_wrong(relation)
    positives = right.sum(1)
    values = -(affinity * right).sum(1) / positives.clamp_min(1)
    return _soft(values, positives > 0, positives)


@dataclass(frozen=True)
class Pairs:
    """Contrastive pairs on minus a distance d: positives cost d^2, negatives [margin - d]+^2. The unit is the pair.

    Parameters
    ----------
    margin : float, default=1.0
        The distance from which on a negative costs nothing.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Pairs, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> Pairs()(torch.tensor([[-0.5, -0.8]]), related).values  # (0.5^2 + 0.2^2) / 2
    tensor([0.1450])
    """

    margin: float = 1.0

    def __call__(self, affinity: Tensor, relation: Related) -> Outcome:
        right, pairs = relation.cost == 0, count(relation.candidate)
        off = _off(affinity.detach(), right, relation.candidate, self.margin)
        values = apply(_OffSquared, affinity, right, relation.candidate, self.margin, off) / pairs.clamp_min(1)
        return Outcome(values, pairs.to(values.dtype), count_all(off != 0))


def _off(affinity: Tensor, right: Tensor, candidate: Tensor, margin: float) -> Tensor:
    """(n, m) how far each pair is from where it should be: s for right ones, [margin + s]+ for wrong ones, 0 for no candidates."""
    return torch.where(right, affinity, (affinity + margin).clamp_min_(0)).mul_(candidate)


class _OffSquared(torch.autograd.Function):
    """Row sums of `off` squared, whose gradient is 2 off on either side of the margin: one matrix kept, and one backwards."""

    @staticmethod
    def forward(affinity: Tensor, right: Tensor, candidate: Tensor, margin: float, off: Tensor) -> Tensor:
        squares: Tensor = torch.linalg.vecdot(off, off)
        return squares

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        affinity, right, candidate, ctx.margin, off = inputs
        ctx.save_for_backward(affinity, right, candidate, off)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None, None]:
        affinity, right, candidate, off = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            off = _off(affinity, right, candidate, ctx.margin)
        return (2 * upstream[0])[:, None] * off, None, None, None, None


@dataclass(frozen=True)
class OneVersusRest:
    """Every candidate is a yes-or-no question, sum_j [margin - t_ij s_ij]+, with t = +1 for positives and -1 for negatives.

    Parameters
    ----------
    margin : float, default=1.0
        The score from which on a candidate costs nothing.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import OneVersusRest, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> OneVersusRest()(torch.tensor([[0.5, -2.0]]), related).values
    tensor([0.5000])
    """

    margin: float = 1.0

    def __call__(self, affinity: Tensor, relation: Related) -> Outcome:
        right, wrong = right_and_wrong(relation)
        short = ((self.margin - affinity) * right + (self.margin + affinity) * wrong).clamp_min(0)
        valid = relation.candidate.any(1)
        return Outcome(short.sum(1), valid.to(short.dtype), (short > 0).sum())


STRIP = 64  # columns whose largest entry is found first


def _top(x: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(n, k) columns of the largest entries of each row of the mask in descending order, and (n,) how many there are.

    Where a row has fewer than k, its last columns are any. Only the k are counted: CUDA copies truth values to integers to sum them.
    """
    filled, k = torch.where(mask, x, -torch.inf), min(k, x.shape[1])
    values, columns = by_strips(filled, k) if _worth_strips(x, k) else filled.topk(k, dim=1)
    return columns, (values != -torch.inf).sum(1)


def _worth_strips(x: Tensor, k: int) -> bool:
    return x.is_cuda and x.shape[1] >= 2 * k * STRIP


def by_strips(filled: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """topk's values and columns for rows of k strips or more: the k largest entries lie in the k strips with the largest maxima.

    CUDA's radix selection reads every row many times over; here it reads the maxima, and then k strips of each row. A strip takes
    every so many columns, for neighboring threads then read neighboring entries.
    """
    wide = filled.shape[1]
    if wide % STRIP:
        filled = pad(filled, (0, -wide % STRIP), value=-torch.inf)
    strips = filled.reshape(len(filled), STRIP, -1)  # (n, STRIP, strips)
    best = strips.amax(1).topk(k, dim=1).indices  # (n, k)
    values, at = strips.gather(2, best[:, None].expand(-1, STRIP, -1)).flatten(1).topk(k, dim=1)
    columns = at // k * strips.shape[2] + best.gather(1, at % k)
    return values, columns.clamp_max(wide - 1)  # what was put behind a row with fewer than k entries is nowhere


class Choice(NamedTuple):
    """Which neighbors of each query bear on the value of its best k; found without a gradient."""

    columns: Tensor  # (n, 2k) the nearest, then the nearest right ones
    cost: Tensor  # (n, 2k) of those
    inside: Tensor  # (n, k) bool: of the nearest, those that count
    rightly: Tensor  # (n, k) bool: of these the wrong ones that stand in the ideal set, too
    mistakes: Tensor  # (n,) wrong ones that took the place of a right one
    ideal: Tensor  # (n, k) bool: of the nearest right ones, those in the ideal set
    best: Tensor  # (n,) right candidates, at most the criterion's k
    k: Tensor  # (n,) as many neighbors as there are, at most the criterion's k
    weight: Tensor  # (n,) of each query

    @staticmethod
    def joined(parts: "Sequence[Choice]") -> "Choice":
        """The choices of several blocks of queries as one."""
        return parts[0] if len(parts) == 1 else Choice(*(torch.cat(some) for some in zip(*parts, strict=True)))


@dataclass(frozen=True)
class BestK:
    """The gap between the k nearest and the best k there could be, with negatives helped by a margin.

        s'_ij = s_ij + margin cost_ij
        value = topsum_k(s') - [topsum_a(s' of positives) + topsum_(k-a)(s' of negatives)],   a = min(k, number of positives)

    It is zero exactly when no negative stands among the k nearest where a positive could. k above the number of candidates is lowered to
    it, and counted.

    Parameters
    ----------
    k : int, default=5
        How many neighbors are looked at.
    margin : float, default=0.1
        How much nearer positives must be than negatives.
    log_sum_exp : bool, default=False
        Add (2/40) log(1 + sum exp(40 (s' - 1/2))) over its entries to each top-k sum, as the authors' released code does and their text
        does not.
    class_balanced : bool, default=False
        Weigh a query by one over the size of its class (itself and its positive candidates).

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import BestK, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> BestK(1, 0.0)(torch.tensor([[0.2, 0.5]]), related).values
    tensor([0.3000])
    """

    k: int = 5
    margin: float = 0.1
    log_sum_exp: bool = False
    class_balanced: bool = False
    needs: ClassVar[str] = "best"

    def __call__(self, affinity: Tensor, relation: Related) -> Outcome:
        choice = self.choose(affinity, relation)
        return self.outcome(affinity.gather(1, choice.columns), choice)

    @torch.no_grad()
    def choose(self, affinity: Tensor, relation: Related) -> Choice:
        """Find the neighbors that bear on the value, without a gradient.

        Parameters
        ----------
        affinity : Tensor
            (n, m) how near each reference is.
        relation : Related
            How near each should be.

        Returns
        -------
        Choice
            Their columns, and what each counts as.
        """
        right = (relation.cost == 0) & relation.candidate
        at, k = _top(torch.add(affinity, relation.cost, alpha=self.margin), relation.candidate, self.k)
        at_kin, best = _top(affinity, right, self.k)
        rank = torch.arange(at.shape[1], device=at.device)
        inside = rank < k[:, None]
        # The ideal set's wrong ones are the first of those that stand among the k nearest already.
        taken = ~right.gather(1, at) & inside
        rightly = taken & (taken.cumsum(1) <= (k - best)[:, None])
        columns = torch.cat([at, at_kin], 1)
        mistakes = (taken & ~rightly).sum(1)
        weight = (best > 0).to(affinity.dtype)
        if self.class_balanced:
            weight = weight / (right.sum(1) + 1)
        return Choice(columns, relation.cost.gather(1, columns), inside, rightly, mistakes, rank < best[:, None], best, k, weight)

    def outcome(self, affinity: Tensor, choice: Choice) -> Outcome:
        """Compute the value from the affinities of the chosen neighbors.

        Parameters
        ----------
        affinity : Tensor
            (n, 2k) of the chosen columns.
        choice : Choice
            What `choose` returned.

        Returns
        -------
        Outcome
            The value and the weight of every query.
        """
        nearest, near_kin = torch.add(affinity, choice.cost, alpha=self.margin).chunk(2, 1)  # (n, k) each
        _, _, inside, rightly, mistakes, ideal, best, k, weight = choice
        values = (nearest * (inside & ~rightly)).sum(1) - (near_kin * ideal).sum(1)
        if self.log_sum_exp:
            # The sum of ALL right ones (fewer than k of them) carries no such term in the released code.
            sets = torch.stack([nearest, near_kin, nearest]), torch.stack([inside, ideal, rightly])
            nearest_peak, kin_peak, wrong_peak = _soft_peak(*sets)
            values = values + nearest_peak - torch.where(best >= k, kin_peak, wrong_peak)
        valid = best > 0
        values = torch.where(valid, values, torch.zeros_like(values))
        return Outcome(values, weight, (mistakes * valid).sum(), (valid & (k < self.k)).sum())


def _soft_peak(top: Tensor, kept: Tensor) -> Tensor:
    return 2 / 40 * soft_hinge(torch.where(kept, 40 * (top - 0.5), -1e30).logsumexp(-1))


def misplaced(affinity: Tensor, relation: Related, k: int, margin: float) -> tuple[Tensor, Tensor]:
    """[lu2019sampling]'s sets, (n, m) masks: right ones outside the k nearest, and the wrong ones inside that took their place.

    Both have the same size in every row: moving the first in and the second out gives the best k there could be.
    """
    right, wrong = right_and_wrong(relation)
    reach = relation.candidate.sum(1).clamp(max=k)
    best = torch.minimum(reach, right.sum(1))
    return _misplaced((affinity + margin * relation.cost).detach(), right, wrong, relation.candidate, reach, best)


def _misplaced(helped: Tensor, right: Tensor, wrong: Tensor, candidate: Tensor, k: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    inside = _first(helped, candidate, k)
    ideal = _first(helped, right, best) | _first(helped, wrong, k - best)
    return ideal & ~inside & right, inside & ~ideal & wrong


def _first(x: Tensor, mask: Tensor, count: Tensor) -> Tensor:
    """(n, m) mask of the `count` largest entries of each row within the mask; ties go to the earlier column."""
    order = x.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(x.shape[1], device=x.device).expand_as(order))
    return (rank < count[:, None]) & mask
