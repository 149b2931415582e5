"""Class vectors: every query chooses among one reference a class. Fixed ones are anchors, learned ones proxies."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from nearkin.compose.affinity import Affine, Affinity, Euclidean, MinusDistance, Normalized, SquaredEuclidean, cosine
from nearkin.compose.criterion import BestK, Criterion, OneVersusRest, any_positive
from nearkin.compose.points import Points
from nearkin.compose.references import Anchors, Proxies
from nearkin.compose.relation import SameLabel, SameLabelApart
from nearkin.compose.triplets import Triplets
from nearkin.compose.validation import check_choice, check_positive
from nearkin.objectives import inputs as door
from nearkin.objectives.neighborhood import NeighborhoodObjective


class NearestClassMean(NeighborhoodObjective):
    """Nearest class mean with fixed anchors: softmax over minus the distance to every class's anchor.

        p(c | x) = exp(-scale M(f, a_c)) / sum_c' exp(-scale M(f, a_c')),   loss = -log p(y | x)
        metric="euclidean":  M = |f - a|, not squared (E-NCM); its minimizer is the anchor itself
        metric="cosine":     M = 1 - cos(f, a) (C-NCM)

    `metric` may also be your own differentiable distance(f, anchors) -> (n, C). `anchors` are (C, d), row c for class c:
    see nearkin.orthonormal, circle, simplex, packed and assign. The loss has a floor above zero: with scale 1 and
    orthonormal anchors log(1 + (C - 1) exp(-sqrt 2)), so p is no confidence; raise scale to lower it.
    [hao2018anchor] eq. (3)-(10)
    Differs: eq. (6), (7) and (10) as corrected; `scale` (1 in print) multiplies distances; cos with a zero vector is 0.
    """

    keys = ("hao2018anchor",)

    def __init__(
        self,
        anchors: Tensor,
        metric: Literal["euclidean", "cosine"] | Callable[[Tensor, Tensor], Tensor] = "euclidean",
        scale: float = 1.0,
    ) -> None:
        check_positive("scale", scale)
        super().__init__(Anchors(anchors), _distance(metric, scale), SameLabel(), any_positive)

    def known_dimension(self) -> int | None:
        # A caller's own distance may well compare embeddings and anchors of different sizes.
        return None if getattr(self.affinity, "any_width", False) else super().known_dimension()

    @torch.no_grad()
    def predict(self, embeddings: Tensor) -> Tensor:
        """The class whose anchor is nearest, (n,). [hao2018anchor] eq. (3)"""
        embeddings = door.check_embeddings(embeddings)
        door.check_dimension(embeddings, self.known_dimension())
        anchors = self.references(Points(embeddings))
        return self.affinity(embeddings, anchors.embeddings).argmax(1)


def _distance(metric: str | Callable[[Tensor, Tensor], Tensor], scale: float) -> Affinity:
    if not isinstance(metric, str):
        return MinusDistance(metric, scale)
    check_choice("metric", metric, ("euclidean", "cosine"))
    # 1 - cos and -cos differ by a constant, which the softmax does not see.
    return Euclidean(1 / scale) if metric == "euclidean" else cosine(1 / scale)


class Softmax(NeighborhoodObjective):
    """The plain classifier: cross-entropy of a learned linear head. For neighbors, use the layer before the head.

        loss = -log softmax(W f + b)_y

    [bridle1990softmax]
    """

    keys = ("bridle1990softmax",)

    def __init__(self, num_classes: int, dimension: int) -> None:
        super().__init__(Proxies(num_classes, dimension, bias=True), Affine(), SameLabel(), any_positive)


class Hinge(NeighborhoodObjective):
    """A multi-class hinge on a learned linear head s = W f + b.

        form="crammer-singer":  [margin + max_(c != y) s_c - s_y]+
        form="weston-watkins":  mean_(c != y) [margin + s_c - s_y]+
        form="one-vs-rest":     sum_c [margin - t_c s_c]+,   t_y = 1, t_c = -1 for the others

    The first is the best-k gap at k = 1. Equal scores are a place that trainings with it and with the third did not leave on a hundred
    classes; there the second has the direction of the softmax. [crammer2001multiclass]; [weston1999multiclass]; [tang2013svm]
    Differs: tables that compare with it say only "hinge", so that three readings are here; the second is a mean, not the published sum,
    and so bears the rates of the first.
    """

    keys = ("crammer2001multiclass", "weston1999multiclass", "tang2013svm")

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        form: Literal["crammer-singer", "weston-watkins", "one-vs-rest"] = "crammer-singer",
        margin: float = 1.0,
    ) -> None:
        criteria: dict[str, Criterion] = {
            "crammer-singer": BestK(1, margin),
            "weston-watkins": Triplets("uniform", margin),
            "one-vs-rest": OneVersusRest(margin),
        }
        check_choice("form", form, tuple(criteria))
        check_positive("margin", margin)
        super().__init__(Proxies(num_classes, dimension, bias=True), Affine(), SameLabel(), criteria[form])


class ProxyNCA(NeighborhoodObjective):
    """NCA against one learned proxy a class, on unit vectors.

        form="published":  -log( exp(-D(x, p_y)) / sum_(c != y) exp(-D(x, p_c)) ),   D = |x - p|^2 / temperature
        form="softmax":    the same with all classes in the denominator, as most public code has it

    [movshovitz2017proxy] eq. (4)
    Differs: temperature 1/3 rather than 1: public code scales by 3, and without it the loss is flat on the sphere.
    """

    keys = ("movshovitz2017proxy",)

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        form: Literal["published", "softmax"] = "published",
        temperature: float = 1 / 3,
    ) -> None:
        check_choice("form", form, ("published", "softmax"))
        check_positive("temperature", temperature)
        super().__init__(
            references=Proxies(num_classes, dimension),
            affinity=Normalized(SquaredEuclidean(temperature)),
            relation=SameLabelApart() if form == "published" else SameLabel(),
            criterion=any_positive,
        )


class NormalizedSoftmax(NeighborhoodObjective):
    """Softmax over the cosines with one learned proxy a class.

        loss = -log softmax(cos(x, p_c) / temperature)_y

    [zhai2019classification]; [wang2017normface]
    """

    keys = ("zhai2019classification", "wang2017normface")

    def __init__(self, num_classes: int, dimension: int, temperature: float = 0.05) -> None:
        check_positive("temperature", temperature)
        super().__init__(Proxies(num_classes, dimension), cosine(temperature), SameLabel(), any_positive)
