"""Train the encoders of table rows: NCA over a sampled share of the training rows per step, stopped early on held-out rows."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.estimators.soft_neighbors import Votes, affinities, log_loss, soft_mean, squared_error
from nearkin.models.tabular import TabularEncoder

MOST_REFERENCES = 2048  # of a step, whatever their share: it bounds the memory and the time of a step
FEWEST_HELD_OUT = 8


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
    """How a member is trained."""

    distance: str
    temperature: float
    reference_share: float
    batch_size: int
    epochs: int
    patience: int
    learning_rate: float
    weight_decay: float


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
    report: Callable[[int, float, float | None], None] | None = None,
) -> list[float]:
    """Train in place and return the held-out loss (or the training loss, without held-out rows) of every epoch.

    The weights of the best epoch are restored. A step compares a batch with itself and a random share of the other rows.
    """
    training, held = (torch.from_numpy(part) for part in parts)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    curve, best, weights = list[float](), float("inf"), copy.deepcopy(encoder.state_dict())
    since = 0
    for epoch in range(schedule.epochs):
        loss = _epoch(encoder, optimizer, rows, training, schedule, generator)
        figure = held_out_loss(encoder, rows, training, held, schedule) if len(held) else None
        curve.append(loss if figure is None else figure)
        if report is not None:
            report(epoch + 1, loss, figure)
        if curve[-1] < best:
            best, since, weights = curve[-1], 0, copy.deepcopy(encoder.state_dict())
        else:
            since += 1
        if since >= schedule.patience:
            break
    encoder.load_state_dict(weights)
    encoder.eval()
    return curve


def _epoch(
    encoder: TabularEncoder,
    optimizer: torch.optim.Optimizer,
    rows: TableRows,
    training: Tensor,
    schedule: Schedule,
    generator: torch.Generator,
) -> float:
    encoder.train()
    order = training[torch.randperm(len(training), generator=generator)]
    count = max(1, round(len(order) / schedule.batch_size))
    lost = 0.0
    for batch in order.tensor_split(count):
        others = order[~torch.isin(order, batch)]
        most = min(round(schedule.reference_share * len(others)), MOST_REFERENCES)
        drawn = others[torch.randperm(len(others), generator=generator)[:most]]
        loss = _step_loss(encoder, rows.some(torch.cat([batch, drawn])), len(batch), schedule)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        lost += float(loss.detach()) * len(batch) / len(order)
    return lost


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
def held_out_loss(encoder: TabularEncoder, rows: TableRows, training: Tensor, held: Tensor, schedule: Schedule) -> float:
    """The loss of the held-out rows with all training rows as references."""
    known, asked = rows.some(training), rows.some(held)
    votes = Votes(embed(encoder, known.numbers, known.categories), known.targets, known.weights.log())
    found = soft_mean(embed(encoder, asked.numbers, asked.categories), votes, schedule.distance, schedule.temperature)
    if asked.classes is None:
        errors = (found - asked.targets).square().mean(1)
    else:
        tiny = torch.finfo(found.dtype).tiny  # a class without a neighbor would cost infinity, in which no epoch is better
        errors = -found.gather(1, asked.classes[:, None])[:, 0].clamp_min(tiny).log()
    return float((errors * asked.weights).sum() / asked.weights.sum())
