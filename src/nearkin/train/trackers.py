"""Trackers of experiments as reporters: TensorBoard, Weights & Biases and MLflow.

Each is a `Reporter` that writes the loss and the learning rate of steps, and the figures of epochs, and forwards everything to another
reporter. None of the libraries is needed until its tracker is made. Nothing leaves this machine: Weights & Biases runs offline, and
MLflow writes into a folder.
"""

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nearkin.compose.validation import check_choice
from nearkin.train.config import Run
from nearkin.train.reporter import Figures, Reporter, Silence

EVERY = 10  # steps between two that are written
Write = Callable[[Mapping[str, float], int], None]


class Tracker:
    """A reporter that hands numbers to a function and forwards everything to another reporter.

    Parameters
    ----------
    write : callable
        Called with numbers by name and the number of steps made.
    listener : Reporter, optional
        Receives everything, too.
    close : callable, optional
        Called by `close`.

    Examples
    --------
    >>> from nearkin.train.trackers import Tracker
    >>> written = []
    >>> tracker = Tracker(lambda numbers, step: written.append((step, dict(numbers))))
    >>> tracker.epoch({"epoch": 1, "steps": 40, "loss": 0.5, "validation": {"1-nn": 0.9}})
    >>> written
    [(40, {'epoch/epoch': 1.0, 'epoch/loss': 0.5, 'epoch/validation/1-nn': 0.9})]
    """

    def __init__(self, write: Write, listener: Reporter | None = None, close: Callable[[], None] = lambda: None) -> None:
        self.write, self.listener, self.close = write, listener or Silence(), close

    def message(self, line: str) -> None:
        """Forward a line.

        Parameters
        ----------
        line : str
            As of `Reporter`.
        """
        self.listener.message(line)

    def started(self, steps: int, done: int) -> None:
        """Forward the length of the training.

        Parameters
        ----------
        steps : int
            As of `Reporter`.
        done : int
            As of `Reporter`.
        """
        self.listener.started(steps, done)

    def step(self, done: int, figures: Figures) -> None:
        """Write every tenth step, and forward all.

        Parameters
        ----------
        done : int
            As of `Reporter`.
        figures : mapping
            As of `Reporter`.
        """
        if done % EVERY == 0:
            self.write(_numbers("step", figures), done)
        self.listener.step(done, figures)

    def epoch(self, figures: Figures) -> None:
        """Write and forward.

        Parameters
        ----------
        figures : mapping
            As of `Reporter`.
        """
        self.write(_numbers("epoch", {name: value for name, value in figures.items() if name != "steps"}), int(figures.get("steps", 0)))
        self.listener.epoch(figures)


def tracker(name: str, folder: str | Path, run: Run | None = None, listener: Reporter | None = None) -> Tracker:
    """Make a tracker by name.

    Parameters
    ----------
    name : {"tensorboard", "wandb", "mlflow"}
        The library, which must be installed: `pip install 'nearkin[track]'`.
    folder : path
        Where it writes: event files, offline runs, or the file store of MLflow.
    run : Run, optional
        The configuration, which is written as parameters.
    listener : Reporter, optional
        Receives everything, too.

    Returns
    -------
    Tracker
        Call its `close` at the end.

    Raises
    ------
    ImportError
        If the library is missing.
    ValueError
        If the name is unknown.

    Examples
    --------
    >>> from nearkin.train.trackers import tracker
    >>> tracker("paper", "runs/x")
    Traceback (most recent call last):
        ...
    ValueError: track 'paper' is unknown; choose one of tensorboard, wandb, mlflow
    """
    check_choice("track", name, MAKERS)
    return MAKERS[name](Path(folder), {} if run is None else _leaves(run), listener)


def _tensorboard(folder: Path, settings: Mapping[str, str], listener: Reporter | None) -> Tracker:
    writer = _library("tensorboard", "torch.utils.tensorboard").SummaryWriter(str(folder))
    writer.add_text("settings", "\n".join(f"    {name} = {value}" for name, value in settings.items()))

    def write(numbers: Mapping[str, float], step: int) -> None:
        for key, value in numbers.items():
            writer.add_scalar(key, value, step)

    return Tracker(write, listener, writer.close)


def _wandb(folder: Path, settings: Mapping[str, str], listener: Reporter | None) -> Tracker:
    folder.mkdir(parents=True, exist_ok=True)
    started = _library("wandb", "wandb").init(project="nearkin", dir=str(folder), mode="offline", config=dict(settings))
    return Tracker(lambda numbers, step: started.log(dict(numbers), step=step), listener, started.finish)


def _mlflow(folder: Path, settings: Mapping[str, str], listener: Reporter | None) -> Tracker:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for it
    client = _library("mlflow", "mlflow").MlflowClient(tracking_uri=folder.resolve().as_uri())
    found = client.get_experiment_by_name("nearkin")
    experiment = client.create_experiment("nearkin") if found is None else found.experiment_id
    number = client.create_run(experiment).info.run_id
    for name, value in settings.items():
        client.log_param(number, name, value)

    def write(numbers: Mapping[str, float], step: int) -> None:
        for key, value in numbers.items():
            client.log_metric(number, key.replace("@", " at "), value, step=step)  # names may hold no other characters

    return Tracker(write, listener, lambda: client.set_terminated(number))


MAKERS: dict[str, Callable[[Path, Mapping[str, str], Reporter | None], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def _library(name: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"track {name} needs the library {name} ({error}); pip install 'nearkin[track]'") from error


def _leaves(run: Run) -> dict[str, str]:
    """The settings by their dotted names."""

    def walk(node: Any, prefix: str) -> dict[str, str]:
        if not isinstance(node, dict):
            return {prefix: str(node)[:250]}
        return {leaf: value for key, below in node.items() for leaf, value in walk(below, f"{prefix}.{key}" if prefix else key).items()}

    return walk(json.loads(run.to_json()), "")


def _numbers(prefix: str, figures: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            found |= _numbers(f"{prefix}/{name}", value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}/{name}"] = float(value)
    return found
