"""Pairs and triplets: losses that compare two or three points at a time."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from nearkin.compose.affinity import Affinity, Euclidean, InnerProduct, Normalized, SquaredEuclidean, cosine
from nearkin.compose.criterion import Pairs, each_positive
from nearkin.compose.references import InBatch, OnePerClass
from nearkin.compose.relation import SameLabel
from nearkin.compose.triplets import CHOICES, Choice, Triplets
from nearkin.compose.validation import check_choice, check_positive, check_whole
from nearkin.objectives.neighborhood import NeighborhoodObjective


class Contrastive(NeighborhoodObjective):
    """Contrastive loss: positives are pulled together, negatives pushed apart up to a margin; the mean over all pairs.

        same class: d^2,   different: [margin - d]+^2,   d = |z_i - z_j|

    Use it if you will compare pairs with a distance threshold: its margin is a distance.

    Parameters
    ----------
    margin : float, default=1.0
        Distance beyond which a negative costs nothing. At most 2 with `normalize`, the largest distance of unit vectors.
    normalize : bool, default=True
        Scale the embeddings to unit length first, so that the margin means the same for every network.

    Notes
    -----
    The unit is the pair: the mean is over all ordered pairs of the batch. Negatives are far more frequent than positives in
    batches of many classes, so draw several samples of each class.

    Differs: no factor 1/2; every ordered pair of the batch; unit vectors by default.

    References
    ----------
    [hadsell2006drlim]

    Examples
    --------
    >>> import torch
    >>> from nearkin import Contrastive
    >>> embeddings, labels = torch.tensor([[0.0], [0.5], [2.0]]), torch.tensor([0, 0, 1])
    >>> objective = Contrastive(margin=2.0, normalize=False)
    >>> objective(embeddings, labels, reduction="none")  # 0.5^2; the third is at 1.5 and at 2.0
    tensor([0.1250, 0.2500, 0.1250])
    """

    keys = ("hadsell2006drlim",)

    def __init__(self, margin: float = 1.0, normalize: bool = True) -> None:
        check_positive("margin", margin)
        if normalize and margin > 2:
            raise ValueError(f"margin ({margin}) is above 2, the largest distance of unit vectors; lower it, or pass normalize=False")
        affinity: Affinity = Normalized(Euclidean()) if normalize else Euclidean()
        super().__init__(InBatch(), affinity, SameLabel(), Pairs(margin))


class Triplet(NeighborhoodObjective):
    """Triplet loss: a positive should be nearer than a negative by a margin.

        [s_negative - s_positive + margin]+,   s = cosine,   or minus the squared distance with metric="squared_euclidean"

    The usual baseline of retrieval. Which triplets are used matters more than the margin.

    Parameters
    ----------
    choice : {"uniform", "hard", "semi-hard", "distance-weighted", "misplaced"}, default="semi-hard"
        Which triplets count. Start with the default; "hard" can collapse early in training.

        - "uniform": all of them.
        - "hard": the farthest positive and the nearest negative of each query.
        - "semi-hard": for each positive, the nearest negative that is farther than it but inside the margin, or the
          farthest negative if there is none.
        - "distance-weighted": for each positive, one negative drawn evenly over distances, from torch's generator.
        - "misplaced": the positives outside the k nearest with the negatives inside them.
    margin : float, default=0.2
        By how much the positive must lead, in units of the affinity.
    metric : {"cosine", "squared_euclidean"}, default="cosine"
        The affinity. "distance-weighted" needs "cosine".
    dimension : int, default=0
        The embedding's size, at least 3; required by "distance-weighted".
    k : int, default=5
        Number of neighbors, for "misplaced" only.

    Notes
    -----
    A query without a positive or without a negative is skipped. `objective.last.active` counts the triplets inside the margin;
    when it approaches 0, training has little left to learn from.

    Differs: a query's value is the mean over its triplets, so that large classes do not dominate small ones; in
    distance-weighted draws the cutoff is the lower clip of the distance, 0.5.

    References
    ----------
    [schroff2015facenet]
    [hermans2017defense]
    [wu2017sampling]
    [lu2019sampling] eq. (1), and the sets of "misplaced"

    Examples
    --------
    >>> import torch
    >>> from nearkin import Triplet
    >>> embeddings, labels = torch.tensor([[0.0], [1.0], [1.5]]), torch.tensor([0, 0, 1])
    >>> objective = Triplet("uniform", margin=1.0, metric="squared_euclidean")
    >>> objective(embeddings, labels, reduction="none")  # 1 - 2.25 + 1 < 0, 1 - 0.25 + 1, and no positive
    tensor([0.0000, 1.7500, 0.0000])
    >>> objective.last
    Last(queries=3, valid=2, skipped=1, active=1, clamped=0)
    """

    keys = ("schroff2015facenet", "hermans2017defense", "wu2017sampling", "lu2019sampling")

    def __init__(
        self,
        choice: Choice = "semi-hard",
        margin: float = 0.2,
        metric: Literal["cosine", "squared_euclidean"] = "cosine",
        dimension: int = 0,
        k: int = 5,
    ) -> None:
        check_choice("choice", choice, CHOICES)
        check_choice("metric", metric, ("cosine", "squared_euclidean"))
        check_positive("margin", margin)
        check_whole("k", k)
        if choice == "distance-weighted" and dimension < 3:
            raise ValueError(f"dimension ({dimension}) must be the embedding's size, at least 3, for choice='distance-weighted'")
        if choice == "distance-weighted" and metric != "cosine":
            raise ValueError(
                f"metric {metric!r} does not work with choice='distance-weighted', which draws on the unit sphere; use metric='cosine'"
            )
        affinity: Affinity = cosine() if metric == "cosine" else SquaredEuclidean()
        super().__init__(InBatch(), affinity, SameLabel(), Triplets(choice, margin, dimension=dimension, k=k))


class NPair(NeighborhoodObjective):
    """N-pair loss: every query must find the one reference point of its class among those of all classes.

        mean_i log(1 + sum_(c != y_i) exp(x_i . p_c - x_i . p_(y_i))) + l2 mean(|x|^2 + |p|^2)

    The second point of every class in the batch is the reference p of its class; the other points are queries. Use it for two
    views of every item: give both views the item's number as label.

    Parameters
    ----------
    l2 : float, default=0.002
        Weight of the squared length of the embeddings, which inner products would otherwise let grow. 0 turns it off, for
        embeddings of unit length.

    Notes
    -----
    With two points in each class this is the published loss.

    Differs: classes of more than two points give more queries; the penalty is 2 l2 times the mean over all points of the batch.

    References
    ----------
    [sohn2016npair] eq. (7)

    Examples
    --------
    >>> import torch
    >>> from nearkin import NPair
    >>> views = torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0], [0.0, 3.0]])
    >>> objective = NPair(l2=0)
    >>> round(objective(views, torch.tensor([0, 0, 1, 1])).item(), 5)  # log(1 + exp(-9))
    0.00012
    >>> objective.last.valid  # the two queries; the two references are skipped
    2
    """

    keys = ("sohn2016npair",)

    def __init__(self, l2: float = 0.002) -> None:
        if l2 < 0:
            raise ValueError(f"l2 ({l2}) must be at least 0: it is the weight of the embeddings' squared length")
        super().__init__(OnePerClass(), InnerProduct(), SameLabel(), each_positive, SquaredLength(2 * l2) if l2 else None)


@dataclass(frozen=True)
class SquaredLength:
    """weight * mean |z|^2: a penalty on long embeddings."""

    weight: float

    def __call__(self, embeddings: Tensor) -> Tensor:
        return self.weight * embeddings.square().sum(1).mean()
