"""`python -m papers tables`: soft neighbors of table rows against gradient boosting and others, with default settings.

Every set is split into 80 % training and 20 % test rows, the same for all methods; each method sees the training rows only and has its
defaults. Every finished run is saved, so that an interrupted contest continues where it stopped.
"""

import json
import os
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NeighborhoodComponentsAnalysis
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler

from nearkin.compose.validation import check_choice
from nearkin.estimators import TabularNCAClassifier, TabularNCARegressor
from papers.table_sets import SETS, TableSet

OURS = "TabularNCA"
ENSEMBLE = "TabularNCA x 4"
SEEDS = 5


def _boosting(module: str, name: str, **settings: Any) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        try:
            return getattr(import_module(module), name)(random_state=seed, **settings)
        except ImportError:
            raise ImportError(f"the contest needs {module}; pip install 'nearkin[tables]', or leave it out with --methods") from None

    return make


def _scaled(make: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda seed: make_pipeline(StandardScaler(), make(seed))


def _nca_and_knn(seed: int) -> Any:
    return make_pipeline(NeighborhoodComponentsAnalysis(random_state=seed, max_iter=50), KNeighborsClassifier())


METHODS: dict[str, dict[str, Callable[[int], Any]]] = {
    OURS: {"classes": lambda seed: TabularNCAClassifier(random_state=seed), "numbers": lambda seed: TabularNCARegressor(random_state=seed)},
    ENSEMBLE: {
        "classes": lambda seed: TabularNCAClassifier(n_members=4, random_state=seed),
        "numbers": lambda seed: TabularNCARegressor(n_members=4, random_state=seed),
    },
    "LightGBM": {
        "classes": _boosting("lightgbm", "LGBMClassifier", n_jobs=1, verbose=-1),
        "numbers": _boosting("lightgbm", "LGBMRegressor", n_jobs=1, verbose=-1),
    },
    "XGBoost": {"classes": _boosting("xgboost", "XGBClassifier", n_jobs=1), "numbers": _boosting("xgboost", "XGBRegressor", n_jobs=1)},
    "CatBoost": {
        "classes": _boosting("catboost", "CatBoostClassifier", thread_count=1, verbose=0, allow_writing_files=False),
        "numbers": _boosting("catboost", "CatBoostRegressor", thread_count=1, verbose=0, allow_writing_files=False),
    },
    "HistGradientBoosting": {
        "classes": lambda seed: HistGradientBoostingClassifier(random_state=seed),
        "numbers": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    },
    "Random forest": {
        "classes": lambda seed: RandomForestClassifier(random_state=seed),
        "numbers": lambda seed: RandomForestRegressor(random_state=seed),
    },
    "Linear": {
        "classes": _scaled(lambda _: LogisticRegression(max_iter=1000)),
        "numbers": _scaled(lambda _: RidgeCV(np.logspace(-3, 3, 13))),
    },
    "kNN": {"classes": _scaled(lambda _: KNeighborsClassifier()), "numbers": _scaled(lambda _: KNeighborsRegressor())},
    "MLP": {
        "classes": _scaled(lambda seed: MLPClassifier(random_state=seed, early_stopping=True)),
        "numbers": _scaled(lambda seed: MLPRegressor(random_state=seed, early_stopping=True, max_iter=1000)),
    },
    "NCA + kNN": {"classes": _scaled(_nca_and_knn)},
}


def run_one(data: tuple[Any, np.ndarray], task: str, make: Callable[[int], Any], seed: int) -> dict[str, Any]:
    """Fit on the training rows of a split and measure on its test rows."""
    x, y = data
    y = LabelEncoder().fit_transform(y) if task == "classes" else y
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y if task == "classes" else None)
    model = make(seed)
    started, used = time.perf_counter(), time.process_time()
    model.fit(x_train, y_train)
    fitted = time.process_time()
    found = model.predict(x_test)
    times = {"fit_cpu_seconds": round(fitted - used, 2), "predict_cpu_seconds": round(time.process_time() - fitted, 3)}
    times["wall_seconds"] = round(time.perf_counter() - started, 2)
    if task == "numbers":
        return {"rmse": float(np.sqrt(np.mean((found - y_test) ** 2))), **times}
    shares = model.predict_proba(x_test)
    confident = shares.max(1)
    right = np.ravel(found) == y_test
    return {
        "accuracy": 100 * float(right.mean()),
        "log_loss": float(log_loss(y_test, shares, labels=np.unique(y))),
        "calibration_error": _calibration_error(confident, right),
        **times,
    }


def _calibration_error(confident: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error in points: the mean gap between confidence and accuracy over equal bins of confidence."""
    of = np.minimum((confident * bins).astype(int), bins - 1)
    gaps = [abs(confident[of == one].mean() - right[of == one].mean()) * (of == one).mean() for one in np.unique(of)]
    return 100 * float(sum(gaps))


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


def compete(folder: Path, sets: Sequence[str], methods: Sequence[str], seeds: int, minutes: float) -> bool:
    """Run what is missing; False if the time was used up."""
    ends = time.monotonic() + 60 * minutes
    for seed in range(seeds):
        for one in (SETS[name] for name in sets):
            record = saved(folder, one)
            x, y, checksum = one.read()
            if record.setdefault("sha256", checksum) != checksum:
                raise ValueError(f"{one.name} was read from another file before (sha256 {record['sha256'][:12]}); remove {one.name}.json")
            record |= {"rows": len(y), "columns": x.shape[1]}
            done = {(run["method"], run["seed"]) for run in record["runs"]}
            for method in methods:
                if one.task not in METHODS[method] or (method, seed) in done:
                    continue
                if time.monotonic() > ends:
                    return False
                figures = run_one((x, y), one.task, METHODS[method][one.task], seed)
                record["runs"].append({"method": method, "seed": seed, **figures})
                save(folder, record | {"versions": _versions()})
                print(f"{one.name}, seed {seed}, {method}: {figures}", flush=True)
    return True


def _versions() -> dict[str, str]:
    found = {}
    for name in ("nearkin", "scikit-learn", "torch", "lightgbm", "xgboost", "catboost"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def means(record: dict[str, Any], figure: str, methods: Sequence[str]) -> dict[str, tuple[float, float, int]]:
    """Mean, standard deviation and number of runs by method, over the seeds that all of these methods have."""
    by = {method: {run["seed"]: run[figure] for run in record["runs"] if run["method"] == method} for method in methods}
    by = {method: runs for method, runs in by.items() if runs}
    shared = set.intersection(*(set(runs) for runs in by.values())) if by else set()
    return {
        method: (float(np.mean([runs[s] for s in shared])), float(np.std([runs[s] for s in shared])), len(shared))
        for method, runs in by.items()
        if shared
    }


def page(folder: Path) -> str:
    """The results as Markdown."""
    records = [saved(folder, SETS[path.stem]) for path in sorted(folder.glob("*.json")) if path.stem in SETS]
    lines = ["# Contest on tables", "", (__doc__ or "").partition("\n\n")[2].strip(), ""]
    lines += [
        "Accuracy in %, for numbers the root mean squared error; mean and standard deviation over the seeds that all methods have.",
        "",
    ]
    methods = [name for name in METHODS if any(run["method"] == name for record in records for run in record["runs"])]
    lines += ["| set | rows | seeds | " + " | ".join(methods) + " |", "|---|---|---|" + "---|" * len(methods)]
    ranks: dict[str, list[float]] = {method: [] for method in methods}
    for record in records:
        numbers = record["task"] == "numbers"
        found = means(record, "rmse" if numbers else "accuracy", methods)
        cells = [f"{found[m][0]:.1f} ± {found[m][1]:.1f}" if m in found else "" for m in methods]
        lines.append(f"| {record['set']} | {record['rows']:,} | {next(iter(found.values()))[2]} | " + " | ".join(cells) + " |")
        values = {m: (found[m][0] if numbers else -found[m][0]) for m in found}
        for m, value in values.items():
            ranks[m].append(
                1 + sum(other < value for other in values.values()) + sum(other == value for other in values.values()) / 2 - 0.5
            )
    lines += ["| mean rank | | | " + " | ".join(f"{np.mean(ranks[m]):.2f}" for m in methods) + " |", ""]
    lines += _more(records, methods)
    return "\n".join(lines) + "\n"


def _more(records: Sequence[dict[str, Any]], methods: Sequence[str]) -> list[str]:
    """Log loss, calibration and CPU seconds, as means over the sets that a method has."""
    lines = ["| method | sets | log loss | calibration error | fit, CPU seconds |", "|---|---|---|---|---|"]
    for method in methods:
        runs = {record["set"]: [run for run in record["runs"] if run["method"] == method] for record in records}
        per = {name: some for name, some in runs.items() if some}

        def mean(figure: str, per: dict[str, list[dict[str, Any]]] = per) -> str:
            values = [np.mean([run[figure] for run in some]) for some in per.values() if figure in some[0]]
            return f"{np.mean(values):.3g}" if values else ""

        lines.append(f"| {method} | {len(per)} | {mean('log_loss')} | {mean('calibration_error')} | {mean('fit_cpu_seconds')} |")
    return lines


def main(words: Sequence[str]) -> int:
    """Run the contest and write its page."""
    made = ArgumentParser("python -m papers tables", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--sets", nargs="*", default=list(SETS), metavar="SET", help="data sets (default: all)")
    made.add_argument("--methods", nargs="*", default=list(METHODS), metavar="METHOD", help="methods (default: all)")
    made.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="splits of every set (default: %(default)s)")
    made.add_argument("--budget", type=float, default=float("inf"), metavar="MINUTES", help="start no run after this time (default: none)")
    made.add_argument("--out", default="docs/results/tables", metavar="FOLDER", help="folder of the saved runs (default: %(default)s)")
    made.add_argument("--page", default="docs/papers/tables.md", metavar="FILE", help="the page to write (default: %(default)s)")
    arguments = made.parse_args(words)
    for name in arguments.sets:
        check_choice("SET", name, tuple(SETS))
    for name in arguments.methods:
        check_choice("METHOD", name, tuple(METHODS))
    torch.set_num_threads(1)  # one thread for every method
    folder = Path(arguments.out)
    if not compete(folder, arguments.sets, arguments.methods, arguments.seeds, arguments.budget):
        print("the budget is used up; run the same command again to continue")
    Path(arguments.page).write_text(page(folder), encoding="utf-8")
    print(f"wrote {arguments.page}")
    return 0
