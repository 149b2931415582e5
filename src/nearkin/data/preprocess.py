"""Preprocessing: from stored pixels to what a network reads, the same for training and for test.

Stored pixels are uint8 in 0..255, or floats in 0..1. Every step is a frozen dataclass that is called on a batch
(b, c, h, w) and gives float32; a tuple of steps is a preprocessing, and `describe` / `restore` take it to JSON and
back. What a step must learn (a mean, a spread) it learns from training images only, once, and then carries as numbers.
"""

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

CONSTANT = 1e-6  # a spread below this is float32's rounding of a constant image, not contrast


class Step(Protocol):
    """A preprocessing step."""

    def __call__(self, images: Tensor) -> Tensor:
        """(b, c, h, w) uint8 or float to (b, c, h', w') float32."""


@dataclass(frozen=True)
class Standardize:
    """(pixel - mean) / std, one number for each channel or one for all; pixels in 0..1.

    `reverse_channels` swaps RGB to BGR afterwards, for weights that were trained that way.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    reverse_channels: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(f"mean has {len(self.mean)} numbers and std {len(self.std)}; give both one number, or one for each channel")
        if not min(self.std) > 0:
            raise ValueError(f"std {self.std} must be above 0; a channel that never changes takes 1")

    @classmethod
    def fitted(cls, images: Tensor | Iterable[Tensor], per_channel: bool = True) -> Self:
        """Global zero mean and unit variance over these images: hand in the training images, and only those.

        A batch or an iterable of batches; uint8 is summed in whole numbers, so the order of the images changes nothing. A
        constant channel is only centerd. `per_channel=False` takes one mean and spread over all channels. [hao2018anchor] section 4.1
        """
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for batch in [images] if isinstance(images, Tensor) else images:
            check_images(batch)
            pixels = (batch.long() if batch.dtype == torch.uint8 else batch.double()).transpose(0, 1).flatten(1)  # (c, b * h * w)
            count += pixels.shape[1]
            total = total.to(pixels) + pixels.sum(1)
            squares = squares.to(pixels) + (pixels * pixels).sum(1)
        if not count:
            raise ValueError("images is empty; hand in the training images")
        scale = 255.0 if total.dtype == torch.int64 else 1.0
        mean, square = total.double() / count / scale, squares.double() / count / scale**2  # (c,)
        if not per_channel:
            mean, square = mean.mean(0, keepdim=True), square.mean(0, keepdim=True)
        std = (square - mean * mean).clamp_min(0).sqrt()
        std = torch.where(std < CONSTANT, 1.0, std)
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    def __call__(self, images: Tensor) -> Tensor:
        x = as_float(images)
        if len(self.mean) not in (1, x.shape[1]):
            raise ValueError(f"images have {x.shape[1]} channels, but mean and std are for {len(self.mean)}; give one number for each")
        mean, std = (constant(values, x.device)[:, None, None] for values in (self.mean, self.std))
        x = (x - mean) / std
        return x.flip(1) if self.reverse_channels else x


CIFAR = Standardize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # as released with [huang2019and], for CIFAR-100 too
SVHN = Standardize((0.4377, 0.4438, 0.4728), (0.1201, 0.1231, 0.1052))
IMAGENET = Standardize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
BGR_255 = Standardize((128 / 255, 117 / 255, 104 / 255), (1 / 255,) * 3, reverse_channels=True)  # as released with [lu2019sampling]
GIVEN = {"cifar": CIFAR, "svhn": SVHN, "imagenet": IMAGENET, "bgr_255": BGR_255}


@dataclass(frozen=True)
class LocalContrast:
    """Local contrast normalization: each channel to zero mean and unit spread, then minus its local mean, over its local spread.

    The local spread divides only where it is above 1, so flat regions stay flat instead of showing their noise. Windows are
    Gaussian and lie wholly inside the image; the rim they leave is filled with zeros, so the size stays. [taylor2010pose]
    (their small-NORB code takes size 5). Differs: that code returns the image without its rim.
    """

    size: int = 9
    sigma: float = 1.591

    def __post_init__(self) -> None:
        if self.size < 3 or self.size % 2 == 0:
            raise ValueError(f"size ({self.size}) must be odd and at least 3, so that a window has a middle")
        if not self.sigma > 0:
            raise ValueError(f"sigma ({self.sigma}) must be above 0")

    def __call__(self, images: Tensor) -> Tensor:
        x = as_float(images)
        height, width = x.shape[2:]
        if min(height, width) < self.size:
            raise ValueError(f"size ({self.size}) is above the images' side ({min(height, width)}); lower it or resize the images first")
        x = x - x.mean((2, 3), keepdim=True)
        spread = x.std((2, 3), keepdim=True)
        x = torch.where(spread < CONSTANT, 0.0, x / spread.clamp_min(CONSTANT))
        mean = self._blurred(x)
        variance = (self._blurred(x * x) - mean * mean).clamp_min(0)
        rim = self.size // 2
        x = (x[:, :, rim : height - rim, rim : width - rim] - mean) / variance.sqrt().clamp_min(1)
        return functional.pad(x, (rim, rim, rim, rim))

    def _blurred(self, x: Tensor) -> Tensor:
        """The Gaussian mean over every window inside the image; sums of shifted images, because a convolution may round to TF32."""
        offsets = [i - self.size // 2 for i in range(self.size)]
        heights = [math.exp(-(i**2) / (2 * self.sigma**2)) for i in offsets]
        weights = [h / sum(heights) for h in heights]
        rows, columns = x.shape[2] - self.size + 1, x.shape[3] - self.size + 1
        x = sum((w * x[:, :, i : i + rows] for i, w in enumerate(weights)), torch.zeros((), device=x.device))
        return sum((w * x[:, :, :, i : i + columns] for i, w in enumerate(weights)), torch.zeros((), device=x.device))


@dataclass(frozen=True)
class Resize:
    """The short side to `size` with the shape kept, or (height, width) exactly; bilinear, antialiased, not rounded to whole values."""

    size: int | tuple[int, int]

    def __call__(self, images: Tensor) -> Tensor:
        x = as_float(images)
        height, width = x.shape[2:]
        if isinstance(self.size, int):
            short = min(height, width)
            target = (int(self.size * height / short), int(self.size * width / short))
        else:
            target = self.size
        if target == (height, width):
            return x
        return functional.interpolate(x, target, mode="bilinear", align_corners=False, antialias=True)


@dataclass(frozen=True)
class CenterCrop:
    """The middle `size` x `size`, or (height, width), of every image."""

    size: int | tuple[int, int]

    def __call__(self, images: Tensor) -> Tensor:
        x = as_float(images)
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        if height > x.shape[2] or width > x.shape[3]:
            raise ValueError(f"size ({height} x {width}) is larger than the images ({x.shape[2]} x {x.shape[3]}); put a Resize before")
        top, left = round((x.shape[2] - height) / 2), round((x.shape[3] - width) / 2)  # Python's round, as torchvision does
        return x[:, :, top : top + height, left : left + width]


STEPS: Mapping[str, type] = {step.__name__: step for step in (Standardize, LocalContrast, Resize, CenterCrop)}


def preprocessed(images: Tensor, steps: Sequence[Step]) -> Tensor:
    """The steps one after the other; with none, the pixels as floats in 0..1."""
    for step in steps:
        images = step(images)
    return as_float(images)


def as_float(images: Tensor) -> Tensor:
    """uint8 in 0..255 to float32 in 0..1; floats are taken to be there already."""
    check_images(images)
    return images.float().div(255) if images.dtype == torch.uint8 else images.float()


def check_images(images: Any) -> None:
    """A batch of images, uint8 or float."""
    if not isinstance(images, Tensor) or not (images.dtype == torch.uint8 or images.is_floating_point()):
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images must be a tensor of uint8 (0..255) or of floats (0..1), not {kind}")
    if images.ndim != 4:
        raise ValueError(f"images have shape {tuple(images.shape)}; give a batch (b, c, h, w)")


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, sent once: a transfer cannot be recorded in a CUDA graph."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def describe(steps: Sequence[Any]) -> list[dict[str, Any]]:
    """Steps as plain lists and dicts, ready for JSON."""
    return [{"step": type(step).__name__, **dataclasses.asdict(step)} for step in steps]


def restore(described: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """The steps that `describe` wrote down."""
    return restore_steps(described, STEPS)


def restore_steps(described: Sequence[Mapping[str, Any]], known: Mapping[str, type]) -> tuple[Any, ...]:
    """The same for any table of steps."""
    return tuple(_restored(dict(one), known) for one in described)


def _restored(one: dict[str, Any], known: Mapping[str, type]) -> Any:
    name = str(one.pop("step", None))
    if name not in known:
        raise ValueError(f"step {name!r} is unknown{nearest_name(name, known)}; the steps are {', '.join(known)}")
    fields = [field.name for field in dataclasses.fields(known[name])]
    for option in one:
        if option not in fields:
            raise ValueError(f"{name} has no option {option!r}{nearest_name(option, fields)}; its options are {', '.join(fields)}")
    return known[name](**{option: tuple(value) if isinstance(value, list) else value for option, value in one.items()})


def nearest_name(name: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)', or nothing when no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
