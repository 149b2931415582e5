"""Centers: one vector a class that follows the mean of its members, outside the gradient."""

from typing import ClassVar

import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.compose.references.abstract import References, class_labels
from nearkin.compose.validation import check_whole


class Centers(References):
    """Class centers that follow the mean of their members, outside the gradient.

    They start at the origin and move by c_j -= rate * sum_(y_i = j) (c_j - x_i) / (1 + n_j).

    Parameters
    ----------
    num_classes : int
        The number of classes C.
    dimension : int
        The embedding's size d.
    rate : float, default=0.5
        How far a center moves toward the mean of its members in a batch.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import Centers, Points
    >>> centers = Centers(2, 1, rate=1.0)
    >>> centers.update(Points(torch.tensor([[2.0], [2.0]]), torch.tensor([0, 0])))
    >>> centers.vectors.round(decimals=3)
    tensor([[1.3330],
            [0.0000]])
    """

    columns: ClassVar[str | None] = "classes"
    moves: ClassVar[bool] = True
    vectors: Tensor
    labels: Tensor

    def __init__(self, num_classes: int, dimension: int, rate: float = 0.5) -> None:
        super().__init__()
        check_whole("num_classes", num_classes, 1, "every label needs its center")
        check_whole("dimension", dimension, 1, "it is the embedding's size")
        self.rate = rate
        self.register_buffer("vectors", torch.zeros(num_classes, dimension))
        self.register_buffer("labels", class_labels(num_classes), persistent=False)

    def forward(self, batch: Points) -> Points:
        return Points(self.vectors.to(batch.embeddings.dtype, copy=True), self.labels)

    @torch.no_grad()
    def update(self, batch: Points) -> None:
        assert batch.labels is not None
        x = batch.embeddings.to(self.vectors.dtype)
        count = torch.zeros(len(self.vectors), dtype=x.dtype, device=x.device)
        count.index_add_(0, batch.labels, torch.ones_like(x[:, 0]))
        total = torch.zeros_like(self.vectors).index_add_(0, batch.labels, x)
        self.vectors -= self.rate * (count[:, None] * self.vectors - total) / (1 + count[:, None])

    def extra_repr(self) -> str:
        return f"num_classes={len(self.vectors)}, dimension={self.vectors.shape[1]}, rate={self.rate}"

    def known_classes(self) -> int:
        return len(self.vectors)

    def known_dimension(self) -> int:
        return self.vectors.shape[1]
