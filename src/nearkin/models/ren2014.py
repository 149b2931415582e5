"""The networks of [ren2014convolutional]: three tanh convolutions with overlapping max-pools, then two linear layers.

Three times (32 maps of 5 x 5, padding 2, tanh, max-pool 3 x 3 of stride 2), then hidden, tanh, embedding. MNIST: hidden 128, 64
dimensions; CIFAR-10: hidden 200, 100 dimensions. For pictures of the embedding: dimension=2.

The paper leaves three things open. Padding: without it the third filter does not fit, so it must be 2. Pooling: `floor` (76,864 and
131,596 parameters) or `ceil`, as software of that time rounded (97,344 and 176,396). The last tanh ("for each neuron layer"):
`output="tanh"` has it; "linear" is the usual choice for NCA.
"""

from collections import OrderedDict
from functools import partial
from typing import Literal

from torch import nn

from nearkin.compose.validation import check_choice, check_whole
from nearkin.models.head import Head, ImageShape, Output, check_image_shape, features_after

MAPS = 32


def ren2014(
    image_shape: ImageShape,
    dimension: int = 64,
    *,
    normalize: bool = False,
    hidden: int = 128,
    pooling: Literal["floor", "ceil"] = "floor",
    output: Output = "linear",
) -> nn.Module:
    """Build the network of both data sets, which differ in `hidden` and `dimension` only.

    Parameters
    ----------
    image_shape : tuple of int
        (channels, height, width) of the images.
    dimension : int, default=64
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    hidden : int, default=128
        Units of the layer below the embedding.
    pooling : {"floor", "ceil"}, default="floor"
        How pools round the size of their output.
    output : {"linear", "tanh"}, default="linear"
        Non-linearity of the embedding.

    Returns
    -------
    nn.Module

    References
    ----------
    [ren2014convolutional]
    """
    channels = check_image_shape(image_shape)[0]
    check_whole("hidden", hidden)
    check_choice("pooling", pooling, ("floor", "ceil"))
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, maps_in in enumerate((channels, MAPS, MAPS), start=1):
        layers[f"conv{i}"] = nn.Sequential(nn.Conv2d(maps_in, MAPS, 5, padding=2))
        # tanh is monotonic, so after the pool it gives the same numbers at a quarter of the cost
        layers[f"pool{i}"] = nn.Sequential(nn.MaxPool2d(3, stride=2, ceil_mode=pooling == "ceil"), nn.Tanh())
    features = features_after(nn.Sequential(layers), image_shape)
    layers["fc"] = nn.Sequential(nn.Flatten(), nn.Linear(features, hidden), nn.Tanh())
    layers["head"] = Head(hidden, dimension, normalize=normalize, output=output)
    return nn.Sequential(layers)


ren2014_mnist = partial(ren2014, dimension=64, hidden=128)
ren2014_cifar = partial(ren2014, dimension=100, hidden=200)
