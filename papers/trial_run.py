"""One run of a trial: train or fit, then measure."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from nearkin.data import Dataset, partition
from nearkin.data import open as open_data
from nearkin.train.assemble import cut
from nearkin.train.config import Run, override
from nearkin.train.rate_finder import find_rate
from nearkin.train.training import train
from papers import classical, codes, omniglot_classes, picture_data, taylor2010, unseen
from papers.after_training import discovery_figures, probed, voted
from papers.cell import Trial
from papers.ledger import Job

TUNING_SEED = 1000  # far from the seeds that are reported
HELD_OUT = "0.1"
UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class Place:
    """Folder of the data, device, and folder of the saved runs, in which an ensemble finds its members."""

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
    held = tuning or trial.held_out or trial.keep == "curve"  # then the test part is not read
    settings = {"data.source": trial.data, "validate_every": "1000000", "checkpoint_seconds": "1e9", **trial.settings, **job.chosen}
    settings["data.leaks"] = "allow"  # the official CIFAR-100 has ten images in both parts; printed figures include them
    share = settings.get("data.validation", HELD_OUT) if held or "patience" in settings else "0"  # early stopping needs held-out images
    settings |= {"seed": str(TUNING_SEED if job.seed is None else job.seed), "data.validation": share}
    if tuning and trial.tuning_epochs:
        settings["epochs"] = str(trial.tuning_epochs)
    run = override(Run(), settings)
    data = _opened(trial.data, place.data_root, run.data.size)
    if held:
        data = _training_part(data)
    if trial.find_rate:
        rate = find_rate(run, cut(run, data).train, torch.device(place.device)).rate
        run = override(run, {"optimizer.learning_rate": repr(rate)})
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
        found |= {"rate found": run.optimizer.learning_rate, "epochs": float(metrics["epochs"])} if trial.find_rate else {}
        if trial.probe and not held:
            found |= probed(folder, data, trial.probe, place.device)
        if trial.voters and job.seed is not None and not held:
            found |= voted(folder, data, trial.voters, job.seed, place.device)
        if trial.keep and job.seed == 0:
            found |= _put(trial, picture_data.model_arrays(trial.keep, folder, data, metrics["curve"]), place)
    return found, metrics["seconds"]


def _put(trial: Trial, kept: dict[str, np.ndarray], place: Place) -> dict[str, float]:
    """Save the arrays for a picture; of a map return its extent, too."""
    np.savez_compressed(picture_data.picture_file(trial, Path(place.results)), **kept)  # type: ignore[arg-type]
    return picture_data.extent(kept["embeddings"]) if trial.keep == "map" else {}


@contextmanager
def _model_folder(job: Job, place: Place, run: Run) -> Iterator[Path]:
    """The folder of the training. With a folder for results it stays there until the run is complete, so that it can resume."""
    if not place.results:
        with TemporaryDirectory() as made:
            yield Path(made) / "model"
        return
    which = f"tuning-{job.trial.candidates().index(job.chosen)}" if job.seed is None else f"seed-{job.seed}"
    folder = unfinished(Path(place.results), job.trial) / which
    page = folder / "run.json"
    if page.exists() and Run.from_json(page.read_text(encoding="utf-8")) != run:  # leaves unknown then have their defaults
        shutil.rmtree(folder)  # the settings of the trial have changed since
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def unfinished(results: Path, trial: Trial) -> Path:
    """The folder of the incomplete trainings of a trial."""
    return results / UNFINISHED / trial.name


@lru_cache(2)
def _opened(name: str, data_root: str, size: int | None = None) -> Dataset:
    """A data set, with a fifth as its test part where it has none, the same in every run."""
    if name == omniglot_classes.NAME:
        return omniglot_classes.some_classes(open_data("omniglot", data_root=data_root, size=size))
    data = open_data(name, data_root=data_root, size=size)
    return data if "test" in data.parts else data.with_split(partition(data, None, {"train": 0.8, "test": 0.2}, 0).names)


def _training_part(data: Dataset) -> Dataset:
    """The data without the test part, so that tuning cannot read it."""
    return data.part("train").renumbered()
