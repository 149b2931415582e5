"""Shards as data to learn from: vectors, or images, that stay on disk until a batch asks for their shard."""

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

PASSING = 2  # shards of others that are kept: enough to go through all of them in order


class Held:
    """Shards in memory: one's own for good, others in passing. `read` counts how often each was read from disk."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.own: frozenset[int] = frozenset(range(len(shards.records)))
        self.kept: dict[int, Tensor] = {}
        self.passing: OrderedDict[int, Tensor] = OrderedDict()
        self.read: dict[int, int] = {}

    def keep(self, numbers: Sequence[int]) -> None:
        """From now on these are one's own."""
        self.own = frozenset(numbers)
        self.kept = {number: rows for number, rows in self.kept.items() if number in self.own}

    def __getitem__(self, number: int) -> Tensor:
        """(n, d) of one shard."""
        place: Any = self.kept if number in self.own else self.passing
        if number not in place:
            self.read[number] = self.read.get(number, 0) + 1
            place[number] = torch.from_numpy(np.array(self.shards.read(number).vectors))
            while len(self.passing) > PASSING:
                self.passing.popitem(last=False)
        rows: Tensor = place[number]
        return rows


@dataclass(frozen=True, eq=False)
class ShardRows:
    """n points of a folder of shards, by their positions among all."""

    held: Held
    positions: np.ndarray = field(repr=False)  # (n,) int64

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one point: (d,), or (c, h, w)."""
        return self.held.shards.about.shape or (self.held.shards.dimension,)

    @cached_property
    def homes(self) -> Tensor:
        """(n,) the number of the shard that each point stands in."""
        return torch.from_numpy(np.searchsorted(np.asarray(self.held.shards.starts()[1:]), self.positions, side="right"))

    def read(self, rows: Tensor) -> Tensor:
        """The points in these rows: vectors (b, d), or images (b, c, h, w) uint8."""
        kind = torch.float32 if self.held.shards.about.shape is None else torch.uint8
        found = torch.empty(len(rows), self.held.shards.dimension, dtype=kind)
        homes, starts = self.homes[rows], self.held.shards.starts()
        at = torch.from_numpy(self.positions[rows.numpy()])
        for number in torch.unique(homes).tolist():
            here = homes == number
            found[here] = self.held[number][at[here] - starts[number]]
        return found.view(len(rows), *self.shape)

    def take(self, rows: Sequence[int]) -> "ShardRows":
        return replace(self, positions=self.positions[np.asarray(rows)])


def open_sharded(folder: Path) -> dict[str, Any]:
    """What a `Dataset` is made of: rows, and classes or numbers where the shards know them."""
    shards = open_shards(folder)
    found: dict[str, Any] = {"inputs": ShardRows(Held(shards), np.arange(len(shards)))}
    if shards.about.supervision == "classes":
        found |= {"labels": torch.from_numpy(shards.codes().astype(np.int64)), "classes": shards.about.classes}
    if shards.about.supervision == "numbers":
        labels = shards.labels()
        assert labels is not None
        found["targets"] = torch.from_numpy(labels)
    return found
