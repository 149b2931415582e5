"""Angular margins on a learned head.

The logit of the own class depends on the lengths of embedding and class vector besides their angle, and the margin comes in by steps, so
these are objectives of their own.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nearkin.compose.affinity import unit
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.references import Proxies
from nearkin.compose.relation import Supervision
from nearkin.objectives.objective import Deployment, Objective


class LargeMarginSoftmax(Objective):
    """L-Softmax: a classifier in which the own class must win although its angle is multiplied by m.

        own logit |w_y| |x| psi(theta),   psi = (-1)^j cos(m theta) - 2 j   on theta in [j pi / m, (j + 1) pi / m]
        annealed: (lambda cos theta + psi) / (1 + lambda),   lambda = max(lambda_min, base (1 + gamma step)^-power)

    theta is the angle between the embedding x and the class vector w_y. The margin comes in gradually: lambda starts at `base`,
    where the loss is nearly a softmax, and falls with every call of `update`.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    m : {1, 2, 3, 4}, default=4
        Factor of the angle, the margin. 1 is a plain softmax without bias; a larger m is harder to train.
    base : float, default=1000.0
        lambda at the start. 0 turns the annealing off and applies the margin in full from the first step.
    gamma : float, default=2.5e-5
        Speed of the annealing. With the defaults half of the margin is in after about 8,700 steps, so raise it for a shorter
        training.
    power : float, default=35.0
        Exponent of the annealing.
    lambda_min : float, default=0.0
        lambda never falls below this; raise it (to 5, for example) if training becomes unstable as the margin comes in.

    Notes
    -----
    Call `objective.update(...)` after every optimizer step, or the margin never comes in. The step is saved in the
    `state_dict`. There is no bias, and it takes no `references=`.

    Differs: cos(m theta) is computed by the Chebyshev polynomial; the annealing constants are those of the authors' public
    training files.

    References
    ----------
    [liu2016large] eq. (4)-(8)

    Examples
    --------
    >>> import torch
    >>> from nearkin import LargeMarginSoftmax
    >>> _ = torch.manual_seed(0)
    >>> objective = LargeMarginSoftmax(num_classes=3, dimension=4, m=2, gamma=1e-3)
    >>> embeddings, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> loss = objective(embeddings, labels)
    >>> objective.update(embeddings, labels)
    >>> int(objective.step)
    1
    """

    keys = ("liu2016large",)
    step: Tensor

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        m: int = 4,
        base: float = 1000.0,
        gamma: float = 2.5e-5,
        power: float = 35.0,
        lambda_min: float = 0.0,
    ) -> None:
        super().__init__()
        if m not in (1, 2, 3, 4):
            raise ValueError(f"m ({m}) must be 1, 2, 3 or 4: it is the factor of the angle")
        self.m, self.base, self.gamma, self.power, self.lambda_min = m, base, gamma, power, lambda_min
        self.references = Proxies(num_classes, dimension)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @property
    def supervision(self) -> Supervision:
        return "classes"

    def moves(self) -> bool:
        return self.base > 0  # otherwise the margin is in full from the first step

    def known_classes(self) -> int:
        return self.references.known_classes()

    def known_dimension(self) -> int:
        return self.references.known_dimension()

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Count one optimizer step, which lowers lambda; call it after each.

        Parameters
        ----------
        embeddings, labels, ids : optional
            Ignored; they are there because every objective takes them.
        """
        self.step += 1

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            raise ValueError(f"{type(self).__name__} has its own class vectors and takes no references=; leave it out")
        assert batch.labels is not None
        x, w = batch.embeddings, self._class_vectors(batch)
        own = w[batch.labels]  # (n, d)
        lengths = x.norm(dim=1) * own.norm(dim=1)
        lowered = lengths * self._psi((x * own).sum(1) / lengths.masked_fill(lengths == 0, 1.0))
        logits = (x @ w.T).scatter(1, batch.labels[:, None], lowered[:, None])  # (n, C)
        values = cross_entropy(logits, batch.labels, reduction="none")
        return Outcome(values, torch.ones_like(values), torch.full((), len(x) * len(w), device=x.device))

    def _class_vectors(self, batch: Points) -> Tensor:
        vectors: Tensor = self.references(batch).embeddings
        return vectors

    def annealed(self, step: Tensor) -> Tensor:
        """Return lambda after a number of steps; the margin's share of the own logit is 1 / (1 + lambda).

        Parameters
        ----------
        step : Tensor
            Number of optimizer steps, of any shape and of a float type.

        Returns
        -------
        Tensor
            lambda, of the same shape.
        """
        return (self.base * (1 + self.gamma * step) ** -self.power).clamp_min(self.lambda_min)

    def _psi(self, cosine: Tensor) -> Tensor:
        """psi of a cosine, mixed with the plain cosine by lambda."""
        turns = sum((cosine < math.cos(j * math.pi / self.m)).to(cosine.dtype) for j in range(1, self.m))
        previous, chebyshev = torch.ones_like(cosine), cosine  # cos((j - 1) angle), cos(j angle)
        for _ in range(1, self.m):
            previous, chebyshev = chebyshev, 2 * cosine * chebyshev - previous
        sign = 1 - 2 * (turns % 2)
        mix = self.annealed(self.step.to(cosine.dtype))
        return (mix * cosine + sign * chebyshev - 2 * turns) / (1 + mix)


class SphereFace(LargeMarginSoftmax):
    """SphereFace (A-Softmax): as L-Softmax, with class vectors of unit length, so that only angles decide.

        own logit |x| psi(theta), the others |x| cos(theta);   psi and its annealing as in LargeMarginSoftmax

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    m : {1, 2, 3, 4}, default=4
        Factor of the angle, the margin.
    base : float, default=1000.0
        lambda at the start. 0 turns the annealing off and applies the margin in full from the first step.
    gamma : float, default=0.12
        Speed of the annealing; with power 1 lambda falls to 5 after about 1,700 steps.
    power : float, default=1.0
        Exponent of the annealing.
    lambda_min : float, default=5.0
        lambda never falls below this.

    Notes
    -----
    Call `objective.update(...)` after every optimizer step, or the margin never comes in. `ArcFace` and `CosFace` are easier to train.

    Differs: as LargeMarginSoftmax; the annealing constants are those of the authors' public training files.

    References
    ----------
    [liu2017sphereface] eq. (7)

    Examples
    --------
    >>> import torch
    >>> from nearkin import SphereFace
    >>> _ = torch.manual_seed(0)
    >>> objective = SphereFace(num_classes=3, dimension=4)
    >>> embeddings, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> loss = objective(embeddings, labels)
    >>> objective.update(embeddings, labels)
    """

    keys = ("liu2017sphereface",)

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        m: int = 4,
        base: float = 1000.0,
        gamma: float = 0.12,
        power: float = 1.0,
        lambda_min: float = 5.0,
    ) -> None:
        super().__init__(num_classes, dimension, m, base, gamma, power, lambda_min)

    def deployment(self) -> Deployment:
        return Deployment("cosine")

    def _class_vectors(self, batch: Points) -> Tensor:
        return unit(super()._class_vectors(batch))
