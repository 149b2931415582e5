"""Train the encoders of table rows: NCA over a sampled share of the training rows per step, stopped early on held-out rows."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.models.tabular import TabularEncoder
from nearkin.search.soft_neighbors import BLOCK, affinities, log_loss, squared_error
from nearkin.train.state import optimizer_state, random_state, restore_optimizer, restore_random, under

MOST_REFERENCES = 1024  # of a step, whatever their share: it bounds the memory and the time of a step
FEWEST_HELD_OUT = 8
MOST_HELD_OUT = 2000  # rows that choose the epoch, evenly spaced among those held out
SMALL = 2_500  # rows up to which several members are the default
AVERAGING = 0.98  # of the old average that a step keeps: the average of about 50 steps is steadier than the last weights
STANDING = ("done", "lost", "curve", "best", "since", "factor", "found")  # plain values of a training's state
Report = Callable[[int, float, float | None], None]  # epoch, training loss, held-out loss
TEMPERATURES = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)  # factors that the held-out rows choose from


class TableRows(NamedTuple):
    """Rows as the encoder and the loss take them."""

    numbers: Tensor  # (n, p) scaled
    categories: Tensor  # (n, q)
    targets: Tensor  # (n, t) float32: one-hot classes, or standardized numbers
    classes: Tensor | None  # (n,)
    weights: Tensor  # (n,)

    def some(self, at: Tensor) -> "TableRows":
        """The rows at these positions."""
        return TableRows(*(None if part is None else part[at] for part in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Schedule:
    """How a member is trained; the defaults are those of the tabular estimators."""

    distance: str = "euclidean"
    temperature: float = 1.0
    reference_share: float = 0.5
    batch_size: int = 256
    epochs: int = 40
    patience: int = 12
    learning_rate: float = 0.002
    weight_decay: float = 0.0002


class Trained(NamedTuple):
    """What a training leaves besides the weights."""

    curve: list[float]  # the held-out loss of every epoch, or the training loss without held-out rows
    factor: float  # of the temperature, by which the held-out rows are predicted best


def batch_size_for(n: int) -> int:
    """Several steps per epoch for small tables, few for large ones, where a step has more references."""
    return max(32, min(max(min(256, n // 7), n // 16), 1024))


def members_for(n: int) -> int:
    """Several members for small tables, where they cost little and steady the prediction."""
    return 4 if n <= SMALL else 1


def split_rows(classes: np.ndarray | None, n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the rows to train on and to hold out, the classes in equal shares; no row of a class with one row is held out."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(n)
    if classes is None:
        held = order[: round(share * n)]
    else:
        ranked = np.empty(n)
        for one in np.unique(classes):
            rows = order[classes[order] == one]
            ranked[rows] = np.arange(len(rows)) < min(round(share * len(rows)), len(rows) - 1)
        held = np.flatnonzero(ranked)
    held = held if len(held) >= FEWEST_HELD_OUT else held[:0]
    return np.setdiff1d(np.arange(n), held), np.sort(held)


def train(
    encoder: TabularEncoder,
    rows: TableRows,
    parts: tuple[np.ndarray, np.ndarray],
    schedule: Schedule,
    seed: int,
    report: Report | None = None,
) -> Trained:
    """Train in place: the encoder gets the averaged weights of the best epoch."""
    return Training(encoder, rows, parts, schedule, seed).run(report)


class Training:
    """The training of an encoder in place: it gets the averaged weights of the best epoch.

    A step compares a batch with itself and a random share of the other rows. The learning rate falls to 0 along a cosine. After any step,
    `state` is all that a training with the same arguments needs to go on as if it had made the steps itself.
    """

    def __init__(
        self, encoder: TabularEncoder, rows: TableRows, parts: tuple[np.ndarray, np.ndarray], schedule: Schedule, seed: int
    ) -> None:
        self.encoder, self.rows, self.schedule = encoder, rows, schedule
        self.training, held = (torch.from_numpy(part) for part in parts)
        self.held = held[:: math.ceil(len(held) / MOST_HELD_OUT)] if len(held) else held
        self.generator = torch.Generator().manual_seed(seed)
        self.average = copy.deepcopy(encoder)
        self.pairs = list(zip(self.average.state_dict().values(), encoder.state_dict().values(), strict=True))
        self.optimizer = torch.optim.AdamW(encoder.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
        self.count = max(1, round(len(self.training) / schedule.batch_size))  # steps of an epoch
        self.done, self.lost = 0, 0.0  # steps, and the running epoch's loss
        self.order = self.training  # of the rows in the running epoch
        self.curve, self.best, self.since, self.factor, self.found = list[float](), math.inf, 0, 1.0, 1.0
        self.weights = copy.deepcopy(encoder.state_dict())  # the best ones

    def run(self, report: Report | None = None, after_step: Callable[[], None] | None = None) -> Trained:
        """Train to the end."""
        for epoch in range(len(self.curve), self.schedule.epochs):
            loss = self._epoch(after_step)
            figure = self._held_out()
            self.curve.append(loss if figure is None else figure)
            if report is not None:
                report(epoch + 1, loss, figure)
            self.since += 1
            if self.curve[-1] < self.best:
                self.best, self.since, self.factor = self.curve[-1], 0, self.found
                self.weights = copy.deepcopy(self.average.state_dict())
            if self.since >= self.schedule.patience:
                break
        self.encoder.load_state_dict(self.weights)
        self.encoder.eval()
        return Trained(self.curve, self.factor)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that changes from step to step, as tensors and plain values."""
        parts = {"encoder": self.encoder.state_dict(), "average": self.average.state_dict(), "best": self.weights}
        tensors = {f"{part}.{name}": value for part, weights in parts.items() for name, value in weights.items()}
        moments, numbers = optimizer_state(self.optimizer)
        tensors |= moments | random_state(self.rows.weights.device) | {"random.batches": self.generator.get_state(), "order": self.order}
        return tensors, {name: getattr(self, name) for name in STANDING} | {"optimizer": numbers}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Go on from the `state` of a training with the same arguments."""
        self.encoder.load_state_dict(under("encoder.", tensors))
        self.average.load_state_dict(under("average.", tensors))
        self.weights = under("best.", tensors)
        restore_optimizer(self.optimizer, tensors, values["optimizer"])
        restore_random(self.rows.weights.device, tensors)
        self.generator.set_state(tensors["random.batches"])
        self.order = tensors["order"]
        for name in STANDING:
            setattr(self, name, values[name])

    def _held_out(self) -> float | None:
        """The loss of the held-out rows, and the factor of the temperature at which they are predicted best; None without such rows."""
        if not len(self.held):
            return None
        at = TEMPERATURES.index(self.found)  # the best one moves slowly: those next to the last are tried
        near = TEMPERATURES[max(0, at - 1) : at + 2]
        figure, self.found = held_out_loss(self.average, self.rows, self.training, self.held, self.schedule, near)
        return figure

    def _epoch(self, after_step: Callable[[], None] | None) -> float:
        """The mean training loss of an epoch, or of what is left of it."""
        self.encoder.train()
        for batch, drawn in self._batches():
            share = self.done / (self.schedule.epochs * self.count)
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.learning_rate * (1 + math.cos(math.pi * share)) / 2
            loss = _step_loss(self.encoder, self.rows.some(torch.cat([batch, drawn])), len(batch), self.schedule)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self._averaged()
            self.done += 1
            self.lost += float(loss.detach()) * len(batch) / len(self.training)
            if after_step is not None:
                after_step()
        lost, self.lost = self.lost, 0.0
        return lost

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the running epoch that are left, each with the other rows that are drawn for it."""
        position = self.done - len(self.curve) * self.count
        if not position:
            self.order = self.training[torch.randperm(len(self.training), generator=self.generator)]
        batches = self.order.tensor_split(self.count)
        start = sum(map(len, batches[:position]))
        for batch in batches[position:]:
            others = torch.cat([self.order[:start], self.order[start + len(batch) :]])
            start += len(batch)
            most = min(round(self.schedule.reference_share * len(others)), MOST_REFERENCES)
            yield batch, others[torch.randperm(len(others), generator=self.generator)[:most]]

    @torch.no_grad()
    def _averaged(self) -> None:
        keep = min(AVERAGING, (1 + self.done) / (10 + self.done))  # the first weights are forgotten soon
        for mine, its in self.pairs:
            if mine.dtype.is_floating_point:
                mine.lerp_(its, 1 - keep)
            else:
                mine.copy_(its)


def _step_loss(encoder: TabularEncoder, rows: TableRows, b: int, schedule: Schedule) -> Tensor:
    """The loss of the first `b` rows with all rows as references, each without itself."""
    embeddings = encoder(rows.numbers, rows.categories)
    affinity = affinities(embeddings[:b], embeddings, schedule.distance, schedule.temperature) + rows.weights.log()
    affinity = affinity.masked_fill(torch.eye(b, len(embeddings), dtype=torch.bool, device=affinity.device), -torch.inf)
    if rows.classes is not None:
        return log_loss(affinity, rows.classes[:b], rows.classes, rows.weights[:b])
    return squared_error(affinity, rows.targets[:b], rows.targets, rows.weights[:b])


@torch.no_grad()
def embed(encoder: TabularEncoder, numbers: Tensor, categories: Tensor, block: int = 4096) -> Tensor:
    """(n, d) in evaluation mode."""
    encoder.eval()
    return torch.cat([encoder(*both) for both in zip(torch.split(numbers, block), torch.split(categories, block), strict=True)])


@torch.no_grad()
def held_out_loss(
    encoder: TabularEncoder, rows: TableRows, training: Tensor, held: Tensor, schedule: Schedule, factors: Sequence[float]
) -> tuple[float, float]:
    """The loss of the held-out rows with all training rows as references, at the best factor of the temperature, and that factor."""
    known, asked = rows.some(training), rows.some(held)
    queries, references = embed(encoder, asked.numbers, asked.categories), embed(encoder, known.numbers, known.categories)
    lost = torch.zeros(len(factors))
    for some in torch.split(torch.arange(len(queries)), max(1, BLOCK // len(references))):
        affinity = affinities(queries[some], references, schedule.distance, schedule.temperature)
        for at, factor in enumerate(factors):
            shares = torch.softmax(affinity / factor + known.weights.log(), 1)
            lost[at] += _lost(shares @ known.targets, asked.some(some)).cpu()
    best = int(lost.argmin())
    return float(lost[best] / asked.weights.sum()), factors[best]


def _lost(found: Tensor, asked: TableRows) -> Tensor:
    """The weighted sum of the rows' losses, from the mean targets of their neighbors."""
    if asked.classes is None:
        errors = (found - asked.targets).square().mean(1)
    else:
        tiny = torch.finfo(found.dtype).tiny  # a class without a neighbor would cost infinity, in which no epoch is better
        errors = -found.gather(1, asked.classes[:, None])[:, 0].clamp_min(tiny).log()
    return (errors * asked.weights).sum()
