"""`python -m papers tables`: soft neighbors of table rows against gradient boosting and others.

Every set is split into 80 % training and 20 % test rows, the same for all methods; each method sees the training rows only. Default
settings, and with `--trials N` the best of N random settings: each is fitted to 80 % of the training rows and measured on the others, and
the best one is fitted to all of them. Trials of TabularNCA have one member, its last fit has as many as usual. Every finished run and
trial is saved, so that an interrupted contest continues where it stopped.
"""

import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from nearkin.compose.validation import check_choice, check_whole
from papers.table_fits import Job, tried
from papers.table_methods import MAIN, METHODS
from papers.table_page import write_page
from papers.table_sets import SETS, TableSet

SEEDS = 5


def method_name(method: str, trials: int) -> str:
    """The name of a run's method: tuned ones carry their trials."""
    return f"{method} ({trials} trials)" if trials else method


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
    """The fits that are not saved yet, by seed, large sets first; each set's file is checked against the one that was read before."""
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
                    jobs += [(seed, -len(y) if arguments.at_once > 1 else 0, one) for one in _fits(record, job)]
    return [job for _, _, job in sorted(jobs, key=lambda entry: entry[:2])]


def _fits(record: Mapping[str, Any], job: Job) -> list[Job]:
    """What a run still needs: itself, or the trials that are not saved yet, and after all of them the last fit."""
    if not job.trials:
        return [job]
    scores = {one["trial"]: one["score"] for one in _trials_of(record, job)}
    if left := [trial for trial in range(job.trials) if trial not in scores]:
        return [job._replace(trial=trial) for trial in left]
    worked = [trial for trial in range(job.trials) if scores[trial] is not None]
    return [job._replace(trial=None, chosen=max(worked, key=lambda trial: scores[trial], default=0))]  # of equal scores the first


def _trials_of(record: Mapping[str, Any], job: Job) -> list[dict[str, Any]]:
    name = method_name(job.method, job.trials)
    return [one for one in record.get("trials", ()) if (one["method"], one["seed"]) == (name, job.seed)]


def compete(jobs: deque[Job], folder: Path, at_once: int, ends: float) -> bool:
    """Run these jobs, and the last fit after a run's trials; False if the time was used up."""
    for job, figures in _finished(jobs, at_once, ends):
        if isinstance(figures, str):
            print(f"{job.set}, seed {job.seed}, {job.method} failed, and is left out: {figures}", flush=True)
            continue
        record = saved(folder, SETS[job.set])
        if job.trial is None:
            _add_run(record, job, figures)
            print(f"{job.set}, seed {job.seed}, {job.method}: {figures}", flush=True)
        else:
            named = {"method": method_name(job.method, job.trials), "seed": job.seed}
            record["trials"] = [*record.get("trials", ()), {**named, **figures}]
            last = _fits(record, job._replace(trial=None))
            jobs.extendleft(last if last[0].trial is None else ())
        save(folder, record | {"versions": record.get("versions", {}) | _versions()})
    return not jobs


def _add_run(record: dict[str, Any], job: Job, figures: dict[str, Any]) -> None:
    """Add a run; the seconds of its trials are its own, too, and their scores are of no more use."""
    trials = _trials_of(record, job)
    figures["fit_cpu_seconds"] = round(figures["fit_cpu_seconds"] + sum(one["cpu_seconds"] for one in trials), 2)
    figures["wall_seconds"] = round(figures["wall_seconds"] + sum(one["wall_seconds"] for one in trials), 2)
    record["runs"].append({"method": method_name(job.method, job.trials), "seed": job.seed, **figures})
    left = [one for one in record.pop("trials", ()) if one not in trials]
    record |= {"trials": left} if left else {}


def _finished(jobs: deque[Job], at_once: int, ends: float) -> Iterator[tuple[Job, dict[str, Any] | str]]:
    """Jobs with their figures (or the error) as they finish; none is started after the end, and the rest stays in `jobs`."""
    if at_once == 1:
        torch.set_num_threads(1)  # one thread for every method
        while time.monotonic() < ends and jobs:
            yield (job := jobs.popleft()), tried(job)
        return
    waiting = dict[Future[dict[str, Any] | str], Job]()
    with ProcessPoolExecutor(at_once, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        while True:
            while len(waiting) < at_once and time.monotonic() < ends and jobs:
                job = jobs.popleft()
                waiting[pool.submit(tried, job)] = job
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()


def _versions() -> dict[str, str]:
    found = {}
    for name in ("nearkin", "scikit-learn", "torch", "lightgbm", "xgboost", "xgboost-cpu", "catboost"):
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
    if not compete(deque(missing_jobs(arguments)), Path(arguments.out), arguments.at_once, time.monotonic() + 60 * arguments.budget):
        print("the budget is used up; run the same command again to continue")
    write_page(Path(arguments.out), Path(arguments.page))
    print(f"wrote {arguments.page}")
    return 0
