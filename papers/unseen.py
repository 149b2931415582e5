"""Unseen classes: train on some classes, then retrieve among others that no training has seen.

Every image of the test classes is a query against all the others. Settings are selected on classes held out of the training part (whole
alphabets of Omniglot), in runs that may be shorter. Then a model is trained on the whole training part, and the test classes are measured
once, with the weights of the last iteration. Where a trial is followed during training, for a picture, nothing is selected by that.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import cosine, unit
from nearkin.compose.points import Points
from nearkin.data import Dataset, Loader
from nearkin.data import open as open_data
from nearkin.data.splits import by_group, unseen_classes
from nearkin.evaluate import clustering, retrieval
from nearkin.train.assemble import Parts, assemble, captured, set_training
from nearkin.train.config import Run, override
from nearkin.train.optimizers import make_schedule, set_rate
from nearkin.train.validate import embed_all
from papers.cell import Settings, Trial

KS = (1, 3, 5, 10)
HELD_OUT = {"train": 0.8, "validation": 0.2}
WARM = 10  # iterations that are not timed, because the graph is recorded in them
RESTARTS = 3  # of k-means
OWN = ("iterations", "tuning_iterations", "floor", "watch", "ensemble", "tuned")  # settings that are not leaves of a Run
Figures = dict[str, float]


@dataclass(frozen=True)
class Task:
    """A data set with unseen classes: how it is read, and how its training part is cut for tuning."""

    source: str
    size: int | None = None
    cut: Literal["first half", "given", "both"] = "given"  # of the classes; both: training images of some, test images of the others
    groups: bool = False  # hold out whole alphabets


TASKS: Mapping[str, Task] = {
    "cub": Task("cub-200-2011", 128, "first half"),
    "omniglot": Task("omniglot", groups=True),
    "cifar": Task("cifar-100", cut="both"),
    "cars": Task("cars", 128, "first half"),
    "products": Task("online-products", 128),
}


class Where(NamedTuple):
    """Folder of the data, device, and folder of the saved runs."""

    data_root: str
    device: str
    results: str = ""


class Snapshot(NamedTuple):
    """The state of a training."""

    parts: Parts
    iteration: int
    active: float  # pairs or triplets that contributed to the loss so far
    seconds: float  # of the timed iterations
    loss: float


def perform(trial: Trial, seed: int, chosen: Settings, where: Where, *, validation: bool) -> dict[str, Any]:
    """Figures, their intervals, seconds; with `validation` on held-out training classes, and without intervals."""
    settings = {**trial.settings, **chosen}
    if "tuned" in settings:
        settings |= _chosen_by(settings["tuned"], Path(where.results))
    if validation:
        settings["iterations"] = settings.get("tuning_iterations", settings["iterations"])
    train, queries = parts_of(trial.data, where.data_root, validation, where.device)
    if "floor" in settings:
        started = time.perf_counter()
        result = _measured(queries, _floor(settings, train, queries, seed, where), full=True)
        return {**result, "seconds": round(time.perf_counter() - started, 2)}
    if "ensemble" in settings:
        return _ensemble(trial, seed, where, train, queries)
    evaluations = 0 if validation or seed > 0 else int(settings.get("watch", 0))
    return _one_model(trial.name, settings, seed, where, train, queries, evaluations, full=not validation)


@lru_cache(4)
def parts_of(name: str, data_root: str, validation: bool, device: str = "cpu") -> tuple[Dataset, Dataset]:
    """Training and query part, with their own classes and ids; with `validation` both from the training classes.

    Both are decoded once and stay on the device for all runs: copying them again would take as long as a short training.
    """
    task = TASKS[name]
    if not validation:
        data = open_data(task.source, data_root=data_root, size=task.size)
        train, queries = _cut(task, data)
        return _resident(data, train, device), _resident(data, queries, device)
    whole = parts_of(name, data_root, False, device)[0]
    assert whole.labels is not None
    if task.groups:
        alphabets = np.unique([one.rpartition("/")[0] for one in whole.classes], return_inverse=True)[1]
        names = by_group(alphabets[whole.labels.numpy()], HELD_OUT, 0).names
    else:
        names = unseen_classes(whole.labels, HELD_OUT, 0).names
    return tuple(_resident(whole, names == part, device) for part in ("train", "validation"))  # type: ignore[return-value]


def _cut(task: Task, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """(n,) masks of the training and the test images."""
    if task.cut == "given":
        return data.split == "train", data.split == "test"
    assert data.labels is not None
    first = data.labels.numpy() < (len(data.classes) + 1) // 2
    if task.cut == "first half":
        return first, ~first
    return first & (data.split == "train"), ~first & (data.split == "test")


def _resident(data: Dataset, which: np.ndarray, device: str) -> Dataset:
    part = data.subset(torch.from_numpy(which)).renumbered()
    assert part.labels is not None
    found, labels = torch.unique(part.labels, return_inverse=True)
    resident = Loader(part, device=device, resident_bytes=1 << 40).resident
    assert resident is not None
    classes = tuple(part.classes[number] for number in found.tolist())
    return replace(part, inputs=resident, labels=labels, classes=classes)


def _one_model(
    name: str, settings: Settings, seed: int, where: Where, train: Dataset, queries: Dataset, evaluations: int, *, full: bool
) -> dict[str, Any]:
    """Train one model and measure it; measured `evaluations` times during training if that is not 0."""
    run, iterations = _run(settings, seed, where)
    curve: list[Figures] = []
    started = time.perf_counter()
    embeddings: Tensor | None = None
    try:
        for snapshot in training(run, train, where.device, iterations, evaluations):
            embeddings = embedded(snapshot.parts, queries)
            if evaluations:
                found = retrieval(_points(queries, embeddings), affinity=cosine(), ks=(1,), draws=0)["precision@1"].value
                curve.append({"iteration": snapshot.iteration, "active": snapshot.active, "precision@1": found, "loss": snapshot.loss})
    except ValueError as error:
        if "NaN or infinity" not in str(error):
            raise
        embeddings = None
    if embeddings is None or not bool(torch.isfinite(embeddings).all()):
        return {"figures": {}, "seconds": round(time.perf_counter() - started, 2)}  # diverged
    result = _measured(queries, embeddings, full=full)
    timed = 1000 * snapshot.seconds / max(iterations - WARM, 1)
    result["figures"] |= {"seconds per 1,000": timed, "active per iteration": snapshot.active / iterations}
    if curve:
        result["curve"] = curve
        _keep(where, name, queries, embeddings)
    return {**result, "seconds": round(time.perf_counter() - started, 2)}


def _run(settings: Settings, seed: int, where: Where) -> tuple[Run, int]:
    leaves = {name: value for name, value in settings.items() if name not in OWN}
    if "network.weights" in leaves:
        leaves["network.weights"] = str(Path(where.data_root) / leaves["network.weights"])
    return override(Run(), {**leaves, "seed": str(seed)}), int(settings["iterations"])


def training(run: Run, data: Dataset, device: str, iterations: int, evaluations: int = 0) -> Iterator[Snapshot]:
    """A training, with snapshots evenly spread and at its end; steps are timed, the drawing of batches is not."""
    place = torch.device(device)
    parts = assemble(run, data, place)
    step, schedule = captured(run, parts), make_schedule(run.schedule, 1, iterations)
    batches = parts.sampler.endless()
    active, loss = torch.zeros((), dtype=torch.float64, device=place), torch.zeros((), device=place)
    stops = {min(WARM, iterations), *(round(iterations * (number + 1) / max(evaluations, 1)) for number in range(max(evaluations, 1)))}
    seconds, done = 0.0, 0
    for stop in sorted(stops):
        set_training(parts.network, run.network)
        drawn = [ids.to(place) for ids in islice(batches, stop - done)]
        _wait(place)
        began, first = time.perf_counter(), done
        for ids in drawn:
            set_rate(parts.optimizer, run.optimizer.learning_rate * schedule.factor(done))
            loss = step(ids)
            active += parts.objective.last.active_on_device  # type: ignore[union-attr]
            done += 1
        _wait(place)
        seconds += time.perf_counter() - began if first >= WARM else 0.0
        if stop != WARM or stop == iterations:
            yield Snapshot(parts, done, float(active), seconds, float(loss))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def embedded(parts: Parts, data: Dataset) -> Tensor:
    """Embeddings (n, d) of a part, in evaluation mode."""
    loader = Loader(data, device=parts.step.generator.device, resident_bytes=1 << 40)
    return embed_all(parts.network, loader, parts.step.prepare)


def _points(data: Dataset, embeddings: Tensor) -> Points:
    assert data.labels is not None
    return Points(embeddings, data.labels.to(embeddings.device), data.ids.to(embeddings.device))


def _measured(queries: Dataset, embeddings: Tensor, *, full: bool) -> dict[str, Any]:
    """Every retrieval figure, and with `full` those of clusters and all intervals; always by cosine."""
    points = _points(queries, embeddings)
    if not full:
        found = retrieval(points, affinity=cosine(), ks=KS, draws=0)
        return {"figures": {name: score.value for name, score in found.items()}}
    scores = retrieval(points, affinity=cosine(), ks=KS) | clustering(points, cosine(), restarts=RESTARTS)
    intervals = {name: [score.low, score.high] for name, score in scores.items()}
    return {"figures": {name: score.value for name, score in scores.items()}, "intervals": intervals}


def _floor(settings: Settings, train: Dataset, queries: Dataset, seed: int, where: Where) -> Tensor:
    """Embeddings without training: pixels, an untrained network, or features of a pretrained network, whole or projected."""
    run, _ = _run({**settings, "iterations": "0"}, seed, where)
    parts = assemble(run, queries, torch.device(where.device))
    if settings["floor"] == "pixels":
        return torch.cat([parts.step.prepare(queries.read(ids).to(where.device)).flatten(1) for ids in torch.split(queries.ids, 1024)])
    if settings["floor"] in ("pretrained", "projected"):
        parts.network.head = torch.nn.Flatten()
    if settings["floor"] == "projected":
        learned = unit(embedded(parts, train))
        directions: Tensor = torch.linalg.svd(learned - learned.mean(0), full_matrices=False).Vh
        return (unit(embedded(parts, queries)) - learned.mean(0)) @ directions[: run.network.dimension].T
    if settings["floor"] == "untrained":  # without statistics of batch normalization activations vanish in a deep network
        seen = (parts.step.prepare(train.read(ids).to(where.device)) for ids in torch.split(train.ids, 256))
        torch.optim.swa_utils.update_bn(seen, parts.network)
    return embedded(parts, queries)


def _ensemble(trial: Trial, seed: int, where: Where, train: Dataset, queries: Dataset) -> dict[str, Any]:
    """The two losses that did best on held-out training classes, trained with new seeds; their unit embeddings concatenated."""
    started = time.perf_counter()
    best = best_two(Path(where.results), trial.settings["ensemble"])
    found = []
    for number, (_, settings) in enumerate(best):
        run, iterations = _run(settings, seed + 100 * (number + 1), where)
        *_, last = training(run, train, where.device, iterations)
        found.append(unit(embedded(last.parts, queries)))
    result = _measured(queries, torch.cat(found, 1), full=True)
    return {**result, "members": [name for name, _ in best], "seconds": round(time.perf_counter() - started, 2)}


def _chosen_by(name: str, results: Path) -> Settings:
    """The settings that the tuning of another trial chose."""
    path = results / f"{name}.json"
    chosen: Settings = json.loads(path.read_text(encoding="utf-8"))["chosen"] if path.exists() else {}
    if not chosen:
        raise ValueError(
            f"trial uses the settings chosen by {name}, which is not tuned in {results or 'the results'}; run that trial first"
        )
    return chosen


def best_two(results: Path, prefix: str) -> list[tuple[str, Settings]]:
    """Names and settings of the two trials of a prefix that did best on held-out training classes.

    Rows with a fixed margin, which tune the rate alone, are one loss many times, and are left out.
    """
    ranked = []
    for path in sorted(results.glob(f"{prefix}*.json")):
        ledger = json.loads(path.read_text(encoding="utf-8"))
        figures = [entry["figure"] for entry in ledger["tuning"] if entry["figure"] is not None]
        if figures and ledger["chosen"] and len(ledger["settings"]["tune"]) > 1:
            ranked.append((max(figures), ledger["trial"], {**ledger["settings"]["settings"], **ledger["chosen"]}))
    if len(ranked) < 2:
        raise ValueError(f"an ensemble needs two tuned trials {prefix}... in {results or 'the results'}; run those first")
    return [(name, settings) for _, name, settings in sorted(ranked, key=lambda one: -one[0])[:2]]


def _keep(where: Where, name: str, queries: Dataset, embeddings: Tensor) -> None:
    """Save unit embeddings in half precision, and labels, next to the runs, for pictures."""
    if not where.results:
        return
    folder = Path(where.results) / "embeddings"
    folder.mkdir(parents=True, exist_ok=True)
    assert queries.labels is not None
    np.savez(folder / f"{name}.npz", embeddings=unit(embeddings).half().cpu().numpy(), labels=queries.labels.numpy())
