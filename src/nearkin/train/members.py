"""The finished members of a training on rows of a table, kept in its checkpoints: a resumed training trains only the others."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from nearkin.data.dataset import Dataset
from nearkin.models.tabular import TabularEncoder
from nearkin.train import checkpoint, ranks
from nearkin.train.config import Run
from nearkin.train.folder import saved_form
from nearkin.train.reporter import Reporter
from nearkin.train.tabular import Trained


class Members:
    """What is known of each finished member; with a folder, a checkpoint is written after each. Its step is their number."""

    def __init__(self, run: Run, parts: list[Dataset], folder: Path | None = None) -> None:
        self.run, self.folder = run, folder
        self.mark, self.count = _mark(parts), len(parts[0])
        self.trained: list[Trained] = []
        self.tensors: dict[str, Tensor] = {}
        self.began, self.seconds = time.perf_counter(), 0.0

    def resume(self, log: Reporter) -> None:
        """Take the members of the newest whole checkpoint."""
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
        self.trained, self.tensors = [Trained(*one) for one in found.state["trained"]], found.tensors
        self.seconds = found.state["seconds"]
        self.began -= self.seconds

    def load(self, number: int, encoder: TabularEncoder) -> None:
        """Give the encoder the weights of a finished member."""
        prefix = f"members.{number}."
        encoder.load_state_dict({name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)})

    def add(self, encoder: TabularEncoder, trained: Trained) -> None:
        """Keep the member that was just trained."""
        number = len(self.trained)
        self.trained.append(trained)
        self.seconds = time.perf_counter() - self.began
        if self.folder is not None and ranks.is_first():
            self.tensors |= {f"members.{number}.{name}": value for name, value in encoder.state_dict().items()}
            checkpoint.save(self.folder / "checkpoints", len(self.trained), self.tensors, self._state())

    def _state(self) -> dict[str, Any]:
        standing = {"trained": self.trained, "seconds": self.seconds, "run": saved_form(self.run).to_json()}
        return {"points": self.mark, "count": self.count, **standing}


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
