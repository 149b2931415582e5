"""Pairs and triplets: the losses that look at two or three points at a time."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from nearkin.compose.affinity import Affinity, Euclidean, InnerProduct, Normalized, SquaredEuclidean, cosine
from nearkin.compose.criterion import Pairs, each_positive
from nearkin.compose.references import InBatch, OnePerClass
from nearkin.compose.relation import SameLabel, SameLabelOfFilled
from nearkin.compose.triplets import CHOICES, Choice, Triplets
from nearkin.compose.validation import check_choice, check_positive, check_whole
from nearkin.objectives.neighborhood import NeighborhoodObjective


class Contrastive(NeighborhoodObjective):
    """Kin are drawn together, others pushed out to a margin; the mean over all pairs.

        same class: d^2,   different: [margin - d]+^2,   d = |z_i - z_j|

    `normalize` puts the embeddings on the unit sphere first, where the margin means the same for every network.
    [hadsell2006drlim]
    Differs: no factor 1/2; every ordered pair of the batch; unit vectors by default.
    """

    keys = ("hadsell2006drlim",)

    def __init__(self, margin: float = 1.0, normalize: bool = True) -> None:
        check_positive("margin", margin)
        if normalize and margin > 2:
            raise ValueError(f"margin ({margin}) is above 2, the largest distance of unit vectors; lower it or pass normalize=False")
        affinity: Affinity = Normalized(Euclidean()) if normalize else Euclidean()
        super().__init__(InBatch(), affinity, SameLabel(), Pairs(margin))


class Triplet(NeighborhoodObjective):
    """A right neighbor should be nearer than a wrong one by a margin.

        [s_wrong - s_right + margin]+,   s = cosine,   or minus the squared distance with metric="squared_euclidean"

    choice: "uniform" (all triplets), "hard", "semi-hard", "distance-weighted" (draws from torch's generator; needs the
    embedding's `dimension`), "misplaced" (the sets that Prec@k moves, for `k`).
    [schroff2015facenet]; [hermans2017defense]; [wu2017sampling]; [lu2019sampling] eq. (1), and for those sets
    Differs: a query's value is the mean over its triplets, so large classes do not outvote small ones; in distance-weighted
    draws the cutoff is the lower clip of the distance, 0.5.
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
            raise ValueError(f"dimension ({dimension}) must be the embedding's size, at least 3, for distance-weighted draws")
        if choice == "distance-weighted" and metric != "cosine":
            raise ValueError(
                f"metric {metric!r} does not go with distance-weighted draws, which are made on the unit sphere; use metric='cosine'"
            )
        affinity: Affinity = cosine() if metric == "cosine" else SquaredEuclidean()
        super().__init__(InBatch(), affinity, SameLabel(), Triplets(choice, margin, dimension=dimension, k=k))


class NPair(NeighborhoodObjective):
    """One answer a class: every query must find its own class's answer among the answers of all classes.

        mean_i log(1 + sum_(c != y_i) exp(x_i . p_c - x_i . p_(y_i))) + l2 mean(|x|^2 + |p|^2)

    The second point of every class in the batch is its answer p; the others ask. With two points a class this is the print.
    [sohn2016npair] eq. (7)
    Differs: classes of more than two give more queries; the norm penalty is 2 l2 times the mean over all points of the batch.
    """

    keys = ("sohn2016npair",)

    def __init__(self, l2: float = 0.002) -> None:
        if l2 < 0:
            raise ValueError(f"l2 ({l2}) must not be negative; it weighs the embeddings' squared length")
        super().__init__(OnePerClass(), InnerProduct(), SameLabelOfFilled(), each_positive, SquaredLength(2 * l2) if l2 else None)


@dataclass(frozen=True)
class SquaredLength:
    """weight * mean |z|^2."""

    weight: float

    def __call__(self, embeddings: Tensor) -> Tensor:
        return self.weight * embeddings.square().sum(1).mean()
