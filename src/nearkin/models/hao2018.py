"""The four networks of [hao2018anchor], table 1: rows of (maps, layers) for the blocks Conv0.x to Conv3.x.

Every layer is 3 x 3, padding 1, batch normalization, ReLU; 2 x 2 max-pools follow Conv1, Conv2 and Conv3, dropout follows the
first two pools. The last layer is linear, without normalization or ReLU, because anchors have negative coordinates.
"""

from collections import OrderedDict
from functools import partial
from typing import NamedTuple

from torch import nn

from nearkin.compose.validation import check_share
from nearkin.models.head import Head, ImageShape, check_image_shape, features_after


class Blocks(NamedTuple):
    """(maps, layers) of each block."""

    conv0: tuple[int, int]
    conv1: tuple[int, int]
    conv2: tuple[int, int]
    conv3: tuple[int, int]


MNIST = Blocks((64, 1), (64, 3), (64, 3), (64, 3))
CIFAR10 = Blocks((64, 1), (64, 4), (96, 4), (128, 4))
CIFAR100 = Blocks((96, 1), (96, 4), (192, 4), (384, 4))


def hao2018(
    blocks: Blocks,
    image_shape: ImageShape,
    dimension: int = 256,
    *,
    normalize: bool = False,
    dropout: float = 0.1,
    conv_bias: bool = True,
) -> nn.Module:
    """Build a network of table 1.

    Parameters
    ----------
    blocks : Blocks
        A row of the table.
    image_shape : tuple of int
        (channels, height, width) of the images.
    dimension : int, default=256
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    dropout : float, default=0.1
        p of the paper, which tries 0, 0.1, 0.25 and 0.5; its best results have 0.1.
    conv_bias : bool, default=True
        Give convolutions a bias.

    Returns
    -------
    nn.Module

    References
    ----------
    [hao2018anchor], table 1
    """
    maps_in = check_image_shape(image_shape)[0]
    check_share("dropout", dropout, below_one=True)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (maps, count) in enumerate(blocks):
        block = []
        for _ in range(count):
            block += [nn.Conv2d(maps_in, maps, 3, padding=1, bias=conv_bias), nn.BatchNorm2d(maps), nn.ReLU(inplace=True)]
            maps_in = maps
        layers[f"conv{i}"] = nn.Sequential(*block)
        if i > 0:
            layers[f"pool{i}"] = nn.MaxPool2d(2)
        if i in (1, 2):
            layers[f"dropout{i}"] = nn.Dropout(dropout)
    features = features_after(nn.Sequential(layers), image_shape)
    layers["head"] = Head(features, dimension, normalize=normalize)
    return nn.Sequential(layers)


hao2018_mnist_2d = partial(hao2018, MNIST, dimension=2, dropout=0.0)  # figure 2
hao2018_mnist = partial(hao2018, MNIST, dimension=256)
hao2018_cifar10 = partial(hao2018, CIFAR10, dimension=256)
hao2018_cifar100 = partial(hao2018, CIFAR100, dimension=512)
