"""Pair-coupled losses: both ends of a right pair look for wrong ones, so they read reference-to-reference affinities and
stand beside the four-slot composition instead of bending it."""

import math
from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor

from nearkin.compose.affinity import Euclidean, unit
from nearkin.compose.criterion import misplaced, right_and_wrong, soft_hinge
from nearkin.compose.log_sums import logsumexp
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.relation import Related, SameLabel, Supervision
from nearkin.compose.validation import check_choice, check_positive, check_whole
from nearkin.objectives import inputs as door
from nearkin.objectives.objective import Objective


class PairCoupled(Objective):
    """All right pairs of the batch, each against the wrong ones of both its ends."""

    @property
    def supervision(self) -> Supervision:
        return "classes"

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            raise ValueError(
                f"{type(self).__name__} couples pairs of the batch and takes no references=; use another objective with a bank"
            )
        if batch.ids is None:
            batch = batch._replace(ids=torch.arange(len(batch.embeddings), device=batch.embeddings.device))
        assert batch.labels is not None
        door.check_two_classes(batch.labels)
        return self.pairs(batch.embeddings, SameLabel()(batch, batch))

    @abstractmethod
    def pairs(self, embeddings: Tensor, relation: Related) -> Outcome:
        """Price every query by its right pairs."""


class LiftedStructure(PairCoupled):
    """Lifted structured embedding: a right pair against all the wrong ones of both its ends.

        1/(2 |P|) sum_((i,j) in P) [ log( sum_(k in N_i) e^(margin - d_ik) + sum_(l in N_j) e^(margin - d_jl) ) + d_ij ]+^2

    One log-sum-exp a query, never a matrix of pairs against pairs. The unit is the pair: the mean is over right pairs.
    [song2016lifted] eq. (4)
    Differs: distances from differences, with gradient 0 at distance 0.
    """

    keys = ("song2016lifted",)

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        check_positive("margin", margin)
        self.margin = margin

    def pairs(self, embeddings: Tensor, relation: Related) -> Outcome:
        right, wrong = right_and_wrong(relation)
        near = Euclidean()(embeddings, embeddings)  # (n, n), -d
        some = wrong.any(1)
        rival = torch.where(some, logsumexp(self.margin + near, wrong), torch.full_like(near[:, 0], -1e30))
        value = torch.logaddexp(rival[:, None], rival[None, :]) - near
        hinge = torch.where(right, value, torch.zeros_like(value)).clamp_min(0)
        count = right.sum(1)
        return Outcome(hinge.square().sum(1) / (2 * count.clamp_min(1)), count.to(near.dtype), (hinge > 0).sum())


class Angular(PairCoupled):
    """The angle at a wrong neighbor of the triangle it forms with a right pair is held below alpha degrees.

        mean over right pairs (a, p) of log(1 + sum_n exp(4 t (a + p) . n - 2 (1 + t) a . p)),   t = tan(alpha)^2

    All three are unit vectors. choice="misplaced" takes only the sets that Prec@k moves, for `k` and `margin`: right ones outside
    the k nearest of a, and the wrong ones that stand in their places.
    [wang2017angular] eq. (6)-(8); [lu2019sampling] for those sets
    Differs: every right pair of the batch; negatives are normalized too; add NPair with WeightedSum for the combined loss.
    """

    keys = ("wang2017angular", "lu2019sampling")

    def __init__(self, alpha: float = 45.0, choice: Literal["all", "misplaced"] = "all", k: int = 5, margin: float = 0.1) -> None:
        super().__init__()
        if not 0 < alpha <= 60:
            # Beyond 60 degrees the exponents of opposite vectors span more than float32 holds.
            raise ValueError(f"alpha ({alpha}) must lie in (0, 60] degrees; the paper uses 36 to 55")
        check_choice("choice", choice, ("all", "misplaced"))
        check_whole("k", k)
        check_positive("margin", margin)
        self.alpha, self.choice, self.k, self.margin = alpha, choice, k, margin

    def pairs(self, embeddings: Tensor, relation: Related) -> Outcome:
        right, wrong = right_and_wrong(relation)
        t = math.tan(math.radians(self.alpha)) ** 2
        directions = unit(embeddings)
        s = directions @ directions.T
        rivals = wrong
        if self.choice == "misplaced":
            right, rivals = misplaced(s, relation, self.k, self.margin)
        # sum_n exp(4t s_an + 4t s_pn) over the common wrong ones is a product of matrices; row maxima keep it in range.
        power = (4 * t * s).masked_fill(~wrong, -torch.inf)
        some = wrong.any(1)
        peak = torch.where(some, power.detach().amax(1), torch.zeros_like(s[:, 0]))
        weight = (power - peak[:, None]).exp()
        both = weight.masked_fill(~rivals, 0) @ weight.T
        rival = torch.where(both > 0, both, torch.ones_like(both)).log() + peak[:, None] + peak[None, :]
        rival = torch.where(both > 0, rival, torch.full_like(rival, -1e30))
        count = right.sum(1)
        value = torch.where(right, soft_hinge(rival - 2 * (1 + t) * s), torch.zeros_like(s)).sum(1)
        valid = right.any(1) & some
        return Outcome(value / count.clamp_min(1) * valid, (count * valid).to(s.dtype), (right & some[:, None]).sum())
