"""The contest of pretrained encoders: what a linear map or a head adds to frozen features, on classes that were trained on and on others.

    python -m papers encoders --data-root data --weights mobilenet_v2-b0353104.pth
    python -m papers encoders --data-root data --weights mobilenet_v2-b0353104.pth --methods all,LoRA --device cuda --at-once 4

The data root holds the folders flowers20 and cub200 (a folder for each class). Every finished row is saved in encoders.json of --out, and
the same command continues an interrupted run. The page encoders.md next to the tables of the papers is written from that file.

Protocol. Seen classes: a fifth of every class is the test part; a tenth of the rest (at least one image a class) is the validation part;
the labels of 5, 20 or all others are used; of a set with more than 60 classes, the first 60. Unseen classes: the first half of the
classes is for training, a fifth of these for validation, and the other half is searched by leave-one-out. Everything that is chosen is
chosen on the validation part. Neighbors are by cosine. Rows that train the encoder itself take at least 150 steps and 6 epochs of at most
96 images, with random crops and flips; their rates are fixed (1e-4, as on the page on tuning; for low-rank changes 1e-3).
Seconds of different devices are not comparable: those of rows that train the encoder are a GPU's.

What `nearkin train --tune all` keeps: the tuning starts from the linear map in closed form, or from the frozen features where these are
better on the validation part, and the weights that are best there by 1-NN are kept, which may be the frozen ones or the map. This is done
with five objectives. In the row of the objective that is chosen, it is for each seed the one with the largest mean of 1-NN and MAP@R on
the validation part, of those seeds for which all five were run; that rule was set before any figure of a test part was seen.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin import NCA, data
from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.data.dataset import Dataset
from nearkin.data.disk import replacing
from nearkin.estimators.linear import LinearNCA
from nearkin.evaluate import classification, retrieval
from nearkin.models.encoders import find_encoder
from nearkin.models.head import Head, unit_length
from nearkin.train.assemble import build_whole
from nearkin.train.config import Run, override
from nearkin.train.encoder import TEMPERATURE, Start, begin_head, start_of, with_encoder
from nearkin.train.folder import device_name
from nearkin.train.frozen import featured_by
from nearkin.train.loop import fit
from papers.contest import Printing, Rows, run_rows, spread
from papers.encoder_tuning import DEFAULT, KEPT, OBJECTIVES, TUNED, kept, tuned
from papers.tuning import device_of, read_stored, store, stored

SETS = ("flowers20", "cub200")
SEEDS = (0, 1, 2)
LABELS = (5, 20, None)  # of each class
SEEN = 60  # classes at most, where classes are seen: logistic regression takes too long for more
DIMENSION, EPOCHS, BATCH, RATE = 64, 20, 256, 1e-3
REDUCED, FITTED = 64, 5000  # of linear NCA, whose cost grows with the square of the points


class Task(NamedTuple):
    """Features of the parts of one split."""

    train: Dataset
    validation: Dataset
    test: Dataset
    seen: bool


def main(words: Sequence[str]) -> int:
    """Run what is missing and write the page."""
    arguments = parser().parse_args(words)
    saved = Rows(Path(arguments.out) / "encoders.json")
    methods = list(METHODS) if arguments.methods is None else arguments.methods.split(",")
    wanted = [key for name in arguments.sets.split(",") for key in keys(name, methods) if key not in saved]
    wanted.sort(key=lambda key: key.rpartition("/")[2])  # the first seed of everything first
    for name in dict.fromkeys(key.partition("/")[0] for key in wanted):
        asked = {key.split("/")[3] for key in wanted if key.startswith(f"{name}/")}
        if asked - {*TRAINED}:
            keep_features(name, arguments)
        if asked & {*TRAINED}:
            store(arguments, name)
    failed = run_rows(saved, wanted, row, arguments, at_once=arguments.at_once, seconds=arguments.seconds)
    saved.write_page(page_of(saved))
    return int(failed > 0)


def parser() -> ArgumentParser:
    """The command line."""
    made = ArgumentParser("python -m papers encoders", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--data-root", default="data", metavar="FOLDER")
    made.add_argument("--encoder", default="mobilenet-v2", metavar="NAME")
    made.add_argument("--weights", metavar="FILE")
    made.add_argument("--crop", type=float, default=1.0, metavar="SHARE", help="share of the short side that is cut out (default: all)")
    made.add_argument("--sets", default=",".join(SETS), metavar="NAMES")
    made.add_argument("--methods", metavar="NAMES", help=f"rows (default: those on frozen features; others are {', '.join(TRAINED)})")
    made.add_argument("--device", metavar="DEVICE")
    made.add_argument("--batch", type=int, default=96, metavar="N", help="images of a step that trains the encoder (default: %(default)s)")
    made.add_argument("--at-once", type=int, default=1, metavar="N", help="rows at a time (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="start no row after this time (default: none)")
    made.add_argument("--work", default="runs/encoders", metavar="FOLDER", help="where features and decoded images are kept")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    return made


def keys(name: str, methods: Sequence[str]) -> Iterator[str]:
    """The rows of a set: set, classes, labels of a class, method, seed."""
    for seed in SEEDS:
        for kind, labels in [*(("seen", count) for count in LABELS), ("unseen", None)]:
            for method in methods:
                if kind == "seen" or method != "logistic regression":
                    yield f"{name}/{kind}/{labels or 'all'}/{method}/{seed}"


def keep_features(name: str, arguments: Namespace) -> None:
    """Compute the features of a set, unless they are there."""
    place = Path(arguments.work) / f"{name}-features.npz"
    if not place.exists():
        found = features_of(Path(arguments.data_root) / name, arguments)
        assert found.labels is not None
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            np.savez(file, features=rows_of(found).numpy(), labels=found.labels.numpy())


@lru_cache(1)
def kept_features(place: Path) -> Dataset:
    """The features of a set."""
    with np.load(place, allow_pickle=False) as held:
        labels = torch.from_numpy(held["labels"])
        return Dataset(
            place.stem, torch.from_numpy(held["features"]), labels=labels, classes=tuple(map(str, torch.unique(labels).tolist()))
        )


def features_of(folder: Path, arguments: Any) -> Dataset:
    """The frozen features of all images, computed once and kept beside the data."""
    run = override(Run(), {"network.pretrained": "true", "data.source": str(folder)})
    run = with_encoder(run, find_encoder(arguments.encoder, arguments.weights), ())
    run = run if arguments.crop is None else replace(run, data=replace(run.data, crop=arguments.crop))
    reading: dict[str, Any] = {"size": run.data.size, "crop": run.data.crop, "interpolation": run.data.interpolation, "channels": 3}
    images = data.open(folder, **reading)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kept = folder.parent / f"{folder.name}-features"
    return featured_by(build_whole(run, images, device), run, images, kept, device, Printing()).features


def task_of(features: Dataset, kind: str, labels: int | None, seed: int) -> Task:
    """The parts, drawn by the seed."""
    assert features.labels is not None
    draw, numbers = np.random.default_rng(seed), features.labels.numpy()
    parts: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    classes = np.unique(numbers)
    if kind == "unseen":
        half = classes[: len(classes) // 2]
        held = set(draw.permutation(half)[: max(2, len(half) // 5)].tolist())
        for at, number in enumerate(numbers.tolist()):
            parts["test" if number not in half else "validation" if number in held else "train"].append(at)
    else:
        for number in classes[:SEEN]:
            rows = draw.permutation(np.flatnonzero(numbers == number)).tolist()
            test, rest = rows[: round(len(rows) / 5)], rows[round(len(rows) / 5) :]
            held_out = max(1, len(rest) // 10)
            parts["test"] += test
            parts["validation"] += rest[:held_out]
            parts["train"] += rest[held_out:][:labels]
    some = {name: features.subset(rows) for name, rows in parts.items()}
    return Task(some["train"].renumbered(), some["validation"], some["test"], kind == "seen")


def row(key: str, arguments: Namespace) -> dict[str, Any]:
    """The test scores of one method, with the seconds to fit it."""
    name, kind, labels, method, seed = key.split("/")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // arguments.at_once))
    trained = method in TRAINED
    points = images_of(name, arguments) if trained else kept_features(Path(arguments.work) / f"{name}-features.npz")
    task = task_of(points, kind, None if labels == "all" else int(labels), int(seed))
    torch.manual_seed(int(seed))
    began, more = time.perf_counter(), {}
    if not trained:
        made, took = METHODS[method](task, int(seed)), time.perf_counter() - began
    elif method in KEPT:
        encode, what = kept(method, task.train, task.validation, int(seed), arguments)
        took = time.perf_counter() - began
        made, more = scored(task, encode), {"validation": scored(asking_validation(task), encode), "kept": what}
    else:
        encode, took = tuned(method, task.train, int(seed), arguments), time.perf_counter() - began
        made = scored(task, encode)
    counts = {"train": len(task.train), "test": len(task.test)}
    device = device_of(arguments) if trained else torch.device("cpu")
    return {"scores": made, "seconds": round(took, 2), "points": counts, "device": device_name(device), **more}


def images_of(name: str, arguments: Namespace) -> Dataset:
    """All images of a set."""
    pixels, numbers, classes = read_stored(stored(arguments, name))
    return Dataset(name, torch.from_numpy(pixels), labels=torch.from_numpy(numbers), classes=tuple(classes))


def asking_validation(task: Task) -> Task:
    """The same training part with the validation part in place of the test part."""
    return Task(task.train, task.train, task.validation, task.seen)


def rows_of(part: Dataset) -> Tensor:
    """The features (n, f) of a part."""
    assert isinstance(part.inputs, Tensor)
    return part.inputs


def scored(task: Task, encode: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """1-NN and MAP@R on the test part, against the training part or, for unseen classes, against itself."""
    queries = _points(task.test, encode, len(task.train))
    known = _points(task.train, encode) if task.seen else None
    found = {**classification(queries, known, cosine(), (1,)), **retrieval(queries, known, cosine(), (1,))}
    return {name: round(found[name].value, 4) for name in ("1-nn", "map@r")}


def _points(part: Dataset, encode: Callable[[Tensor], Tensor], after: int = 0) -> Points:
    """A part as it is embedded, where it was embedded; its ids follow those of `after` other points."""
    found = unit_length(encode(rows_of(part)))
    assert part.labels is not None
    return Points(found, part.labels.to(found.device), (part.ids + after).to(found.device))


def _frozen(task: Task, _: int) -> dict[str, float]:
    return scored(task, lambda x: x)


def _logistic(task: Task, _: int) -> dict[str, float]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    train, validation, test = (part.labels for part in (task.train, task.validation, task.test))
    assert train is not None and validation is not None and test is not None
    scaler = StandardScaler().fit(rows_of(task.train).numpy())
    x, v, q = (scaler.transform(rows_of(part).numpy()) for part in (task.train, task.validation, task.test))
    models = [LogisticRegression(C=c, max_iter=200).fit(x, train.numpy()) for c in (1e-3, 1e-2, 1e-1)]
    best = max(models, key=lambda one: one.score(v, validation.numpy()))
    return {"accuracy": round(float(best.score(q, test.numpy())), 4)}


def _linear_nca(task: Task, seed: int) -> dict[str, float]:
    from sklearn.decomposition import PCA

    assert task.train.labels is not None
    rows = np.random.default_rng(seed).permutation(len(task.train))[:FITTED]
    x = unit_length(rows_of(task.train)).numpy()
    pca = PCA(min(REDUCED, len(rows) - 1, x.shape[1]), random_state=seed).fit(x)
    nca = LinearNCA(pca.n_components_, max_iter=50, random_state=seed).fit(pca.transform(x[rows]), task.train.labels.numpy()[rows])
    return scored(task, lambda y: torch.from_numpy(np.asarray(nca.transform(pca.transform(unit_length(y).numpy())))).float())


def _map(task: Task, _: int) -> dict[str, float]:
    start = _start(task)
    assert start.map is not None
    return scored(task, start.map.__call__)


def _head(task: Task, seed: int) -> dict[str, float]:
    return scored(task, _fitted(task, _start(task), seed))


def _kept(task: Task, seed: int) -> dict[str, float]:
    """What `nearkin train` keeps: the best of the frozen features, the map and the head on the validation part."""
    start = _start(task)
    assert start.map is not None
    choices: list[Callable[[Tensor], Tensor]] = [start.map.__call__, _fitted(task, start, seed)]
    values = [scored(asking_validation(task), encode)["1-nn"] for encode in choices]
    best = values.index(max(values))  # of equals the map
    return scored(task, (lambda x: x) if start.beats(values[best]) else choices[best])


def _start(task: Task) -> Start:
    return start_of(task.train, task.validation, DIMENSION)


def _fitted(task: Task, start: Start, seed: int) -> Callable[[Tensor], Tensor]:
    head = Head(rows_of(task.train).shape[1], DIMENSION, normalize=True)
    begin_head(head, start.map)
    shared = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE, "seed": seed}
    fit(head, NCA(temperature=TEMPERATURE), rows_of(task.train), task.train.labels, **shared)  # type: ignore[arg-type]

    def encode(x: Tensor) -> Tensor:
        with torch.no_grad():
            embeddings: Tensor = head(x)
        return embeddings

    return encode


TRAINED = (*KEPT, *TUNED)  # rows that train the encoder itself
CHOSEN = "chosen"
METHODS: dict[str, Callable[[Task, int], dict[str, float]]] = {
    "frozen": _frozen,
    "logistic regression": _logistic,
    "linear NCA": _linear_nca,
    "linear map": _map,
    "head": _head,
    "kept": _kept,
}
ABOUT = {
    "frozen": "frozen features",
    "logistic regression": "frozen + logistic regression (its accuracy)",
    "linear NCA": "frozen + PCA + linear NCA",
    "linear map": "frozen + linear map in closed form (ours)",
    "head": "frozen + head trained by NCA from that map (ours)",
    "kept": "what `nearkin train` keeps, by the validation part (ours)",
    **{
        f"kept {name}": f"what `nearkin train --tune all` keeps, {name}{', its default' if name == DEFAULT else ''} (ours)"
        for name in OBJECTIVES
    },
    CHOSEN: "the same with the objective that the validation part chooses (ours)",
    **TUNED,
}


def page_of(saved: dict[str, Any]) -> str:
    """The page: a table for each set and protocol, mean and standard deviation over the seeds."""
    text = "# Pretrained encoders\n\n" + (__doc__ or "").partition("Protocol. ")[2].strip() + "\n\n"
    text += "Mean and standard deviation over the seeds that were run, in percent. MobileNetV2, pretrained on ImageNet by torchvision;\n"
    text += "of a photograph, the square in the middle with the whole short side is read.\n"
    groups = list(dict.fromkeys("/".join(key.split("/")[:3]) for key in saved))
    for group in sorted(groups):
        name, kind, labels = group.split("/")
        held = f", {labels} labels a class" if kind == "seen" else ""
        text += f"\n## {name}, {kind} classes{held}\n\n| method | 1-NN | MAP@R | seconds to fit | seeds |\n|---|---|---|---|---|\n"
        for method, about in ABOUT.items():
            rows = chosen(saved, group) if method == CHOSEN else rows_of_method(saved, group, method)
            if rows:
                first = "accuracy" if method == "logistic regression" else "1-nn"
                cells = [spread([one["scores"].get(figure) for one in rows]) for figure in (first, "map@r")]
                seconds = np.mean([one["seconds"] for one in rows])
                text += f"| {about} | {cells[0]} | {cells[1]} | {seconds:.1f} | {len(rows)} |\n"
    return text + choices_of(saved, sorted(groups))


def rows_of_method(saved: dict[str, Any], group: str, method: str) -> list[dict[str, Any]]:
    """The rows of a method, one for each seed."""
    return [saved[key] for key in saved if key.startswith(f"{group}/{method}/")]


def chosen(saved: dict[str, Any], group: str) -> list[dict[str, Any]]:
    """For each seed the row of the objective that is best on the validation part, where all of them were run."""
    return [max(rows.values(), key=on_validation) for rows in compared(saved, group)]


def compared(saved: dict[str, Any], group: str) -> list[dict[str, dict[str, Any]]]:
    """The rows of the objectives by name, for each seed for which all of them were run."""
    found = [{name: saved.get(f"{group}/kept {name}/{seed}") for name in OBJECTIVES} for seed in SEEDS]
    return [rows for rows in found if all(rows.values())]  # type: ignore[misc]


def on_validation(row: dict[str, Any]) -> float:
    """The mean of 1-NN and MAP@R on the validation part."""
    return float(np.mean([row["validation"][name] for name in ("1-nn", "map@r")]))


def choices_of(saved: dict[str, Any], groups: Sequence[str]) -> str:
    """The figures of the validation parts by which objectives are chosen, and what was kept."""
    held = {group: rows for group in groups if (rows := compared(saved, group))}
    if not held:
        return ""
    text = "\n## Objectives on the validation parts\n\nMean of 1-NN and MAP@R over the seeds for which all objectives were run; in\n"
    text += "brackets, for how many of them the frozen features, the linear map and tuned weights were kept.\n\n"
    text += f"| | {' | '.join(OBJECTIVES)} | seeds |\n|---|{'---|' * len(OBJECTIVES)}---|\n"
    for group, rows in held.items():
        name, kind, labels = group.split("/")
        title = f"{name}, {kind} classes" + (f", {labels} labels a class" if kind == "seen" else "")
        cells = [f"{_mean(some)} ({_counts(some)})" for objective in OBJECTIVES if (some := [row[objective] for row in rows])]
        text += f"| {title} | {' | '.join(cells)} | {len(rows)} |\n"
    return text


def _mean(rows: Sequence[dict[str, Any]]) -> str:
    return f"{100 * np.mean([on_validation(row) for row in rows]):.1f}"


def _counts(rows: Sequence[dict[str, Any]]) -> str:
    whats = [row["kept"] for row in rows]
    frozen, map_ = whats.count("frozen"), whats.count("map")
    return f"{frozen}, {map_}, {len(whats) - frozen - map_}"
