"""`python -m papers tables`: soft neighbors of table rows against gradient boosting and others.

Every set is split into 80 % training and 20 % test rows, the same for all methods; each method sees the training rows only. Default
settings, and with `--trials N` the best of N random settings: each is fitted to 80 % of the training rows and measured on the others, and
the best one is fitted to all of them. Trials of TabularNCA have one member, its last fit has as many as usual. Every finished run is
saved, so that an interrupted contest continues where it stopped.
"""

import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder

from nearkin.compose.validation import check_choice, check_whole
from nearkin.evaluate import expected_calibration_error
from papers.table_methods import MAIN, METHODS, OURS, Make, drawn
from papers.table_page import write_page
from papers.table_sets import SETS, TableSet

SEEDS = 5


class Job(NamedTuple):
    """One fit of the contest."""

    set: str
    method: str
    seed: int
    trials: int  # 0: defaults
    device: str
    root: Path | None


def _tried(job: Job) -> dict[str, Any] | str:
    """The figures of a job, or what went wrong: one method that fails does not end the contest."""
    try:
        return run_job(job)
    except (ImportError, ValueError, RuntimeError, TypeError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"


def method_name(method: str, trials: int) -> str:
    """The name of a run's method: tuned ones carry their trials."""
    return f"{method} ({trials} trials)" if trials else method


def run_job(job: Job) -> dict[str, Any]:
    """Fit and measure one method on one split of one set."""
    one = SETS[job.set]
    x, y, _ = one.read(job.root)
    return run_one((x, y), one.task, job)


def run_one(data: tuple[Any, np.ndarray], task: str, job: Job) -> dict[str, Any]:
    """Fit on the training rows of a split and measure on its test rows."""
    x, y = data
    y = LabelEncoder().fit_transform(y) if task == "classes" else y
    x_train, x_test, y_train, y_test = _split(x, y, task, job.seed)
    method = METHODS[job.method]
    make = method.make(task)
    assert make is not None
    started, used = time.perf_counter(), time.process_time()
    settings = _chosen((x_train, y_train), task, job) if job.trials else {}
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


def _chosen(training: tuple[Any, np.ndarray], task: str, job: Job) -> dict[str, Any]:
    """The best of some settings on validation rows, which are training rows; the first are the defaults."""
    make, search = METHODS[job.method].make(task), METHODS[job.method].search
    assert make is not None
    x_fit, x_valid, y_fit, y_valid = _split(*training, task, 1000 + job.seed)
    generator = np.random.default_rng(job.seed)
    best, chosen = -np.inf, dict[str, Any]()
    for trial in range(job.trials):
        settings = drawn(search, generator) if trial else {}
        score = _validation_score(make, settings, (x_fit, y_fit, x_valid, y_valid), task, job)
        if score > best:
            best, chosen = score, settings
    return chosen


def _validation_score(make: Make, settings: dict[str, Any], parts: tuple[Any, ...], task: str, job: Job) -> float:
    x_fit, y_fit, x_valid, y_valid = parts
    try:
        model = make(job.seed, x_fit, job.device, **METHODS[job.method].trials, **settings).fit(x_fit, y_fit)
        found = np.ravel(model.predict(x_valid))
    except (ValueError, RuntimeError):  # settings that do not fit this set, such as more components than columns
        return -np.inf
    return float((found == y_valid).mean()) if task == "classes" else -float(np.mean((found - y_valid) ** 2))


def saved(folder: Path, one: TableSet) -> dict[str, Any]:
    """The saved runs of a set; none yet is an empty list."""
    path = folder / f"{one.name}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {"set": one.name, "source": one.source, "task": one.task, "runs": []}


def save(folder: Path, record: dict[str, Any]) -> None:
    """Write under another name first, so that an interrupted write loses nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{record['set']}.writing"
    aside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, folder / f"{record['set']}.json")


def missing_jobs(arguments: Namespace) -> list[Job]:
    """The runs that are not saved yet, by seed, large sets first; each set's file is checked against the one that was read before."""
    folder, root, jobs = Path(arguments.out), arguments.data_root and Path(arguments.data_root), list[tuple[int, int, Job]]()
    for name in arguments.sets:
        record = saved(folder, SETS[name])
        x, y, checksum = SETS[name].read(root)
        if record.setdefault("sha256", checksum) != checksum:
            raise ValueError(f"{name} was read from another file before (sha256 {record['sha256'][:12]}); remove {name}.json")
        save(folder, record | {"rows": len(y), "columns": x.shape[1]})
        done = {(run["method"], run["seed"]) for run in record["runs"]}
        for seed in range(arguments.seeds):
            for method in arguments.methods:
                if METHODS[method].make(SETS[name].task) is None or (arguments.trials and not METHODS[method].search):
                    continue
                if (method_name(method, arguments.trials), seed) not in done:
                    job = Job(name, method, seed, arguments.trials, arguments.device, root)
                    jobs.append((seed, -len(y) if arguments.at_once > 1 else 0, job))
    return [job for _, _, job in sorted(jobs, key=lambda entry: entry[:2])]


def compete(arguments: Namespace) -> bool:
    """Run what is missing; False if the time was used up."""
    ends = time.monotonic() + 60 * arguments.budget
    jobs = iter(missing_jobs(arguments))
    for job, figures in _finished(jobs, arguments.at_once, ends):
        if isinstance(figures, str):
            print(f"{job.set}, seed {job.seed}, {job.method} failed, and is left out: {figures}", flush=True)
            continue
        record = saved(Path(arguments.out), SETS[job.set])
        record["runs"].append({"method": method_name(job.method, job.trials), "seed": job.seed, **figures})
        save(Path(arguments.out), record | {"versions": _versions()})
        print(f"{job.set}, seed {job.seed}, {job.method}: {figures}", flush=True)
    return next(jobs, None) is None


def _finished(jobs: Iterator[Job], at_once: int, ends: float) -> Iterator[tuple[Job, dict[str, Any] | str]]:
    """Jobs with their figures (or the error) as they finish; none is started after the end, and the rest stays in `jobs`."""
    if at_once == 1:
        torch.set_num_threads(1)  # one thread for every method
        while time.monotonic() < ends and (job := next(jobs, None)) is not None:
            yield job, _tried(job)
        return
    waiting = dict[Future[dict[str, Any] | str], Job]()
    with ProcessPoolExecutor(at_once, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        while True:
            while len(waiting) < at_once and time.monotonic() < ends and (job := next(jobs, None)) is not None:
                waiting[pool.submit(_tried, job)] = job
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()


def _versions() -> dict[str, str]:
    found = {}
    for name in ("nearkin", "scikit-learn", "torch", "lightgbm", "xgboost", "catboost"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main(words: Sequence[str]) -> int:
    """Run the contest and write its page."""
    made = ArgumentParser("python -m papers tables", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--sets", nargs="*", default=list(SETS), metavar="SET", help="data sets (default: all)")
    made.add_argument("--methods", nargs="*", default=list(MAIN), metavar="METHOD", help="methods (default: all but the ablations)")
    made.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="splits of every set (default: %(default)s)")
    made.add_argument(
        "--trials", type=int, default=0, metavar="N", help="settings to try for every method (default: none but its defaults)"
    )
    made.add_argument("--data-root", metavar="FOLDER", help="where the packages' files are unzipped (default: the installed packages)")
    made.add_argument("--at-once", type=int, default=1, metavar="N", help="processes, each with one thread (default: %(default)s)")
    made.add_argument("--device", default="cpu", help="where the encoders of TabularNCA are trained (default: %(default)s)")
    made.add_argument("--budget", type=float, default=float("inf"), metavar="MINUTES", help="start no run after this time (default: none)")
    made.add_argument("--out", default="docs/results/tables", metavar="FOLDER", help="folder of the saved runs (default: %(default)s)")
    made.add_argument("--page", default="docs/papers/tables.md", metavar="FILE", help="the page to write (default: %(default)s)")
    arguments = made.parse_args(words)
    for name in arguments.sets:
        check_choice("SET", name, tuple(SETS))
    for name in arguments.methods:
        check_choice("METHOD", name, tuple(METHODS))
    check_whole("--at-once", arguments.at_once)
    check_whole("--trials", arguments.trials, 0)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes started here
    if not compete(arguments):
        print("the budget is used up; run the same command again to continue")
    write_page(Path(arguments.out), Path(arguments.page))
    print(f"wrote {arguments.page}")
    return 0
