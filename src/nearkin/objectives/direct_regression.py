"""Direct regression: a learned linear head says the targets outright, and no neighbor is asked. The baseline of NCA regression."""

import torch
from torch import Tensor, nn

from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.relation import Supervision
from nearkin.compose.validation import check_whole
from nearkin.objectives import inputs as door
from nearkin.objectives.objective import Objective


class DirectRegression(Objective):
    """The squared error of a learned linear head. For neighbors, use the layer before the head.

        L = mean_i |W z_i + b - y_i|^2

    Targets are (n,) or (n, t), with t told beforehand as `targets`. Ordinary least squares on a network; it is no paper's own.
    """

    def __init__(self, dimension: int, targets: int = 1) -> None:
        super().__init__()
        for name, value in (("dimension", dimension), ("targets", targets)):
            check_whole(name, value)
        self.head = nn.Linear(dimension, targets)

    @property
    def supervision(self) -> Supervision:
        return "numbers"

    def known_dimension(self) -> int:
        return self.head.in_features

    @torch.no_grad()
    def predict(self, embeddings: Tensor) -> Tensor:
        """The targets the head says, (n, t)."""
        embeddings = door.check_embeddings(embeddings)
        door.check_dimension(embeddings, self.known_dimension())
        return self._said(embeddings)

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            raise ValueError("DirectRegression asks no neighbors and takes no references=")
        assert batch.labels is not None
        given, known = batch.labels.shape[1], self.head.out_features
        if given != known:
            raise ValueError(f"labels have {given} numbers for each point, but this objective was built for {known}; give targets={given}")
        values = (self._said(batch.embeddings) - batch.labels).square().sum(1)  # (n,)
        return Outcome(values, torch.ones_like(values), torch.zeros((), dtype=torch.int64, device=values.device))

    def _said(self, embeddings: Tensor) -> Tensor:
        weight, bias = self.head.weight.to(embeddings.dtype), self.head.bias.to(embeddings.dtype)
        return embeddings @ weight.T + bias  # (n, t)
