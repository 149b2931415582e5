"""Runs trials: tunes on a validation part, trains on everything, looks at the test part once, and saves after every run."""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from nearkin.data import Dataset, partition
from nearkin.data import open as open_data
from nearkin.data.sources.local_files import MissingFileError
from nearkin.train.config import Run, override
from nearkin.train.training import train
from papers import classical, codes, exhibits, taylor2010, unseen
from papers.after_training import discovery_figures, probed, voted
from papers.cell import Settings, Trial

TUNING_SEED = 1000  # far from the seeds that are reported
HELD_OUT = "0.1"
SHOWN = 8  # figures of a run that are told
UNFINISHED = ".unfinished"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One run of a trial: tuning (no seed) or final."""

    trial: Trial
    chosen: Settings
    seed: int | None


@dataclass
class Ledger:
    """What is known of a trial, as it stands in its JSON file."""

    trial: str
    settings: dict[str, Any] = field(default_factory=dict)
    tuning: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def read(folder: Path, trial: Trial) -> "Ledger":
        """The saved one; an empty one where there is none, or where the trial has since been set up otherwise."""
        path = folder / f"{trial.name}.json"
        fresh = Ledger(trial.name, _described(trial))
        if not path.exists():
            return fresh
        saved = Ledger(**json.loads(path.read_text(encoding="utf-8")))
        return saved if saved.settings == fresh.settings else fresh

    @property
    def held_out(self) -> float | None:
        """What the chosen candidate had on the held-out part; None without tuning, or before all candidates were tried."""
        return next((entry["figure"] for entry in self.tuning if self.chosen and entry["settings"] == self.chosen), None)

    def save(self, folder: Path) -> None:
        """Under another name first: a run that is cut off here loses nothing."""
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{self.trial}.writing"
        aside.write_text(json.dumps(self.__dict__, indent=1) + "\n", encoding="utf-8")
        os.replace(aside, folder / f"{self.trial}.json")

    def missing(self, trial: Trial) -> list[Job]:
        """What can be run next: the tuning first, then the seeds with what it chose."""
        candidates = trial.candidates()
        tried = [entry["settings"] for entry in self.tuning]
        if len(candidates) > 1 and len(tried) < len(candidates):
            return [Job(trial, dict(candidate), None) for candidate in candidates if dict(candidate) not in tried]
        done = {run["seed"] for run in self.runs}
        return [Job(trial, self.chosen, seed) for seed in range(trial.seeds) if seed not in done]

    def add(self, job: Job, result: dict[str, Any]) -> None:
        """One more run; the best candidate is chosen once all were tried."""
        if job.seed is not None:
            self.runs = sorted([*self.runs, {"seed": job.seed, **result}], key=lambda run: int(run["seed"]))
            return
        figure = result["figures"].get(job.trial.figure)
        self.tuning.append({"settings": dict(job.chosen), "figure": figure, "seconds": result["seconds"]})
        if len(self.tuning) == len(job.trial.candidates()):
            sign = -1 if job.trial.smaller_is_better else 1
            best = max(self.tuning, key=lambda entry: -math.inf if entry["figure"] is None else sign * entry["figure"])
            self.chosen = best["settings"]


def _described(trial: Trial) -> dict[str, Any]:
    plain = {name: getattr(trial, name) for name in ("data", "method", "tuning_epochs", "figure")}
    more = {name: value for name, value in (("held_out", trial.held_out), ("probe", trial.probe), ("voters", list(trial.voters))) if value}
    return {**plain, **more, "settings": dict(trial.settings), "tune": {name: list(values) for name, values in trial.tune.items()}}


@dataclass(frozen=True)
class Place:
    """Where the data lie, where it is computed, and where the runs are kept (an ensemble looks there for its members)."""

    data_root: str
    device: str
    results: str = ""


def perform(job: Job, place: Place) -> dict[str, Any]:
    """One run: figures, seconds, device and date. A training that diverges has no figures."""
    started = time.perf_counter()
    trial, more = job.trial, dict[str, Any]()
    if trial.method == "train":
        figures, seconds = _trained(job, place)
    elif trial.method == "unseen":
        more = _unseen(job, place)
        figures, seconds = more.pop("figures"), more.pop("seconds")
    else:
        figures = _fitted(job, place)
        seconds = time.perf_counter() - started
    name = torch.cuda.get_device_name() if place.device.startswith("cuda") else f"CPU, {torch.get_num_threads()} threads"
    date = datetime.now(UTC).isoformat(timespec="seconds")
    whole = round(time.perf_counter() - started, 2)
    return {"figures": figures, "seconds": round(seconds, 2), "whole_seconds": whole, "device": name, "date": date, **more}


def _unseen(job: Job, place: Place) -> dict[str, Any]:
    seed = TUNING_SEED if job.seed is None else job.seed
    where = unseen.Where(place.data_root, place.device, place.results)
    return unseen.perform(job.trial, seed, job.chosen, where, validation=job.seed is None)


def _fitted(job: Job, place: Place) -> dict[str, float]:
    where = (Path(place.data_root), place.device)
    if job.trial.method == "pose":
        seed = TUNING_SEED if job.seed is None else job.seed
        return taylor2010.perform(job.trial, seed, job.chosen, *where, validation=job.seed is None)
    if job.seed is None:
        raise ValueError(f"trial {job.trial.name} has values to tune, but method {job.trial.method!r} has no validation part")
    if job.trial.method == "codes":
        return codes.perform(job.trial, job.seed, _opened(job.trial.data, place.data_root), place.device)
    if job.trial.method == "codes_speed":
        return codes.speed(job.trial, job.seed)
    figures, kept = classical.perform(job.trial, job.seed, job.chosen, *where)
    return {**figures, **(_put(job.trial, kept, place) if job.trial.keep and job.seed == 0 else {})}


def _trained(job: Job, place: Place) -> tuple[dict[str, float], float]:
    trial, tuning = job.trial, job.seed is None
    held = tuning or trial.held_out or trial.keep == "curve"  # the test part stays out of sight
    settings = {"data.source": trial.data, "validate_every": "1000000", "checkpoint_seconds": "1e9", **trial.settings, **job.chosen}
    settings["data.leaks"] = "allow"  # the official CIFAR-100 has ten images in both parts, and printed figures have them too
    settings |= {"seed": str(TUNING_SEED if job.seed is None else job.seed), "data.validation": HELD_OUT if held else "0"}
    if tuning and trial.tuning_epochs:
        settings["epochs"] = str(trial.tuning_epochs)
    run = override(Run(), settings)
    data = _opened(trial.data, place.data_root, run.data.size)
    if held:
        data = _training_part(data)
    with _model_folder(job, place, run) as folder:
        resumed: Any = {"resume": True} if (folder / "run.json").exists() else {}
        try:
            metrics = train(run, folder, data=data, device=place.device, **resumed)
        except RuntimeError as error:
            if "lower the learning rate" not in str(error):
                raise
            return {}, 0.0
        figures = metrics["curve"][-1] if held else metrics["test"]
        found = {name: value for name, value in figures.items() if isinstance(value, float)}
        found |= {} if tuning else discovery_figures(metrics)
        if trial.probe and not held:
            found |= probed(folder, data, trial.probe, place.device)
        if trial.voters and job.seed is not None and not held:
            found |= voted(folder, data, trial.voters, job.seed, place.device)
        if trial.keep and job.seed == 0:
            found |= _put(trial, exhibits.of_model(trial.keep, folder, data, metrics["curve"]), place)
    return found, metrics["seconds"]


def _put(trial: Trial, kept: dict[str, np.ndarray], place: Place) -> dict[str, float]:
    """Save an exhibit; of a map also the figures that say how far its points lie from the origin and from one another."""
    np.savez_compressed(exhibits.exhibit_file(trial, Path(place.results)), **kept)  # type: ignore[arg-type]
    return exhibits.extent(kept["embeddings"]) if trial.keep == "map" else {}


@contextmanager
def _model_folder(job: Job, place: Place, run: Run) -> Iterator[Path]:
    """Where the run is trained. With a place for results it stays there until it is whole, and a resumption goes on inside the run."""
    if not place.results:
        with TemporaryDirectory() as made:
            yield Path(made) / "model"
        return
    which = f"tuning-{job.trial.candidates().index(job.chosen)}" if job.seed is None else f"seed-{job.seed}"
    folder = unfinished(Path(place.results), job.trial) / which
    page = folder / "run.json"
    if page.exists() and Run.from_json(page.read_text(encoding="utf-8")) != run:  # leaves that were unknown then are as by default
        shutil.rmtree(folder)  # the trial has since been set up otherwise
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def unfinished(results: Path, trial: Trial) -> Path:
    """Where the trainings of a trial stand until they are whole."""
    return results / UNFINISHED / trial.name


@lru_cache(2)
def _opened(name: str, data_root: str, size: int | None = None) -> Dataset:
    """With a fifth as its test part where it brings none, the same in every run."""
    data = open_data(name, data_root=data_root, size=size)
    return data if "test" in data.parts else data.with_split(partition(data, None, {"train": 0.8, "test": 0.2}, 0).names)


def _training_part(data: Dataset) -> Dataset:
    """Without the test part: tuning cannot look at what it does not have."""
    return data.part("train").renumbered()


def run_trials(
    trials: Sequence[Trial],
    folder: Path,
    place: Place,
    tell: Tell,
    *,
    minutes: float = float("inf"),
    at_once: int = 1,
    timed: Collection[str] = (),
) -> bool:
    """Run what is missing until all is there (True) or no time is left to begin another.

    In the order of the trials, the first seed of each before the second of any: where time is short, every cell has a figure first.
    A trial whose data are not here is told of and left out. A run that fails is told, its trial is left, and the others go on; the
    first failure is raised at the end. Of `at_once` runs side by side none has the machine to itself, and the ledger says so: of the
    trials that are `timed`, the first seed comes after them, alone.
    """
    deadline, going = time.monotonic() + 60 * minutes, list(trials)
    ledgers = {trial.name: Ledger.read(folder, trial) for trial in trials}
    for trial in trials:
        if trial.keep and not exhibits.exhibit_file(trial, folder).exists():  # the first seed runs once more, to leave it
            ledgers[trial.name].runs = [run for run in ledgers[trial.name].runs if run["seed"] != 0]
    failed: list[Exception] = []

    def waiting(running: Iterable[Job] = ()) -> list[Job]:
        """What can be begun: tuning and first seeds of all trials, then the second seeds, and so on."""
        busy = list(running)
        jobs = [job for trial in going for job in ledgers[trial.name].missing(trial) if job not in busy]
        return sorted(jobs, key=lambda job: job.seed or 0)

    def leave(job: Job, why: str) -> None:
        going[:] = [trial for trial in going if trial.name != job.trial.name]
        tell(f"{_said(job)}: {why}")

    def together(running: Iterable[Job] = ()) -> list[Job]:
        """Without what is timed, and without what follows others: an ensemble's members are known once all are tuned."""
        jobs = [job for job in waiting(running) if not job.trial.follows]
        return [job for job in jobs if job.seed != 0 or job.trial.name not in timed]

    def record(job: Job, performed: Callable[[], dict[str, Any]], beside: int = 0) -> None:
        try:
            result = performed()
        except MissingFileError as error:
            leave(job, f"left out; {error}")
        except Exception as error:
            failed.append(error)
            leave(job, f"failed, {type(error).__name__}: {error}")
        else:
            ledger = ledgers[job.trial.name]
            ledger.add(job, result | ({"beside": beside} if beside else {}))
            ledger.save(folder)
            tell(f"{_said(job)}: {_figures(result)} ({result['seconds']:.1f} s)")

    if at_once > 1:
        _in_parallel(together, place, at_once, deadline, partial(record, beside=at_once - 1))
    while (jobs := waiting()) and time.monotonic() <= deadline:
        record(jobs[0], partial(perform, jobs[0], place))
    for left in (*(unfinished(folder, trial) for trial in trials), folder / UNFINISHED):
        with suppress(OSError):  # not there, or a training that was cut off is in it
            left.rmdir()
    if failed:
        raise failed[0]
    return not waiting()


def _in_parallel(
    waiting: Callable[[Iterable[Job]], list[Job]],
    place: Place,
    at_once: int,
    deadline: float,
    record: Callable[[Job, Callable[[], dict[str, Any]]], None],
) -> None:
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        running: dict[Future[dict[str, Any]], Job] = {}
        while True:
            for job in waiting(running.values()):
                if len(running) >= at_once or time.monotonic() > deadline:
                    break
                running[pool.submit(perform, job, place)] = job
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                record(running.pop(done), done.result)


def _said(job: Job) -> str:
    return f"{job.trial.name}, " + (f"tuning {dict(job.chosen)}" if job.seed is None else f"seed {job.seed}")


def _figures(result: dict[str, Any]) -> str:
    shown = list(result["figures"].items())[:SHOWN]
    counts = [name.startswith("round ") or value >= 1000 for name, value in shown]
    told = (f"{name} {value:,.0f}" if count else f"{name} {value:.4f}" for (name, value), count in zip(shown, counts, strict=True))
    return ", ".join(told) or "diverged"
