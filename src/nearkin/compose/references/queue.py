"""Memories of earlier batches: the batch itself, and behind it embeddings that were remembered."""

import copy
from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from nearkin.compose.points import EMPTY, Points
from nearkin.compose.references.abstract import References
from nearkin.compose.validation import check_share, check_whole
from nearkin.compose.value_checks import UNMOVED, warn_once


def ids_of(batch: Points) -> Tensor:
    """(n,) the ids of a batch, or an error if there are none."""
    if batch.ids is None:
        raise ValueError("ids are missing: a query must be known again among earlier embeddings; pass ids=")
    return batch.ids


class _Memory(References):
    """Slots of embeddings, labels and ids, with the step at which each was filled.

    Subclasses say which slot a row of the batch goes to.
    """

    slots: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    vectors: Tensor
    labels: Tensor
    ids: Tensor
    filled_at: Tensor
    step: Tensor

    def __init__(self, size: int, dimension: int, delay: int, max_age: int, targets: int) -> None:
        super().__init__()
        check_whole("dimension", dimension, 1, "it is the embedding's size")
        check_whole("delay", delay, 0, "it is the number of steps before the memory counts")
        check_whole("max_age", max_age, 0, "it is the number of steps an embedding is kept; 0 keeps it until its slot is needed")
        check_whole("targets", targets, 0, "it is the number of targets or labels of a row; 0 stands for one integer class")
        self.delay, self.max_age, self.targets = delay, max_age, targets
        self.register_buffer("vectors", torch.zeros(size, dimension))
        self.register_buffer("labels", torch.zeros(size, targets) if targets else torch.full((size,), EMPTY))
        self.register_buffer("ids", torch.full((size,), EMPTY))
        self.register_buffer("filled_at", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))  # a tensor: a recorded step moves it, too

    def forward(self, batch: Points) -> Points:
        mine = ids_of(batch)
        # A copy: an update before backward must not change what this step has seen.
        earlier = self.vectors.to(batch.embeddings.dtype, copy=True)
        there = (self.step >= self.delay).expand_as(self.ids)
        if self.max_age:
            there = there & (self.step - self.filled_at < self.max_age)
        ids = torch.where(there, self.ids, EMPTY)
        labels = None if batch.labels is None else torch.cat([batch.labels, self._labels(batch.labels, there)])
        return Points(torch.cat([batch.embeddings, earlier]), labels, torch.cat([mine, ids]))  # (n + size, d), ..., (n + size,)

    def _labels(self, like: Tensor, there: Tensor) -> Tensor:
        if not self.targets:
            return torch.where(there, self.labels, EMPTY)
        if like.shape[1:] != self.labels.shape[1:]:
            raise ValueError(f"labels have shape {tuple(like.shape)} and the memory was built with targets={self.targets}; make them agree")
        return self.labels.to(like.dtype)

    def _write(self, slots: Tensor, batch: Points) -> None:
        """Put the rows of the batch into slots; rows with the same slot must be equal."""
        for held, fresh in ((self.vectors, batch.embeddings), (self.labels, batch.labels), (self.ids, batch.ids)):
            if fresh is not None:
                held[slots] = fresh.to(held.dtype)
        self.filled_at[slots] = self.step + 1

    def known_dimension(self) -> int:
        return self.vectors.shape[1]

    def narrowed(self, dimension: int) -> Self:
        if dimension > self.known_dimension():
            raise ValueError(f"a memory of {self.known_dimension()} columns holds no {dimension}; build it for the whole embedding")
        other = copy.deepcopy(self)
        other.vectors = self.vectors[:, :dimension].clone()
        return other

    def extra_repr(self) -> str:
        more = "".join(f", {name}={value}" for name in ("delay", "max_age", "targets") if (value := getattr(self, name)))
        return f"size={len(self.vectors)}, dimension={self.vectors.shape[1]}{more}"


class CrossBatchMemory(_Memory):
    """The batch, with its gradient, and the last `size` embeddings of earlier batches, without one; the oldest leave first.

    Embeddings drift slowly, so old ones still show which points are near: the k nearest of a batch then resemble the k nearest of a
    gallery. Early in training they drift fast: start with a `delay`, and limit the age. Slots that are not filled, not yet used or too old
    are no candidates under any relation. A query's own earlier copies carry its id. [wang2020xbm]

    Parameters
    ----------
    size : int
        How many embeddings are remembered. If it is smaller than a batch, the last rows are kept.
    dimension : int
        The embedding's size.
    delay : int, default=0
        Steps, that is calls of `update`, before the memory counts. The authors wait 1,000.
    max_age : int, default=0
        Steps after which an embedding no longer counts; 0 keeps it until its slot is needed.
    targets : int, default=0
        Columns of the labels, for numbers and label sets; 0 stands for integer classes or none.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import CrossBatchMemory, Points
    >>> memory = CrossBatchMemory(5, 2)
    >>> batch = Points(torch.ones(3, 2), torch.tensor([0, 0, 1]), torch.arange(3))
    >>> memory.update(batch)
    >>> memory(batch).embeddings.shape
    torch.Size([8, 2])
    >>> memory
    CrossBatchMemory(size=5, dimension=2)
    """

    start: Tensor

    def __init__(self, size: int, dimension: int, delay: int = 0, max_age: int = 0, targets: int = 0) -> None:
        check_whole("size", size, 1, "it is the number of embeddings that are remembered")
        super().__init__(size, dimension, delay, max_age, targets)
        self.register_buffer("start", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, batch: Points) -> None:
        ids_of(batch)
        size = len(self.vectors)
        last = Points(*(None if part is None else part[-size:] for part in batch))  # type: ignore[arg-type]
        count = len(last.embeddings)
        self._write((self.start + torch.arange(count, device=self.start.device)) % size, last)
        self.start.copy_((self.start + count) % size)
        self.step += 1


class ClassBank(_Memory):
    """The batch, with its gradient, and the last `per_class` embeddings of every class, without one.

    As `CrossBatchMemory`, but rare classes are not pushed out by frequent ones: every query finds positives in it.

    Parameters
    ----------
    num_classes : int
        The number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size.
    per_class : int, default=8
        Embeddings remembered of each class.
    delay : int, default=0
        Steps, that is calls of `update`, before the memory counts.
    max_age : int, default=0
        Steps after which an embedding no longer counts; 0 keeps it until its slot is needed.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import ClassBank, Points
    >>> bank = ClassBank(2, 1, per_class=2)
    >>> bank.update(Points(torch.tensor([[1.0], [2.0], [3.0], [9.0]]), torch.tensor([0, 0, 0, 1]), torch.arange(4)))
    >>> bank.vectors[:, 0].tolist()  # the last two of class 0, and one of class 1
    [2.0, 3.0, 9.0, 0.0]
    """

    starts: Tensor

    def __init__(self, num_classes: int, dimension: int, per_class: int = 8, delay: int = 0, max_age: int = 0) -> None:
        check_whole("num_classes", num_classes, 2, "with fewer there is nothing to tell apart")
        check_whole("per_class", per_class, 1, "it is the number of embeddings that are remembered of each class")
        super().__init__(num_classes * per_class, dimension, delay, max_age, 0)
        self.per_class = per_class
        self.register_buffer("starts", torch.zeros(num_classes, dtype=torch.int64))

    def known_classes(self) -> int:
        return len(self.starts)

    @torch.no_grad()
    def update(self, batch: Points) -> None:
        labels, ids = batch.labels, ids_of(batch)
        assert labels is not None
        same = labels[:, None] == labels  # (n, n)
        after = same.triu(1).sum(1)  # rows of the same class that come later
        kept = after < self.per_class
        rank = (same.tril(-1).sum(1) - (same.sum(1) - self.per_class).clamp_min(0)).clamp_min(0)  # among the kept of its class
        slots = labels * self.per_class + (self.starts[labels] + rank) % self.per_class
        last = len(labels) - 1 - same.flip(1).long().argmax(1)  # (n,) the last row of its class
        rows = torch.where(kept, torch.arange(len(labels), device=labels.device), last)  # rows that are not kept write that one again
        self._write(slots[rows], Points(batch.embeddings[rows], labels[rows], ids[rows]))
        added = torch.zeros_like(self.starts).index_add(0, labels, kept.long())
        self.starts.copy_((self.starts + added) % self.per_class)
        self.step += 1


class MomentumQueue(References):
    """A queue of embeddings by a slowly moving copy of the network: MoCo's keys.

    The copy follows the network with momentum, so that old embeddings fit the new ones although the network moves fast.
    In a step: `keys = queue.keys(other_view)`, the loss `objective(embeddings, ids=ids, references=queue(Points(keys, None, ids)))`, then
    after the optimizer's step `queue.follow(network)` and `queue.update(Points(keys, None, ids))`. [he2020moco]

    Parameters
    ----------
    network : Module
        The network to copy.
    size : int
        How many keys are remembered.
    dimension : int
        The embedding's size.
    momentum : float, default=0.999
        Share of the copy's old weights in a step.
    delay : int, default=0
        Steps before the queue counts.
    max_age : int, default=0
        Steps after which a key no longer counts; 0 keeps it until its slot is needed.

    Examples
    --------
    >>> import torch
    >>> from nearkin import NeighborhoodObjective
    >>> from nearkin.compose import InBatch, MomentumQueue, Points, SameId, any_positive, cosine
    >>> network = torch.nn.Linear(4, 2)
    >>> queue = MomentumQueue(network, 16, 2)
    >>> objective = NeighborhoodObjective(InBatch(), cosine(0.07), SameId(), any_positive)
    >>> view, other, ids = torch.randn(3, 4), torch.randn(3, 4), torch.arange(3)
    >>> keys = Points(queue.keys(other), None, ids)
    >>> loss = objective(network(view), ids=ids, references=queue(keys))
    >>> queue.follow(network)
    >>> queue.update(keys)
    """

    slots: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    needs_inputs: ClassVar[bool] = True

    def __init__(self, network: nn.Module, size: int, dimension: int, momentum: float = 0.999, delay: int = 0, max_age: int = 0) -> None:
        super().__init__()
        self.momentum = check_share("momentum", momentum)
        self.copy = copy.deepcopy(network).requires_grad_(False)
        self.memory = CrossBatchMemory(size, dimension, delay, max_age)
        self._unmoved = {
            "queue.update(keys)": (0, 0),
            "queue.follow(network)": (0, 0),
        }  # calls since it moved something, and a count of moves

    @torch.no_grad()
    def keys(self, inputs: Tensor) -> Tensor:
        """Return the embeddings of inputs by the copy, without a gradient.

        Parameters
        ----------
        inputs : Tensor
            What the network takes.

        Returns
        -------
        Tensor
            (n, d).
        """
        if self.training and not torch.compiler.is_compiling():
            self._expect("queue.update(keys)", self.memory.step)
            self._expect("queue.follow(network)", *self.copy.parameters())
        forward: Callable[[Tensor], Tensor] = self.copy
        return forward(inputs)

    def _expect(self, line: str, *state: Tensor) -> None:
        """Warn, once, when many calls have left this state as it was."""
        calls, before = self._unmoved[line]
        now = sum(part._version for part in state)
        self._unmoved[line] = (calls + 1 if now == before else 1), now
        if state and self._unmoved[line][0] == UNMOVED:
            words = f"MomentumQueue gave keys {UNMOVED} times and `{line}` was never called; add this line after `optimizer.step()`"
            warn_once(f"MomentumQueue: {line}", f"{words}. This is said once.")

    def forward(self, batch: Points) -> Points:
        return self.memory(batch)  # type: ignore[no-any-return]

    def update(self, batch: Points) -> None:
        self.memory.update(batch)

    @torch.no_grad()
    def follow(self, network: nn.Module) -> None:
        """Move the copy toward the network; call it after each optimizer step.

        Parameters
        ----------
        network : Module
            The network that is trained.
        """
        for mine, theirs in zip(self.copy.parameters(), network.parameters(), strict=True):
            mine.lerp_(theirs.detach(), 1 - self.momentum)
        for kept, moved in zip(self.copy.buffers(), network.buffers(), strict=True):
            kept.copy_(moved)

    def known_dimension(self) -> int:
        return self.memory.known_dimension()
