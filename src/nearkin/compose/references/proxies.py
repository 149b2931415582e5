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
    bias : bool, default=False
        Whether each carries a bias as one more coordinate, for `Affine`.

    Examples
    --------
    >>> from nearkin.compose import Proxies
    >>> Proxies(10, 4, bias=True).vectors.shape
    torch.Size([10, 5])
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
