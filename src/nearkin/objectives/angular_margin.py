"""Angular margins on a learned head: the affinity of the own class depends on the relation, so these stand beside the
four-slot composition."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.references import Proxies
from nearkin.compose.relation import Supervision
from nearkin.objectives.objective import Objective


class LargeMarginSoftmax(Objective):
    """L-Softmax: the own class must win although its angle is multiplied by m.

        own logit |w_y| |x| psi(theta),   psi = (-1)^j cos(m theta) - 2 j   on theta in [j pi / m, (j + 1) pi / m]
        annealed: (lambda cos theta + psi) / (1 + lambda),   lambda = max(lambda_min, base (1 + gamma step)^-power)

    No bias; m = 1 is a plain softmax. The step counts calls of `update`, one after each optimizer step.
    [liu2016large] eq. (4)-(8)
    Differs: cos(m theta) by the Chebyshev polynomial; the annealing constants are those of the authors' public training files. They have
    half of the margin in after some 8,700 steps: a shorter training needs a larger gamma.
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
            raise ValueError(f"m ({m}) must be 1, 2, 3 or 4")
        self.m, self.base, self.gamma, self.power, self.lambda_min = m, base, gamma, power, lambda_min
        self.references = Proxies(num_classes, dimension)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @property
    def supervision(self) -> Supervision:
        return "classes"

    def known_classes(self) -> int:
        return self.references.known_classes()

    def known_dimension(self) -> int:
        return self.references.known_dimension()

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """One optimizer step has passed: the margin comes in a little more."""
        self.step += 1

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            raise ValueError("LargeMarginSoftmax has its own class vectors and takes no references=")
        assert batch.labels is not None
        x, w = batch.embeddings, self.references(batch).embeddings
        own = w[batch.labels]  # (n, d)
        lengths = x.norm(dim=1) * own.norm(dim=1)
        lowered = lengths * self._psi((x * own).sum(1) / lengths.masked_fill(lengths == 0, 1.0))
        logits = (x @ w.T).scatter(1, batch.labels[:, None], lowered[:, None])  # (n, C)
        values = cross_entropy(logits, batch.labels, reduction="none")
        return Outcome(values, torch.ones_like(values), torch.full((), len(x) * len(w), device=x.device))

    def annealed(self, step: Tensor) -> Tensor:
        """Lambda after so many steps: the margin has a share of 1 / (1 + lambda) in the own logit, so a short training hardly meets it."""
        return (self.base * (1 + self.gamma * step) ** -self.power).clamp_min(self.lambda_min)

    def _psi(self, cosine: Tensor) -> Tensor:
        """The lowered cosine, mixed with the plain one as the annealing says."""
        turns = sum((cosine < math.cos(j * math.pi / self.m)).to(cosine.dtype) for j in range(1, self.m))
        last, chebyshev = torch.ones_like(cosine), cosine  # cos((j - 1) angle), cos(j angle)
        for _ in range(1, self.m):
            last, chebyshev = chebyshev, 2 * cosine * chebyshev - last
        sign = 1 - 2 * (turns % 2)
        mix = self.annealed(self.step.to(cosine.dtype))
        return (mix * cosine + sign * chebyshev - 2 * turns) / (1 + mix)
