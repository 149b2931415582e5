"""Recipes: settings for a purpose, each with the place where they were measured. What a caller sets himself comes before."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nearkin.data.dataset import Dataset
from nearkin.train.config import OptimizerChoice, Run, override
from nearkin.train.objective_choice import WITHOUT_LABELS, objective_for
from nearkin.train.reporter import Reporter

Leaves = Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """Leaves of a Run, what they are in words, and where they were measured; and what is added for some data and networks."""

    settings: Leaves
    words: str
    source: str
    folder: Leaves = field(default_factory=dict)  # for folders of images, which may be of any size
    pretrained: Leaves = field(default_factory=dict)  # where `network.weights` names a file
    pretrained_folder: Leaves = field(default_factory=dict)  # with both, unless `data.size` is set

    @staticmethod
    def of(read: Mapping[str, Any]) -> "Recipe":
        """From the JSON that `python docs/lu2019.py --recipe` writes."""
        more = {name: read[name] for name in ("settings", "source", "folder", "pretrained", "pretrained_folder")}
        return Recipe(words=f"{read['words']}; judged on classes that training has not met", **more)

    def leaves(self, data: str, given: Leaves) -> dict[str, str]:
        """For these data and what a caller sets himself; without the leaves of its objective where he names another one."""
        found = dict(self.settings)
        folder, pretrained = Path(data).is_dir(), "network.weights" in given
        found |= self.folder if folder else {}
        found |= self.pretrained if pretrained else {}
        found |= self.pretrained_folder if pretrained and folder and "data.size" not in given else {}
        mine = found["objective.name"]
        own = () if given.get("objective.name", mine) == mine else ("objective.", "discovery.")
        found = {leaf: value for leaf, value in found.items() if not leaf.startswith(own)}
        return _as_long_as_told(found, given)


# For data without labels, or with some, where nobody has said otherwise, and the objectives that gain by it: docs/log.md has the trials.
SUITED = ("neighborhood_discovery", "instance_discrimination", "noise_as_targets")
UNLABELED: Leaves = {"batch_size": "64", "optimizer.name": "adam", "optimizer.learning_rate": "0.003", "least_steps": "1000"}

# For few points with answers, where nobody has said otherwise: docs/log.md, "A small folder with labels", has the trials.
FEW = 4000  # training points, below which batches are small and steps are counted
SMALL: Leaves = {"batch_size": "64", "least_steps": "300"}
OTHERS = 4  # points outside the largest class in a small batch, on average: a batch of one class is refused
CLIPPED: Leaves = {"optimizer.clip": "1"}  # or SGD ends in NaN: on few points after many steps, on numbers where they are large

RECIPES: Mapping[str, Recipe] = {
    "retrieval": Recipe.of(json.loads(Path(__file__).with_name("retrieval.json").read_text(encoding="utf-8"))),
    "discovery": Recipe(
        {
            "objective.name": "neighborhood_discovery",
            "network.name": "resnet18",
            "network.dimension": "128",
            "network.normalize": "true",
            "augment.name": "discovery",
            "augment.options.flip": "true",
            "augment.options.hue": "0.1",
            "discovery.refresh": "epoch",
            "discovery.gradual": "true",
            "discovery.restart": "false",
            "optimizer.learning_rate": "0.06",
            "optimizer.weight_decay": "1e-3",
            "schedule.warmup": "0",
            "batch_size": "256",
            "epochs": "250",
            "least_steps": UNLABELED["least_steps"],
        },
        "a ResNet-18 into 128 numbers, crops, flips and colors changed, one cosine over 250 epochs, a few more neighbors trusted in each",
        "docs/papers/huang2019.md, beyond the paper; color images of about 32 x 32, on a GPU",
        {"data.size": "32"},
    ),
}


def settings_for(purpose: str, data: str, given: Leaves) -> dict[str, str]:
    """The recipe's leaves for these data, beside those that are given."""
    if purpose not in RECIPES:
        raise ValueError(f"--for {purpose!r} is unknown; there are recipes for {', '.join(RECIPES)}")
    return RECIPES[purpose].leaves(data, given)


def _as_long_as_told(leaves: Leaves, given: Collection[str]) -> dict[str, str]:
    """The leaves without a least number of steps where the epochs are given."""
    return {leaf: value for leaf, value in leaves.items() if leaf != "least_steps" or "epochs" not in given}


def suited(run: Run, train: Dataset, given: Collection[str]) -> Run:
    """The run, with settings for learning without labels where its objective does so, be it named or taken for what the data lack;
    otherwise with those for few points, and for numbers.

    Of the leaves that are `given` none is changed, and any of the optimizer's keeps all of them, since they go together.
    """
    name = objective_for(train, run.objective.name)[0]
    leaves = UNLABELED if name in SUITED else {} if name in WITHOUT_LABELS else _taught(run, train)
    whole = any(leaf.startswith("optimizer.") for leaf in given)
    kept = set(given) | {leaf for leaf in leaves if whole and leaf.startswith("optimizer.")}
    kept |= {"least_steps"} if run.references == "training_set" else set()  # a step over everything is no small one
    return override(run, {leaf: value for leaf, value in _as_long_as_told(leaves, kept).items() if leaf not in kept})


def _taught(run: Run, train: Dataset) -> Leaves:
    """For points with answers; every step over all of them at once is left as it is."""
    if run.references == "training_set":
        return {}
    if len(train) >= FEW:
        return CLIPPED if train.supervision == "numbers" else {}
    few = {**SMALL, **CLIPPED}
    return few if train.supervision != "classes" else {**few, "batch_size": str(_batch(run, train))}


def _batch(run: Run, train: Dataset) -> int:
    """A small batch; a larger one, up to the usual, where it has no place for every class, and the usual where most points are of one."""
    assert train.labels is not None
    sizes, least = train.labels[train.labels >= 0].bincount(), int(SMALL["batch_size"])
    batch = least * math.ceil(int((sizes > 0).sum()) / least)
    others = 1 - int(sizes.max()) / int(sizes.sum())  # the share of all classes but the largest
    return min(batch, run.batch_size) if batch * others >= OTHERS else run.batch_size


def lengthened(run: Run, points: int) -> Run:
    """The run with as many epochs over so many points as its least number of steps takes."""
    an_epoch = 1 if run.references == "training_set" else max(points // run.batch_size, 1)
    return replace(run, epochs=max(run.epochs, math.ceil(run.least_steps / an_epoch)))


def taken(run: Run, train: Dataset, given: Collection[str] | None, log: Reporter) -> Run:
    """The run as it is trained, after lines that say what was set to suit the data: nothing but its length where `given` is None."""
    suits = run if given is None else suited(run, train, given)
    changed = [f"batches of {suits.batch_size:,}"] if suits.batch_size != run.batch_size else []
    changed += [_in_words(suits.optimizer)] if suits.optimizer != run.optimizer else []
    if changed:
        told = f"{train.supervision}, {len(train):,} points to learn from"
        if objective_for(train, run.objective.name)[0] in SUITED:
            told = "with some labels" if train.partly_labeled else "without labels"
        log.message(f"{told}: {', '.join(changed)}; --set changes that")
    long = lengthened(suits, len(train))
    if long != suits:
        log.message(f"{long.epochs:,} epochs, for at least {long.least_steps:,} steps; --epochs changes that")
    return long


def _in_words(optimizer: OptimizerChoice) -> str:
    clipped = f" with gradients of length {optimizer.clip:g} at most" if optimizer.clip else ""
    return f"{optimizer.name} at {optimizer.learning_rate:g}{clipped}"
