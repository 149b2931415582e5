"""What a model folder remembers of its training: the curve of log.jsonl, and the learning rate that the run prescribes."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nearkin.train.config import Run
from nearkin.train.optimizers import make_schedule
from nearkin.train.rounds import rounds_for

VALIDATION = re.compile(r"weighted-nn|\d+-nn|recall@\d+|mean_absolute_error|root_mean_square_error")  # a line tells other things, too
POSITIONS = 200  # steps at which a learning rate is looked at


class History(NamedTuple):
    """One entry for each epoch, in order."""

    epochs: np.ndarray  # (t,)
    losses: np.ndarray  # (t,)
    steps: np.ndarray  # (t,) made by the end of the epoch
    validation: dict[str, np.ndarray]  # (t,) by figure; NaN where an epoch has none


def read_log(path: str | Path) -> History:
    """The epochs of a log.jsonl. After a resumption an epoch may stand there twice; the later line counts."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; `nearkin train` writes it while it trains")
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]
    kept = {line["epoch"]: line for line in lines if line["kind"] == "epoch"}
    rows = [kept[epoch] for epoch in sorted(kept)]
    if not rows:
        raise ValueError(f"{path} holds no epoch; train for at least one")
    names = list(dict.fromkeys(name for row in rows for name in row if VALIDATION.fullmatch(name)))
    figures = {name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64) for name in names}
    epochs, losses, steps = (np.array([row[name] for row in rows], dtype=np.float64) for name in ("epoch", "loss", "steps"))
    return History(epochs, losses, steps, figures)


def learning_rates(run: Run, history: History, objective: str = "") -> tuple[np.ndarray, np.ndarray]:
    """(epochs (s,), rates (s,)) by the run's schedule, which is told the log's losses, since a plateau rule listens to them.

    With neighborhood discovery the schedule begins anew with every round, if the run says so.
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
