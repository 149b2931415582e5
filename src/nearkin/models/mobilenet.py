"""MobileNetV2 as a body under our head, with torchvision's own names, so that its ImageNet weights load as they are.

Inverted residuals: widen by 1 x 1, filter each map separately with 3 x 3, narrow by 1 x 1 without a non-linearity, and add the input
if the shapes agree. It is small (2.2 million weights) and, pretrained, suits fine-tuning on few images. [sandler2018mobilenet]
"""

from pathlib import Path

from torch import Tensor, nn

from nearkin.models.adapters import adapt
from nearkin.models.head import ImageShape, check_image_shape
from nearkin.models.weights import load_weights

STAGES = (  # widen by, maps, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
FIRST, LAST = 32, 1280


class InvertedResidual(nn.Module):
    """(n, maps_in, h, w) to (n, maps, h / stride, w / stride)."""

    def __init__(self, maps_in: int, maps: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = widen * maps_in
        layers: list[nn.Module] = [] if widen == 1 else [_convolution(maps_in, wide, 1)]
        layers += [_convolution(wide, wide, 3, stride, groups=wide), nn.Conv2d(wide, maps, 1, bias=False), nn.BatchNorm2d(maps)]
        self.conv = nn.Sequential(*layers)
        self.same = stride == 1 and maps_in == maps

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.conv(x)
        return x + made if self.same else made


class MobileNetV2(nn.Module):
    """Images (n, channels, h, w) to features (n, 1280): the mean over the last maps."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(channels, FIRST, 3, 2)]
        maps = FIRST
        for widen, width, count, stride in STAGES:
            for i in range(count):
                layers.append(InvertedResidual(maps, width, stride if i == 0 else 1, widen))
                maps = width
        self.features = nn.Sequential(*layers, _convolution(maps, LAST, 1))

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.features(images).mean((2, 3))
        return pooled


def mobilenet_v2(
    image_shape: ImageShape,
    dimension: int | None = 64,
    *,
    normalize: bool = False,
    weights: str | Path | None = None,
    frozen: bool = False,
    head: bool = True,
) -> nn.Module:
    """Build MobileNetV2, for images of any size.

    Parameters
    ----------
    image_shape : tuple of int
        (channels, height, width) of the images.
    dimension : int or None, default=64
        Size of the embedding; None takes the 1,280 features. `build` takes None for the default: use `head` there.
    normalize : bool, default=False
        Give embeddings unit length.
    weights : path, optional
        Local file of torchvision's weights for color images; its classifier is ignored.
    frozen : bool, default=False
        Train the head only.
    head : bool, default=True
        Put a linear layer on the features. False takes the 1,280 features, whatever `dimension` says.

    Returns
    -------
    nn.Module

    References
    ----------
    [sandler2018mobilenet]
    """
    body = MobileNetV2(check_image_shape(image_shape)[0])
    if weights is not None:
        load_weights(body, weights, cut=("classifier",))
    return adapt(body, image_shape, dimension, normalize=normalize, frozen=frozen, head=head)


def _convolution(maps_in: int, maps: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(maps_in, maps, size, stride, padding=size // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
    return nn.Sequential(convolution, nn.BatchNorm2d(maps), nn.ReLU6(inplace=True))
