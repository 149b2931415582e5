"""Proxies: one learned vector a class, moved by the gradient. A classification head is a set of proxies."""

import math
from typing import ClassVar

import torch
from torch import nn

from nearkin.compose.points import Points
from nearkin.compose.references.abstract import References, class_labels
from nearkin.compose.validation import check_whole


class Proxies(References):
    """One learned vector a class, moved by the gradient. A classification head is a set of proxies.

    They start uniform in +-1/sqrt(d), as torch's linear layers do.

    Parameters
    ----------
    num_classes : int
        The number of classes C.
    dimension : int
        The embedding's size d.
    per_class : int, default=1
        Vectors of each class. Its row holds them one after the other, per_class * d numbers, for `NearestVector` and `SoftNearestVector`.

    Examples
    --------
    >>> from nearkin.compose import Proxies
    >>> Proxies(10, 4).vectors.shape
    torch.Size([10, 4])
    """

    columns: ClassVar[str | None] = "classes"
    predicts: ClassVar[bool] = True
    labels: torch.Tensor

    def __init__(self, num_classes: int, dimension: int, per_class: int = 1) -> None:
        super().__init__()
        check_whole("num_classes", num_classes, 2, "with fewer there is nothing to tell apart")
        check_whole("dimension", dimension, 1, "it is the embedding's size")
        check_whole("per_class", per_class, 1, "it is the number of vectors of each class")
        self.dimension = dimension
        bound = 1 / math.sqrt(dimension)
        self.vectors = nn.Parameter(torch.empty(num_classes, per_class * dimension).uniform_(-bound, bound))
        self.register_buffer("labels", class_labels(num_classes), persistent=False)

    def forward(self, batch: Points) -> Points:
        return Points(self.vectors.to(batch.embeddings.dtype), self.labels)

    def update(self, batch: Points) -> None:
        return None

    def extra_repr(self) -> str:
        return f"num_classes={len(self.vectors)}, dimension={self.dimension}, columns={self.vectors.shape[1]}"

    def known_classes(self) -> int:
        return self.vectors.shape[0]

    def known_dimension(self) -> int:
        return self.dimension
