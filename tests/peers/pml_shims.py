"""Our objectives under the names and with the signatures of pytorch-metric-learning's losses, so that its own tests can call them.

tests/peers/run.py copies this file next to those tests; it must not import from our tests.
"""

import math
import sys
from typing import Any

import torch
from pytorch_metric_learning import distances, losses
from torch import Tensor, nn

import nearkin as nk
from nearkin import compose as c


class Shim(nn.Module):
    """A call as theirs: embeddings, labels, and references without ids, which are none of the queries."""

    objective: Any

    def forward(self, embeddings: Tensor, labels: Tensor, _: Any = None, ref_emb: Tensor | None = None, ref_labels: Any = None) -> Tensor:
        objective = self.objective.to(embeddings.dtype)
        if ref_emb is None:
            return objective(embeddings, labels)
        ids = torch.arange(len(embeddings))
        return objective(embeddings, labels, ids=ids, references=c.Points(ref_emb, ref_labels, c.fresh_ids(len(ref_emb))))


def affinity(distance: Any, temperature: float) -> Any:
    """Their distance over a temperature."""
    if distance is None or isinstance(distance, distances.CosineSimilarity):
        return c.cosine(temperature)
    assert isinstance(distance, distances.LpDistance) and distance.normalize_embeddings and distance.power == 1, distance
    return lambda a, b: c.Normalized(c.Euclidean())(a, b) / temperature


class SupConLoss(Shim):
    def __init__(self, temperature: float = 0.1, distance: Any = None) -> None:
        super().__init__()
        self.objective = nk.NeighborhoodObjective(c.InBatch(), affinity(distance, temperature), c.SameLabel(), c.mean_positive)


class NTXentLoss(Shim):
    def __init__(self, temperature: float = 0.07, distance: Any = None) -> None:
        super().__init__()
        self.objective = nk.NeighborhoodObjective(c.InBatch(), affinity(distance, temperature), c.SameLabel(), c.each_pair)


class MultiSimilarityLoss(Shim):
    def __init__(self, alpha: float = 2, beta: float = 50, base: float = 0.5) -> None:
        super().__init__()
        self.objective = nk.MultiSimilarity(alpha, beta, base, epsilon=None)


class CircleLoss(Shim):
    def __init__(self, m: float = 0.4, gamma: float = 80) -> None:
        super().__init__()
        self.objective = nk.Circle(m, 1 / gamma)


class ArcFaceLoss(Shim):
    def __init__(self, num_classes: int, embedding_size: int, margin: float = 28.6, scale: float = 64) -> None:
        super().__init__()
        self.scale = scale
        self.objective = nk.ArcFace(num_classes, embedding_size, math.radians(margin), 1 / scale)

    @property
    def W(self) -> Tensor:
        """(d, C), as theirs."""
        return self.objective.references.vectors.T

    def get_logits(self, embeddings: Tensor) -> Tensor:
        return c.cosine(1 / self.scale)(embeddings, self.objective.references.vectors)


SHIMS = {kind.__name__: kind for kind in Shim.__subclasses__()}


def install() -> None:
    """Put ours in the place of theirs, in every module that has the name."""
    for name, kind in SHIMS.items():
        assert hasattr(losses, name), name
        for home, module in list(sys.modules.items()):
            if home.startswith("pytorch_metric_learning.losses") and hasattr(module, name):
                setattr(module, name, kind)
