"""Residual networks for small images, as released with [huang2019and] and [wu2018instance].

A 3 x 3 stem of stride 1 without a pool, four stages of 64, 128, 256 and 512 maps that halve the image three times, the mean over the
remaining pixels, a linear layer with bias. The released networks have unit length: normalize=True.
"""

from collections import OrderedDict
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from nearkin.compose.validation import check_choice
from nearkin.models.head import Head, ImageShape, check_image_shape

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
WIDTHS = (64, 128, 256, 512)
BOTTLENECK_FROM = 50  # deeper networks squeeze to a quarter before the 3 x 3


class Residual(nn.Module):
    """ReLU(convolutions(x) + shortcut(x)); the shortcut is x itself if the shapes agree."""

    def __init__(self, convolutions: nn.Module, maps_in: int, maps: int, stride: int) -> None:
        super().__init__()
        self.convolutions = convolutions
        same = stride == 1 and maps_in == maps
        self.shortcut = nn.Identity() if same else _convolution(maps_in, maps, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.convolutions(x) + self.shortcut(x), inplace=True)


def resnet(
    depth: int,
    image_shape: ImageShape,
    dimension: int = 128,
    *,
    normalize: bool = False,
    stem: Literal["small", "large"] = "small",
    projection: int = 0,
    projected: int = 128,
) -> nn.Module:
    """Build a residual network, for images of any size (made for 32 x 32).

    Parameters
    ----------
    depth : {18, 50, 101}
        Number of layers.
    image_shape : tuple of int
        (channels, height, width) of the images.
    dimension : int, default=128
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    stem : {"small", "large"}, default="small"
        "large" is the stem for photographs, 7 x 7 and a pool, which quarters each side: 128 x 128 then costs as much as 32 x 32.
    projection : int, default=0
        Hidden width of a perceptron between the features and the objective, in training only; see `Head`. The features are then the
        embedding: `dimension` must be 512 (2,048 from 50 layers on). 0 is none.
    projected : int, default=128
        Size of what the objective sees with a projection.

    Returns
    -------
    nn.Module

    References
    ----------
    [huang2019and], [wu2018instance]
    """
    maps = check_image_shape(image_shape)[0]
    check_choice("stem", stem, ("small", "large"))
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    pool = () if stem == "small" else (nn.MaxPool2d(3, 2, padding=1),)
    opening = _convolution(maps, WIDTHS[0], 3) if stem == "small" else _convolution(maps, WIDTHS[0], 7, 2)
    layers["stem"] = nn.Sequential(*opening, nn.ReLU(inplace=True), *pool)
    maps = WIDTHS[0]
    for i, (width, count) in enumerate(zip(WIDTHS, STAGES[depth], strict=True), start=1):
        stage = []
        for first in [True] + [False] * (count - 1):
            block = _bottleneck if depth >= BOTTLENECK_FROM else _basic
            stage.append(block(maps, width, stride=2 if first and i > 1 else 1))
            maps = width * (4 if depth >= BOTTLENECK_FROM else 1)
        layers[f"stage{i}"] = nn.Sequential(*stage)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["head"] = Head(maps, dimension, normalize=normalize, projection=projection, projected=projected)
    return nn.Sequential(layers)


def _basic(maps_in: int, width: int, stride: int) -> Residual:
    convolutions = nn.Sequential(*_convolution(maps_in, width, 3, stride), nn.ReLU(inplace=True), *_convolution(width, width, 3))
    return Residual(convolutions, maps_in, width, stride)


def _bottleneck(maps_in: int, width: int, stride: int) -> Residual:
    squeeze = (*_convolution(maps_in, width, 1), nn.ReLU(inplace=True))
    middle = (*_convolution(width, width, 3, stride), nn.ReLU(inplace=True))
    return Residual(nn.Sequential(*squeeze, *middle, *_convolution(width, 4 * width, 1)), maps_in, 4 * width, stride)


def _convolution(maps_in: int, maps: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, since the batch normalization after it has one."""
    return nn.Sequential(nn.Conv2d(maps_in, maps, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(maps))


resnet18 = partial(resnet, 18)
resnet50 = partial(resnet, 50)
resnet101 = partial(resnet, 101)
