"""The learning-rate finder: a short training whose rate grows at every step; its weights are discarded."""

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.data.checksums import write_json
from nearkin.data.dataset import Dataset
from nearkin.train.assemble import assemble, set_training
from nearkin.train.config import Run
from nearkin.train.optimizers import set_rate, steady_rate
from nearkin.train.reporter import Reporter, Silence
from nearkin.train.step import Step

LOWEST, HIGHEST = 1e-5, 10.0
STEPS = 100
LOST = 2.0  # times the first loss: stop there, a larger rate only makes it worse


class Sweep(NamedTuple):
    """The losses while the rate grew, and the rate to use."""

    rates: list[float]
    objectives: list[float]
    rate: float

    def save(self, path: Path) -> None:
        """Write the sweep as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self._asdict())


def find_rate(run: Run, train: Dataset, device: torch.device, reporter: Reporter | None = None, steps: int = STEPS) -> Sweep:
    """Sweep the rate geometrically over `steps` steps from the run's initial weights; stop early when the loss diverges.

    The rate to use comes from `steady_rate`: the largest at which the loss still falls steadily. [ren2014convolutional]
    """
    if run.optimizer.name == "conjugate_gradient":
        raise ValueError("optimizer.name=conjugate_gradient needs no learning rate; use --find-rate with sgd or adam")
    if steps < 2:
        raise ValueError(f"steps ({steps}) must be at least 2")
    parts = assemble(replace(run, references="objective"), train, device)
    listener = reporter or Silence()
    set_training(parts.network, run.network)
    listener.started(steps, 0)
    rates: list[float] = []
    objectives: list[float] = []
    for done, ids in zip(range(steps), parts.sampler.endless(), strict=False):
        rates.append(LOWEST * (HIGHEST / LOWEST) ** (done / (steps - 1)))
        set_rate(parts.optimizer, rates[-1])
        objectives.append(_value(parts.step, ids.to(device)))
        listener.step(done + 1, {"loss": objectives[-1], "rate": rates[-1]})
        if not objectives[-1] <= LOST * max(objectives[0], 1e-12):
            break
    chosen = steady_rate(rates, objectives)
    return Sweep(rates, [value if math.isfinite(value) else LOST * objectives[0] for value in objectives], chosen)


def _value(step: Step, ids: Tensor) -> float:
    """The loss of one step; NaN if the embeddings are NaN or infinite."""
    try:
        return float(step(ids))
    except ValueError as error:
        if "NaN or infinity" not in str(error):
            raise
        return math.nan
