"""An AlexNet for small images. That of [huang2019and] was never released; this one is from a later paper with the same CIFAR tables.

Five 3 x 3 convolutions of 96, 256, 384, 384 and 256 maps, each with batch normalization and ReLU; 2 x 2 max-pools after the
first, second and fifth; a linear layer. Differs: the AlexNet rows of [huang2019and] cannot be reproduced exactly with it.

For linear probes: `features(network, images, "conv1")` to `"conv5"` (after ReLU, before the pool), and `"head"`.
"""

from collections import OrderedDict

from torch import nn

from nearkin.models.head import Head, ImageShape, check_image_shape, features_after

MAPS = (96, 256, 384, 384, 256)
POOLED = (1, 2, 5)


def alexnet(image_shape: ImageShape, dimension: int = 128, *, normalize: bool = False) -> nn.Module:
    """Build the network, for images of at least 8 x 8 (made for 32 x 32).

    Parameters
    ----------
    image_shape : tuple of int
        (channels, height, width) of the images.
    dimension : int, default=128
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.

    Returns
    -------
    nn.Module

    References
    ----------
    [huang2019and]
    """
    maps_in = check_image_shape(image_shape)[0]
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, maps in enumerate(MAPS, start=1):
        layers[f"conv{i}"] = nn.Sequential(nn.Conv2d(maps_in, maps, 3, padding=1), nn.BatchNorm2d(maps), nn.ReLU(inplace=True))
        if i in POOLED:
            layers[f"pool{i}"] = nn.MaxPool2d(2)
        maps_in = maps
    features = features_after(nn.Sequential(layers), image_shape)
    layers["head"] = Head(features, dimension, normalize=normalize)
    return nn.Sequential(layers)
