"""Recipes: settings for a purpose or a kind of data. They never change a setting that the user made.

`RECIPES` are for `nearkin train --for PURPOSE`. Below them are the settings for data without labels and for small data, which
`taken` applies and reports.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nearkin.compose.validation import check_choice
from nearkin.data.dataset import Dataset
from nearkin.train.config import OptimizerChoice, Run, override
from nearkin.train.objective_choice import WITHOUT_LABELS, objective_for
from nearkin.train.reporter import Reporter
from nearkin.train.tuning import LOW_RANK

Leaves = Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """Settings for a purpose, their description, where they were measured, and additions for some data and networks."""

    settings: Leaves
    words: str
    source: str
    folder: Leaves = field(default_factory=dict)  # added for folders of images, which may be of any size
    pretrained: Leaves = field(default_factory=dict)  # added if `network.weights` is set
    pretrained_folder: Leaves = field(default_factory=dict)  # added with both, unless `data.size` is set

    @staticmethod
    def of(read: Mapping[str, Any]) -> "Recipe":
        """Read the JSON that `python docs/lu2019.py --recipe` writes."""
        more = {name: read[name] for name in ("settings", "source", "folder", "pretrained", "pretrained_folder")}
        return Recipe(words=f"{read['words']}; evaluated on classes that were not trained on", **more)

    def leaves(self, data: str, given: Leaves) -> dict[str, str]:
        """The settings for these data. `given` are the user's: naming another objective or network drops the recipe's own options of it."""
        found = dict(self.settings)
        folder, pretrained = Path(data).is_dir(), "network.weights" in given
        found |= self.folder if folder else {}
        found |= self.pretrained if pretrained else {}
        found |= self.pretrained_folder if pretrained and folder and "data.size" not in given else {}
        named = {"network.name", "network.weights", "network.pretrained"} & set(given)
        found |= {"network.scratch": "true"} if "data.size" in found and not named else {}  # the settings are those of a new network
        ours = found["objective.name"]
        dropped: tuple[str, ...] = () if given.get("objective.name", ours) == ours else ("objective.", "discovery.")
        dropped += ("network.options.",) if given.get("network.name", found.get("network.name")) != found.get("network.name") else ()
        found = {leaf: value for leaf, value in found.items() if not leaf.startswith(dropped)}
        return _without_least_steps(found, given)


# Data without labels, or with some: the settings below help these objectives. deep_cluster does better with the defaults.
SUITED = ("neighborhood_discovery", "neighbor_targets", "instance_discrimination", "noise_as_targets")
UNLABELED: Leaves = {"batch_size": "64", "optimizer.name": "adam", "optimizer.learning_rate": "0.003", "least_steps": "1000"}

# Small data with labels: small batches, and enough steps instead of a number of epochs.
FEW = 4000  # training points; fewer are small data
SMALL: Leaves = {"batch_size": "64", "least_steps": "300"}
STEPS, SMALLEST = 4, 16  # steps that an epoch of few points should have, and the smallest batch for that
OTHERS = 4  # least expected number of points outside the largest class in a batch: a batch of one class is refused
CLIPPED: Leaves = {"optimizer.clip": "1"}  # without it SGD ends in NaN on small data after many steps, and on large numbers

# Weights of a pretrained encoder are changed carefully: the rate of images was chosen on validation classes (docs/papers/tuning.md),
# that of texts on other texts of a training file (docs/papers/texts.md).
TUNED: Leaves = {"optimizer.name": "adam", "optimizer.weight_decay": "0", "optimizer.clip": "10"}
STARTED: Leaves = {"patience": "10"}  # epochs: where the map cannot be improved, a longer training is a longer wait
BODY_RATE, HEAD_RATE = 1e-4, 1e-3  # of an encoder that is trained, and of the head and the objective
LOW_RANK_RATE = 1e-3  # of low-rank changes of an encoder of images
ALONE_RATE = 1e-2  # of an objective's class vectors where no head shares their rate
# Photos of known classes: several of each class in a batch, crops and flips, and a few passes, as in docs/papers/encoders.md.
PHOTOS: Leaves = {
    "augment.name": "resized_crop",
    "sampler.name": "per_class",
    "schedule.warmup": "0.1",
    "epochs": "6",
    "least_steps": "150",
}
PHOTOS_BATCH, PHOTOS_OF_A_CLASS = 96, 4
VALIDATIONS = 5  # of a training of photos: each passes all of them through the encoder

RECIPES: Mapping[str, Recipe] = {
    "retrieval": Recipe.of(json.loads(Path(__file__).with_name("retrieval.json").read_text(encoding="utf-8"))),
    "discovery": Recipe(
        {
            "objective.name": "neighbor_targets",
            "network.name": "resnet18",
            "network.dimension": "512",
            "network.options.projection": "2048",
            "augment.name": "discovery",
            "augment.options.flip": "true",
            "augment.options.hue": "0.1",
            "optimizer.learning_rate": "0.12",
            "optimizer.nesterov": "false",
            "batch_size": "256",
            "views": "2",
            "epochs": "167",
            "least_steps": UNLABELED["least_steps"],
        },
        "ResNet-18, 512 dimensions; crops, flips and color changes; 167 epochs of two views, one cosine; a teacher's neighbors are targets",
        "docs/papers/neighbor-targets.md; color images of about 32 x 32, on a GPU",
        {"data.size": "32"},
    ),
}


def settings_for(purpose: str, data: str, given: Leaves) -> dict[str, str]:
    """The settings of a recipe for these data, next to those of the user."""
    check_choice("--for", purpose, RECIPES)
    return RECIPES[purpose].leaves(data, given)


def _without_least_steps(leaves: Leaves, given: Collection[str]) -> dict[str, str]:
    """The settings, without a least number of steps and an early end if the user set the epochs."""
    return {leaf: value for leaf, value in leaves.items() if leaf not in ("least_steps", "patience") or "epochs" not in given}


def suited(run: Run, train: Dataset, given: Collection[str]) -> Run:
    """The run with settings that suit its data: for learning without labels, for small data, for numbers, or for a tuned encoder.

    Settings in `given` are the user's and stay. If one of them belongs to the optimizer, all optimizer settings stay: they depend
    on each other.
    """
    name = objective_for(train, run.objective.name)[0]
    leaves = UNLABELED if name in SUITED else {} if name in WITHOUT_LABELS else _labeled(run, train)
    leaves = {**leaves, **_tuned(run, train, given)}
    leaves |= _photos(run, train, given) if _tunes(run) and name not in WITHOUT_LABELS else {}
    whole = any(leaf.startswith("optimizer.") for leaf in given)
    kept = set(given) | {leaf for leaf in leaves if whole and leaf.startswith("optimizer.")}
    kept |= {"least_steps"} if run.references == "training_set" else set()  # one step already covers all points
    return override(run, {leaf: value for leaf, value in _without_least_steps(leaves, kept).items() if leaf not in kept})


def _tuned(run: Run, train: Dataset, given: Collection[str]) -> Leaves:
    """Settings for weights of a pretrained encoder that are trained further, or for a head that starts from a map in closed form."""
    if not run.network.pretrained or run.network.tune == "none":
        return {}
    if run.network.tune == "head":
        return STARTED
    if any(leaf.startswith(("optimizer.", "network.rate")) for leaf in given):  # they depend on each other
        return {}
    rate = ALONE_RATE if run.network.options.get("head") is False else HEAD_RATE
    body = LOW_RANK_RATE if train.kind == "images" and LOW_RANK.fullmatch(run.network.tune) else BODY_RATE
    return {**TUNED, "optimizer.learning_rate": str(rate), "network.rate": str(body / rate)}


def _tunes(run: Run) -> bool:
    """Whether weights of a pretrained encoder are trained."""
    return run.network.pretrained and run.network.tune not in ("none", "head")


def _photos(run: Run, train: Dataset, given: Collection[str]) -> Leaves:
    """Batches, crops and length for an encoder that is tuned on photos of known classes, and how often it is validated."""
    if train.kind != "images" or train.supervision != "classes" or train.partly_labeled or run.references == "training_set":
        return {}
    assert train.labels is not None
    sizes = train.labels.bincount()
    per_class = max(PHOTOS_OF_A_CLASS, math.ceil(PHOTOS_BATCH / max(int((sizes > 0).sum()), 1)))
    drawn = sizes.clamp_max(per_class)
    batch = min(PHOTOS_BATCH, int(drawn.sum()))
    if batch <= int(drawn.max()):  # nearly all photos are of one class
        return {}
    steps = max(len(train) // batch, 1)
    epochs = run.epochs if "epochs" in given else max(int(PHOTOS["epochs"]), math.ceil(int(PHOTOS["least_steps"]) / steps))
    found = {**PHOTOS, "validate_every": str(max(1, epochs // VALIDATIONS))}
    if any(leaf.startswith(("sampler.", "batch_size")) for leaf in given):  # they depend on each other
        return {leaf: value for leaf, value in found.items() if leaf != "sampler.name"}
    return {**found, "batch_size": str(batch), "sampler.options.per_class": str(per_class)}


def in_bfloat16(run: Run, on_gpu: bool, given: Collection[str] | None, log: Reporter) -> Run:
    """The run in bfloat16 where weights of a pretrained encoder are trained on a GPU, unless the user chose the precision."""
    if given is None or "precision" in given or not (_tunes(run) and on_gpu) or run.precision == "bfloat16":
        return run
    log.message("the encoder is tuned in bfloat16; --set precision=float32 changes that")
    return replace(run, precision="bfloat16")


def _labeled(run: Run, train: Dataset) -> Leaves:
    """Settings for data with labels; none if every step covers the whole training set."""
    if run.references == "training_set":
        return {}
    if len(train) >= FEW:
        return CLIPPED if train.supervision == "numbers" else {}
    few = {**SMALL, **CLIPPED}
    return few if train.supervision != "classes" else {**few, "batch_size": str(_batch(run, train))}


def _batch(run: Run, train: Dataset) -> int:
    """The batch size for small data with classes.

    It grows with the number of classes, up to the run's own, which is also used if nearly all points are of one class.
    """
    assert train.labels is not None
    sizes, least = train.labels[train.labels >= 0].bincount(), int(SMALL["batch_size"])
    classes = int((sizes > 0).sum())
    batch = least * math.ceil(classes / least)
    if len(train) < STEPS * batch:  # a handful of points: a few smaller steps rather than one that leaves points out
        batch = max(min(batch, len(train) // STEPS), min(batch, 2 * classes), min(batch, SMALLEST))
    others = 1 - int(sizes.max()) / int(sizes.sum())  # the share of all classes but the largest
    return min(batch, run.batch_size) if batch * others >= OTHERS else run.batch_size


def lengthened(run: Run, points: int) -> Run:
    """The run with enough epochs over this many points for its least number of steps."""
    steps = 1 if run.references == "training_set" else max(points // run.batch_size, 1)
    return replace(run, epochs=max(run.epochs, math.ceil(run.least_steps / steps)))


def taken(run: Run, train: Dataset, given: Collection[str] | None, log: Reporter) -> Run:
    """The run as it will be trained; changes that suit the data are reported. With `given` None only its length may change."""
    suits = run if given is None else suited(run, train, given)
    changed = [f"batches of {suits.batch_size:,}"] if suits.batch_size != run.batch_size else []
    changed += [_in_words(suits.optimizer)] if suits.optimizer != run.optimizer else []
    changed += ["random crops and flips"] if suits.augment != run.augment else []
    if changed:
        data = f"{train.supervision}, {len(train):,} training points"
        if objective_for(train, run.objective.name)[0] in SUITED:
            data = "with some labels" if train.partly_labeled else "without labels"
        log.message(f"{data}: {', '.join(changed)}; --set changes that")
    long = lengthened(suits, len(train))
    if long != suits:
        log.message(f"{long.epochs:,} epochs, to make at least {long.least_steps:,} steps; --epochs changes that")
    return long


def _in_words(optimizer: OptimizerChoice) -> str:
    clipped = f" with gradients clipped to norm {optimizer.clip:g}" if optimizer.clip else ""
    return f"{optimizer.name} at {optimizer.learning_rate:g}{clipped}"
