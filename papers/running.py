"""Runs trials: the tuning on a validation part, then the seeds, and saves the ledger after every run."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from nearkin.data.sources.local_files import MissingFileError
from papers.cell import Trial
from papers.ledger import Job, Ledger
from papers.picture_data import picture_file
from papers.trial_run import UNFINISHED, Place, perform, unfinished

SHOWN = 8  # figures of a run that are reported
Report = Callable[[str], None]


def run_trials(
    trials: Sequence[Trial],
    folder: Path,
    place: Place,
    report: Report,
    *,
    minutes: float = float("inf"),
    at_once: int = 1,
    timed: Collection[str] = (),
) -> bool:
    """Run what is missing until everything is there (True) or no time is left to start another run.

    In the order of the trials, the first seed of each before the second of any, so that every cell has a figure first. A trial whose data
    are missing is reported and skipped. A run that fails is reported and its trial skipped; the others continue, and the first failure is
    raised at the end. With `at_once` parallel runs the ledger records that they shared the machine; the first seed of trials that are
    `timed` is run after them, alone.
    """
    deadline, left = time.monotonic() + 60 * minutes, list(trials)
    ledgers = {trial.name: Ledger.read(folder, trial) for trial in trials}
    for trial in trials:
        if trial.keep and not picture_file(trial, folder).exists():  # the first seed is run again, for its arrays
            ledgers[trial.name].repeat(0, "trained again to save the data of a picture")
    failed: list[Exception] = []

    def waiting(running: Iterable[Job] = ()) -> list[Job]:
        """Jobs that can start: tuning and first seeds of all trials, then the second seeds, and so on."""
        busy = list(running)
        jobs = [job for trial in left for job in ledgers[trial.name].missing(trial) if job not in busy]
        return sorted(jobs, key=lambda job: job.seed or 0)

    def skip(job: Job, why: str) -> None:
        left[:] = [trial for trial in left if trial.name != job.trial.name]
        report(f"{_label(job)}: {why}")

    def together(running: Iterable[Job] = ()) -> list[Job]:
        """Without timed runs, and without trials that follow others: the members of an ensemble are known once all are tuned."""
        jobs = [job for job in waiting(running) if not job.trial.follows]
        return [job for job in jobs if job.seed != 0 or job.trial.name not in timed]

    def record(job: Job, performed: Callable[[], dict[str, Any]], beside: int = 0) -> None:
        try:
            result = performed()
        except MissingFileError as error:
            skip(job, f"skipped; {error}")
        except Exception as error:
            failed.append(error)
            skip(job, f"failed, {type(error).__name__}: {error}")
        else:
            ledger = ledgers[job.trial.name]
            ledger.add(job, result | ({"beside": beside} if beside else {}))
            ledger.save(folder)
            report(f"{_label(job)}: {_figures(result)} ({result['seconds']:.1f} s)")

    if at_once > 1:
        _in_parallel(together, place, at_once, deadline, partial(record, beside=at_once - 1))
    while (jobs := waiting()) and time.monotonic() <= deadline:
        record(jobs[0], partial(perform, jobs[0], place))
    for empty in (*(unfinished(folder, trial) for trial in trials), folder / UNFINISHED):
        with suppress(OSError):  # it does not exist, or holds an interrupted training
            empty.rmdir()
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


def _label(job: Job) -> str:
    return f"{job.trial.name}, " + (f"tuning {dict(job.chosen)}" if job.seed is None else f"seed {job.seed}")


def _figures(result: dict[str, Any]) -> str:
    shown = list(result["figures"].items())[:SHOWN]
    counts = [name.startswith("round ") or value >= 1000 for name, value in shown]
    texts = (f"{name} {value:,.0f}" if count else f"{name} {value:.4f}" for (name, value), count in zip(shown, counts, strict=True))
    return ", ".join(texts) or "diverged"
