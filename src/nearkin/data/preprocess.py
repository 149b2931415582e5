"""Preprocessing: from stored pixels to the input of a network, the same for training and testing.

Stored pixels are uint8 in 0..255, or floats in 0..1. Every step is a frozen dataclass that is called on a batch (b, c, h, w) and returns
float32. A preprocessing is a tuple of steps; `describe` and `restore` convert it to JSON and back. What a step learns (a mean, a standard
deviation) it learns once, from training images only.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

from nearkin.compose.validation import check_choice, nearest_name

__all__ = [
    "BGR_255",
    "CIFAR",
    "IMAGENET",
    "PRESETS",
    "SVHN",
    "CenterCrop",
    "LocalContrast",
    "Resize",
    "Standardize",
    "StandardizeColumns",
    "Step",
    "describe",
    "prepared",
    "preprocessed",
    "restore",
]

CONSTANT = 1e-6  # a standard deviation below this is float32 rounding of a constant image


class Step(Protocol):
    """The protocol of a preprocessing step: any function of a batch is one."""

    def __call__(self, images: Tensor) -> Tensor:
        """Apply the step.

        Parameters
        ----------
        images : Tensor
            (b, c, h, w) uint8 in 0..255 or float in 0..1.

        Returns
        -------
        Tensor
            (b, c, h', w') float32.
        """


@dataclass(frozen=True)
class Standardize:
    """Standardize pixels in 0..1: (pixel - mean) / std.

    Parameters
    ----------
    mean : tuple of float
        One number for each channel, or one for all.
    std : tuple of float
        The same, all above 0.
    reverse_channels : bool, default=False
        Change RGB to BGR afterwards, for weights that were trained that way.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.preprocess import Standardize
    >>> step = Standardize.fitted(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
    >>> step
    Standardize(mean=(0.5,), std=(0.5,), reverse_channels=False)
    >>> step(torch.full((1, 1, 1, 1), 1.0))
    tensor([[[[1.]]]])

    References
    ----------
    [hao2018anchor], section 4.1
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
        """Compute mean and standard deviation of images; pass training images only.

        uint8 is summed in whole numbers, so the order of the images does not matter. A constant channel is only centered.

        Parameters
        ----------
        images : Tensor or iterable of Tensor
            One batch or several, (b, c, h, w).
        per_channel : bool, default=True
            One mean and standard deviation for each channel; otherwise one over all channels.

        Returns
        -------
        Standardize

        Raises
        ------
        ValueError
            If there are no images.
        """
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for batch in [images] if isinstance(images, Tensor) else images:
            check_images(batch)
            pixels = (batch.long() if batch.dtype == torch.uint8 else batch.double()).transpose(0, 1).flatten(1)  # (c, b * h * w)
            count += pixels.shape[1]
            total = total.to(pixels) + pixels.sum(1)
            squares = squares.to(pixels) + (pixels * pixels).sum(1)
        if not count:
            raise ValueError("images is empty; pass the training images")
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


@dataclass(frozen=True)
class StandardizeColumns:
    """Standardize vectors column by column: (x - mean) / std, so that no unit outweighs the others.

    Parameters
    ----------
    mean : tuple of float
        One number for each column.
    std : tuple of float
        The same, all above 0.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.preprocess import StandardizeColumns
    >>> StandardizeColumns.fitted([torch.tensor([[1.0, 500.0], [3.0, 500.0]])])(torch.tensor([[2.0, 501.0]]))
    tensor([[0., 1.]])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def fitted(cls, parts: Iterable[Tensor]) -> Self:
        """Compute mean and standard deviation of each column; pass training vectors only. A constant column is only centered.

        Parameters
        ----------
        parts : iterable of Tensor
            Batches (b, d).

        Returns
        -------
        StandardizeColumns
        """
        count, mean, moment = 0, torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        for part in parts:  # Chan's update of the sums: squares of large numbers would lose the spread
            rows = part.double().cpu()
            own, total = rows.mean(0), count + len(rows)
            moment = moment + (rows - own).square().sum(0) + (own - mean).square() * count * len(rows) / total
            mean, count = mean + (own - mean) * len(rows) / total, total
        std = (moment / max(count, 1)).sqrt()
        std = torch.where(std <= CONSTANT * mean.abs().clamp_min(CONSTANT), 1.0, std)
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    def __call__(self, vectors: Tensor) -> Tensor:
        mean, std = (constant(values, vectors.device) for values in (self.mean, self.std))
        return (vectors.float() - mean) / std


CIFAR = Standardize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # as released with [huang2019and], for CIFAR-100 too
SVHN = Standardize((0.4377, 0.4438, 0.4728), (0.1201, 0.1231, 0.1052))
IMAGENET = Standardize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
BGR_255 = Standardize((128 / 255, 117 / 255, 104 / 255), (1 / 255,) * 3, reverse_channels=True)  # as released with [lu2019sampling]
PRESETS = {"cifar": CIFAR, "svhn": SVHN, "imagenet": IMAGENET, "bgr_255": BGR_255}


@dataclass(frozen=True)
class LocalContrast:
    """Local contrast normalization: standardize each channel, subtract its local mean, divide by its local standard deviation.

    The local standard deviation divides only where it is above 1, so that flat regions do not become noise. Windows are Gaussian and lie
    inside the image; the border that they leave is filled with zeros, so the size stays.

    Parameters
    ----------
    size : int, default=9
        Side of the window, odd; the code of [taylor2010pose] for small-NORB takes 5.
    sigma : float, default=1.591
        Standard deviation of the Gaussian, in pixels.

    Notes
    -----
    Differs: the code of [taylor2010pose] returns the image without its border.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.preprocess import LocalContrast
    >>> LocalContrast(size=3)(torch.zeros(1, 1, 4, 4)).abs().max()
    tensor(0.)

    References
    ----------
    [taylor2010pose]
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
    """Resize images; bilinear, antialiased, without rounding to whole values.

    Parameters
    ----------
    size : int or tuple of int
        The new short side, keeping the aspect ratio; or (height, width).

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.preprocess import Resize
    >>> Resize(8)(torch.zeros(1, 3, 16, 32)).shape
    torch.Size([1, 3, 8, 16])
    """

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
    """Cut out the middle of images.

    Parameters
    ----------
    size : int or tuple of int
        Side of the square, or (height, width).

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.preprocess import CenterCrop
    >>> CenterCrop(8)(torch.zeros(1, 3, 16, 32)).shape
    torch.Size([1, 3, 8, 8])
    """

    size: int | tuple[int, int]

    def __call__(self, images: Tensor) -> Tensor:
        x = as_float(images)
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        if height > x.shape[2] or width > x.shape[3]:
            raise ValueError(f"size ({height} x {width}) is larger than the images ({x.shape[2]} x {x.shape[3]}); put a Resize before")
        top, left = round((x.shape[2] - height) / 2), round((x.shape[3] - width) / 2)  # Python's round, as torchvision does
        return x[:, :, top : top + height, left : left + width]


STEPS: Mapping[str, type] = {step.__name__: step for step in (Standardize, StandardizeColumns, LocalContrast, Resize, CenterCrop)}


def preprocessed(images: Tensor, steps: Sequence[Step]) -> Tensor:
    """Apply steps one after the other; without steps the pixels become floats in 0..1.

    Parameters
    ----------
    images : Tensor
        (b, c, h, w) uint8 in 0..255 or float in 0..1.
    steps : sequence of Step
        The steps.

    Returns
    -------
    Tensor
        float32.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.preprocess import CIFAR, CenterCrop, preprocessed
    >>> preprocessed(torch.zeros(1, 3, 40, 40, dtype=torch.uint8), (CenterCrop(32), CIFAR)).shape
    torch.Size([1, 3, 32, 32])
    """
    for step in steps:
        images = step(images)
    return as_float(images)


def as_float(images: Tensor) -> Tensor:
    """uint8 in 0..255 to float32 in 0..1; floats are expected to be in 0..1 already."""
    check_images(images)
    return images.float().div(255) if images.dtype == torch.uint8 else images.float()


def check_images(images: Any) -> None:
    """Check that this is a batch of images, uint8 or float."""
    if not isinstance(images, Tensor) or not (images.dtype == torch.uint8 or images.is_floating_point()):
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images must be a tensor of uint8 (0..255) or of floats (0..1), not {kind}")
    if images.ndim != 4:
        raise ValueError(f"images have shape {tuple(images.shape)}; give a batch (b, c, h, w)")


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, copied there once: a copy cannot be recorded in a CUDA graph."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def prepared(points: Tensor, steps: Sequence[Step]) -> Tensor:
    """Apply steps to images or vectors, as a network takes them.

    Parameters
    ----------
    points : Tensor
        Images (b, c, h, w), or vectors (b, d).
    steps : sequence of Step
        The steps.

    Returns
    -------
    Tensor
        float32.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.preprocess import prepared
    >>> prepared(torch.tensor([[1, 2]]), ())
    tensor([[1., 2.]])
    """
    if points.ndim == 4:
        return preprocessed(points, steps)
    points = points.float()
    for step in steps:
        points = step(points)
    return points


def describe(steps: Sequence[Any]) -> list[dict[str, Any]]:
    """Describe steps by plain lists and dicts for JSON.

    Parameters
    ----------
    steps : sequence of Step
        Steps of preprocessing or augmentation.

    Returns
    -------
    list of dict
        The name of each step and its options.

    Examples
    --------
    >>> from nearkin.data.preprocess import Resize, describe, restore
    >>> describe((Resize(32),))
    [{'step': 'Resize', 'size': 32}]
    >>> restore(describe((Resize(32),)))
    (Resize(size=32),)
    """
    return [{"step": type(step).__name__, **dataclasses.asdict(step)} for step in steps]


def restore(described: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Restore steps from what `describe` returned.

    Parameters
    ----------
    described : sequence of mapping
        The name of each step and its options.

    Returns
    -------
    tuple of Step

    Raises
    ------
    ValueError
        If a step or an option is unknown; the message names the nearest known one.

    Examples
    --------
    >>> from nearkin.data.preprocess import restore
    >>> restore([{"step": "CenterCrop", "size": 24}])
    (CenterCrop(size=24),)
    """
    return restore_steps(described, STEPS)


def restore_steps(described: Sequence[Mapping[str, Any]], known: Mapping[str, type]) -> tuple[Any, ...]:
    """The same for any table of known steps."""
    return tuple(_restored(dict(one), known) for one in described)


def _restored(one: dict[str, Any], known: Mapping[str, type]) -> Any:
    name = str(one.pop("step", None))
    check_choice("step", name, known)
    fields = [field.name for field in dataclasses.fields(known[name])]
    for option in one:
        if option not in fields:
            raise ValueError(f"{name} has no option {option!r}{nearest_name(option, fields)}; its options are {', '.join(fields)}")
    return known[name](**{option: tuple(value) if isinstance(value, list) else value for option, value in one.items()})
