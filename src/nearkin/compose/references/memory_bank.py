"""A memory bank: the last known embedding of every training sample, kept at unit length."""

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor

from nearkin.compose.affinity import unit
from nearkin.compose.autocast import exact
from nearkin.compose.points import Points, numbered, tensor_of
from nearkin.compose.references.abstract import References
from nearkin.compose.validation import check_choice, check_whole


class MemoryBank(References):
    """The last known embedding of every training sample, at unit length: v_i <- unit((1 - momentum) v_i + momentum x_i).

    The bank gives no gradient and moves only in `update`, never during forward or backward, so gradient accumulation and evaluation leave
    it alone.

    Parameters
    ----------
    size : int
        The number of samples N; their ids are 0..N-1.
    dimension : int
        The embedding's size.
    momentum : float, default=0.5
        The share of the new embedding, eta in [huang2019and].
    start : {"normalized", "released"}, default="normalized"
        Random unit vectors, or uniform in +-sqrt(3/d) as in the authors' code, whose rows have length 1 only on average.
    labels : Tensor, optional
        (N,) lets supervised relations use the bank.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import MemoryBank, Points
    >>> bank = MemoryBank(3, 2, momentum=1.0)
    >>> bank.update(Points(torch.tensor([[3.0, 4.0]]), None, torch.tensor([1])))
    >>> bank.vectors[1]
    tensor([0.6000, 0.8000])
    """

    per_sample: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    vectors: Tensor
    ids: Tensor
    labels: Tensor | None

    def __init__(
        self,
        size: int,
        dimension: int,
        momentum: float = 0.5,
        start: Literal["normalized", "released"] = "normalized",
        labels: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_whole("size", size, 1, "the bank has one slot for each training sample")
        check_whole("dimension", dimension, 1, "it is the embedding's size")
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum ({momentum}) must lie in (0, 1]: it is the share of the new embedding")
        check_choice("start", start, ("normalized", "released"))
        labels = None if labels is None else tensor_of("labels", labels)
        if labels is not None and labels.shape[0] != size:
            raise ValueError(f"labels has {labels.shape[0]} entries for a bank of {size}; give one for each slot")
        self.momentum = momentum
        bound = math.sqrt(3 / dimension)
        drawn = torch.empty(size, dimension).uniform_(-bound, bound)
        self.register_buffer("vectors", unit(drawn) if start == "normalized" else drawn)
        self.register_buffer("ids", torch.arange(size), persistent=False)
        self.register_buffer("labels", labels)

    def forward(self, batch: Points) -> Points:
        self._slots(batch)
        # A copy: an update before backward must not change what this step has seen.
        return Points(self.vectors.to(batch.embeddings.dtype, copy=True), self.labels, self.ids)

    def lookup(self) -> Callable[[Tensor], Tensor | None]:
        return _same  # the slot of an id is the id

    @torch.no_grad()
    def update(self, batch: Points) -> None:
        slots = self._slots(batch)
        fresh = unit(batch.embeddings).to(self.vectors.dtype)
        # A sample drawn twice moves by the mean of its copies, so that it does not matter which of them writes last.
        copies = (slots[:, None] == slots).to(fresh.dtype)  # (n, n)
        with exact(fresh):
            fresh = copies @ fresh / copies.sum(1, keepdim=True)
        self.vectors[slots] = unit((1 - self.momentum) * self.vectors[slots] + self.momentum * fresh)

    def extra_repr(self) -> str:
        return f"size={len(self.vectors)}, dimension={self.vectors.shape[1]}, momentum={self.momentum}"

    def known_dimension(self) -> int:
        return self.vectors.shape[1]

    def _slots(self, batch: Points) -> Tensor:
        why = "the bank keeps one slot for each sample and knows it by its id"
        return numbered(batch, len(self.vectors), why, "the bank has the slots")


def _same(ids: Tensor) -> Tensor:
    return ids
