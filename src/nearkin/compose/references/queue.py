"""A queue: the batch itself, and behind it the last few thousand embeddings of earlier batches."""

from typing import ClassVar

import torch
from torch import Tensor

from nearkin.compose.points import EMPTY, Points
from nearkin.compose.references.abstract import References
from nearkin.compose.validation import check_whole


class CrossBatchMemory(References):
    """The batch, with its gradient, and the last `size` embeddings of earlier batches, without one; the oldest leave first.

    Embeddings drift slowly, so old ones still show which points are near: the k nearest of a batch then resemble the k nearest of a
    gallery.
    Slots that are not yet filled carry the label EMPTY; use `SameLabelOfFilled` with it. A query's own earlier copies carry its id.
    [wang2020xbm]

    Parameters
    ----------
    size : int
        How many embeddings are remembered.
    dimension : int
        The embedding's size.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import CrossBatchMemory, Points
    >>> memory = CrossBatchMemory(5, 2)
    >>> batch = Points(torch.ones(3, 2), torch.tensor([0, 0, 1]), torch.arange(3))
    >>> memory.update(batch)
    >>> memory(batch).embeddings.shape
    torch.Size([8, 2])
    """

    moves: ClassVar[bool] = True
    vectors: Tensor
    labels: Tensor
    ids: Tensor
    start: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        check_whole("size", size, 1, "it is the number of embeddings that are remembered")
        check_whole("dimension", dimension, 1, "it is the embedding's size")
        self.register_buffer("vectors", torch.zeros(size, dimension))
        self.register_buffer("labels", torch.full((size,), EMPTY))
        self.register_buffer("ids", torch.full((size,), EMPTY))
        self.register_buffer("start", torch.zeros((), dtype=torch.int64))  # a tensor: a recorded step moves it, too

    def forward(self, batch: Points) -> Points:
        assert batch.labels is not None
        if batch.ids is None:
            raise ValueError("ids are missing: a query must be known again among earlier embeddings; pass ids=")
        # A copy: an update before backward must not change what this step has seen.
        earlier = self.vectors.to(batch.embeddings.dtype, copy=True)
        return Points(
            torch.cat([batch.embeddings, earlier]), torch.cat([batch.labels, self.labels]), torch.cat([batch.ids, self.ids])
        )  # (n + size, d), (n + size,), (n + size,)

    @torch.no_grad()
    def update(self, batch: Points) -> None:
        assert batch.labels is not None and batch.ids is not None
        count = min(len(batch.embeddings), len(self.vectors))
        slots = (self.start + torch.arange(count, device=self.start.device)) % len(self.vectors)
        self.vectors[slots] = batch.embeddings[:count].to(self.vectors.dtype)
        self.labels[slots] = batch.labels[:count]
        self.ids[slots] = batch.ids[:count]
        self.start.copy_((self.start + count) % len(self.vectors))

    def known_dimension(self) -> int:
        return self.vectors.shape[1]
