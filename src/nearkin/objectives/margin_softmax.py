"""Margin softmax: classifiers over cosines in which the own class must lead by a margin.

The margin lowers the affinity of the own class, so it stands in the criterion, and these are compositions.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from nearkin.compose.affinity import cosine, unit
from nearkin.compose.autocast import exact
from nearkin.compose.criterion import own_column
from nearkin.compose.margins import MarginSoftmax
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.references import Proxies
from nearkin.compose.relation import SameLabel
from nearkin.compose.several_vectors import NearestVector, SoftNearestVector
from nearkin.compose.validation import check_choice, check_positive, check_share, check_whole
from nearkin.objectives.neighborhood import NeighborhoodObjective
from nearkin.objectives.objective import Deployment


class ArcFace(NeighborhoodObjective):
    """ArcFace: a softmax over cosines with one proxy for each class, in which the angle to the own proxy is made larger by a margin.

        -log( e^(cos(theta_y + margin) / t) / (e^(cos(theta_y + margin) / t) + sum_(c != y) e^(cos(theta_c) / t)) ),   t = temperature

    The standard of face recognition and of retrieval with many classes. Any sampler works.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    margin : float, default=0.5
        What is added to the angle of the own class, in radians. Lower it (0.1 to 0.3) for few samples per class or noisy labels.
    temperature : float, default=1/64
        Divides the cosines. Raise it (1/30 to 1/16) for few classes.

    Notes
    -----
    A composition. The proxies are the parameter `references.vectors`, (C, d): give `objective.parameters()` to the optimizer. Where the
    angle plus the margin would exceed pi the cosine goes on falling, as in the authors' code.

    Differs: the cosine of the sum is computed without an arc cosine, so its gradient is finite at angle 0. Beyond an angle of pi - margin,
    where that cosine would rise again, cos(theta) - margin sin(margin) takes its place, as in the authors' code.

    References
    ----------
    [deng2019arcface] eq. (3)

    Examples
    --------
    >>> import torch
    >>> from nearkin import ArcFace
    >>> _ = torch.manual_seed(0)
    >>> objective = ArcFace(num_classes=10, dimension=4)
    >>> loss = objective(torch.randn(3, 4), torch.tensor([7, 0, 2]))
    >>> [tuple(p.shape) for p in objective.parameters()]
    [(10, 4)]
    """

    keys = ("deng2019arcface",)

    def __init__(self, num_classes: int, dimension: int, margin: float = 0.5, temperature: float = 1 / 64) -> None:
        check_angle("margin", margin)
        check_positive("temperature", temperature)
        super().__init__(Proxies(num_classes, dimension), cosine(), SameLabel(), MarginSoftmax(margin, "angle", temperature))

    def deployment(self) -> Deployment:
        return Deployment("cosine", _temperature(self))


class CosFace(NeighborhoodObjective):
    """CosFace: a softmax over cosines with one proxy for each class, in which the cosine with the own proxy is lowered by a margin.

        -log( e^((cos(theta_y) - margin) / t) / (e^((cos(theta_y) - margin) / t) + sum_(c != y) e^(cos(theta_c) / t)) ),   t = temperature

    As `ArcFace`, and easier to train: the margin is the same at every angle.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    margin : float, default=0.35
        What is subtracted from the cosine of the own class.
    temperature : float, default=1/64
        Divides the cosines. Raise it (1/30 to 1/16) for few classes.

    Notes
    -----
    A composition. The proxies are the parameter `references.vectors`, (C, d): give `objective.parameters()` to the optimizer.

    Differs: nothing but the name of the scale, 1 / temperature.

    References
    ----------
    [wang2018cosface] eq. (4)

    Examples
    --------
    >>> import torch
    >>> from nearkin import CosFace
    >>> objective = CosFace(num_classes=2, dimension=2, margin=0.5, temperature=0.5)
    >>> _ = objective.references.vectors.data.copy_(torch.eye(2))
    >>> round(objective(torch.tensor([[5.0, 0.0]]), torch.tensor([0])).item(), 4)  # log(1 + exp(-1))
    0.3133
    """

    keys = ("wang2018cosface",)

    def __init__(self, num_classes: int, dimension: int, margin: float = 0.35, temperature: float = 1 / 64) -> None:
        check_share("margin", margin, "it is taken off a cosine")
        check_positive("temperature", temperature)
        super().__init__(Proxies(num_classes, dimension), cosine(), SameLabel(), MarginSoftmax(margin, "cosine", temperature))

    def deployment(self) -> Deployment:
        return Deployment("cosine", _temperature(self))


class SubCenterArcFace(NeighborhoodObjective):
    """Sub-center ArcFace: every class has several proxies, and a sample needs to be near one of them.

        cos(theta_c) = max_(k = 1..K) cos(x, p_ck), then as ArcFace

    For noisy labels and classes with several looks: wrongly labeled samples gather at a proxy of their own.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    per_class : int, default=3
        Number K of proxies of each class.
    margin : float, default=0.5
        What is added to the angle of the own class, in radians.
    temperature : float, default=1/64
        Divides the cosines.

    Notes
    -----
    A composition. The proxies are the parameter `references.vectors`, (C, K d), one class in a row.

    Differs: as ArcFace.

    References
    ----------
    [deng2020subcenter]

    Examples
    --------
    >>> import torch
    >>> from nearkin import SubCenterArcFace
    >>> _ = torch.manual_seed(0)
    >>> objective = SubCenterArcFace(num_classes=10, dimension=4, per_class=2)
    >>> loss = objective(torch.randn(3, 4), torch.tensor([7, 0, 2]))
    >>> [tuple(p.shape) for p in objective.parameters()]
    [(10, 8)]
    """

    keys = ("deng2020subcenter",)

    def __init__(self, num_classes: int, dimension: int, per_class: int = 3, margin: float = 0.5, temperature: float = 1 / 64) -> None:
        check_angle("margin", margin)
        check_positive("temperature", temperature)
        proxies = Proxies(num_classes, dimension, per_class=per_class)
        super().__init__(proxies, NearestVector(per_class), SameLabel(), MarginSoftmax(margin, "angle", temperature))

    def deployment(self) -> Deployment:
        return Deployment("cosine", _temperature(self))


class SoftTriple(NeighborhoodObjective):
    """SoftTriple: every class has several proxies, and its similarity is a soft maximum over them; a softmax with a small margin.

        S_c = sum_k q_ck cos(x, p_ck),   q_ck = softmax_k(cos(x, p_ck) / softness)
        -log( e^((S_y - margin) / t) / (e^((S_y - margin) / t) + sum_(c != y) e^(S_c / t)) ) + merge R,   t = temperature
        R = sum_c sum_(k < l) sqrt(2 - 2 cos(p_ck, p_cl)) / (C K (K - 1))

    Several proxies for classes with several looks; R merges those that a class does not need.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    per_class : int, default=10
        Number K of proxies of each class.
    temperature : float, default=0.05
        Divides the similarities.
    softness : float, default=0.1
        Of the soft maximum over the proxies of a class; toward 0 the nearest one counts alone.
    margin : float, default=0.01
        What is subtracted from the similarity of the own class.
    merge : float, default=0.2
        Weight of R; 0 leaves it out.

    Notes
    -----
    A composition plus R, a term of the proxies alone. The proxies are the parameter `references.vectors`, (C, K d), one class in a row.

    Differs: two proxies that have met have gradient 0 in R.

    References
    ----------
    [qian2019softtriple] eq. (7)-(8)

    Examples
    --------
    >>> import torch
    >>> from nearkin import SoftTriple
    >>> _ = torch.manual_seed(0)
    >>> objective = SoftTriple(num_classes=10, dimension=4, per_class=2)
    >>> loss = objective(torch.randn(3, 4), torch.tensor([7, 0, 2]))
    >>> [tuple(p.shape) for p in objective.parameters()]
    [(10, 8)]
    """

    keys = ("qian2019softtriple",)

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        per_class: int = 10,
        temperature: float = 0.05,
        softness: float = 0.1,
        margin: float = 0.01,
        merge: float = 0.2,
    ) -> None:
        check_positive("temperature", temperature)
        check_positive("softness", softness)
        check_share("margin", margin, "it is taken off a cosine")
        if not merge >= 0:
            raise ValueError(f"merge ({merge}) must be at least 0: it is the weight of the distances between the proxies of a class")
        super().__init__(
            Proxies(num_classes, dimension, per_class=per_class),
            SoftNearestVector(per_class, softness),
            SameLabel(),
            MarginSoftmax(margin, "cosine", temperature),
        )
        self.per_class, self.merge = per_class, merge

    def deployment(self) -> Deployment:
        return Deployment("cosine", _temperature(self))

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        outcome = super().outcome(batch, references)
        if self.merge == 0 or self.per_class == 1:
            return outcome
        classes, count = self.references.known_classes(), self.per_class
        assert classes is not None
        vectors = unit(self.references(batch).embeddings.reshape(classes, count, -1))
        apart = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")  # sqrt(2 - 2 cos), gradient 0 at 0
        spread = self.merge * apart.sum() / 2 / (classes * count * (count - 1))
        return outcome._replace(values=outcome.values + spread * (outcome.weight > 0))


class AdaCos(NeighborhoodObjective):
    """AdaCos: a softmax over cosines with one proxy for each class, whose temperature follows the angles of the batch.

        -log softmax(s cos(x, p_c))_y,   s starts at sqrt(2) log(C - 1)
        after each step:  s <- log(B) / cos(min(pi/4, median angle to the own proxy)),   B = mean_i sum_(c != y_i) e^(s cos(x_i, p_c))

    No temperature and no margin to tune.

    Parameters
    ----------
    num_classes : int
        Number of classes C, at least 3; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    form : {"dynamic", "fixed"}, default="dynamic"
        Whether the scale s moves in `update`, or stays where it starts.

    Notes
    -----
    A composition whose scale is state. Call `objective.update(...)` after every optimizer step. The scale is saved in the `state_dict`.

    Differs: the scale moves after the step, in `update`, not inside the forward pass, so it does not depend on how often the loss is
    evaluated.

    References
    ----------
    [zhang2019adacos] eq. (8), (15)

    Examples
    --------
    >>> import torch
    >>> from nearkin import AdaCos
    >>> _ = torch.manual_seed(0)
    >>> objective = AdaCos(num_classes=10, dimension=4)
    >>> round(float(objective.scale), 4)  # sqrt(2) log 9
    3.1073
    >>> objective.update(torch.randn(3, 4), torch.tensor([7, 0, 2]))
    >>> float(objective.scale) != 2**0.5 * torch.log(torch.tensor(9.0)).item()
    True
    """

    keys = ("zhang2019adacos",)
    scale: Tensor

    def __init__(self, num_classes: int, dimension: int, form: Literal["dynamic", "fixed"] = "dynamic") -> None:
        check_whole("num_classes", num_classes, 3, "with two classes the scale sqrt(2) log(C - 1) is 0")
        check_choice("form", form, ("dynamic", "fixed"))
        super().__init__(Proxies(num_classes, dimension), cosine(), SameLabel(), MarginSoftmax(0.0, "cosine", 1.0))
        self.form = form
        self.register_buffer("scale", torch.tensor(math.sqrt(2) * math.log(num_classes - 1)))

    def moves(self) -> bool:
        return self.form == "dynamic"

    def deployment(self) -> Deployment:
        return Deployment("cosine", 1 / float(self.scale))

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            raise ValueError("AdaCos has its own class vectors and takes no references=; leave it out")
        assert batch.labels is not None
        cosines = self.affinity(batch.embeddings, self.references(batch).embeddings)
        scale = self.scale.to(cosines.dtype, copy=True)  # an update before backward must not change what this step has seen
        return own_column(cosines * scale, batch.labels)

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the scale to the angles of a batch; call it after each optimizer step.

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            The embeddings of the step.
        labels : Tensor, array or list of shape (n,)
            Their classes.
        ids : optional
            Ignored.
        """
        if self.form == "fixed":
            return
        batch = self._checked(embeddings, labels, None)
        assert batch.labels is not None
        with exact(batch.embeddings):
            cosines = self.affinity(batch.embeddings, self.references(batch).embeddings)
        own = batch.labels[:, None]
        others = (cosines * self.scale).scatter(1, own, -torch.inf).logsumexp(1)  # (n,) log of each query's sum
        log_b = others.logsumexp(0) - math.log(len(others))
        angle = cosines.gather(1, own).clamp(-1, 1).acos().median().clamp_max(math.pi / 4)
        self.scale.copy_(log_b / angle.cos())


def check_angle(name: str, value: float) -> None:
    """Check that a margin is an angle between 0 and pi / 2."""
    if not 0 <= value < math.pi / 2:
        raise ValueError(f"{name} ({value}) must be an angle in radians, at least 0 and below pi / 2; 28.6 degrees are 0.5")


def _temperature(objective: NeighborhoodObjective) -> float:
    """The temperature that the criterion divides by."""
    return float(getattr(objective.criterion, "temperature", 1.0))
