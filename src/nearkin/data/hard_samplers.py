"""Samplers that put together what is hard to tell apart: classes of one group, near classes, near points."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from nearkin.compose.validation import check_whole
from nearkin.data.samplers import Sampler, _check_labels, _members

__all__ = ["Grouped", "HardClasses", "NearNeighbors", "near_classes"]


class Grouped(Sampler):
    """Every batch from a few groups: so many points of each of their classes.

    Groups are super-classes, sources, cameras or patients. Points of one group are harder to tell apart than any, and a batch of few groups
    cannot be solved by telling groups apart.

    Parameters
    ----------
    labels : Tensor
        (n,) classes.
    groups : Tensor
        (n,) the group of each point, as integers. A class may be in several groups.
    batch : int
        Points in a batch, a multiple of `per_batch`.
    per_class : int, default=4
        Points of each class in a group; all of them, if it has fewer.
    per_batch : int, default=2
        Groups in a batch.
    seed : int
        Seed of the choices.

    Raises
    ------
    ValueError
        If a batch cannot be divided among its groups, or there are fewer groups than that.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import Grouped
    >>> labels, groups = torch.arange(8).repeat(6), torch.arange(8).repeat(6) // 2
    >>> ids = next(iter(Grouped(labels, groups, 8, per_class=2, per_batch=2, seed=0)))
    >>> len(groups[ids].unique()), labels[ids].unique(return_counts=True)[1].tolist()
    (2, [2, 2, 2, 2])
    """

    def __init__(self, labels: Tensor, groups: Tensor, batch: int, *, per_class: int = 4, per_batch: int = 2, seed: int) -> None:
        labels = _check_labels(labels)
        super().__init__(len(labels), batch, seed)
        check_whole("per_class", per_class)
        check_whole("per_batch", per_batch)
        if len(groups) != len(labels):
            raise ValueError(f"groups has {len(groups)} entries for {len(labels)} points; give one for each")
        self.per_class, self.per_batch = per_class, per_batch
        together = _members(groups.cpu())
        self.members = [[ids[part] for part in _members(labels[ids])] for ids in together]  # of each group, the ids of each class
        if batch % per_batch or batch // per_batch < 1:
            raise ValueError(f"batch ({batch}) cannot be divided among {per_batch} groups; make it a multiple of per_batch")
        if len(together) < per_batch:
            raise ValueError(f"per_batch ({per_batch}) is more than the {len(together)} groups there are; lower it")

    def __len__(self) -> int:
        return max(1, self.size // self.batch)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "per_class": self.per_class, "per_batch": self.per_batch}

    def batches(self, epoch: int) -> Iterator[Tensor]:
        generator = self._generator(epoch)
        share = self.batch // self.per_batch
        for _ in range(len(self)):
            chosen = torch.randperm(len(self.members), generator=generator)[: self.per_batch].tolist()
            yield torch.cat([_filled(self.members[which], share, self.per_class, generator) for which in chosen])


class HardClasses(Sampler):
    """Every batch from a class and the classes that are nearest to it.

    Parameters
    ----------
    labels : Tensor
        (n,) classes.
    batch : int
        Points in a batch.
    per_class : int, default=4
        Points of each class; all of them, if it has fewer.
    near : Tensor, optional
        (C, k) for every class, in ascending order of labels, the rows of the classes that are nearest to it; `near_classes` computes them.
        Without it the classes are drawn at random. `train` computes it again before every epoch (`sampler.name=hard_classes`); in a loop of
        your own, call `look` or set the attribute `near`.
    seed : int
        Seed of the choices.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import HardClasses, near_classes
    >>> labels = torch.arange(4).repeat(5)
    >>> embeddings = torch.tensor([[0.0], [0.1], [9.0], [9.1]])[labels]
    >>> sampler = HardClasses(labels, 4, per_class=2, near=near_classes(embeddings, labels), seed=0)
    >>> sorted(labels[next(iter(sampler))].unique().tolist()) in ([0, 1], [2, 3])
    True
    """

    looks: ClassVar[bool] = True

    def __init__(self, labels: Tensor, batch: int, *, per_class: int = 4, near: Tensor | None = None, seed: int) -> None:
        labels = _check_labels(labels)
        super().__init__(len(labels), batch, seed)
        check_whole("per_class", per_class)
        self.per_class, self.labels = per_class, labels
        self.members = _members(labels)
        if batch <= per_class:
            raise ValueError(f"batch ({batch}) can be filled by one class (per_class is {per_class}); raise batch or lower per_class")
        if near is not None and (near.ndim != 2 or len(near) != len(self.members)):
            raise ValueError(f"near has shape {tuple(near.shape)} for {len(self.members)} classes; give (C, k): near_classes makes it")
        self.near = near

    def look(self, embeddings: Tensor, neighbors: Callable[[int], Tensor]) -> None:
        self.near = near_classes(embeddings, self.labels.to(embeddings.device))[:, : -(-self.batch // self.per_class)].cpu()

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.near is None else {"near": self.near}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.near = tensors.get("near")

    def __len__(self) -> int:
        return max(1, self.size // self.batch)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "per_class": self.per_class}

    def batches(self, epoch: int) -> Iterator[Tensor]:
        generator, count = self._generator(epoch), len(self.members)
        for _ in range(len(self)):
            order = torch.randperm(count, generator=generator)
            if self.near is not None:  # the first, its nearest, then the others as they come
                first = torch.cat([order[:1], self.near[order[0]].cpu()])
                order = torch.cat([first, order[~torch.isin(order, first)]])
            ids = [_drawn(self.members[which], self.per_class, generator) for which in order.tolist()[: -(-self.batch // self.per_class)]]
            yield torch.cat(ids)[: self.batch]


class NearNeighbors(Sampler):
    """Every batch from random points and the nearest neighbors of each, by a table from an index.

    Parameters
    ----------
    table : Tensor
        (n, k) for every point its neighbors, nearest first, -1 where there are fewer: the positions that `nearest` returns. `train`
        computes it again before every epoch (`sampler.name=near_neighbors`); in a loop of your own, call `look` or set the attribute.
    batch : int
        Points in a batch.
    per_point : int, default=3
        Neighbors that come with each random point.
    seed : int
        Seed of the choices.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points, nearest
    >>> from nearkin.data import NearNeighbors
    >>> x = torch.tensor([[0.0], [0.1], [9.0], [9.1], [20.0], [20.1]])
    >>> points = Points(x, None, torch.arange(6))
    >>> sampler = NearNeighbors(nearest(points, points, 1, exclude_same_id=True).positions, 2, per_point=1, seed=0)
    >>> all(abs(x[ids[0]] - x[ids[1]]) < 1 for ids in sampler)
    True
    """

    looks: ClassVar[bool] = True

    def __init__(self, table: Tensor, batch: int, *, per_point: int = 3, seed: int) -> None:
        if table.ndim != 2 or table.is_floating_point():
            raise ValueError(f"table has shape {tuple(table.shape)} and type {table.dtype}; give (n, k) positions, as `nearest` returns")
        super().__init__(len(table), batch, seed)
        check_whole("per_point", per_point)
        if batch > len(table):
            raise ValueError(f"batch ({batch}) is more than the {len(table)} points there are; lower batch")
        self.per_point, self.table = per_point, table.cpu()

    def look(self, embeddings: Tensor, neighbors: Callable[[int], Tensor]) -> None:
        self.table = neighbors(min(self.per_point, self.size - 1)).cpu()

    def tensors(self) -> dict[str, Tensor]:
        return {"table": self.table}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.table = tensors.get("table", self.table)

    def __len__(self) -> int:
        return max(1, self.size // self.batch)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "per_point": self.per_point}

    def batches(self, epoch: int) -> Iterator[Tensor]:
        generator = self._generator(epoch)
        for _ in range(len(self)):
            order = torch.randperm(self.size, generator=generator)
            drawn = torch.cat([order[:, None], self.table[order, : self.per_point]], 1).flatten()
            yield _first_of_each(drawn[drawn >= 0])[: self.batch]


def near_classes(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Return for every class the others from the nearest to the farthest, by the distance of their mean embeddings.

    Parameters
    ----------
    embeddings : Tensor
        (n, d).
    labels : Tensor
        (n,) classes.

    Returns
    -------
    Tensor
        (C, C - 1) rows of classes, in ascending order of labels.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import near_classes
    >>> near_classes(torch.tensor([[0.0], [5.0], [1.0]]), torch.tensor([0, 1, 2]))
    tensor([[2, 1],
            [2, 0],
            [0, 1]])
    """
    known, which = torch.unique(labels, return_inverse=True)
    totals = embeddings.new_zeros(len(known), embeddings.shape[1]).index_add(0, which, embeddings)
    means = totals / torch.bincount(which)[:, None]
    apart = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    return apart.argsort(dim=1, stable=True)[:, :-1]


def _drawn(ids: Tensor, count: int, generator: Generator) -> Tensor:
    """Up to `count` of the ids, at random and without repetition."""
    return ids[torch.randperm(len(ids), generator=generator)[:count]]


def _filled(classes: list[Tensor], share: int, per_class: int, generator: Generator) -> Tensor:
    """`share` points of a group: `per_class` of each of its classes in a random order, then what is left, then points again."""
    order = torch.randperm(len(classes), generator=generator).tolist()
    first = torch.cat([_drawn(classes[which], per_class, generator) for which in order])
    everything = torch.cat(classes)
    rest = _drawn(everything, len(everything), generator)
    once = torch.cat([first, rest[~torch.isin(rest, first)]])
    return once.repeat(-(-share // len(once)))[:share]  # a group that is smaller than its share repeats points


def _first_of_each(ids: Tensor) -> Tensor:
    """The ids without repetition, in the order of their first occurrence."""
    ranked, order = torch.sort(ids, stable=True)
    first = torch.ones_like(ranked, dtype=torch.bool)
    first[1:] = ranked[1:] != ranked[:-1]
    return ids[order[first].sort().values]
