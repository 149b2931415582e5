"""Pose-like regression in the manner of [taylor2010pose], whose supplement prints no results: every row is ours.

Three tasks. Stick figures (rendered; head and hands in pixels). COIL-20 at unseen angles: every other picture of every object is for
testing, so the nearest training picture of the same object is always 5 degrees off, which is the floor of 1-NN and no floor of soft
neighbors. It is an easy cut: the exact opposite of a test view is never a reference, and the 1-NN median of every method but chance stands
at the floor, that of raw pixels, too, so that 1-NN means say how often and how far a method misses it. COIL-20 with five unseen objects:
where an object's zero lies is the photographer's choice, so no method can know it, and 90 degrees is chance; the figure "own zero" takes
each object's mean deviation away and asks whether at least the turning is followed (chance is then a little below 90).

"1-nn" copies the pose of the nearest training picture, "soft" is the mean over all of them, weighted by nearness, and "direct" the answer
of a regression head; figures are means over the test pictures unless they say median. C-NCAR is a convnet trained by NCA regression.

Every method sees the same images. Raw pixels and chance have nothing to choose; each other method has two candidates, compared on points
cut from the training part: linear maps local contrast normalization or none, networks, which always have it, two rates at about a third of
their epochs. Raw pixels and PCA have no scale of their own, and neither has the layer
before a regression head: their soft neighbors take the temperature by which training points best predict one another. NCA regression and
MLKR use the weights they were trained with.

The networks do not win everywhere: at unseen angles no method beats raw pixels by 1-NN, on unseen objects C-NCAR is worse than chance until
each object's own zero is taken away, and direct regression is ahead of it on the small stick figures; [the log](log.md) has more.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data import open as open_data
from nearkin.data.dataset import Dataset
from nearkin.data.preprocess import LocalContrast, preprocessed
from nearkin.data.sources.stick_figures import stick_figures
from nearkin.models.folder import load
from nearkin.objectives.direct_regression import DirectRegression
from nearkin.train.config import Run, override
from nearkin.train.training import train
from papers.cell import Cell, Settings, Trial
from papers.pose import PoseUnit, measure_pose, pose_figures, turns

UNSEEN_OBJECTS = (3, 7, 11, 15, 19)  # every fourth of the 20 classes, by number from 0
VALIDATION_OBJECTS = (2, 8, 14)


@dataclass(frozen=True)
class Task:
    """What is to be predicted, of which images, and which of them are for testing."""

    unit: PoseUnit
    size: int
    kind: Literal["figures", "angles", "objects"]
    train: int = 0  # of rendered figures
    test: int = 0


TASKS: Mapping[str, Task] = {
    "stick figures, 64 px": Task("pixels", 64, "figures", 4000, 2000),
    "stick figures, 128 px": Task("pixels", 128, "figures", 10_000, 5000),
    "coil-20 unseen angles, 64 px": Task("degrees", 64, "angles"),
    "coil-20 unseen objects, 64 px": Task("degrees", 64, "objects"),
}


def perform(trial: Trial, seed: int, chosen: Settings, data_root: Path, device: str, *, validation: bool = False) -> dict[str, float]:
    """Errors of one run, smaller is better: "1-nn degrees", "soft degrees", "1-nn pixels", "soft pixels", and "direct ..." of a head.

    With `validation` a part of the training points stands in for the test part, which is not looked at. Settings: `method` (chance,
    pixels, pca, linear_nca_regression, mlkr, or train); leaves of a Run for train; for the others `preprocess` (none or local_contrast),
    `first` (dimensions of a PCA before the map), `dimension` and `iterations`.
    """
    task = TASKS[trial.data]
    data = _posed(trial.data, str(data_root))
    data = _held_out(task, data) if validation else data
    settings = {**trial.settings, **chosen}
    method = settings.pop("method")
    if validation and trial.tuning_epochs:
        settings["epochs"] = str(trial.tuning_epochs)
    if method == "train":
        return _trained(task, data, settings, seed, device)
    known, asked = (data.part(name) for name in ("train", "test"))
    rows, temperature = _mapped(method, settings, known, asked, seed)
    references, queries = (_points(part, row, device) for part, row in zip((known, asked), rows, strict=True))
    return measure_pose(queries, references, task.unit, temperature, _objects(task, asked, device))


@lru_cache(1)
def _posed(name: str, data_root: str) -> Dataset:
    """The images of a task with their poses to learn from, split into train and test; decoded, in memory."""
    task = TASKS[name]
    if task.kind == "figures":
        return stick_figures(task.train, task.test, task.size)
    data = open_data("coil-20", data_root=data_root, size=task.size, channels=1)
    assert data.targets is not None and data.labels is not None
    degrees = data.targets[:, 0]
    between, unseen = (degrees.round().long() % 10 == 5).numpy(), np.isin(data.labels.numpy(), UNSEEN_OBJECTS)
    return replace(
        data,
        inputs=data.read(data.ids),
        targets=turns(degrees),
        target_names=("sin", "cos"),
        split=np.where(between if task.kind == "angles" else unseen, "test", "train"),
        by="numbers",
    )


def _held_out(task: Task, data: Dataset) -> Dataset:
    """The training points alone, with a part of them, cut as the test part was, called test."""
    known = data.part("train").renumbered()
    if task.kind == "figures":
        for_test = np.arange(len(known)) >= 3 * len(known) // 4
    elif task.kind == "angles":
        assert known.targets is not None
        degrees = torch.atan2(known.targets[:, 0], known.targets[:, 1]).rad2deg().round().long() % 360
        # Every other angle again. Leaving an angle's exact opposite among the references would be another task: objects that look
        # alike from behind are then taken for their back (raw pixels: 42.6 degrees instead of 17.3).
        for_test = (degrees % 20 == 10).numpy()
    else:
        assert known.labels is not None
        for_test = np.isin(known.labels.numpy(), VALIDATION_OBJECTS)
    return known.with_split(np.where(for_test, "test", "train"))


def _mapped(method: str, settings: Settings, known: Dataset, asked: Dataset, seed: int) -> tuple[list[Tensor], float | None]:
    """Embeddings of both parts by a method without a network, and the temperature of its own neighbors if it has one."""
    if method == "chance":
        random = torch.Generator().manual_seed(seed)
        return [torch.randn(len(part), 2, generator=random) for part in (known, asked)], None
    steps = (LocalContrast(),) if settings.get("preprocess", "none") == "local_contrast" else ()
    rows = [preprocessed(part.read(part.ids), steps).flatten(1).numpy() for part in (known, asked)]
    if method == "pixels":
        return [torch.from_numpy(row) for row in rows], None
    maker = _maps(settings, seed)[method]
    assert known.targets is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the number of iterations is a setting
        maker.fit(rows[0], known.targets.numpy())
    mapped = [torch.from_numpy(np.asarray(maker.transform(row))).float() for row in rows]
    return mapped, None if method == "pca" else 1.0


def _maps(settings: Settings, seed: int) -> dict[str, Any]:
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline

    from nearkin.estimators.linear import MLKR, LinearNCARegression

    dimension, iterations = int(settings.get("dimension", 32)), int(settings.get("iterations", 50))
    first = PCA(int(settings.get("first", 64)), svd_solver="randomized", random_state=seed)
    return {
        "pca": PCA(dimension, svd_solver="randomized", random_state=seed),
        "linear_nca_regression": make_pipeline(first, LinearNCARegression(dimension, max_iter=iterations, random_state=seed)),
        "mlkr": make_pipeline(first, MLKR(dimension, max_iter=iterations, random_state=seed)),
    }


def _trained(task: Task, data: Dataset, settings: Settings, seed: int, device: str) -> dict[str, float]:
    """Train on the training part alone, which is all that the training is handed; then ask for the others."""
    known, asked = data.part("train").renumbered(), data.part("test")
    leaves = {**settings, "seed": str(seed), "data.validation": "0", "checkpoint_seconds": "1e9"}
    run = override(Run(), leaves)
    assert known.targets is not None and isinstance(asked.inputs, Tensor)
    with TemporaryDirectory() as folder:
        train(run, Path(folder) / "model", data=replace(known, targets=_standard(task, known.targets)), device=device)
        model = load(Path(folder) / "model", "last", device)
        head = load_file(Path(folder) / "model" / "objective.safetensors", device=device)
    assert model.references is not None
    embeddings = torch.as_tensor(model.encode(asked.inputs)).to(device)
    references = Points(model.references.embeddings, known.targets.to(device))
    direct = run.objective.name == "direct_regression"
    temperature = None if direct else float(run.objective.options.get("temperature", 1.0))
    objects = _objects(task, asked, device)
    queries = _points(asked, embeddings, device)
    figures = measure_pose(queries, references, task.unit, temperature, objects)
    if direct:
        objective = DirectRegression(run.network.dimension, known.targets.shape[1]).to(device)
        objective.load_state_dict(head)
        assert queries.labels is not None
        said = _in_unit(task, objective.predict(embeddings))
        figures |= pose_figures("direct", said, queries.labels, task.unit, objects)
    return figures


def _standard(task: Task, targets: Tensor) -> Tensor:
    """Targets about 1 in size: places from -1 to 1 across the image, turns as they are."""
    return targets if task.unit == "degrees" else 2 * targets / task.size - 1


def _in_unit(task: Task, targets: Tensor) -> Tensor:
    """`_standard` undone."""
    return targets if task.unit == "degrees" else (targets + 1) * task.size / 2


def _points(part: Dataset, embeddings: Tensor, device: str) -> Points:
    assert part.targets is not None
    return Points(embeddings.to(device), part.targets.to(device))


def _objects(task: Task, part: Dataset, device: str) -> Tensor | None:
    return part.labels.to(device) if task.kind == "objects" and part.labels is not None else None


_NETWORK: Settings = {
    "method": "train",
    "network.name": "taylor2010",
    "network.dimension": "32",
    "preprocess.name": "local_contrast",
    "optimizer.name": "adam",
    "optimizer.weight_decay": "0",
    "optimizer.epsilon": "1e-12",  # the published start values make first gradients smaller than the usual 1e-8
    "schedule.name": "cosine",
}
_BY_SIZE: Mapping[int, Settings] = {64: {"network.options.size": "5"}, 128: {"network.options.size": "9"}}
_LENGTH: Mapping[str, Settings] = {
    "stick figures, 64 px": {"batch_size": "100", "epochs": "40"},
    "stick figures, 128 px": {"batch_size": "250", "epochs": "40"},
    "coil-20 unseen angles, 64 px": {"batch_size": "60", "epochs": "150"},
    "coil-20 unseen objects, 64 px": {"batch_size": "60", "epochs": "60"},
}
_TUNING_EPOCHS = {
    "stick figures, 64 px": 15,
    "stick figures, 128 px": 15,
    "coil-20 unseen angles, 64 px": 50,
    "coil-20 unseen objects, 64 px": 20,
}
_RATES = {"optimizer.learning_rate": ("0.005", "0.02")}
_LOOKS = {"preprocess": ("none", "local_contrast")}
_ROWS = ("chance", "raw pixels", "PCA", "linear NCA regression", "MLKR", "C-NCAR network", "the same network, direct regression")


def _trials(short: str, data: str) -> tuple[Trial, ...]:
    """One for each of _ROWS."""
    task = TASKS[data]
    network = {**_NETWORK, **_BY_SIZE[task.size], **_LENGTH[data]}
    answers = "6" if task.kind == "figures" else "2"
    direct = {**network, "objective.name": "direct_regression", "objective.options.targets": answers}
    figure = f"1-nn {task.unit}"

    def trial(name: str, settings: Settings, tune: Mapping[str, tuple[str, ...]], seeds: int = 3, figure: str = figure) -> Trial:
        epochs = _TUNING_EPOCHS[data] if settings["method"] == "train" else 0
        return Trial(f"taylor2010-{short}-{name}", data, settings, tune, epochs, figure, seeds, "pose")

    return (
        trial("chance", {"method": "chance"}, {}),
        trial("pixels", {"method": "pixels"}, {}, seeds=1),
        trial("pca", {"method": "pca"}, _LOOKS, seeds=1),
        trial("linear-ncar", {"method": "linear_nca_regression", "first": "64"}, _LOOKS, seeds=1),
        trial("mlkr", {"method": "mlkr", "first": "64"}, _LOOKS, seeds=1),
        trial("c-ncar", {**network, "objective.name": "nca_regression"}, _RATES),
        trial("direct", direct, _RATES, figure=f"direct {task.unit}"),
    )


_SHORT = {
    "figures": "stick figures, 64 px",
    "angles": "coil-20 unseen angles, 64 px",
    "objects": "coil-20 unseen objects, 64 px",
    "large-figures": "stick figures, 128 px",
}
TRIALS: tuple[Trial, ...] = tuple(trial for short, data in _SHORT.items() for trial in _trials(short, data))


def _cells(short: str, data: str) -> tuple[Cell, ...]:
    """1-NN and soft neighbors of every row, the head's own word where there is one, and the turn up to the object's own zero."""
    task, cells = TASKS[data], list[Cell]()
    table = f"[taylor2010pose] in its manner: {data.replace('coil', 'COIL')}"
    for row, trial in zip(_ROWS, _trials(short, data), strict=True):
        kinds = ["1-nn", "soft", *(["direct"] if trial.name.endswith("direct") else [])]
        columns = [""] if task.unit == "pixels" else ["", ", own zero"] if task.kind == "objects" else ["", ", median"]
        for kind in kinds:
            for more in columns:
                figure = f"{kind} {task.unit}{more}"
                cells.append(Cell(table, row, None, task.unit, trial.name, figure, figure))
    return tuple(cells)


CELLS: tuple[Cell, ...] = tuple(cell for short, data in _SHORT.items() for cell in _cells(short, data))
