"""Proxies: one learned vector a class, moved by the gradient. A classification head is a set of proxies."""

import math
from typing import ClassVar

import torch
from torch import nn

from nearkin.compose.points import Points
from nearkin.compose.references.abstract import References, class_labels
from nearkin.compose.validation import check_whole


class Proxies(References):
    """C learned class vectors in d dimensions, with one more coordinate for a bias if asked.

    They start uniform in +-1/sqrt(d), as torch's linear layers do.
    """

    columns: ClassVar[str | None] = "classes"
    predicts: ClassVar[bool] = True
    labels: torch.Tensor

    def __init__(self, num_classes: int, dimension: int, bias: bool = False) -> None:
        super().__init__()
        check_whole("num_classes", num_classes, 2, "with fewer there is nothing to tell apart")
        check_whole("dimension", dimension, 1, "it is the embedding's size")
        self.dimension = dimension
        bound = 1 / math.sqrt(dimension)
        self.vectors = nn.Parameter(torch.empty(num_classes, dimension + bias).uniform_(-bound, bound))
        self.register_buffer("labels", class_labels(num_classes), persistent=False)

    def forward(self, batch: Points) -> Points:
        return Points(self.vectors.to(batch.embeddings.dtype), self.labels)

    def update(self, batch: Points) -> None:
        return None

    def known_classes(self) -> int:
        return len(self.vectors)

    def known_dimension(self) -> int:
        return self.dimension
