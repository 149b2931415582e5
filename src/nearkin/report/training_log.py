"""The training of a model folder: the epochs of log.jsonl, and the learning rates of its schedule."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearkin.train.config import Run
from nearkin.train.optimizers import make_schedule
from nearkin.train.rounds import rounds_for

VALIDATION = re.compile(r"weighted-nn|\d+-nn|recall@\d+|mean_absolute_error|root_mean_square_error")  # a line has other entries, too
POSITIONS = 200  # steps at which the learning rate is computed


class History(NamedTuple):
    """Arrays with one entry for each epoch."""

    epochs: np.ndarray  # (t,)
    losses: np.ndarray  # (t,)
    steps: np.ndarray  # (t,) done by the end of the epoch
    validation: dict[str, np.ndarray]  # (t,) by figure; NaN where an epoch has none


def read_log(path: str | Path) -> History:
    """Read the epochs of a log.jsonl. After a resumed training an epoch may be listed twice; the later line counts."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; `nearkin train` writes it")
    lines = filter(None, map(_line, path.read_text(encoding="utf-8", errors="replace").splitlines()))
    kept = {line["epoch"]: line for line in lines if line.get("kind") == "epoch" and {"epoch", "loss", "steps"} <= set(line)}
    rows = [kept[epoch] for epoch in sorted(kept)]
    if not rows:
        raise ValueError(f"{path} lists no epoch; train for at least one")
    names = list(dict.fromkeys(name for row in rows for name in row if VALIDATION.fullmatch(name)))
    figures = {name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64) for name in names}
    epochs, losses, steps = (np.array([row[name] for row in rows], dtype=np.float64) for name in ("epoch", "loss", "steps"))
    return History(epochs, losses, steps, figures)


def _line(text: str) -> dict[str, Any] | None:
    """A line of the log; None if it is damaged, as the last one of a training that was killed may be."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def learning_rates(run: Run, history: History, objective: str = "") -> tuple[np.ndarray, np.ndarray]:
    """(epochs (s,), rates (s,)) of the run's schedule, which gets the losses of the log because a plateau schedule depends on them.

    In neighborhood discovery the schedule restarts with every round if the run says so.
    """
    an_epoch = round(history.steps[0] / history.epochs[0])
    rounds = rounds_for(run, objective == "neighborhood_discovery" and run.discovery.restart)
    schedule = make_schedule(run.schedule, run.epochs, an_epoch)
    total = int(history.steps[-1])
    positions = np.unique(np.linspace(0, total - 1, min(POSITIONS, total)).round().astype(int))
    rates, ended = [], 0
    for step in positions.tolist():
        while ended < len(history.steps) and history.steps[ended] <= step:
            schedule.epoch_ended(float(history.losses[ended]))
            ended += 1
        rates.append(run.optimizer.learning_rate * rounds.rate_factor(schedule, step, an_epoch))
    return (positions + 1) / an_epoch, np.array(rates)
