"""Recipes: settings for a purpose, each with the place where they were measured. What a caller sets himself comes before."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Recipe:
    """Leaves of a Run, what they are in words, and where they were measured."""

    settings: Mapping[str, str]
    words: str
    source: str
    folder_size: int | None = None  # pixels of images in folders, which may be of any size


# Provisional: in a small trial level with Prec@k, and it does not walk through a collapse. Table 1 of Lu et al. decides once it is run.
BEST: Mapping[str, str] = {"objective.name": "triplet", "objective.options.choice": "semi-hard", "objective.options.margin": "0.1"}

RECIPES: Mapping[str, Recipe] = {
    "retrieval": Recipe(
        {
            **BEST,
            "sampler.name": "per_class",
            "sampler.options.per_class": "11",
            "batch_size": "64",
            "network.dimension": "64",
            "network.normalise": "true",
            "optimiser.name": "adam",
            "optimiser.learning_rate": "0.001",
            "optimiser.weight_decay": "1e-4",
            "data.split": "classes",
        },
        "semi-hard triplets in batches of 64 with 11 images a class, unit length, Adam; judged on classes that training has not met",
        "docs/log.md, a small trial; table 1 of Lu et al. in docs/results.md decides",
        folder_size=128,
    ),
    "discovery": Recipe(
        {
            "objective.name": "neighbourhood_discovery",
            "network.name": "resnet18",
            "network.dimension": "128",
            "network.normalise": "true",
            "augment.name": "discovery",
            "augment.options.flip": "true",
            "augment.options.hue": "0.1",
            "discovery.refresh": "epoch",
            "discovery.gradual": "true",
            "discovery.restart": "false",
            "optimiser.learning_rate": "0.06",
            "schedule.warmup": "0",
            "batch_size": "256",
            "epochs": "250",
        },
        "a ResNet-18 into 128 numbers, crops, flips and colours changed, one cosine over 250 epochs, a few more neighbours trusted in each",
        "docs/results.md, beyond the paper of Huang et al.; colour images of about 32 x 32, on a GPU",
        folder_size=32,
    ),
}


def settings_for(purpose: str, data: str, objective: str | None = None) -> dict[str, str]:
    """The recipe's leaves for these data; without those of its objective where another one is named."""
    if purpose not in RECIPES:
        raise ValueError(f"--for {purpose!r} is unknown; there are recipes for {', '.join(RECIPES)}")
    recipe = RECIPES[purpose]
    sized = {"data.size": str(recipe.folder_size)} if recipe.folder_size and Path(data).is_dir() else {}
    kept = {leaf: value for leaf, value in recipe.settings.items() if objective is None or not leaf.startswith("objective.")}
    return {**kept, **sized}
