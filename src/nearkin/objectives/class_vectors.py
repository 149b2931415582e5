"""Class vectors: every query chooses among one reference for each class. Fixed ones are anchors, learned ones proxies."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from nearkin.compose.affinity import Affine, Affinity, Euclidean, MinusDistance, Normalized, SquaredEuclidean, cosine
from nearkin.compose.autocast import exact
from nearkin.compose.criterion import BestK, Criterion, OneVersusRest, any_positive
from nearkin.compose.points import Points
from nearkin.compose.references import Anchors, Proxies
from nearkin.compose.relation import SameLabel, SameLabelApart
from nearkin.compose.triplets import Triplets
from nearkin.compose.validation import check_choice, check_positive
from nearkin.objectives import inputs
from nearkin.objectives.neighborhood import NeighborhoodObjective

CLEAR = 0.99  # the probability of a class at its anchor: a loss of 0.01
PAIRS = 2**16  # of anchors that decide on a scale, if there are more
MOST, HALVINGS = 1e6, 30  # of the search for it


class NearestClassMean(NeighborhoodObjective):
    """Nearest class mean with fixed anchors: a softmax over minus the distance to the anchor of every class.

        p(c | x) = exp(-scale M(f, a_c)) / sum_c' exp(-scale M(f, a_c')),   loss = -log p(y | x)
        metric="euclidean":  M = |f - a|, not squared (E-NCM); its minimum is at the anchor itself
        metric="cosine":     M = 1 - cos(f, a) (C-NCM)

    Use it to classify a fixed set of classes by distance, so that a point far from all anchors can be rejected as "none of
    these". Anchors never move: nothing is learned but the network.

    Parameters
    ----------
    anchors : Tensor of shape (C, d)
        One row for each class. `nearkin.compose` makes them: `orthonormal(C, d)` (C <= d), `simplex(C, d)` (C <= d + 1),
        `packed(C, d)` for more classes than dimensions, `circle(C)` in the plane; `assign(anchors, seed)` shuffles the rows.
        Multiply them by a length to place them farther out, where embeddings are not of unit length.
    metric : {"euclidean", "cosine"} or callable, default="euclidean"
        The distance M. A callable takes embeddings (n, d) and anchors (C, d), returns distances (n, C) and must be
        differentiable.
    scale : float, optional
        Multiplies the distances. By default it makes the median p(c | a_c) of points at their anchors 0.99, so that the loss can
        become small: log(99 (C - 1)) / D where all anchors are D apart, which is sqrt 2 for orthonormal ones and 1 for their
        cosines. 1 with a callable metric. Set it to 1 for the loss as printed.

    Warnings
    --------
    With scale 1, as printed, and many classes, E-NCM classifies well by the nearest anchor, but its nearest neighbors are poor: do
    not search its embeddings. On the test images of CIFAR-100, with dropout 0.1 and three runs each, the nearest anchor is then right
    for 72% and the nearest training image only for 45%, where `Softmax` has 66%. docs/papers/hao2018.md compares scales.

    Notes
    -----
    The loss has a floor above zero, where a point is at its anchor. By default it is 0.01. With scale 1 and orthonormal anchors it is
    log(1 + (C - 1) exp(-sqrt 2)), and p is no confidence. Longer anchors have the same effect on the loss as a higher scale, and the
    default takes it into account. Where embeddings are not of unit length, `nearkin train --objective nearest_class_mean` makes the
    anchors log(99 (C - 1)) / sqrt 2 long instead: on held-out images of 10, 100 and 200 classes 10.3, 29.5 and 4.4% errors by the
    nearest anchor, against 10.8, 30.6 and 5.0% with the scale (one to three seeds, docs/papers/hao2018.md).

    Differs: eq. (6), (7) and (10) are used as corrected; `scale` is 1 in the paper; the cosine with a zero vector is 0.

    References
    ----------
    [hao2018anchor] eq. (3)-(10)

    Examples
    --------
    >>> import torch
    >>> from nearkin import NearestClassMean
    >>> from nearkin.compose import orthonormal
    >>> objective = NearestClassMean(orthonormal(3, 4), metric="cosine", scale=10.0)
    >>> embeddings = torch.tensor([[1.0, 0.1, 0.0, 0.0], [0.0, 0.9, 0.2, 0.0]])
    >>> objective(embeddings, torch.tensor([0, 1]))
    tensor(0.0004)
    >>> objective.predict(embeddings)
    tensor([0, 1])
    """

    keys = ("hao2018anchor",)

    def __init__(
        self,
        anchors: Tensor,
        metric: Literal["euclidean", "cosine"] | Callable[[Tensor, Tensor], Tensor] = "euclidean",
        scale: float | None = None,
    ) -> None:
        references = Anchors(anchors)
        if scale is None:
            scale = clear_scale(_distance(metric, 1.0), references.vectors) if isinstance(metric, str) else 1.0
        check_positive("scale", scale)
        super().__init__(references, _distance(metric, scale), SameLabel(), any_positive)

    def known_dimension(self) -> int | None:
        # A distance of your own may compare embeddings and anchors of different sizes.
        return None if getattr(self.affinity, "any_width", False) else super().known_dimension()

    @torch.no_grad()
    def predict(self, embeddings: Tensor) -> Tensor:
        """Return the class whose anchor is nearest, eq. (3) of [hao2018anchor].

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            The network's output.

        Returns
        -------
        Tensor of shape (n,)
            Integer classes 0..C-1. No gradient flows through it.
        """
        embeddings = inputs.check_embeddings(embeddings)
        inputs.check_dimension(embeddings, self.known_dimension())
        anchors = self.references(Points(embeddings))
        with exact(embeddings):
            return self.affinity(embeddings, anchors.embeddings).argmax(1)


def _distance(metric: str | Callable[[Tensor, Tensor], Tensor], scale: float) -> Affinity:
    if not isinstance(metric, str):
        return MinusDistance(metric, scale)
    check_choice("metric", metric, ("euclidean", "cosine"))
    # 1 - cos and -cos differ by a constant, which the softmax ignores.
    return Euclidean(1 / scale) if metric == "euclidean" else cosine(1 / scale)


def clear_scale(affinity: Affinity, anchors: Tensor) -> float:
    """The scale of distances at which the median point at its anchor has the probability CLEAR of its own class.

    The median, because two anchors that chance has placed close together must not decide for all. Many anchors are sampled.
    """
    points = anchors.detach().cpu().double()
    rows = torch.arange(0, len(points), max(1, len(points) ** 2 // PAIRS))
    near = affinity(points[rows], points)  # (n, C)
    gaps = near[torch.arange(len(rows)), rows][:, None] - near  # how much farther every anchor is than the own, which has 0

    def chance(scale: float) -> float:
        return 1 / float((-scale * gaps).exp().sum(1).median())  # every term is at most 1

    low, high = 0.0, 1.0
    while chance(high) < CLEAR:
        low, high = high, 2 * high
        if high > MOST:
            raise ValueError("more than half of the anchors coincide with others, and no scale separates their classes; move them apart")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) < CLEAR else (low, middle)
    return high


class Softmax(NeighborhoodObjective):
    """The plain classifier: cross-entropy of a learned linear head.

        loss = -log softmax(W f + b)_y

    The baseline to compare with. For neighbors, search in the embeddings f, the layer before the head.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.

    Notes
    -----
    The head is the parameters `references.vectors`, (C, d), and `affinity.bias`, (C,): give `objective.parameters()` to the
    optimizer.

    References
    ----------
    [bridle1990softmax]

    Examples
    --------
    >>> import torch
    >>> from nearkin import Softmax
    >>> _ = torch.manual_seed(0)
    >>> objective = Softmax(num_classes=3, dimension=4)
    >>> loss = objective(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))
    >>> [tuple(p.shape) for p in objective.parameters()]
    [(3, 4), (3,)]
    """

    keys = ("bridle1990softmax",)

    def __init__(self, num_classes: int, dimension: int) -> None:
        super().__init__(Proxies(num_classes, dimension), Affine(num_classes, dimension), SameLabel(), any_positive)


class Hinge(NeighborhoodObjective):
    """A multi-class hinge loss on a learned linear head s = W f + b.

        form="crammer-singer":  [margin + max_(c != y) s_c - s_y]+
        form="weston-watkins":  mean_(c != y) [margin + s_c - s_y]+
        form="one-vs-rest":     sum_c [margin - t_c s_c]+,   t_y = 1, t_c = -1 for the others

    A classifier with a margin in the scores. Samples that are right by the margin have no gradient.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    form : {"crammer-singer", "weston-watkins", "one-vs-rest"}, default="crammer-singer"
        Which classes the own one must beat: the strongest other one, all others on average, or none (every class has its own
        yes-or-no hinge). With a hundred classes or more use "weston-watkins": trainings with the other two did not leave the
        start, where all scores are equal, while "weston-watkins" has the direction of the softmax there.
    margin : float, default=1.0
        By how much the own score must lead.

    Notes
    -----
    The first form is the best-k gap of `PrecisionAtK` at k = 1.

    Differs: papers that compare with "hinge" do not say which form they mean, so all three are here; the second is a mean, not
    the published sum, so that it works with the same learning rates as the first.

    References
    ----------
    [crammer2001multiclass]
    [weston1999multiclass]
    [tang2013svm]

    Examples
    --------
    >>> import torch
    >>> from nearkin import Hinge
    >>> objective = Hinge(num_classes=2, dimension=1)
    >>> _ = objective.references.vectors.data.copy_(torch.tensor([[-1.0], [1.0]]))
    >>> _ = objective.affinity.bias.data.zero_()  # scores -f and f
    >>> objective(torch.tensor([[2.0], [0.25]]), torch.tensor([1, 1]), reduction="none").tolist()
    [0.0, 0.5]
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
        super().__init__(Proxies(num_classes, dimension), Affine(num_classes, dimension), SameLabel(), criteria[form])


class ProxyNCA(NeighborhoodObjective):
    """NCA against one learned proxy for each class, on unit vectors.

        form="published":  -log( exp(-D(x, p_y)) / sum_(c != y) exp(-D(x, p_c)) ),   D = |x - p|^2 / temperature
        form="softmax":    the same with all classes in the denominator, as most public code has it

    Because the proxies stand for the classes, a batch needs no positives: any sampler works, also with more classes than a
    batch holds.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    form : {"published", "softmax"}, default="published"
        Whether the own proxy is left out of the denominator. "published" can become negative and keeps pulling at samples
        that are already near their proxy; "softmax" is a cross-entropy and stops.
    temperature : float, default=1/3
        Divides the squared distances of unit vectors, which are at most 4. Lower it (0.05 to 0.2) for many classes.

    Notes
    -----
    The proxies are the parameter `references.vectors`, (C, d): give `objective.parameters()` to the optimizer.

    Differs: the temperature is 1/3 rather than 1: public code multiplies by 3, and without it the loss is flat on the sphere.

    References
    ----------
    [movshovitz2017proxy] eq. (4)

    Examples
    --------
    >>> import torch
    >>> from nearkin import ProxyNCA
    >>> _ = torch.manual_seed(0)
    >>> objective = ProxyNCA(num_classes=10, dimension=4, form="softmax")
    >>> loss = objective(torch.randn(3, 4), torch.tensor([7, 0, 2]))  # one sample of each class is enough
    >>> objective.last.valid
    3
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
    """Softmax over the cosines with one learned proxy for each class.

        loss = -log softmax(cos(x, p_c) / temperature)_y

    A strong and simple choice for retrieval with many classes: any sampler works, and embeddings are compared by cosine, as a
    search index does.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    temperature : float, default=0.05
        Divides the cosines. With a higher value the softmax cannot become sharp and the loss stays high; with a lower one
        only the hardest samples have a gradient. 0.03 to 0.1 is usual.

    Notes
    -----
    The proxies are the parameter `references.vectors`, (C, d): give `objective.parameters()` to the optimizer.

    References
    ----------
    [zhai2019classification]
    [wang2017normface]

    Examples
    --------
    >>> import torch
    >>> from nearkin import NormalizedSoftmax
    >>> objective = NormalizedSoftmax(num_classes=2, dimension=2, temperature=0.5)
    >>> _ = objective.references.vectors.data.copy_(torch.eye(2))
    >>> loss = objective(torch.tensor([[5.0, 0.0], [0.0, 0.1]]), torch.tensor([0, 1]))
    >>> round(loss.item(), 4)  # log(1 + exp(-2))
    0.1269
    """

    keys = ("zhai2019classification", "wang2017normface")

    def __init__(self, num_classes: int, dimension: int, temperature: float = 0.05) -> None:
        check_positive("temperature", temperature)
        super().__init__(Proxies(num_classes, dimension), cosine(temperature), SameLabel(), any_positive)
