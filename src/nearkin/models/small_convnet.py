"""A small convolutional network for images of any size and number of channels, fast to train on a CPU.

Blocks of convolution, batch normalization and ReLU with a 2 x 2 max-pool between them, the maximum over the whole image, one hidden layer,
the embedding. The maximum suits objects that may be anywhere: its value does not depend on the place, and empty background does not lower
it as it would a mean.
"""

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn

from nearkin.compose.validation import check_whole
from nearkin.models.head import Head, ImageShape, check_image_shape


class GlobalMax(nn.Module):
    """(n, maps, height, width) to (n, maps): the maximum of each map."""

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
    """Build the small convolutional network.

    Parameters
    ----------
    image_shape : tuple of int
        (channels, height, width) of the images.
    dimension : int, default=64
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    widths : sequence of int, default=(16, 32, 64)
        Maps of each block. More blocks suit larger images: each doubles the reach of the filters after it.
    size : int, default=3
        Side of the filters, odd.
    hidden : int, default=64
        Units of the layer below the embedding.

    Returns
    -------
    nn.Module

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> import torch
    >>> from nearkin.models import convnet
    >>> convnet((1, 16, 16), 32).eval()(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2, 32])
    """
    maps_in = check_image_shape(image_shape)[0]
    _check(widths, size, hidden)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, maps in enumerate(widths, start=1):
        if i > 1:
            layers[f"pool{i - 1}"] = nn.MaxPool2d(2, ceil_mode=True)  # ceil keeps an odd last row, and one pixel stays one
        layers[f"conv{i}"] = _block(maps_in, maps, size)
        maps_in = maps
    layers["pool"] = GlobalMax()
    layers["fc"] = nn.Sequential(nn.Linear(maps_in, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU())
    layers["head"] = Head(hidden, dimension, normalize=normalize)
    return nn.Sequential(layers)


def _block(maps_in: int, maps: int, size: int) -> nn.Sequential:
    # No bias: batch normalization would subtract it.
    return nn.Sequential(nn.Conv2d(maps_in, maps, size, padding=size // 2, bias=False), nn.BatchNorm2d(maps), nn.ReLU())


def _check(widths: Sequence[int], size: int, hidden: int) -> None:
    if not widths:
        raise ValueError("widths is empty; give the number of maps of at least one block")
    for maps in widths:
        check_whole("widths", maps)
    check_whole("size", size)
    if size % 2 == 0:
        raise ValueError(f"size ({size}) must be odd: an even filter has no middle and shifts the image")
    check_whole("hidden", hidden)
