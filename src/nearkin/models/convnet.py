"""A small convolutional network for images of any size and number of channels, quick to train on a CPU.

Blocks of convolution, batch normalization and ReLU with a 2 x 2 max-pool between them, the maximum over the whole
image, one hidden layer, the embedding. The maximum is what makes it good at things that may be anywhere: a detector
answers alike wherever its pattern stands, and the empty background does not dilute it as it would a mean.
"""

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn

from nearkin.compose.validation import check_whole
from nearkin.models.head import Head, ImageShape, check_image_shape


class GlobalMax(nn.Module):
    """(n, maps, height, width) to (n, maps): each map's strongest answer, wherever it is."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.amax((2, 3))


def convnet(
    image_shape: ImageShape,
    dimension: int = 64,
    *,
    normalize: bool = False,
    widths: Sequence[int] = (16, 32, 64),
    size: int = 3,
    hidden: int = 64,
) -> nn.Module:
    """`widths` are the maps of each block, `size` the side of its filters, `hidden` the units below the embedding.

    More blocks see more of a larger image: each one doubles the reach of the filters after it.
    """
    maps_in = check_image_shape(image_shape)[0]
    _check(widths, size, hidden)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, maps in enumerate(widths, start=1):
        if i > 1:
            layers[f"pool{i - 1}"] = nn.MaxPool2d(2, ceil_mode=True)  # ceil: an odd edge is kept, and one pixel stays one
        layers[f"conv{i}"] = _block(maps_in, maps, size)
        maps_in = maps
    layers["pool"] = GlobalMax()
    layers["fc"] = nn.Sequential(nn.Linear(maps_in, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU())
    layers["head"] = Head(hidden, dimension, normalize=normalize)
    return nn.Sequential(layers)


def _block(maps_in: int, maps: int, size: int) -> nn.Sequential:
    # No bias: batch normalization would take it away again.
    return nn.Sequential(nn.Conv2d(maps_in, maps, size, padding=size // 2, bias=False), nn.BatchNorm2d(maps), nn.ReLU())


def _check(widths: Sequence[int], size: int, hidden: int) -> None:
    if not widths:
        raise ValueError("widths is empty; give the number of maps of at least one block")
    for maps in widths:
        check_whole("widths", maps)
    check_whole("size", size)
    if size % 2 == 0:
        raise ValueError(f"size ({size}) must be odd: an even filter has no middle and would shift the image")
    check_whole("hidden", hidden)
