"""Shards as a data set: vectors or images that stay on disk until a batch needs their shard."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.data.shards import Shards, open_shards

OTHERS_KEPT = 2  # shards of other ranks that stay in memory: enough to read all of them in order


class ShardCache:
    """Shards in memory: this rank's own for good, the last few of others. `read` counts how often each was read from disk."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.own: frozenset[int] = frozenset(range(len(shards.records)))
        self.kept: dict[int, Tensor] = {}
        self.others: OrderedDict[int, Tensor] = OrderedDict()
        self.read: dict[int, int] = {}

    def keep(self, numbers: Sequence[int]) -> None:
        """Make these the shards that stay in memory."""
        self.own = frozenset(numbers)
        self.kept = {number: rows for number, rows in self.kept.items() if number in self.own}

    def __getitem__(self, number: int) -> Tensor:
        """(n, d) of one shard."""
        place: Any = self.kept if number in self.own else self.others
        if number not in place:
            self.read[number] = self.read.get(number, 0) + 1
            place[number] = torch.from_numpy(np.array(self.shards.read(number).vectors))
            while len(self.others) > OTHERS_KEPT:
                self.others.popitem(last=False)
        rows: Tensor = place[number]
        return rows


@dataclass(frozen=True, eq=False)
class ShardRows:
    """n points of a folder of shards, by their positions among all points."""

    cache: ShardCache
    positions: np.ndarray = field(repr=False)  # (n,) int64

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point: (d,), or (c, h, w)."""
        return self.cache.shards.about.shape or (self.cache.shards.dimension,)

    @cached_property
    def shard_of(self) -> Tensor:
        """(n,) the number of each point's shard."""
        return torch.from_numpy(np.searchsorted(np.asarray(self.cache.shards.starts()[1:]), self.positions, side="right"))

    def read(self, rows: Tensor) -> Tensor:
        """Read rows: vectors (b, d), or images (b, c, h, w) uint8."""
        kind = torch.float32 if self.cache.shards.about.shape is None else torch.uint8
        found = torch.empty(len(rows), self.cache.shards.dimension, dtype=kind)
        shard_of, starts = self.shard_of[rows], self.cache.shards.starts()
        at = torch.from_numpy(self.positions[rows.numpy()])
        for number in torch.unique(shard_of).tolist():
            here = shard_of == number
            found[here] = self.cache[number][at[here] - starts[number]]
        return found.view(len(rows), *self.shape)

    def take(self, rows: Sequence[int]) -> "ShardRows":
        return replace(self, positions=self.positions[np.asarray(rows)])


def open_sharded(folder: Path) -> dict[str, Any]:
    """The arguments of a `Dataset`: rows, and classes or numbers if the shards have them."""
    shards = open_shards(folder)
    found: dict[str, Any] = {"inputs": ShardRows(ShardCache(shards), np.arange(len(shards)))}
    if shards.about.supervision == "classes":
        found |= {"labels": torch.from_numpy(shards.codes().astype(np.int64)), "classes": shards.about.classes}
    if shards.about.supervision == "numbers":
        labels = shards.labels()
        assert labels is not None
        found["targets"] = torch.from_numpy(labels)
    return found
