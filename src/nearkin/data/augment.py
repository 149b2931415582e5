"""Augmentation: random changes of images or vectors that keep their meaning; for training only.

Steps work on whole batches, on the device of the batch, with random numbers of its own for EVERY image. Each step first draws its random
numbers (`draw`) and then applies them (`apply`, which is a pure function). Nothing is read back from the device and there is no Python loop
over images, so several steps can be recorded in a CUDA graph.

Random numbers come from the generator's device: a CPU generator gives the same images on any device; register a CUDA generator with the
graph to record it. An augmentation is a tuple of steps, such as `AND_CIFAR`; it returns float32 in 0..1, so standardize after it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional

from nearkin.data.preprocess import as_float, constant, restore_steps

__all__ = [
    "AND_CIFAR",
    "CIFAR_PLUS",
    "Affine",
    "ColorJitter",
    "DropTokens",
    "Grayscale",
    "HorizontalFlip",
    "PadAndCrop",
    "RandomResizedCrop",
    "Step",
    "Swap",
    "augmented",
    "geometric",
    "restore",
    "two_views",
]

Drawn = Mapping[str, Tensor]  # each (b, ...): the random numbers of one step for every image
Outside = Literal["zeros", "border"]  # pixels beyond the image: black, or a copy of the outermost

GRAY = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow; they add up to 1, so gray stays gray
ATTEMPTS = 10  # boxes that RandomResizedCrop tries before it takes the middle


class Step(Protocol):
    """The protocol of an augmentation step: any object with these two methods is one."""

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """Draw the random numbers of a batch.

        Parameters
        ----------
        images : Tensor
            (b, c, h, w) float in 0..1.
        generator : torch.Generator
            Source of the random numbers.

        Returns
        -------
        dict of str to Tensor
            What was drawn, each (b, ...).
        """

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """Apply what was drawn.

        Parameters
        ----------
        images : Tensor
            (b, c, h, w) float in 0..1.
        drawn : mapping of str to Tensor
            As of `draw`.

        Returns
        -------
        Tensor
            The changed images.
        """


def augmented(images: Tensor, steps: Sequence[Step], generator: Generator) -> Tensor:
    """Apply steps one after the other.

    Parameters
    ----------
    images : Tensor
        Images (b, c, h, w), uint8 in 0..255 or float in 0..1, or vectors (b, d).
    steps : sequence of Step
        The steps.
    generator : torch.Generator
        Source of the random numbers.

    Returns
    -------
    Tensor
        float32; images in 0..1.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import CIFAR_PLUS, augmented
    >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    >>> augmented(images, CIFAR_PLUS, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 32, 32])
    """
    images = images.float() if images.ndim == 2 else as_float(images)
    for step in steps:
        images = step.apply(images, step.draw(images, generator))
    return images


def geometric(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps that move pixels and leave their colors: crops, flips and affine maps.

    Parameters
    ----------
    steps : sequence of Step
        The steps; one of your own is among the result if it has `moves_pixels` = True.

    Returns
    -------
    tuple of Step
        Some of them, in their order.

    Examples
    --------
    >>> from nearkin.data.augment import Grayscale, HorizontalFlip, geometric
    >>> geometric((HorizontalFlip(), Grayscale(0.2)))
    (HorizontalFlip(probability=0.5),)
    """
    return tuple(step for step in steps if getattr(step, "moves_pixels", False))


def two_views(images: Tensor, steps: Sequence[Step], generator: Generator) -> tuple[Tensor, Tensor]:
    """Augment a batch twice, independently: row i of both results comes from the same image and has its id.

    Parameters
    ----------
    images : Tensor
        As of `augmented`.
    steps : sequence of Step
        The steps.
    generator : torch.Generator
        Source of the random numbers.

    Returns
    -------
    tuple of Tensor
        The two augmented batches.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import Swap, two_views
    >>> first, second = two_views(torch.eye(8), (Swap(0.5),), torch.Generator().manual_seed(0))
    >>> first.shape == second.shape, bool((first == second).all())
    (True, False)
    """
    first, second = augmented(torch.cat([images, images]), steps, generator).chunk(2)
    return first, second


@dataclass(frozen=True)
class PadAndCrop:
    """Pad every side, then crop at a random place; with padding 0 and a size it is the plain random crop.

    Parameters
    ----------
    padding : int, default=4
        Pixels added on every side.
    size : int, optional
        Side of the crop. By default the image's own height and width.
    outside : {"zeros", "border"}, default="zeros"
        Added pixels: black, or copies of the outermost ones.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import PadAndCrop, augmented
    >>> augmented(torch.rand(2, 1, 8, 8), (PadAndCrop(0, size=6),), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 6, 6])

    References
    ----------
    [hao2018anchor], section 4.1
    """

    moves_pixels: ClassVar[bool] = True
    padding: int = 4
    size: int | None = None
    outside: Outside = "zeros"

    def __post_init__(self) -> None:
        _check_between("padding", self.padding, 0, math.inf)
        _check_outside(self.outside)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        height, width = images.shape[2:]
        rows, columns = self._cut(images)
        corner = _uniform(images, generator, 2)
        return {
            "top": _whole(corner[:, 0], height + 2 * self.padding - rows + 1),
            "left": _whole(corner[:, 1], width + 2 * self.padding - columns + 1),
        }

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """As of `Step`."""
        mode = "constant" if self.outside == "zeros" else "replicate"
        padded = functional.pad(images, (self.padding,) * 4, mode=mode)
        height, width = self._cut(images)
        rows = drawn["top"].long()[:, None] + torch.arange(height, device=images.device)  # (b, h)
        columns = drawn["left"].long()[:, None] + torch.arange(width, device=images.device)  # (b, w)
        image = torch.arange(len(images), device=images.device)[:, None, None]
        return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)  # from (b, h, w, c)

    def _cut(self, images: Tensor) -> tuple[int, int]:
        height, width = images.shape[2:]
        size = (height, width) if self.size is None else (self.size, self.size)
        if size[0] > height + 2 * self.padding or size[1] > width + 2 * self.padding:
            raise ValueError(
                f"size ({self.size}) is larger than the padded images ({height} x {width} and {self.padding} on every side); "
                "resize them first or raise padding"
            )
        return size


@dataclass(frozen=True)
class HorizontalFlip:
    """Exchange left and right.

    Parameters
    ----------
    probability : float, default=0.5
        Probability of a flip, for each image.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import HorizontalFlip, augmented
    >>> augmented(torch.tensor([[[[0.0, 1.0]]]]), (HorizontalFlip(1.0),), torch.Generator())
    tensor([[[[1., 0.]]]])
    """

    moves_pixels: ClassVar[bool] = True
    probability: float = 0.5

    def __post_init__(self) -> None:
        _check_between("probability", self.probability, 0, 1)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        return {"flipped": _uniform(images, generator, 1)[:, 0] < self.probability}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """As of `Step`."""
        return torch.where(_wide(drawn["flipped"]), images.flip(3), images)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crop a random box and resize it.

    The first of ten drawn boxes that fits is taken; if none fits, the largest box of an allowed ratio in the middle. Sides are whole
    pixels. The resize is bilinear, with pixels of the box only.

    Parameters
    ----------
    size : int, optional
        Side of the result. By default the image's own height and width.
    scale : tuple of float, default=(0.08, 1.0)
        Least and largest share of the image's area; [huang2019and] take (0.2, 1).
    ratio : tuple of float, default=(3/4, 4/3)
        Least and largest width over height, drawn log-uniformly.

    Notes
    -----
    Differs: not antialiased, so resize large images to about `size` first.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import RandomResizedCrop, augmented
    >>> augmented(torch.rand(2, 3, 16, 16), (RandomResizedCrop(8),), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 8, 8])

    References
    ----------
    [huang2019and]
    """

    moves_pixels: ClassVar[bool] = True
    size: int | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _check_range("scale", self.scale, 1)
        _check_range("ratio", self.ratio, math.inf)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        height, width = images.shape[2:]
        u = _uniform(images, generator, 2 * ATTEMPTS + 2)
        area = _between(u[:, :ATTEMPTS], *self.scale) * (height * width)
        ratio = _between(u[:, ATTEMPTS:-2], *map(math.log, self.ratio)).exp()
        rows, columns = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()  # (b, ATTEMPTS)
        fits = (rows >= 1) & (columns >= 1) & (rows <= height) & (columns <= width)
        first = (fits * torch.arange(ATTEMPTS, 0, -1, device=images.device)).argmax(1, keepdim=True)
        fitted = fits.any(1)
        whole_rows = min(height, round(width / self.ratio[0]))
        whole_columns = min(width, round(height * self.ratio[1]))
        rows = torch.where(fitted, rows.gather(1, first)[:, 0], whole_rows)  # (b,)
        columns = torch.where(fitted, columns.gather(1, first)[:, 0], whole_columns)
        top = torch.where(fitted, _whole(u[:, -2], height - rows + 1), (height - whole_rows) // 2)
        left = torch.where(fitted, _whole(u[:, -1], width - columns + 1), (width - whole_columns) // 2)
        return {"top": top, "left": left, "height": rows, "width": columns}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """As of `Step`."""
        rows, columns = images.shape[2:] if self.size is None else (self.size, self.size)
        y = _stretched(drawn["top"], drawn["height"], rows)  # (b, rows)
        x = _stretched(drawn["left"], drawn["width"], columns)  # (b, columns)
        shape = (len(images), rows, columns)
        return _sampled(images, x[:, None, :].expand(shape), y[:, :, None].expand(shape), "border")


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast, saturation and hue, in a random order for each image.

    Each of the first three blends the image with another by a factor drawn from [1 - s, 1 + s] (not below 0) and clamps to 0..1: brightness
    with black, contrast with the image's mean gray, saturation with the gray of each pixel. For gray images set saturation=0 and hue=0.

    Parameters
    ----------
    brightness : float, default=0.4
        Largest change s of the brightness factor.
    contrast : float, default=0.4
        Largest change s of the contrast factor.
    saturation : float, default=0.4
        Largest change s of the saturation factor.
    hue : float, default=0.4
        Largest change of the hue, in turns of the color circle; at most 0.5.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import ColorJitter, augmented
    >>> augmented(torch.rand(2, 1, 4, 4), (ColorJitter(saturation=0, hue=0),), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 4, 4])

    References
    ----------
    [wu2018instance]
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.4

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            _check_between(name, getattr(self, name), 0, math.inf)
        _check_between("hue", self.hue, 0, 0.5)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        u = _uniform(images, generator, 8)
        strengths = (self.brightness, self.contrast, self.saturation)
        factors = [_between(u[:, i], max(0.0, 1 - s), 1 + s) for i, s in enumerate(strengths)]
        return {"factors": torch.stack(factors, 1), "turn": _between(u[:, 3], -self.hue, self.hue), "order": u[:, 4:].argsort(1)}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """Hue is the slowest, so it runs once: first the blends that come before it in each image's order, then hue, then the others."""
        if images.shape[1] != 3 and (self.saturation or self.hue):
            raise ValueError(
                f"images have {images.shape[1]} channels, but saturation ({self.saturation}) and hue ({self.hue}) need 3; "
                "set both to 0 for gray images"
            )
        place = drawn["order"].argsort(1)  # (b, 4): when brightness, contrast, saturation, hue come
        kinds = place[:, :3].argsort(1)  # (b, 3): the blends in this image's order
        factors = drawn["factors"].gather(1, kinds)
        early = (place[:, :3] < place[:, 3:]).sum(1, keepdim=True)  # (b, 1): how many of them come before the hue
        before = torch.arange(3, device=images.device) < early
        for i in range(3):
            images = _blended(images, kinds[:, i], torch.where(before[:, i], factors[:, i], 1.0))
        if self.hue:
            images = _turned(images, drawn["turn"])
        for i in range(3):
            images = _blended(images, kinds[:, i], torch.where(before[:, i], 1.0, factors[:, i]))
        return images


@dataclass(frozen=True)
class Grayscale:
    """Convert to gray: all three channels get the gray value.

    Parameters
    ----------
    probability : float, default=0.2
        Probability, for each image.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import Grayscale, augmented
    >>> gray = augmented(torch.rand(1, 3, 2, 2), (Grayscale(1.0),), torch.Generator())
    >>> bool((gray[:, 0] == gray[:, 2]).all())
    True

    References
    ----------
    [huang2019and]
    """

    probability: float = 0.2

    def __post_init__(self) -> None:
        _check_between("probability", self.probability, 0, 1)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        return {"gray": _uniform(images, generator, 1)[:, 0] < self.probability}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """As of `Step`."""
        return torch.where(_wide(drawn["gray"]), _gray(images), images)


@dataclass(frozen=True)
class Affine:
    """Shear along x, rotate and scale about the middle, then shift; bilinear.

    Parameters
    ----------
    degrees : float, default=10
        Largest rotation in either direction.
    translate : float, default=0.1
        Largest shift in either direction, as a share of the image's sides.
    scale : tuple of float, default=(0.9, 1.1)
        Least and largest factor.
    shear : float, default=5
        Largest shear in either direction, in degrees.
    outside : {"zeros", "border"}, default="zeros"
        Pixels from beyond the image: black, or copies of the outermost ones.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import Affine, augmented
    >>> augmented(torch.rand(2, 1, 8, 8), (Affine(),), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 8, 8])
    """

    moves_pixels: ClassVar[bool] = True
    degrees: float = 10.0
    translate: float = 0.1
    scale: tuple[float, float] = (0.9, 1.1)
    shear: float = 5.0
    outside: Outside = "zeros"

    def __post_init__(self) -> None:
        _check_between("degrees", self.degrees, 0, 180)
        _check_between("translate", self.translate, 0, 1)
        _check_range("scale", self.scale, math.inf)
        _check_between("shear", self.shear, 0, 80)
        _check_outside(self.outside)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        u = _uniform(images, generator, 5)
        height, width = images.shape[2:]
        reach = {"angle": math.radians(self.degrees), "shear": math.radians(self.shear)}
        reach |= {"right": self.translate * width, "down": self.translate * height}
        drawn = {name: _between(u[:, i], -most, most) for i, (name, most) in enumerate(reach.items())}
        return drawn | {"scale": _between(u[:, 4], *self.scale)}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """Sample every pixel of the result from its place of origin: the inverse of scale * rotation * shear, then shift."""
        height, width = images.shape[2:]
        angle, shear, scale, right, down = (drawn[k][:, None, None] for k in ("angle", "shear", "scale", "right", "down"))
        x = torch.arange(width, device=images.device) - (width - 1) / 2 - right  # (b, 1, w) from the middle
        y = (torch.arange(height, device=images.device) - (height - 1) / 2)[:, None] - down  # (b, h, 1)
        x, y = (angle.cos() * x - angle.sin() * y) / scale, (angle.sin() * x + angle.cos() * y) / scale  # (b, h, w)
        x = x - shear.tan() * y
        return _sampled(images, x + (width - 1) / 2, y + (height - 1) / 2, self.outside)


@dataclass(frozen=True)
class Swap:
    """For vectors (b, d): replace some numbers of each vector by those of random vectors of the batch in the same column.

    Parameters
    ----------
    share : float, default=0.3
        Probability of each number to be replaced.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import Swap, augmented
    >>> augmented(torch.ones(3, 2), (Swap(1.0),), torch.Generator())
    tensor([[1., 1.],
            [1., 1.],
            [1., 1.]])

    References
    ----------
    [bahri2022scarf]
    """

    share: float = 0.3

    def __post_init__(self) -> None:
        _check_between("share", self.share, 0, 1)

    def draw(self, vectors: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        drawn = _uniform(vectors, generator, 2 * vectors.shape[1])
        chosen, whose = drawn.chunk(2, 1)
        return {"swapped": chosen < self.share, "whose": _whole(whose, len(vectors))}

    def apply(self, vectors: Tensor, drawn: Drawn) -> Tensor:
        """As of `Step`."""
        return torch.where(drawn["swapped"], vectors.gather(0, drawn["whose"].long()), vectors)


@dataclass(frozen=True)
class DropTokens:
    """For texts as token numbers (b, length): leave out some tokens of each text, but never the first.

    Parameters
    ----------
    share : float, default=0.1
        Probability of each token to be left out.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data.augment import DropTokens, augmented
    >>> augmented(torch.tensor([[7, 8, 9, -1]]), (DropTokens(1.0),), torch.Generator())
    tensor([[ 7., -1., -1., -1.]])
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        _check_between("share", self.share, 0, 1)

    def draw(self, tokens: Tensor, generator: Generator) -> Drawn:
        """As of `Step`."""
        return {
            "dropped": (_uniform(tokens, generator, tokens.shape[1]) < self.share).index_fill(1, torch.zeros(1, dtype=torch.int64), False)
        }

    def apply(self, tokens: Tensor, drawn: Drawn) -> Tensor:
        """As of `Step`."""
        return tokens.masked_fill(drawn["dropped"], -1)


def _uniform(images: Tensor, generator: Generator, count: int) -> Tensor:
    """(b, count) in [0, 1)."""
    drawn = torch.rand(len(images), count, generator=generator, device=generator.device)
    return drawn.to(images.device, non_blocking=True)


def _between(u: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * u


def _whole(u: Tensor, count: Tensor | int) -> Tensor:
    """One of 0..count-1, evenly; as a float, ready for coordinates."""
    return (u * count).floor()


def _wide(per_image: Tensor) -> Tensor:
    return per_image[:, None, None, None]


def _stretched(start: Tensor, length: Tensor, count: int) -> Tensor:
    """(b, count) coordinates of `count` samples in a box, at most the middles of its outermost pixels."""
    start, length = start[:, None], length[:, None]
    steps = torch.arange(count, device=start.device) + 0.5
    inside = (steps * length / count - 0.5).clamp_min(0)
    return start + torch.minimum(inside, length - 1)


def _sampled(images: Tensor, x: Tensor, y: Tensor, outside: Outside) -> Tensor:
    """Bilinear at pixel coordinates (b, h, w), where (0, 0) is the middle of the first pixel."""
    height, width = images.shape[2:]
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=3)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode=outside, align_corners=False)


def _gray(images: Tensor) -> Tensor:
    """(b, 1, h, w)."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    return (images * constant(GRAY, images.device)[:, None, None]).sum(1, keepdim=True)


def _blended(images: Tensor, kind: Tensor, factor: Tensor) -> Tensor:
    """factor * image + (1 - factor) * (0: black, 1: its mean gray, 2: its gray); factor 1 returns the image exactly."""
    gray = _gray(images)
    other = torch.where(_wide(kind == 2), gray, gray.mean((2, 3), keepdim=True)) * _wide(kind != 0)
    return (_wide(factor) * images + _wide(1 - factor) * other).clamp(0, 1)


def _turned(images: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue, keeping value and chroma: to HSV and back, without the saturation, which cancels."""
    top, bottom = images.amax(1), images.amin(1)  # (b, h, w)
    chroma = top - bottom
    red, green, blue = images.unbind(1)
    share = torch.where(chroma == 0, 1.0, chroma)
    sixth = torch.where(red == top, (green - blue) / share, torch.where(green == top, 2 + (blue - red) / share, 4 + (red - green) / share))
    k = (constant((5.0, 3.0, 1.0), images.device)[:, None, None] + (sixth + 6 * turn[:, None, None])[:, None]) % 6  # (b, 3, h, w)
    return top[:, None] - chroma[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)


def _check_between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} ({value}) must be " + (f"between {low} and {high}" if high < math.inf else f"at least {low}"))


def _check_range(name: str, value: tuple[float, float], most: float) -> None:
    if len(value) != 2 or not 0 < value[0] <= value[1] <= most:
        bound = f" and at most {most}" if most < math.inf else ""
        raise ValueError(f"{name} {tuple(value)} must be (least, most), both above 0{bound}")


def _check_outside(outside: str) -> None:
    if outside not in ("zeros", "border"):
        raise ValueError(f"outside {outside!r} is unknown; choose zeros (black) or border (copies of the outermost pixels)")


STEPS: Mapping[str, type] = {s.__name__: s for s in (PadAndCrop, HorizontalFlip, RandomResizedCrop, ColorJitter, Grayscale, Affine, Swap)}
CIFAR_PLUS = (PadAndCrop(4), HorizontalFlip())  # [hao2018anchor] CIFAR10+
AND_CIFAR = (RandomResizedCrop(scale=(0.2, 1.0)), ColorJitter(0.4, 0.4, 0.4, 0.4), Grayscale(0.2))  # [huang2019and] as released: no flip


def restore(described: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Restore steps from what `preprocess.describe` returned.

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
    >>> from nearkin.data.augment import restore
    >>> restore([{"step": "HorizontalFlip", "probability": 0.25}])
    (HorizontalFlip(probability=0.25),)
    """
    return restore_steps(described, STEPS)
