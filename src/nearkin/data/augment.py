"""Augmentation: what may happen to an image, or a vector, without changing what it shows; for training only.

Whole batches at once, on the device they are on, and random for EVERY image on its own, like a loader that treats images one by
one. Each step first draws its random numbers (`draw`) and then uses them (`apply`, which is pure): what was drawn can be
looked at, kept, and given to a literal loop. Nothing is read back from the device and no image is visited by a
Python loop, so a whole composition can be recorded in a CUDA graph.

Random numbers come from the generator's device: a CPU generator gives the same images on any device, a CUDA
generator stays on its own (register it with the graph to record it). A composition is a tuple of steps, for example
`AND_CIFAR`; images come out as float32 in 0..1, so standardize after it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional

from nearkin.data.preprocess import as_float, constant, restore_steps

Drawn = Mapping[str, Tensor]  # each (b, ...): what one step decided for every image
Outside = Literal["zeros", "border"]  # what lies beyond the image: black, or its outermost pixels again

GRAY = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow; they add up to 1, so gray stays gray
ATTEMPTS = 10  # boxes tried by RandomResizedCrop before it falls back to the middle


class Step(Protocol):
    """An augmentation step."""

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        """What shall happen to each image."""

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """Let it happen: (b, c, h, w) float in 0..1 to the same."""


def augmented(images: Tensor, steps: Sequence[Step], generator: Generator) -> Tensor:
    """The steps one after the other; uint8 in 0..255 or float in 0..1 in, float32 in 0..1 out. Vectors (b, d) are taken as they are."""
    images = images.float() if images.ndim == 2 else as_float(images)
    for step in steps:
        images = step.apply(images, step.draw(images, generator))
    return images


def two_views(images: Tensor, steps: Sequence[Step], generator: Generator) -> tuple[Tensor, Tensor]:
    """The batch twice, augmented independently: row i of both shows the same image, so both carry its id."""
    first, second = augmented(torch.cat([images, images]), steps, generator).chunk(2)
    return first, second


@dataclass(frozen=True)
class PadAndCrop:
    """Pad every side by `padding`, then cut a random `size` x `size` (the image's own size when None). [hao2018anchor] section 4.1

    With padding 0 and a size it is the plain random crop.
    """

    padding: int = 4
    size: int | None = None
    outside: Outside = "zeros"

    def __post_init__(self) -> None:
        _check_between("padding", self.padding, 0, math.inf)
        _check_outside(self.outside)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        height, width = images.shape[2:]
        rows, columns = self._cut(images)
        corner = _uniform(images, generator, 2)
        return {
            "top": _whole(corner[:, 0], height + 2 * self.padding - rows + 1),
            "left": _whole(corner[:, 1], width + 2 * self.padding - columns + 1),
        }

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
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
    """Left and right exchanged."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        _check_between("probability", self.probability, 0, 1)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        return {"flipped": _uniform(images, generator, 1)[:, 0] < self.probability}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        return torch.where(_wide(drawn["flipped"]), images.flip(3), images)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random box of the image, stretched to `size` x `size` (the image's own size when None). [huang2019and] takes scale (0.2, 1)

    The box covers a share `scale` of the area, width over height is log-uniform in `ratio`, its sides are whole pixels. The first of
    ten drawn boxes that fits is taken, else the largest middle one of an allowed ratio. Bilinear inside the box: pixels
    beyond it do not leak in. Differs: not antialiased, so resize large images to about `size` first.
    """

    size: int | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _check_range("scale", self.scale, 1)
        _check_range("ratio", self.ratio, math.inf)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
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
        rows, columns = images.shape[2:] if self.size is None else (self.size, self.size)
        y = _stretched(drawn["top"], drawn["height"], rows)  # (b, rows)
        x = _stretched(drawn["left"], drawn["width"], columns)  # (b, columns)
        shape = (len(images), rows, columns)
        return _sampled(images, x[:, None, :].expand(shape), y[:, :, None].expand(shape), "border")


@dataclass(frozen=True)
class ColorJitter:
    """Brightness, contrast and saturation by a factor in [1 - s, 1 + s] (not below 0), hue by up to +-`hue` turns of the color circle.

    Every image has its own factors AND its own order of the four, as from a loader that treats images one by one. Brightness
    blends with black, contrast with the image's mean gray, saturation with its own gray; each clamps to 0..1. Gray images
    take saturation=0 and hue=0. [wu2018instance]
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
        u = _uniform(images, generator, 8)
        strengths = (self.brightness, self.contrast, self.saturation)
        factors = [_between(u[:, i], max(0.0, 1 - s), 1 + s) for i, s in enumerate(strengths)]
        return {"factors": torch.stack(factors, 1), "turn": _between(u[:, 3], -self.hue, self.hue), "order": u[:, 4:].argsort(1)}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """The hue is the costly one, so it runs once: the blends that an image has before its hue, the hue, the blends it has after."""
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
    """Color taken away: all three channels become the gray. [huang2019and]"""

    probability: float = 0.2

    def __post_init__(self) -> None:
        _check_between("probability", self.probability, 0, 1)

    def draw(self, images: Tensor, generator: Generator) -> Drawn:
        return {"gray": _uniform(images, generator, 1)[:, 0] < self.probability}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        return torch.where(_wide(drawn["gray"]), _gray(images), images)


@dataclass(frozen=True)
class Affine:
    """About the middle: sheared along x, turned by up to +-`degrees` (positive is anticlockwise), scaled, then shifted; bilinear.

    `translate` is a share of the image's sides, `shear` is in degrees.
    """

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
        u = _uniform(images, generator, 5)
        height, width = images.shape[2:]
        reach = {"angle": math.radians(self.degrees), "shear": math.radians(self.shear)}
        reach |= {"right": self.translate * width, "down": self.translate * height}
        drawn = {name: _between(u[:, i], -most, most) for i, (name, most) in enumerate(reach.items())}
        return drawn | {"scale": _between(u[:, 4], *self.scale)}

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """Every pixel of the result asks where it came from: the inverse of scale * rotation * shear, then shift."""
        height, width = images.shape[2:]
        angle, shear, scale, right, down = (drawn[k][:, None, None] for k in ("angle", "shear", "scale", "right", "down"))
        x = torch.arange(width, device=images.device) - (width - 1) / 2 - right  # (b, 1, w) from the middle
        y = (torch.arange(height, device=images.device) - (height - 1) / 2)[:, None] - down  # (b, h, 1)
        x, y = (angle.cos() * x - angle.sin() * y) / scale, (angle.sin() * x + angle.cos() * y) / scale  # (b, h, w)
        x = x - shear.tan() * y
        return _sampled(images, x + (width - 1) / 2, y + (height - 1) / 2, self.outside)


@dataclass(frozen=True)
class Swap:
    """Of vectors (b, d): about a `share` of each one's numbers become those of others of the batch in the same place. [bahri2022scarf]"""

    share: float = 0.3

    def __post_init__(self) -> None:
        _check_between("share", self.share, 0, 1)

    def draw(self, vectors: Tensor, generator: Generator) -> Drawn:
        drawn = _uniform(vectors, generator, 2 * vectors.shape[1])
        chosen, whose = drawn.chunk(2, 1)
        return {"swapped": chosen < self.share, "whose": _whole(whose, len(vectors))}

    def apply(self, vectors: Tensor, drawn: Drawn) -> Tensor:
        return torch.where(drawn["swapped"], vectors.gather(0, drawn["whose"].long()), vectors)


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
    """(b, count) coordinates of `count` samples over a box, never beyond the middles of its outermost pixels."""
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
    """factor * image + (1 - factor) * (0: black, 1: its mean gray, 2: its gray); factor 1 gives the image back to the last bit."""
    gray = _gray(images)
    other = torch.where(_wide(kind == 2), gray, gray.mean((2, 3), keepdim=True)) * _wide(kind != 0)
    return (_wide(factor) * images + _wide(1 - factor) * other).clamp(0, 1)


def _turned(images: Tensor, turn: Tensor) -> Tensor:
    """The hue turned, value and chroma kept: HSV there and back, without the saturation, which cancels."""
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
        raise ValueError(f"outside {outside!r} is unknown; choose zeros (black) or border (the outermost pixels again)")


STEPS: Mapping[str, type] = {s.__name__: s for s in (PadAndCrop, HorizontalFlip, RandomResizedCrop, ColorJitter, Grayscale, Affine, Swap)}
CIFAR_PLUS = (PadAndCrop(4), HorizontalFlip())  # [hao2018anchor] CIFAR10+
AND_CIFAR = (RandomResizedCrop(scale=(0.2, 1.0)), ColorJitter(0.4, 0.4, 0.4, 0.4), Grayscale(0.2))  # [huang2019and] as released: no flip


def restore(described: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """The steps that `preprocess.describe` wrote down."""
    return restore_steps(described, STEPS)
