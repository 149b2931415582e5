"""From the names in a run to the steps that change inputs: preprocessing, the same for all inputs, and augmentation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nearkin.compose.validation import check_choice
from nearkin.data import augment, preprocess
from nearkin.data.dataset import Dataset
from nearkin.train.config import Run, check_options
from nearkin.train.objective_choice import WITHOUT_LABELS


def _crop(size: int) -> tuple[Any, ...]:
    """A random `size` x `size` crop of every image, flipped half of the time. [lu2019sampling]"""
    return (augment.PadAndCrop(0, size), augment.HorizontalFlip())


def _resized_crop(size: int | None = None, scale: float = 0.25) -> tuple[Any, ...]:
    """A random box of at least the share `scale` of the area, resized to `size` (that of the image), and flipped half of the time."""
    return (augment.RandomResizedCrop(size, scale=(scale, 1.0)), augment.HorizontalFlip())


def _discovery(flip: bool = False, hue: float = 0.4, scale: float = 0.2, color: bool = True) -> tuple[Any, ...]:
    """The augmentation released by [huang2019and]: crops of at least the share `scale` of the area, color changes, a fifth gray.

    `flip` adds horizontal flips. Without `color`, which is the default for gray images, only brightness and contrast change.
    """
    jitter = augment.ColorJitter(hue=hue) if color else augment.ColorJitter(saturation=0.0, hue=0.0)
    steps = (augment.RandomResizedCrop(scale=(scale, 1.0)), jitter, *((augment.Grayscale(0.2),) if color else ()))
    return (augment.HorizontalFlip(), *steps) if flip else steps


AUTOMATIC_HUE = 0.1  # for augment.name=auto on color images without labels; it did better than the paper's 0.4
AUGMENTATIONS: dict[str, Callable[..., Any]] = {
    "none": lambda: (),
    "shift": lambda pixels=2: (augment.PadAndCrop(pixels),),
    "crop": _crop,
    "crop_flip": lambda pixels=4: (augment.PadAndCrop(pixels), augment.HorizontalFlip()),
    "resized_crop": _resized_crop,
    "affine": augment.Affine,
    "discovery": _discovery,
    "swap": augment.Swap,
    "drop": augment.DropTokens,
}
OF_KIND = {"vectors": ("none", "swap"), "texts": ("none", "drop")}  # all others are for images


def preparation(run: Run, train: Dataset) -> Sequence[Any]:
    """The preprocessing steps. The option `crop` cuts out the center first (training may crop at random, augment.name=crop).

    `mean` and `std` are a number, or a list with one per channel. Without them, standardize measures the training part.
    """
    if train.kind == "texts":
        return ()
    name, options = run.preprocess.name, dict(run.preprocess.options)
    if train.kind == "vectors":
        return _vector_steps(name, options, train)
    makers: dict[str, Callable[..., Any]] = {"standardize": _standardize, "auto": _standardize, "local_contrast": preprocess.LocalContrast}
    makers |= {known: partial(_unchanged, step) for known, step in preprocess.PRESETS.items()}
    check_choice("preprocess", name, makers)
    crop = options.pop("crop", None)
    filled = {"train": train} if makers[name] is _standardize else {}
    check_options(f"preprocess {name}", options, makers[name], filled=filled, besides=("crop",))
    first = () if crop is None else (preprocess.CenterCrop(crop),)
    return (*first, makers[name](**filled, **options))


def _vector_steps(name: str, options: dict[str, Any], train: Dataset) -> Sequence[Any]:
    """Vectors are standardized, column by column, or left as they are; rows of a table scale themselves."""
    check_choice("preprocess", {"auto": "standardize"}.get(name, name), ("standardize", "none"))
    if options:
        raise ValueError(f"preprocess.options ({', '.join(options)}) are for images, and {train.name} has vectors; leave them out")
    if name == "none" or train.table is not None:
        return ()
    return (preprocess.StandardizeColumns.fitted(train.read(part) for part in torch.split(_sample(train), 1000)),)


def _sample(train: Dataset) -> Tensor:
    """Ids of at most some 100,000 points, evenly spaced."""
    return train.ids if len(train) <= 100_000 else train.ids[:: len(train) // 100_000 + 1]


def _standardize(train: Dataset, per_channel: bool = True, mean: Any = None, std: Any = None) -> preprocess.Standardize:
    if mean is not None and std is not None:
        return preprocess.Standardize(_numbers(mean), _numbers(std))
    if mean is not None or std is not None:
        raise ValueError("preprocess.options.mean and preprocess.options.std belong together; set both, or neither")
    return preprocess.Standardize.fitted((train.read(part) for part in torch.split(_sample(train), 1000)), per_channel)


def _unchanged(step: preprocess.Standardize) -> preprocess.Standardize:
    return step


def _numbers(given: Any) -> tuple[float, ...]:
    return tuple(map(float, given)) if isinstance(given, list | tuple) else (float(given),)


class Prepare:
    """Inputs as the network takes them: images and vectors after preprocessing, token numbers as they are."""

    def __init__(self, steps: Sequence[Any], kind: str) -> None:
        self.steps, self.kind = steps, kind

    def __call__(self, inputs: Tensor) -> Tensor:
        if self.kind == "vectors":
            return preprocess.prepared(inputs, self.steps)
        if self.kind == "texts":
            return inputs
        return preprocess.preprocessed(inputs, self.steps).to(memory_format=torch.channels_last)


def augmentation(run: Run, train: Dataset, objective: str) -> tuple[Any, ...]:
    """The augmentation steps.

    "auto" is no augmentation for objectives that use labels. Without labels it is "discovery" for images, "swap" for vectors and
    "drop" for texts: a network could otherwise memorize every input. The hue of images changes less than in the paper, and they are
    not flipped, which would turn letters into others. Name "discovery" to get the paper's values.
    """
    name, options = run.augment.name, dict(run.augment.options)
    if name == "auto":
        name = {"vectors": "swap", "texts": "drop"}.get(train.kind, "discovery") if objective in WITHOUT_LABELS else "none"
        options = {"hue": AUTOMATIC_HUE, **options} if name == "discovery" else options
    if name == "discovery" and train.kind == "images":
        options = {"color": train.shape[0] == 3, **options}
    check_choice("augment", name, AUGMENTATIONS)
    allowed = OF_KIND.get(train.kind, tuple(one for one in AUGMENTATIONS if one not in ("swap", "drop")))
    if name not in allowed:
        raise ValueError(f"augment {name!r} is not for {train.kind}, which {train.name} has; set augment.name={' or '.join(allowed)}")
    check_options(f"augment {name}", options, AUGMENTATIONS[name])
    made = AUGMENTATIONS[name](**options)
    steps = made if isinstance(made, tuple) else (made,)
    _check_views(run, steps)
    return steps


def _check_views(run: Run, augmentation: tuple[Any, ...]) -> None:
    if run.views < 1:
        raise ValueError(f"views ({run.views}) must be at least 1")
    if run.views > 1 and not augmentation:
        raise ValueError(f"views ({run.views}) are all equal without augmentation; set augment.name, or views=1")
    if run.views > 1 and run.references == "training_set":
        raise ValueError("references=training_set uses every point once per step; set views=1")
