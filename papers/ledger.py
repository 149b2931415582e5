"""The saved runs of a trial, as JSON."""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from papers.cell import Settings, Trial


@dataclass(frozen=True)
class Job:
    """One run of a trial: tuning (no seed) or final."""

    trial: Trial
    chosen: Settings
    seed: int | None


@dataclass
class Ledger:
    """The saved tuning and runs of a trial. A run with a note "earlier" was trained again with the same seed and settings."""

    trial: str
    settings: dict[str, Any] = field(default_factory=dict)
    tuning: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def read(folder: Path, trial: Trial) -> "Ledger":
        """The saved ledger; an empty one if there is none, or if the settings of the trial have changed since."""
        path = folder / f"{trial.name}.json"
        fresh = Ledger(trial.name, _described(trial))
        if not path.exists():
            return fresh
        saved = Ledger(**json.loads(path.read_text(encoding="utf-8")))
        return saved if saved.settings == fresh.settings else fresh

    @property
    def held_out(self) -> float | None:
        """The figure of the chosen candidate on the held-out part; None without tuning, or before all candidates were tried."""
        return next((entry["figure"] for entry in self.tuning if self.chosen and entry["settings"] == self.chosen), None)

    def save(self, folder: Path) -> None:
        """Write under another name first, so that an interrupted write loses nothing."""
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{self.trial}.writing"
        aside.write_text(json.dumps(self.__dict__, indent=1) + "\n", encoding="utf-8")
        os.replace(aside, folder / f"{self.trial}.json")

    def missing(self, trial: Trial) -> list[Job]:
        """The jobs to run next: the tuning first, then the seeds with the settings it chose."""
        candidates = trial.candidates()
        tried = [entry["settings"] for entry in self.tuning]
        if len(candidates) > 1 and len(tried) < len(candidates):
            return [Job(trial, dict(candidate), None) for candidate in candidates if dict(candidate) not in tried]
        done = {run["seed"] for run in self.runs if "earlier" not in run}
        return [Job(trial, self.chosen, seed) for seed in range(trial.seeds) if seed not in done]

    def add(self, job: Job, result: dict[str, Any]) -> None:
        """Add a run; the best candidate is chosen once all were tried."""
        if job.seed is not None:
            self.runs = sorted([*self.runs, {"seed": job.seed, **result}], key=lambda run: int(run["seed"]))
            return
        figure = result["figures"].get(job.trial.figure)
        self.tuning.append({"settings": dict(job.chosen), "figure": figure, "seconds": result["seconds"]})
        if len(self.tuning) == len(job.trial.candidates()):
            sign = -1 if job.trial.smaller_is_better else 1
            best = max(self.tuning, key=lambda entry: -math.inf if entry["figure"] is None else sign * entry["figure"])
            self.chosen = best["settings"]

    def repeat(self, seed: int, why: str) -> None:
        """Mark the runs of a seed as earlier ones, so that it is trained again; they still count."""
        self.runs = [{**run, "earlier": why} if run["seed"] == seed and "earlier" not in run else run for run in self.runs]


def _described(trial: Trial) -> dict[str, Any]:
    plain = {name: getattr(trial, name) for name in ("data", "method", "tuning_epochs", "figure")}
    rare = {"held_out": trial.held_out, "probe": trial.probe, "voters": list(trial.voters), "find_rate": trial.find_rate}
    more = {name: value for name, value in rare.items() if value}
    return {**plain, **more, "settings": dict(trial.settings), "tune": {name: list(values) for name, values in trial.tune.items()}}
