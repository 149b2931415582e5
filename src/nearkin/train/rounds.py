"""The rounds of neighbourhood discovery: nobody is trusted at first, then a growing share of the neighbourhoods. [huang2019and]"""

import math
from typing import Any, NamedTuple

from torch import Tensor

from nearkin.discovery import agreement, curriculum, discover, keep_only, mutual, trusted
from nearkin.objectives import NeighbourhoodDiscovery
from nearkin.references import MemoryBank
from nearkin.relation import ListedNeighbours
from nearkin.run import DiscoveryChoice


class Rounds(NamedTuple):
    """Which round an epoch belongs to, and the share of points trusted in each."""

    shares: tuple[float, ...]  # one for each round; 0 in the instance round
    epochs: int
    every_epoch: bool  # neighbourhoods are looked for anew in every epoch

    def of(self, epoch: int) -> int:
        """The round, from 0, of an epoch, from 0."""
        return min(epoch * len(self.shares) // self.epochs, len(self.shares) - 1)

    def first_epoch(self, number: int) -> int:
        """Where a round begins."""
        return -(-number * self.epochs // len(self.shares))

    def longest(self) -> int:
        """Epochs of the longest round."""
        return math.ceil(self.epochs / len(self.shares))

    def due(self, epoch: int) -> int:
        """The epoch in which the neighbourhoods of this one were, or are, to be looked for."""
        return epoch if self.every_epoch else self.first_epoch(self.of(epoch))


def rounds_of(choice: DiscoveryChoice, epochs: int) -> Rounds:
    """The rounds of a run; every round has at least one epoch."""
    shares = (*((0.0,) if choice.instance_round else ()), *curriculum(choice.rounds, choice.one_off))
    if epochs < len(shares):
        raise ValueError(f"epochs ({epochs}) are fewer than the rounds ({len(shares)}); raise epochs or lower discovery.rounds")
    return Rounds(shares, epochs, choice.refresh == "epoch")


def look_for_neighbours(objective: NeighbourhoodDiscovery, share: float, only_mutual: bool, labels: Tensor | None) -> dict[str, Any]:
    """Find neighbourhoods in the bank, trust a share of them, and say how many and, where classes are known, how pure they are."""
    bank, relation, affinity = objective.references, objective.relation, objective.affinity
    assert isinstance(bank, MemoryBank) and isinstance(relation, ListedNeighbours)
    if share == 0:
        return {"trusted": 0}
    temperature: float = affinity.of.temperature  # type: ignore[attr-defined]
    found = discover(bank.vectors, relation.table.shape[1], temperature)
    chosen = trusted(found.entropy, share)
    table = keep_only(found.table, mutual(found.table)) if only_mutual else found.table
    objective.trust(table, chosen)
    told: dict[str, Any] = {"trusted": int(chosen.sum())}
    if labels is not None:
        told["agreement"] = agreement(found.table, labels.to(found.table.device), chosen)
    return told
