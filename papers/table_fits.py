"""The fits of the contest on tables: one method on one split of one set, with defaults, as a trial of a search, or with its choice."""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder

from nearkin.evaluate import expected_calibration_error
from papers.table_methods import METHODS, OURS, drawn
from papers.table_sets import SETS


class Job(NamedTuple):
    """One fit of the contest: with defaults, a trial of a search, or the last fit with the settings of the trial that was chosen."""

    set: str
    method: str
    seed: int
    trials: int  # 0: defaults
    device: str
    root: Path | None
    trial: int | None = None  # of a search
    chosen: int | None = None  # the trial whose settings the last fit takes


def tried(job: Job) -> dict[str, Any] | str:
    """The figures of a job, or what went wrong: one method that fails does not end the contest."""
    try:
        data = _data(job.set, job.root)
        return run_one(data, SETS[job.set].task, job) if job.trial is None else run_trial(data, SETS[job.set].task, job)
    except (ImportError, ValueError, RuntimeError, TypeError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"


@lru_cache(maxsize=2)
def _data(name: str, root: Path | None) -> tuple[Any, np.ndarray]:
    """A set is read once for the trials that a process takes one after the other."""
    x, y, _ = SETS[name].read(root)
    return x, LabelEncoder().fit_transform(y) if SETS[name].task == "classes" else y


def settings_of(method: str, seed: int, trial: int) -> dict[str, Any]:
    """The settings of a trial: the first are the defaults, the others are drawn one after the other."""
    generator = np.random.default_rng(seed)
    return ([{}] + [drawn(METHODS[method].search, generator) for _ in range(trial)])[-1]


def run_trial(data: tuple[Any, np.ndarray], task: str, job: Job) -> dict[str, Any]:
    """Fit the settings of a trial to 80 % of the training rows and measure on the others."""
    assert job.trial is not None
    x_train, _, y_train, _ = _split(*data, task, job.seed)
    x_fit, x_valid, y_fit, y_valid = _split(x_train, y_train, task, 1000 + job.seed)
    make = METHODS[job.method].make(task)
    assert make is not None
    started, used = time.perf_counter(), time.process_time()
    try:
        settings = settings_of(job.method, job.seed, job.trial)
        model = make(job.seed, x_fit, job.device, **METHODS[job.method].trials, **settings).fit(x_fit, y_fit)
        score: float | None = _score(np.ravel(model.predict(x_valid)), y_valid, task)
    except (ValueError, RuntimeError):  # settings that do not fit this set, such as more components than columns
        score = None
    return {
        "trial": job.trial,
        "score": score,
        "cpu_seconds": round(time.process_time() - used, 2),
        "wall_seconds": round(time.perf_counter() - started, 2),
    }


def _score(found: np.ndarray, y: np.ndarray, task: str) -> float:
    """The larger, the better."""
    return float((found == y).mean()) if task == "classes" else -float(np.mean((found - y) ** 2))


def run_one(data: tuple[Any, np.ndarray], task: str, job: Job) -> dict[str, Any]:
    """Fit to the training rows of a split and measure on its test rows."""
    x, y = data
    x_train, x_test, y_train, y_test = _split(x, y, task, job.seed)
    make = METHODS[job.method].make(task)
    assert make is not None
    settings = {} if job.chosen is None else settings_of(job.method, job.seed, job.chosen)
    started, used = time.perf_counter(), time.process_time()
    model = make(job.seed, x_train, job.device, **settings).fit(x_train, y_train)
    fitted = time.process_time()
    found = np.ravel(model.predict(x_test))
    times = {"fit_cpu_seconds": round(fitted - used, 2), "predict_cpu_seconds": round(time.process_time() - fitted, 3)}
    times["wall_seconds"] = round(time.perf_counter() - started, 2)
    kept: dict[str, Any] = {"settings": settings} if job.trials else {}
    kept |= {"device": job.device} if job.method.startswith(OURS) else {}
    if task == "numbers":
        return {"rmse": float(np.sqrt(np.mean((found - y_test) ** 2))), **times, **kept}
    shares = np.asarray(model.predict_proba(x_test), dtype=np.float64)
    shares = shares / shares.sum(1, keepdims=True)
    right = found == y_test
    return {
        "accuracy": 100 * float(right.mean()),
        "log_loss": float(log_loss(y_test, shares, labels=np.unique(y))),
        "calibration_error": 100 * expected_calibration_error(torch.from_numpy(shares.max(1)), torch.from_numpy(right)),
        **times,
        **kept,
    }


def _split(x: Any, y: np.ndarray, task: str, seed: int) -> Any:
    return train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y if task == "classes" else None)
