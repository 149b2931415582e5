"""The rounds of neighborhood discovery: no neighborhood is trusted at first, then a growing share. [huang2019and]"""

from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from nearkin.compose.references import MemoryBank
from nearkin.compose.relation import ListedNeighbors
from nearkin.data.dataset import Dataset
from nearkin.objectives import NeighborhoodDiscovery
from nearkin.train.config import DiscoveryChoice, Run
from nearkin.train.discovery import Agreement, agreement, curriculum, keep_only, mutual, trusted, weights
from nearkin.train.objective_choice import Built
from nearkin.train.optimizers import Schedule
from nearkin.train.spread_bank import neighborhoods_in


class Rounds(NamedTuple):
    """Which round an epoch belongs to, and the share of points trusted in each."""

    shares: tuple[float, ...]  # one for each round; 0 in the instance round
    epochs: int
    every_epoch: bool  # neighborhoods are searched again in every epoch
    gradual: bool = False  # the share grows from epoch to epoch

    def of(self, epoch: int) -> int:
        """The round, from 0, of an epoch, from 0."""
        return min(epoch * len(self.shares) // self.epochs, len(self.shares) - 1)

    def first_epoch(self, number: int) -> int:
        """Where a round begins; that of one after the last is where the training ends."""
        return -(-number * self.epochs // len(self.shares))

    def rate_factor(self, schedule: Schedule, step: int, steps_an_epoch: int) -> float:
        """The factor of a schedule that restarts with every round and is as long as that round; steps from 0."""
        number = self.of(step // steps_an_epoch)
        start, end = (self.first_epoch(number + more) * steps_an_epoch for more in (0, 1))
        return schedule.factor(step - start, end - start)

    def due(self, epoch: int) -> int:
        """The epoch in which the neighborhoods of this one are searched."""
        return epoch if self.every_epoch else self.first_epoch(self.of(epoch))

    def share(self, epoch: int) -> float:
        """The share of points trusted in an epoch; all points in the last one."""
        share = self.shares[self.of(epoch)]
        if not self.gradual or share == 0:
            return share
        start = self.first_epoch(1) if self.shares[0] == 0 else 0
        return (epoch + 1 - start) / (self.epochs - start)


def rounds_of(choice: DiscoveryChoice, epochs: int) -> Rounds:
    """The rounds of a run; every round has at least one epoch."""
    shares = (*((0.0,) if choice.instance_round else ()), *curriculum(choice.rounds, choice.one_off))
    if epochs < len(shares):
        raise ValueError(f"epochs ({epochs}) are fewer than the rounds ({len(shares)}); raise epochs or lower discovery.rounds")
    if choice.gradual and (choice.refresh != "epoch" or choice.one_off):
        raise ValueError("discovery.gradual trusts a few more in every epoch: it needs discovery.refresh=epoch and discovery.one_off=false")
    return Rounds(shares, epochs, choice.refresh == "epoch", choice.gradual)


def rounds_for(run: Run, discovers: bool) -> Rounds:
    """The rounds of an objective that discovers; any other objective has one round, in which none is trusted."""
    return rounds_of(run.discovery, run.epochs) if discovers else Rounds((0.0,), run.epochs, every_epoch=False)


def labels_used(run: Run, train: Dataset) -> Tensor | None:
    """(n,) the classes that discovery may use, -1 for those it may not; None for none at all.

    All that are known where some are missing; of fully labeled data only the share discovery.labeled, drawn by the run's seed,
    evenly over the classes and at least one of each. What is not used is for reporting.
    """
    share = run.discovery.labeled
    if not 0 <= share <= 1:
        raise ValueError(f"discovery.labeled ({share}) must lie between 0 and 1: the share of points whose class may be used")
    if train.partly_labeled:
        return train.labels
    if share == 0:
        return None
    if train.labels is None:
        raise ValueError(f"discovery.labeled ({share}) needs classes, but {train.name} has none; leave it at 0")
    generator = torch.Generator().manual_seed(run.seed)
    used = torch.full_like(train.labels, -1)
    for number in torch.unique(train.labels).tolist():
        members = (train.labels == number).nonzero()[:, 0]
        some = members[torch.randperm(len(members), generator=generator)[: max(1, round(share * len(members)))]]
        used[some] = number
    return used


class Steering(Protocol):
    """What an objective does between epochs."""

    found: list[dict[str, Any]]  # for metrics.json: what each round found

    def due(self, epoch: int) -> bool:
        """Whether there is something to do before this epoch."""

    def look(self, epoch: int) -> str | None:
        """Do it; return a line to report, or None."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold."""

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what a checkpoint held."""


def steering_of(run: Run, objective: Built, optimizer: torch.optim.Optimizer, labels: Tensor | None) -> Steering | None:
    """How an objective is steered between epochs; None for those that need nothing."""
    if objective.discovers:
        return Discovering(run, cast(NeighborhoodDiscovery, objective), labels)
    return Refreshing(objective, optimizer, run.seed) if objective.refresh_every else None


class CollapsedError(RuntimeError):
    """An objective finds nothing left to learn from; the message says what it saw."""


class Refreshing:
    """Pseudo-labels, made again before every epoch, or every few."""

    def __init__(self, objective: Any, optimizer: torch.optim.Optimizer, seed: int) -> None:
        self.objective, self.optimizer, self.seed = objective, optimizer, seed
        self.every: int = objective.refresh_every
        self.looked = -1
        self.found: list[dict[str, Any]] = []

    def due(self, epoch: int) -> bool:
        return self.looked < epoch - epoch % self.every

    def look(self, epoch: int) -> str | None:
        stuck: str | None = self.objective.refresh(self.seed + epoch)
        if stuck is not None:
            raise CollapsedError(stuck)
        for parameter in self.objective.parameters():  # they restart with the labels, and so does the optimizer's state for them
            for value in self.optimizer.state.get(parameter, {}).values():
                if isinstance(value, Tensor):
                    value.zero_()  # in place: a captured step keeps using this memory
        self.looked = epoch
        return None

    def state(self) -> dict[str, Any]:
        return {"looked": self.looked}

    def restore(self, state: dict[str, Any]) -> None:
        self.looked = state["looked"]


class Discovering:
    """Who is trusted when, and what was found: the part of discovery that happens between epochs."""

    def __init__(self, run: Run, objective: NeighborhoodDiscovery, labels: Tensor | None) -> None:
        self.objective, self.labels = objective, labels
        self.rounds, self.only_mutual = rounds_of(run.discovery, run.epochs), run.discovery.mutual
        self.looked = -1  # the epoch in which neighborhoods were last searched
        self.found: list[dict[str, Any]] = []  # of every round: how many are trusted, and how pure

    def due(self, epoch: int) -> bool:
        return self.looked < self.rounds.due(epoch)

    def look(self, epoch: int) -> str | None:
        """Look for neighborhoods; where a round begins, a line that says what was found."""
        found = look_for_neighbors(self.objective, self.rounds.share(epoch), self.only_mutual, self.labels)
        self.looked = epoch
        number = self.rounds.of(epoch)
        self.found = [*self.found[:number], {"round": number, **found}]
        if epoch != self.rounds.first_epoch(number):
            return None
        return f"round {number} of {len(self.rounds.shares) - 1}: {self._said(epoch, found)}"

    def _said(self, epoch: int, found: dict[str, Any]) -> str:
        """What is made of the neighborhoods of a round that begins with this epoch."""
        share, last = (self.rounds.share(at) for at in (epoch, self.rounds.first_epoch(self.rounds.of(epoch) + 1) - 1))
        growing = f", growing to {last:.0%} of all" if last > share else ""
        if share and getattr(self.objective.relation, "weight", None) is not None:
            whose = f"those of the {found['trusted']:,} that weigh most"
            trusts = f"every neighborhood counts, by {share:.0%} on average{growing}"
        else:
            whose, trusts = "their neighbors", f"{found['trusted']:,} neighborhoods trusted{growing}"
        return trusts + (f"; {found['agreement']:.1%} of {whose} share the class" if "agreement" in found else "")

    def state(self) -> dict[str, Any]:
        return {"looked": self.looked, "found": self.found}

    def restore(self, state: dict[str, Any]) -> None:
        self.looked, self.found = state["looked"], state["found"]


def look_for_neighbors(objective: NeighborhoodDiscovery, share: float, only_mutual: bool, labels: Tensor | None) -> dict[str, Any]:
    """Find neighborhoods in the bank, trust a share of them, and say how many and, where classes are known, how pure they are.

    Points whose class the objective uses have no neighborhood, and are not counted. `agreement` is the share of `pairs`, of a trusted
    point and a neighbor whose classes are known, that are of one class.
    """
    bank, relation = cast(MemoryBank, objective.references), cast(ListedNeighbors, objective.relation)
    if share == 0:
        return {"trusted": 0}
    k, temperature = relation.table.shape[1], float(objective.parts.affinity.temperature)
    found = neighborhoods_in(bank, k, temperature)
    free = torch.ones_like(found.entropy, dtype=torch.bool) if relation.labels is None else relation.labels < 0  # the others have no row
    chosen = _among(free, trusted(found.entropy[free], share))
    kept = mutual(found.table) if only_mutual else torch.ones_like(found.table, dtype=torch.bool)
    table = keep_only(found.table, kept)
    if relation.weight is None:
        objective.trust(table, chosen)
    else:
        objective.trust(table, None, _among(free, weights(found.entropy[free], share)))
    counts: dict[str, Any] = {"trusted": int((chosen & kept.any(1)).sum())}
    pure = Agreement(0, 0) if labels is None else agreement(table, labels.to(table.device), chosen)
    return {**counts, "pairs": pure.pairs, "agreement": pure.share} if pure.pairs else counts


def _among(some: Tensor, values: Tensor) -> Tensor:
    """(n,) the values of `some` (n,) of the points, in order, and 0 for the others."""
    return torch.zeros(len(some), dtype=values.dtype, device=values.device).masked_scatter(some, values)
