"""Pair-coupled losses: both ends of a positive pair look for negatives.

They read affinities between references, which the four-part composition does not have, so they are objectives of their own.
"""

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
from nearkin.objectives import inputs
from nearkin.objectives.objective import Objective


class PairCoupled(Objective):
    """Base of losses over all positive pairs of the batch, each compared with the negatives of both its ends."""

    @property
    def supervision(self) -> Supervision:
        return "classes"

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            raise ValueError(
                f"{type(self).__name__} compares pairs within the batch and takes no references=; "
                "leave it out, or use an objective such as NCA, Triplet or PrecisionAtK"
            )
        if batch.ids is None:
            batch = batch._replace(ids=torch.arange(len(batch.embeddings), device=batch.embeddings.device))
        assert batch.labels is not None
        two = inputs.check_two_classes(batch.labels, objective=type(self).__name__)
        return inputs.contrasted(self.pairs(batch.embeddings, SameLabel()(batch, batch)), two)

    @abstractmethod
    def pairs(self, embeddings: Tensor, relation: Related) -> Outcome:
        """Compute the value of every query from its positive pairs."""


class LiftedStructure(PairCoupled):
    """Lifted structured embedding: a positive pair against all negatives of both its ends.

        1/(2 |P|) sum_((i,j) in P) [ log( sum_(k in N_i) e^(margin - d_ik) + sum_(l in N_j) e^(margin - d_jl) ) + d_ij ]+^2

    P are the positive pairs, N_i the negatives of i, d Euclidean distances. A usual baseline of published comparisons.

    Parameters
    ----------
    margin : float, default=1.0
        Distance by which negatives should exceed positives. It is in units of the embedding, so normalize the embeddings, or
        adapt it to their scale.

    Notes
    -----
    The unit is the pair: the mean is over positive pairs. Memory is O(n^2): one log-sum-exp for each query, never a matrix of
    pairs by pairs. It takes no `references=`.

    Differs: distances are computed from differences, with gradient 0 at distance 0.

    References
    ----------
    [song2016lifted] eq. (4)

    Examples
    --------
    >>> import torch
    >>> from nearkin import LiftedStructure
    >>> embeddings, labels = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 0, 1])
    >>> round(LiftedStructure()(embeddings, labels).item(), 4)  # [log(e^(1 - 2) + e^(1 - 1)) + 1]^2 / 2
    0.8623
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
        opposing = torch.where(some, logsumexp(self.margin + near, wrong), torch.full_like(near[:, 0], -1e30))
        value = torch.logaddexp(opposing[:, None], opposing[None, :]) - near
        hinge = torch.where(right, value, torch.zeros_like(value)).clamp_min(0)
        count = right.sum(1)
        return Outcome(hinge.square().sum(1) / (2 * count.clamp_min(1)), count.to(near.dtype), (hinge > 0).sum())


class Angular(PairCoupled):
    """Angular loss: in the triangle of a positive pair and a negative, the angle at the negative stays below alpha degrees.

        mean over positive pairs (a, p) of log(1 + sum_n exp(4 t (a + p) . n - 2 (1 + t) a . p)),   t = tan(alpha)^2

    All three are unit vectors. Unlike a distance margin, the angle does not depend on the scale of a class.

    Parameters
    ----------
    alpha : float, default=45.0
        Upper bound of the angle in degrees, in (0, 60]; the paper uses 36 to 55.
    choice : {"all", "misplaced"}, default="all"
        Which pairs and negatives count: all, or only those that Prec@k would move, that is positives outside the k nearest of a
        and the negatives in their places.
    k : int, default=5
        Number of neighbors, for "misplaced" only.
    margin : float, default=0.1
        Cosine margin that decides which neighbors are nearest, for "misplaced" only.

    Notes
    -----
    The unit is the pair: the mean is over positive pairs. It takes no `references=`. The paper adds it to the N-pair loss; see
    the example.

    Differs: every positive pair of the batch; negatives are normalized, too; the combined loss is a `WeightedSum` with `NPair`.

    References
    ----------
    [wang2017angular] eq. (6)-(8)
    [lu2019sampling] for the sets of "misplaced"

    Examples
    --------
    >>> import torch
    >>> from nearkin import Angular, NPair, WeightedSum
    >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> round(Angular()(embeddings, labels).item(), 4)  # log(1 + 2 exp(0)): everything is orthogonal
    1.0986
    >>> combined = WeightedSum({"npair": (1.0, NPair()), "angular": (2.0, Angular())})
    """

    keys = ("wang2017angular", "lu2019sampling")

    def __init__(self, alpha: float = 45.0, choice: Literal["all", "misplaced"] = "all", k: int = 5, margin: float = 0.1) -> None:
        super().__init__()
        if not 0 < alpha <= 60:
            # Beyond 60 degrees the exponents of opposite vectors exceed the range of float32.
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
        opposed = wrong
        if self.choice == "misplaced":
            right, opposed = misplaced(s, relation, self.k, self.margin)
        # sum_n exp(4t s_an + 4t s_pn) over the common negatives is a matrix product; row maxima keep it in range.
        power = (4 * t * s).masked_fill(~wrong, -torch.inf)
        some = wrong.any(1)
        peak = torch.where(some, power.detach().amax(1), torch.zeros_like(s[:, 0]))
        weight = (power - peak[:, None]).exp()
        both = weight.masked_fill(~opposed, 0) @ weight.T
        opposing = torch.where(both > 0, both, torch.ones_like(both)).log() + peak[:, None] + peak[None, :]
        opposing = torch.where(both > 0, opposing, torch.full_like(opposing, -1e30))
        count = right.sum(1)
        value = torch.where(right, soft_hinge(opposing - 2 * (1 + t) * s), torch.zeros_like(s)).sum(1)
        valid = right.any(1) & some
        return Outcome(value / count.clamp_min(1) * valid, (count * valid).to(s.dtype), (right & some[:, None]).sum())
