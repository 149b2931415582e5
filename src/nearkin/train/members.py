"""The members of a training on rows of a table, kept in its checkpoints: those that are finished, and the state of the running one."""

import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from nearkin.data.dataset import Dataset
from nearkin.data.progress import few
from nearkin.models.tabular import TabularEncoder
from nearkin.train import checkpoint, ranks
from nearkin.train.config import Run
from nearkin.train.folder import saved_form
from nearkin.train.interrupt import Interrupt
from nearkin.train.reporter import Reporter
from nearkin.train.state import under
from nearkin.train.tabular import Report, Schedule, Trained, Training


class Members:
    """What is known of each finished member, and of the one that an earlier process did not finish.

    With a folder, checkpoints are written while a member is trained and after it. They are numbered by the steps of all members.
    """

    def __init__(self, run: Run, parts: list[Dataset], folder: Path | None = None) -> None:
        self.run, self.folder = run, folder
        self.mark, self.count = _mark(parts), len(parts[0])
        self.trained: list[Trained] = []
        self.tensors: dict[str, Tensor] = {}
        self.steps = 0  # of the finished members
        self.unfinished: tuple[dict[str, Tensor], dict[str, Any]] | None = None  # the state of a member's training
        self.began, self.seconds = time.perf_counter(), 0.0
        self.saved_at, self.interrupt = time.monotonic(), Interrupt()

    def resume(self, log: Reporter, schedule: Schedule) -> None:
        """Take the members of the newest whole checkpoint, and the state of the one that was being trained."""
        assert self.folder is not None
        found = checkpoint.newest(self.folder / "checkpoints", log.message)
        if found is None:
            log.message("no checkpoint to resume from: starting from the beginning, with the same settings")
            return
        if found.state["points"] != self.mark:
            why = "rows have changed" if found.state["count"] == self.count else f"it started with {found.state['count']:,}"
            fix = "Resume with the data that the training started with, or train into another folder"
            raise ValueError(f"the {self.count:,} points to learn from are not those of the checkpoint: {why}. {fix}")
        if _network(found.state["run"]) != _network(saved_form(self.run).to_json()):
            raise ValueError("the network is not that of the checkpoint; resume with the settings that the training started with")
        running = found.state["running"]
        if running is not None and running["schedule"] != asdict(schedule):
            changed = few([name for name, value in asdict(schedule).items() if running["schedule"].get(name) != value])
            raise ValueError(f"settings differ from those of the checkpoint ({changed}); resume with those that the training started with")
        self.trained, self.steps = [Trained(*one) for one in found.state["trained"]], found.state["steps"]
        self.tensors = {name: value for name, value in found.tensors.items() if name.startswith("members.")}
        if running is not None:
            self.unfinished = under("running.", found.tensors), running
        self.seconds = found.state["seconds"]
        self.began -= self.seconds

    def load(self, number: int, encoder: TabularEncoder) -> None:
        """Give the encoder the weights of a finished member."""
        encoder.load_state_dict(under(f"members.{number}.", self.tensors))

    def train(self, training: Training, report: Report) -> None:
        """Train the next member, from where it was interrupted if it was, and keep it."""
        if self.unfinished is not None:
            training.restore(*self.unfinished)
            self.unfinished = None
        trained = training.run(report, lambda: self._maybe_save(training))
        weights = training.encoder.state_dict()
        self.tensors |= {f"members.{len(self.trained)}.{name}": value for name, value in weights.items()}
        self.trained.append(trained)
        self.steps += training.done
        self._save(self.steps, self.tensors, None)

    def tidy(self) -> None:
        """After the training: only the checkpoint with all members is left."""
        if self.folder is not None and ranks.is_first():
            checkpoint.tidy(self.folder / "checkpoints", keep=1)

    def _maybe_save(self, training: Training) -> None:
        """A checkpoint, when it is time for one, and when Ctrl-C was pressed, which is heard here."""
        if self.interrupt.asked or time.monotonic() - self.saved_at >= self.run.checkpoint_seconds:
            tensors, values = training.state()
            tensors = self.tensors | {f"running.{name}": value for name, value in tensors.items()}
            self._save(self.steps + training.done, tensors, values | {"schedule": asdict(training.schedule)})

    def _save(self, step: int, tensors: dict[str, Tensor], running: dict[str, Any] | None) -> None:
        self.seconds = time.perf_counter() - self.began
        if self.folder is not None and ranks.is_first():
            known = {"points": self.mark, "count": self.count, "run": saved_form(self.run).to_json(), "seconds": self.seconds}
            state = known | {"trained": self.trained, "steps": self.steps, "running": running}
            checkpoint.save(self.folder / "checkpoints", step, tensors, state)
        self.saved_at = time.monotonic()
        if self.interrupt.asked:
            raise KeyboardInterrupt


def _network(run: str) -> Any:
    """The settings of the network, by which the weights of members fit it."""
    return json.loads(run)["network"]


def _mark(parts: list[Dataset]) -> str:
    """A fingerprint of all rows of the parts and of their answers."""
    digest = hashlib.sha256()
    for part in parts:
        assert isinstance(part.inputs, Tensor) and part.point_labels is not None
        for one in (part.inputs, part.point_labels):
            digest.update(one.contiguous().numpy().data)
    return digest.hexdigest()[:16]
