"""Samplers: which images meet in a batch, and in which order.

Neighbors can only be learned among points that meet, so the composition of a batch is part of the method. A sampler yields
batches of ids (the numbers of the images in the data set, int64). `for ids in sampler` runs to the end of the current
epoch; the next `for` is the next epoch. Batches depend on (seed, epoch) alone, so the state is three numbers, and a sampler that was
stopped inside an epoch goes on with the very batch that would have come.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from nearkin.compose.validation import check_whole

REDRAWS = 100  # orders tried before one-class batches are called unavoidable


class Sampler(ABC):
    """Batches of ids, epoch after epoch."""

    def __init__(self, size: int, batch: int, seed: int) -> None:
        check_whole("batch", batch)
        if size < 1:
            raise ValueError("the data set is empty; there is nothing to draw")
        self.size = size
        self.batch = batch
        self.seed = seed
        self.epoch = 0
        self.position = 0  # batches of this epoch already handed out

    @abstractmethod
    def __len__(self) -> int:
        """Batches in an epoch."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Tensor]:
        """All batches of one epoch; a pure function of seed and epoch."""

    def __iter__(self) -> Iterator[Tensor]:
        """From the current position to the end of the epoch.

        A batch counts as handed out when it is yielded: save the state after training on it, and no batch is lost or met twice. A state
        saved after the last batch resumes at the end of its epoch: the next `for` has nothing left to yield, so
        what follows an epoch (validation, say) is done once.
        """
        for ids in islice(self.batches(self.epoch), self.position, None):
            self.position += 1
            yield ids
        self.epoch, self.position = self.epoch + 1, 0

    def endless(self) -> Iterator[Tensor]:
        """Epoch after epoch, for whoever counts iterations."""
        while True:
            yield from self

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {**self._likeness(), "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the sampler that wrote the state stood; it must have been built alike."""
        for name, own in self._likeness().items():
            if state.get(name) != own:
                raise ValueError(f"the saved sampler has {name} {state.get(name)!r} and this one {own!r}; build it alike, or start anew")
        epoch, position = int(state["epoch"]), int(state["position"])
        if epoch < 0 or not 0 <= position <= len(self):
            raise ValueError(f"the saved sampler stands at epoch {epoch}, batch {position}, but an epoch has {len(self)} batches")
        self.epoch, self.position = epoch, position

    def _likeness(self) -> dict[str, Any]:
        return {"sampler": type(self).__name__, "size": self.size, "batch": self.batch, "seed": self.seed}

    def _generator(self, epoch: int, attempt: int = 0) -> Generator:
        """A fresh stream of random numbers for this seed and epoch; neighboring seeds have nothing in common."""
        words = np.random.SeedSequence([self.seed % 2**64, epoch, attempt]).generate_state(2, np.uint32).tolist()
        return Generator().manual_seed(words[0] << 31 | words[1] >> 1)


class Shuffled(Sampler):
    """Every image once an epoch, in a new order each time; the last batch may be smaller.

    An epoch is every image once: ceil(n / batch) batches, floor(n / batch) with `drop_last`. With `labels`, an order in which some batch
    would hold one class only is drawn anew; where that cannot help it is an error. Leave labels out where such batches
    do no harm: with proxies, anchors, a memory bank, or without classes. Without `reshuffle` every epoch repeats the first one's batches.
    With `strata` (n,), such as the shard of every point, each batch holds an even share of each of them: whoever reads only some shards
    then has as much to do in every batch, and the batches are the same for any number of readers.
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
            raise ValueError(f"strata has {len(strata)} entries for {size} images; give one for each")
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
            raise ValueError(f"labels has {len(labels)} entries for {self.size} images; give one for each")
        if self.batch == 1:
            raise ValueError("batch (1) holds one class by nature; raise it to at least 2")
        if not self.drop_last and self.size % self.batch == 1:
            mend = "set drop_last=True (nearkin train: --set sampler.options.drop_last=true) or change batch"
            raise ValueError(f"batch ({self.batch}) leaves one image of {self.size} for the last batch, so one class; {mend}")

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
            f"batch ({self.batch}) keeps yielding batches of one class: {REDRAWS} orders of the {self.size} images had some. "
            "Raise it, or draw with ClassBalanced or PerClass"
        )


class PerClass(Sampler):
    """`per_class` images of each of a few random classes. [lu2019sampling] section 4: batch 64, 11 per class

    For each batch the classes are shuffled, and one after the other gives `per_class` random images without repetition, or all it has
    when it is smaller; the class that fills the batch is cut short, possibly to one image without a companion.

    An epoch is floor(n / batch) batches, drawn independently: as many images as there are, but not each of them once.
    """

    def __init__(self, labels: Tensor, batch: int, *, per_class: int = 11, seed: int) -> None:
        labels = _check_labels(labels)
        super().__init__(len(labels), batch, seed)
        check_whole("per_class", per_class)
        self.per_class = per_class
        members = _members(labels)
        given = [min(per_class, len(ids)) for ids in members]
        self.together = torch.cat(members)  # (n,) ids, class after class
        self.sizes = torch.tensor([len(ids) for ids in members])  # (C,)
        self.starts = self.sizes.cumsum(0) - self.sizes
        if batch <= max(given):
            raise ValueError(
                f"batch ({batch}) can be filled by one class (per_class is {per_class}), so that no neighbor could be wrong; "
                f"raise batch above {max(given)} or lower per_class"
            )
        if batch > sum(given):
            raise ValueError(
                f"batch ({batch}) is more than {len(given)} classes give at {per_class} each ({sum(given)}); lower batch or raise per_class"
            )

    def __len__(self) -> int:
        return self.size // self.batch

    def _likeness(self) -> dict[str, Any]:
        return {**super()._likeness(), "per_class": self.per_class}

    def batches(self, epoch: int) -> Iterator[Tensor]:
        generator = self._generator(epoch)
        for _ in range(len(self)):
            yield self._filled(generator)

    def _filled(self, generator: Generator) -> Tensor:
        """Class after class, until the batch is full: all classes at once, since a draw for each would outlast a small network's step."""
        order = torch.randperm(len(self.sizes), generator=generator)
        reached = self.sizes[order].clamp_max(self.per_class).cumsum(0)
        chosen = order[: int(torch.searchsorted(reached, self.batch)) + 1]
        sizes = self.sizes[chosen]
        keys = torch.rand(len(chosen), int(sizes.max()), generator=generator, dtype=torch.float64)
        keys[torch.arange(keys.shape[1]) >= sizes[:, None]] = 2.0  # behind everybody: nobody is there
        places = keys.topk(min(self.per_class, keys.shape[1]), largest=False).indices
        ids = self.together[(self.starts[chosen, None] + places).clamp_max(self.size - 1)]
        return ids[torch.arange(places.shape[1]) < sizes[:, None]][: self.batch]


class ClassBalanced(Sampler):
    """Every class equally often, however many images it has.

    A batch holds batch / C images of each class, rounded down or up; who gets one more goes in turn, so over an epoch the classes
    differ by at most one image. A class goes through all its images in random order before it repeats one: small classes
    repeat within an epoch, and within a batch when it asks for more than they have.

    An epoch is floor(n / batch) batches: as many images as there are, but images of large classes may be left out.
    """

    def __init__(self, labels: Tensor, batch: int, *, seed: int) -> None:
        labels = _check_labels(labels)
        super().__init__(len(labels), batch, seed)
        self.members = _members(labels)
        if batch == 1:
            raise ValueError("batch (1) holds one class by nature; raise it to at least 2")
        if batch > len(labels):
            raise ValueError(f"batch ({batch}) is larger than the data set ({len(labels)}); lower batch")

    def __len__(self) -> int:
        return self.size // self.batch

    def batches(self, epoch: int) -> Iterator[Tensor]:
        generator = self._generator(epoch)
        turns = torch.cat(list(self._turns(generator)))  # (len * batch,): whose turn each place is
        ids = torch.empty_like(turns)
        for which, members in enumerate(self.members):
            own = (turns == which).nonzero()[:, 0]
            rounds = [torch.randperm(len(members), generator=generator) for _ in range(-(-len(own) // len(members)))]
            if rounds:
                ids[own] = members[torch.cat(rounds)[: len(own)]]
        return iter(torch.split(ids, self.batch))

    def _turns(self, generator: Generator) -> Iterator[Tensor]:
        """(batch,) classes for one batch after the other; the places left over are dealt from a deck that holds each class once."""
        classes = len(self.members)
        share, left_over = divmod(self.batch, classes)
        everyone, deck = torch.arange(classes).repeat(share), torch.arange(0)
        for _ in range(len(self)):
            if len(deck) < left_over:
                fresh = torch.randperm(classes, generator=generator)
                again = torch.isin(fresh, deck)  # already in this batch: to the bottom, or one batch could be all one class
                deck = torch.cat([deck, fresh[~again], fresh[again]])
            yield torch.cat([everyone, deck[:left_over]])
            deck = deck[left_over:]


def _evenly(strata: Tensor, generator: Generator) -> Tensor:
    """An order in which every stratum is spread evenly: the j-th of n_s stands at (j + u_s) / n_s of the way, u_s drawn once."""
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
    """Integer classes (n,), at least two of them, on the CPU, where the drawing is done."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integer classes, not {kind}; names are encoded by nearkin.encode_labels")
    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"labels has shape {tuple(labels.shape)}; give one class for each image, shape (n,)")
    here: Tensor = labels.cpu()
    if not _mixed(here):
        raise ValueError(
            f"labels hold one class only ({int(here[0])}), so every batch would: no neighbor could be wrong; give at least two classes"
        )
    return here


def _mixed(labels: Tensor) -> bool:
    """More than one class."""
    return bool((labels != labels[0]).any())
