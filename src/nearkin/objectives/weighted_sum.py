"""A weighted sum of objectives, and the center loss, which is one."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nearkin.compose.affinity import SquaredEuclidean
from nearkin.compose.criterion import attraction
from nearkin.compose.outcome import Outcome, Reduction
from nearkin.compose.points import Points
from nearkin.compose.references import Centers
from nearkin.compose.relation import SameLabel
from nearkin.objectives.class_vectors import Softmax
from nearkin.objectives.neighborhood import NeighborhoodObjective
from nearkin.objectives.objective import Deployment, Objective


class WeightedSum(nn.Module):
    """The sum of weight * objective over named terms; it is called, updated and saved like any objective.

    >>> both = WeightedSum({"npair": (1.0, NPair()), "angular": (2.0, Angular())})
    """

    keys: tuple[str, ...] = ()  # the papers of all its terms
    supervision = None  # its terms' own
    refresh_every = 0
    discovers = False

    def __init__(self, terms: "Mapping[str, tuple[float, Objective | WeightedSum]]") -> None:
        super().__init__()
        if not terms:
            raise ValueError("terms is empty; give at least one name: (weight, objective)")
        self.weights = {name: float(weight) for name, (weight, _) in terms.items()}
        self.terms = nn.ModuleDict({name: objective for name, (_, objective) in terms.items()})
        for name, term in self.terms.items():
            if not isinstance(term, Objective | WeightedSum):
                raise TypeError(f"term {name!r} is a {type(term).__name__}; a term is (weight, objective)")
        self.keys = tuple(dict.fromkeys(key for term in self.named_objectives().values() for key in term.keys))

    @property
    def last(self) -> dict[str, Any]:
        """What the last call did, term by term; a sum inside a sum gives its own dictionary."""
        return {name: term.last for name, term in self.named_objectives().items()}

    def named_objectives(self) -> dict[str, "Objective | WeightedSum"]:
        return {name: term for name, term in self.terms.items() if isinstance(term, Objective | WeightedSum)}

    def deployment(self) -> Deployment:
        """Distances: its terms need not agree on a metric."""
        return Deployment()

    def recordable(self, queries: int) -> bool:
        """Whether every term reads nothing back to the host for so many queries."""
        return all(term.recordable(queries) for term in self.named_objectives().values())

    def forward(
        self, embeddings: Tensor, labels: Any = None, *, ids: Any = None, references: Points | None = None, reduction: Reduction = "mean"
    ) -> Tensor:
        """As every objective's; each term reduces by its own rule before it is weighed."""
        values = [
            self.weights[name] * term(embeddings, labels, ids=ids, references=references, reduction=reduction)
            for name, term in self.terms.items()
        ]
        return torch.stack(values).sum(0)

    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the state of every term."""
        for term in self.named_objectives().values():
            term.update(embeddings, labels, ids=ids)


class CenterPull(NeighborhoodObjective):
    """Every point is drawn to its class's moving center: mean |x_i - c_(y_i)|^2 / 2. Alone, it collapses to a point.

    [wen2016discriminative] eq. (2)-(4)
    Differs: the mean over the batch, not the sum; the centers move in `update`, after the optimizer's step.
    """

    keys = ("wen2016discriminative",)

    def __init__(self, num_classes: int, dimension: int, rate: float = 0.5) -> None:
        # temperature 2 makes the affinity -|x - c|^2 / 2
        super().__init__(Centers(num_classes, dimension, rate), SquaredEuclidean(2.0), SameLabel(), attraction)

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            return super().outcome(batch, references)
        assert batch.labels is not None
        centers = self.references(batch).embeddings
        there = (batch.labels >= 0) & (batch.labels < len(centers))
        own = centers[torch.where(there, batch.labels, 0)]  # (n, d): nobody else's center is looked at
        values = torch.where(there, (batch.embeddings - own).square().sum(1) / 2, 0)
        return Outcome(values, there.to(values.dtype), there.sum())


class CenterLoss(WeightedSum):
    """Softmax plus a pull to the class's center.

        -log softmax(W f + b)_y + (weight / 2) mean |x_i - c_(y_i)|^2,   c_j -= rate sum_(y_i = j) (c_j - x_i) / (1 + n_j)

    [wen2016discriminative] eq. (5)
    Differs: as CenterPull.
    """

    keys = ("bridle1990softmax", "wen2016discriminative")

    def __init__(self, num_classes: int, dimension: int, weight: float = 0.003, rate: float = 0.5) -> None:
        super().__init__(
            {
                "softmax": (1.0, Softmax(num_classes, dimension)),
                "center": (weight, CenterPull(num_classes, dimension, rate)),
            }
        )
