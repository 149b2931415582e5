"""Linear fits beside scikit-learn's: `python -m bench.linear [--data FOLDER] [--out FILE.json] [--only PART ...]`.

    fits         NeighborhoodComponentsAnalysis and LinearNCA on digits / 16, both with their defaults; final objectives in float64
    evaluations  one evaluation of objective and gradient, 10,000 MNIST digits (784 pixels)
    memory       the whole process that fits 60,000 x 784, in megabytes
    lmnn         LMNN on 10,000 MNIST digits after PCA: seconds, and the 1-NN error on the test set
    nested       what examples/scikit_learn/nested_cross_validation.py says of LinearNCA and LMNN against PCA

CPU seconds of one thread, best of interleaved rounds; for evaluations also wall seconds of all threads, and for `lmnn` only these.
MNIST is looked for in FOLDER.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.measure import ROOT, _resident, interleaved, threads
from nearkin import LMNN, LinearNCA, Points, knn_accuracy
from nearkin.data import open as open_data
from nearkin.estimators.linear.losses import NCALoss, solver_points
from nearkin.estimators.linear.scaling import Units, whitened
from nearkin.estimators.linear.start import starting_point

Row = dict[str, Any]
PRINTED_LMNN_ERROR = 1.18  # percent, table I of ren2014convolutional
NESTED = "examples/scikit_learn/nested_cross_validation.py"
PARTS = ("fits", "evaluations", "memory", "lmnn", "nested")


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x / 16, y


def mnist(folder: Path, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
    data = open_data("mnist", data_root=folder).part(part)
    assert isinstance(data.inputs, torch.Tensor) and data.labels is not None
    return (data.inputs.reshape(len(data), -1).numpy() / np.float32(255)), data.labels.numpy()


def exact_objective(x: np.ndarray, y: np.ndarray, components: np.ndarray) -> float:
    """The mean of p_i in float64."""
    order, plain = np.argsort(y, kind="stable"), np.eye(x.shape[1])
    points = solver_points(x, Units(x.mean(0), plain, plain), order, exact=True)
    return -NCALoss(points, torch.from_numpy(y[order]))(components.ravel())[0] / len(x)


def fits(rounds: int) -> list[Row]:
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    x, y = digits()
    rows = []
    for components in (2, 64):
        models = {"scikit-learn": NeighborhoodComponentsAnalysis(components), "nearkin": LinearNCA(components)}
        models["nearkin"].fit(x, y)  # compiled before the clock runs
        times = interleaved({name: (_fit(model, x, y), 1) for name, model in models.items()}, rounds, 60)
        row: Row = {"part": "fits", "data": "digits / 16", "components": components, "rounds": rounds}
        for name, model in models.items():
            found = {"cpu_s": times[name]["cpu_s"], "iterations": model.n_iter_, "objective": exact_objective(x, y, model.components_)}
            row |= {f"{name} {key}": value for key, value in found.items()}
        row["times"] = row["scikit-learn cpu_s"] / row["nearkin cpu_s"]
        rows.append(row)
        show(row)
    return rows


def _fit(model: Any, x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    return lambda: model.fit(x, y)


def evaluations(folder: Path, rounds: int) -> list[Row]:
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    x, y = mnist(folder)
    x, y = x[:10_000], y[:10_000]
    units, order, rows = whitened(x), np.argsort(y, kind="stable"), []
    loss = NCALoss(solver_points(x, units, order), torch.from_numpy(y[order]))
    theirs: Any = NeighborhoodComponentsAnalysis()
    theirs.n_iter_ = 1
    mask = y[:, None] == y
    for components in (32, 2):
        start = starting_point("auto", x, y, components, True, 0)
        theirs_at, ours_at = start.ravel(), (start @ units.back).ravel()
        loss(ours_at)
        tasks: dict[str, tuple[Callable[[], Any], int]] = {
            "scikit-learn": (lambda a=theirs_at: theirs._loss_grad_lbfgs(a, x, mask, -1.0), 1),
            "nearkin": (lambda a=ours_at: loss(a), 1),
        }
        values = {name: float(task()[0]) for name, (task, _) in tasks.items()}
        times = interleaved(tasks, rounds, 120)
        row: Row = {"part": "evaluations", "data": "mnist, 10,000 x 784", "components": components, "rounds": rounds}
        for name in tasks:
            row |= {f"{name} cpu_s": times[name]["cpu_s"], f"{name} objective": -values[name] / len(x)}
        row["times"] = row["scikit-learn cpu_s"] / row["nearkin cpu_s"]
        count = torch.get_num_threads()
        if count > 1:
            times = interleaved({name: (task, count) for name, (task, _) in tasks.items()}, rounds, 120)
            row |= {f"{name} wall_s, {count} threads": times[name]["wall_s"] for name in tasks}
            row[f"times, {count} threads"] = times["scikit-learn"]["wall_s"] / times["nearkin"]["wall_s"]
        rows.append(row)
        show(row)
    return rows


def memory(folder: Path) -> list[Row]:
    command = [sys.executable, "-m", "bench.linear", "--data", str(folder), "--child"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    row: Row = {"part": "memory", "data": "mnist, 60,000 x 784", **json.loads(done.stdout.splitlines()[-1])}
    show(row)
    return [row]


def _child(folder: Path) -> Row:
    """One iteration over all of MNIST, and the high-water mark of the process with everything in it."""
    x, y = mnist(folder)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reading the files is not the fit's
    start = time.perf_counter()
    LinearNCA(32, init="pca", max_iter=1).fit(x, y)
    return {"components": 32, "process_mb": _resident("VmHWM"), "of which before the fit": before, "wall_s": time.perf_counter() - start}


def lmnn(folder: Path) -> list[Row]:
    from sklearn.decomposition import PCA

    x, y = mnist(folder)
    asked, answers = mnist(folder, "test")
    turned = PCA(164, random_state=0).fit(x[:10_000])
    few, every, asked = (turned.transform(part).astype(np.float32) for part in (x[:10_000], x, asked))
    model = LMNN(init="identity")
    start = time.perf_counter()
    model.fit(few, y[:10_000])
    row: Row = {
        "part": "lmnn",
        "data": "mnist, 10,000 digits, PCA to 164",
        "seconds": time.perf_counter() - start,
        "iterations": model.n_iter_,
        "threads": torch.get_num_threads(),
    }
    for name, map_of in {"Euclid": lambda part: part, "LMNN": model.transform}.items():
        for count, known, labels in ((10_000, few, y[:10_000]), (60_000, every, y)):
            queries = Points(torch.from_numpy(map_of(asked)), torch.from_numpy(answers))
            references = Points(torch.from_numpy(map_of(known)), torch.from_numpy(labels))
            row[f"{name} 1-NN error %, {count:,} references"] = 100 * (1 - knn_accuracy(queries, references, 1))
    row["printed LMNN error %"] = PRINTED_LMNN_ERROR
    show(row)
    return [row]


def nested() -> list[Row]:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, NESTED], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    row: Row = {"part": "nested", "data": NESTED, "seconds": time.perf_counter() - start, "lines": done.stdout.splitlines()}
    show(row)
    return [row]


def show(row: Row) -> None:
    told = [f"{key} {value:.5g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()]
    print("; ".join(told), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder that holds mnist/")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # fits of so few iterations say that they did not converge
    if options.child:
        with threads(torch.get_num_threads()):
            print(json.dumps(_child(options.data)))
        return
    work = {
        "fits": lambda: fits(options.rounds),
        "evaluations": lambda: evaluations(options.data, options.rounds),
        "memory": lambda: memory(options.data),
        "lmnn": lambda: lmnn(options.data),
        "nested": nested,
    }
    rows = [row for part in PARTS if part in options.only for row in work[part]()]
    about: Row = {"command": "python -m bench.linear", "date": datetime.now(UTC).isoformat(timespec="seconds")}
    about |= {"python": platform.python_version(), "machine": platform.machine(), "torch": torch.__version__, "numpy": np.__version__}
    if options.out:
        options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
