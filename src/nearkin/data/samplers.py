"""Samplers: which points are in a batch, and in which order.

An objective compares the points of a batch, so the composition of a batch is part of the method. A sampler yields batches of row numbers
(int64). `for ids in sampler` runs to the end of the current epoch; the next `for` is the next epoch. Batches depend only on seed and epoch,
so the state is a few numbers, and a sampler that was stopped inside an epoch resumes with the next batch of that epoch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from nearkin.compose.validation import check_whole

__all__ = ["ClassBalanced", "PerClass", "Sampler", "Shuffled"]

REDRAWS = 100  # orders tried before batches of one class are an error


class Sampler(ABC):
    """Batches of ids, epoch after epoch: the base of all samplers.

    Subclasses implement `__len__` and `batches`.

    Parameters
    ----------
    size : int
        Number n of points; ids are 0..n-1.
    batch : int
        Points in a batch.
    seed : int
        Seed of all random choices.

    Attributes
    ----------
    epoch : int
        The current epoch, from 0.
    position : int
        Batches of this epoch that were yielded.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import Sampler
    >>> class InOrder(Sampler):
    ...     def __len__(self):
    ...         return self.size // self.batch
    ...
    ...     def batches(self, epoch):
    ...         return iter(torch.arange(len(self) * self.batch).split(self.batch))
    >>> [ids.tolist() for ids in InOrder(5, 2, seed=0)]
    [[0, 1], [2, 3]]
    """

    looks: ClassVar[bool] = False  # whether training shows it the embeddings of all points before every epoch

    def __init__(self, size: int, batch: int, seed: int) -> None:
        check_whole("batch", batch)
        if size < 1:
            raise ValueError("the data set is empty; give at least one point")
        self.size = size
        self.batch = batch
        self.seed = seed
        self.epoch = 0
        self.position = 0

    @abstractmethod
    def __len__(self) -> int:
        """Number of batches in an epoch."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Tensor]:
        """Return the batches of one epoch, which depend only on seed and epoch.

        Parameters
        ----------
        epoch : int
            The epoch, from 0.

        Returns
        -------
        iterator of Tensor
            (batch,) int64 ids.
        """

    def look(self, embeddings: Tensor, neighbors: Callable[[int], Tensor]) -> None:
        """Look at the embeddings of all points, to draw batches by them. `train` calls it before every epoch where `looks` is True.

        Parameters
        ----------
        embeddings : Tensor
            (n, d) the present embeddings, in the order of the ids.
        neighbors : callable
            Given k, it returns (n, k) the ids of the nearest neighbors of every point, nearest first.
        """
        return None

    def tensors(self) -> dict[str, Tensor]:
        """Return what was learned by `look`, for a checkpoint.

        Returns
        -------
        dict of str to Tensor
            Empty for samplers that do not look.
        """
        return {}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned.

        Parameters
        ----------
        tensors : dict of str to Tensor
            From a checkpoint.
        """
        return None

    def __iter__(self) -> Iterator[Tensor]:
        """Yield the batches from the current position to the end of the epoch.

        A batch counts when it is yielded: save the state after training on it, and no batch is lost or repeated. A state saved after the
        last batch resumes at the end of its epoch: the next `for` yields nothing, so what follows an epoch (validation, say) is done once.
        """
        for ids in islice(self.batches(self.epoch), self.position, None):
            self.position += 1
            yield ids
        self.epoch, self.position = self.epoch + 1, 0

    def endless(self) -> Iterator[Tensor]:
        """Yield batches without end, epoch after epoch.

        Yields
        ------
        Tensor
            (batch,) int64 ids.
        """
        while True:
            yield from self

    def state_dict(self) -> dict[str, Any]:
        """Return the settings, the epoch and the position as plain values for JSON.

        Returns
        -------
        dict
        """
        return {**self._settings(), "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state.

        Parameters
        ----------
        state : dict
            As of `state_dict` of a sampler with the same settings.

        Raises
        ------
        ValueError
            If the saved settings differ from those of this sampler.
        """
        for name, own in self._settings().items():
            if state.get(name) != own:
                raise ValueError(f"the saved sampler has {name} {state.get(name)!r} and this one {own!r}; use the same, or start again")
        epoch, position = int(state["epoch"]), int(state["position"])
        if epoch < 0 or not 0 <= position <= len(self):
            raise ValueError(f"the saved sampler is at epoch {epoch}, batch {position}, but an epoch has {len(self)} batches")
        self.epoch, self.position = epoch, position

    def _settings(self) -> dict[str, Any]:
        return {"sampler": type(self).__name__, "size": self.size, "batch": self.batch, "seed": self.seed}

    def _generator(self, epoch: int, attempt: int = 0) -> Generator:
        """A generator for this seed and epoch; neighboring seeds give unrelated numbers."""
        words = np.random.SeedSequence([self.seed % 2**64, epoch, attempt]).generate_state(2, np.uint32).tolist()
        return Generator().manual_seed(words[0] << 31 | words[1] >> 1)


class Shuffled(Sampler):
    """Every point once in an epoch, in a new random order.

    An epoch has ceil(n / batch) batches, of which the last may be smaller, or floor(n / batch) with `drop_last`.

    Parameters
    ----------
    size : int
        Number n of points.
    batch : int
        Points in a batch.
    seed : int
        Seed of the orders.
    labels : Tensor, optional
        (n,) classes. An order with a batch of one class only is drawn again; if that does not help it is an error. Leave them out if such
        batches do no harm: with proxies, anchors, a memory bank, or without classes.
    drop_last : bool, default=False
        Leave out a last batch that is smaller.
    reshuffle : bool, default=True
        Draw a new order for every epoch; otherwise all epochs have the batches of the first.
    strata : Tensor, optional
        (n,) such as the shard of every point: every batch gets an even share of each. Ranks that read different shards then have equal work
        in every batch, and the batches are the same for any number of ranks.

    Raises
    ------
    ValueError
        If a batch would hold one class by necessity, or `drop_last` would drop all points.

    Examples
    --------
    >>> from nearkin.data import Shuffled
    >>> sampler = Shuffled(5, 2, seed=0)
    >>> [len(ids) for ids in sampler]
    [2, 2, 1]
    >>> sampler.epoch
    1
    """

    def __init__(
        self,
        size: int,
        batch: int,
        *,
        seed: int,
        labels: Tensor | None = None,
        drop_last: bool = False,
        reshuffle: bool = True,
        strata: Tensor | None = None,
    ) -> None:
        super().__init__(size, batch, seed)
        if strata is not None and len(strata) != size:
            raise ValueError(f"strata has {len(strata)} entries for {size} points; give one for each")
        self.strata = strata
        self.reshuffle = reshuffle
        self.labels = None if labels is None else _check_labels(labels)
        self.drop_last = drop_last
        if drop_last and size < batch:
            raise ValueError(f"batch ({batch}) is larger than the data set ({size}), and drop_last would drop it all; lower batch")
        if self.labels is not None:
            self._check_classes(self.labels)

    def _check_classes(self, labels: Tensor) -> None:
        if len(labels) != self.size:
            raise ValueError(f"labels has {len(labels)} entries for {self.size} points; give one for each")
        if self.batch == 1:
            raise ValueError("batch (1) always holds one class; raise it to at least 2")
        if not self.drop_last and self.size % self.batch == 1:
            fix = "set drop_last=True (nearkin train: --set sampler.options.drop_last=true) or change batch"
            raise ValueError(f"batch ({self.batch}) leaves one point of {self.size} for the last batch, so one class; {fix}")

    def __len__(self) -> int:
        return self.size // self.batch if self.drop_last else -(-self.size // self.batch)

    def batches(self, epoch: int) -> Iterator[Tensor]:
        for attempt in range(REDRAWS):
            generator = self._generator(epoch if self.reshuffle else 0, attempt)
            order = torch.randperm(self.size, generator=generator)
            order = order if self.strata is None else order[_evenly(self.strata[order], generator)]
            parts = torch.split(order, self.batch)[: len(self)]
            if self.labels is None or all(_mixed(self.labels[ids]) for ids in parts):
                return iter(parts)
        raise ValueError(
            f"batch ({self.batch}) is too small: all of {REDRAWS} orders of the {self.size} points had batches of one class. "
            "Raise it, or use ClassBalanced or PerClass"
        )


class PerClass(Sampler):
    """`per_class` points of each of a few random classes.

    For each batch the classes are shuffled, and one after the other adds `per_class` random points without repetition (all of them, if it
    has fewer) until the batch is full. The last class is cut off. Where only one point of it would fit, which had no positive in the batch,
    another class of the batch gives it a second place, or takes the one place itself. An epoch has floor(n / batch) batches, drawn
    independently: n points in all, but not every point once.

    Parameters
    ----------
    labels : Tensor
        (n,) classes.
    batch : int
        Points in a batch; [lu2019sampling] take 64.
    per_class : int, default=11
        Points of each class; [lu2019sampling] take 11.
    seed : int
        Seed of the choices.

    Raises
    ------
    ValueError
        If one class could fill a batch, or all classes together could not.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import PerClass
    >>> labels = torch.arange(4).repeat_interleave(10)
    >>> ids = next(iter(PerClass(labels, 6, per_class=3, seed=0)))
    >>> labels[ids].unique(return_counts=True)[1]
    tensor([3, 3])

    References
    ----------
    [lu2019sampling], section 4
    """

    def __init__(self, labels: Tensor, batch: int, *, per_class: int = 11, seed: int) -> None:
        labels = _check_labels(labels)
        super().__init__(len(labels), batch, seed)
        check_whole("per_class", per_class)
        self.per_class = per_class
        members = _members(labels)
        drawn = [min(per_class, len(ids)) for ids in members]
        self.together = torch.cat(members)  # (n,) ids, class after class
        self.sizes = torch.tensor([len(ids) for ids in members])  # (C,)
        self.starts = self.sizes.cumsum(0) - self.sizes
        if batch <= max(drawn):
            raise ValueError(
                f"batch ({batch}) can be filled by one class (per_class is {per_class}), so there would be no negatives; "
                f"raise batch above {max(drawn)} or lower per_class"
            )
        if batch > sum(drawn):
            raise ValueError(
                f"batch ({batch}) is more than {len(drawn)} classes have at {per_class} each ({sum(drawn)}); lower batch or raise per_class"
            )

    def __len__(self) -> int:
        return self.size // self.batch

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "per_class": self.per_class}

    def batches(self, epoch: int) -> Iterator[Tensor]:
        generator = self._generator(epoch)
        for _ in range(len(self)):
            yield self._filled(generator)

    def _filled(self, generator: Generator) -> Tensor:
        """One batch, drawn for all classes at once: a draw for each class would take longer than a step of a small network."""
        order = torch.randperm(len(self.sizes), generator=generator)
        reached = self.sizes[order].clamp_max(self.per_class).cumsum(0)
        chosen = order[: int(torch.searchsorted(reached, self.batch)) + 1]
        sizes = self.sizes[chosen]
        share = _shared(sizes, self.per_class, self.batch)
        keys = torch.rand(len(chosen), int(sizes.max()), generator=generator, dtype=torch.float64)
        keys[torch.arange(keys.shape[1]) >= sizes[:, None]] = 2.0  # places beyond the class, sorted to the end
        places = keys.topk(int(share.max()), largest=False).indices
        ids = self.together[(self.starts[chosen, None] + places).clamp_max(self.size - 1)]
        return ids[torch.arange(places.shape[1]) < share[:, None]]


def _shared(sizes: Tensor, per_class: int, batch: int) -> Tensor:
    """(c,) how many points of each of the classes of a batch; one point alone only of classes that have no more, or if one is asked for."""
    share = sizes.clamp_max(per_class)
    share[-1] -= share.sum() - batch
    if share[-1] == 1 and per_class > 1 and sizes[-1] > 1:
        gives, takes = share[:-1] > 2, sizes[:-1] > share[:-1]
        if gives.any():
            share[int(gives.nonzero()[0])] -= 1
            share[-1] = 2
        elif takes.any() and len(share) > 2:  # two classes at least
            share[int(takes.nonzero()[0])] += 1
            share[-1] = 0
    return share


class ClassBalanced(Sampler):
    """Every class equally often, whatever its size.

    A batch holds batch / C points of each of C classes, rounded up or down in turn, so over an epoch the classes differ by at most one
    point. A class uses all its points in random order before it repeats one: small classes repeat within an epoch, and within a batch that
    needs more than they have. An epoch has floor(n / batch) batches: n points in all, but some points of large classes are left out.

    Parameters
    ----------
    labels : Tensor
        (n,) classes.
    batch : int
        Points in a batch.
    seed : int
        Seed of the choices.

    Raises
    ------
    ValueError
        If `batch` is 1 or more than there are points.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import ClassBalanced
    >>> labels = torch.tensor([0] * 15 + [1] * 5)
    >>> [int(labels[ids].sum()) for ids in ClassBalanced(labels, 4, seed=0)]
    [2, 2, 2, 2, 2]
    """

    def __init__(self, labels: Tensor, batch: int, *, seed: int) -> None:
        labels = _check_labels(labels)
        super().__init__(len(labels), batch, seed)
        self.members = _members(labels)
        if batch == 1:
            raise ValueError("batch (1) always holds one class; raise it to at least 2")
        if batch > len(labels):
            raise ValueError(f"batch ({batch}) is larger than the data set ({len(labels)}); lower batch")

    def __len__(self) -> int:
        return self.size // self.batch

    def batches(self, epoch: int) -> Iterator[Tensor]:
        generator = self._generator(epoch)
        classes = torch.cat(list(self._classes(generator)))  # (len * batch,): the class of each place
        ids = torch.empty_like(classes)
        for which, members in enumerate(self.members):
            own = (classes == which).nonzero()[:, 0]
            rounds = [torch.randperm(len(members), generator=generator) for _ in range(-(-len(own) // len(members)))]
            if rounds:
                ids[own] = members[torch.cat(rounds)[: len(own)]]
        return iter(torch.split(ids, self.batch))

    def _classes(self, generator: Generator) -> Iterator[Tensor]:
        """(batch,) classes of one batch after the other; the remaining places come from a shuffled list of all classes."""
        classes = len(self.members)
        share, left_over = divmod(self.batch, classes)
        all_classes, queue = torch.arange(classes).repeat(share), torch.arange(0)
        for _ in range(len(self)):
            if len(queue) < left_over:
                fresh = torch.randperm(classes, generator=generator)
                again = torch.isin(fresh, queue)  # already in this batch: to the end, or one batch could be all one class
                queue = torch.cat([queue, fresh[~again], fresh[again]])
            yield torch.cat([all_classes, queue[:left_over]])
            queue = queue[left_over:]


def _evenly(strata: Tensor, generator: Generator) -> Tensor:
    """An order that spreads every stratum evenly: the j-th of n_s points is at (j + u_s) / n_s of the way, with u_s drawn once."""
    _, which, counts = torch.unique(strata, return_inverse=True, return_counts=True)
    together = which.argsort(stable=True)
    place = torch.empty_like(which)
    place[together] = torch.arange(len(which)) - (counts.cumsum(0) - counts)[which[together]]
    offset = torch.rand(len(counts), generator=generator, dtype=torch.float64)
    order: Tensor = ((place + offset[which]) / counts[which]).argsort(stable=True)
    return order


def _members(labels: Tensor) -> list[Tensor]:
    """The ids of every class, classes in ascending order."""
    order = labels.argsort(stable=True)
    counts = torch.bincount(torch.unique(labels, return_inverse=True)[1]).tolist()
    return list(torch.split(order, counts))


def _check_labels(labels: Any) -> Tensor:
    """Integer classes (n,), at least two different ones, on the CPU, where they are drawn."""
    if isinstance(labels, list | np.ndarray):
        array = np.array(labels)
        labels = torch.from_numpy(array) if array.dtype.kind in "iub" else labels
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integer classes, not {kind}; encode names with nearkin.encode_labels")
    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"labels has shape {tuple(labels.shape)}; give one class for each point, shape (n,)")
    here: Tensor = labels.cpu()
    if not _mixed(here):
        raise ValueError(f"labels hold one class only ({int(here[0])}), so there would be no negatives; give at least two classes")
    return here


def _mixed(labels: Tensor) -> bool:
    """Whether there is more than one class."""
    return bool((labels != labels[0]).any())
