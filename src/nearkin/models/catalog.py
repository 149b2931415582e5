"""`build`: any network from its name, the shape of its input, the size of the embedding, and its own options."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from nearkin.compose.validation import nearest_name
from nearkin.models.adapters import from_timm, from_torchvision
from nearkin.models.alexnet import alexnet
from nearkin.models.hao2018 import hao2018_cifar10, hao2018_cifar100, hao2018_mnist, hao2018_mnist_2d
from nearkin.models.head import ImageShape, check_image_shape
from nearkin.models.mlp import identity, linear, mlp
from nearkin.models.mobilenet import mobilenet_v2
from nearkin.models.ren2014 import ren2014_cifar, ren2014_mnist
from nearkin.models.resnet import resnet18, resnet50, resnet101
from nearkin.models.small_convnet import convnet
from nearkin.models.tabular import tabular
from nearkin.models.taylor2010 import taylor2010
from nearkin.models.text_encoders import from_transformers, word_vectors

Builder = Callable[..., nn.Module]

# The networks that `build` knows, by name; `build` also takes the models of other libraries by name.
NETWORKS: dict[str, Builder] = {
    "convnet": convnet,
    "linear": linear,
    "mlp": mlp,
    "ren2014-mnist": ren2014_mnist,
    "ren2014-cifar": ren2014_cifar,
    "taylor2010": taylor2010,
    "hao2018-mnist-2d": hao2018_mnist_2d,
    "hao2018-mnist": hao2018_mnist,
    "hao2018-cifar10": hao2018_cifar10,
    "hao2018-cifar100": hao2018_cifar100,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "alexnet": alexnet,
    "mobilenet-v2": mobilenet_v2,
    "words": word_vectors,
}
LIBRARIES: dict[str, Builder] = {  # timm:NAME, and so on
    "timm": from_timm,
    "torchvision": from_torchvision,
    "hf": from_transformers,
    "sentence-transformers": from_transformers,
}
OF_ROWS: dict[str, Builder] = {"tabular": tabular}  # for rows of tables, which `nearkin train` trains in its own way
UNTRAINED: dict[str, Builder] = {"identity": identity}  # in model folders of vectors that are given; not a choice for training
SHARED = ("image_shape", "dimension_in", "dimension", "normalize")  # the arguments of build() for all networks


def build(
    name: str,
    *,
    image_shape: ImageShape | None = None,
    dimension_in: int | None = None,
    dimension: int | None = None,
    normalize: bool = False,
    **options: Any,
) -> nn.Module:
    """Build a network from its name.

    Give either `image_shape` or `dimension_in`. Networks for vectors (mlp, linear) also take images, as rows of pixels.

    Parameters
    ----------
    name : str
        A key of `NETWORKS`, timm:NAME, torchvision:NAME, hf:NAME or sentence-transformers:NAME.
    image_shape : tuple of int, optional
        (channels, height, width) of the images.
    dimension_in : int, optional
        Length of the vectors.
    dimension : int, optional
        Size of the embedding. By default that of the network's paper, or the network's own default.
    normalize : bool, default=False
        Give embeddings unit length.
    **options : Any
        Options of the network; `options_of(name)` lists them with their defaults.

    Returns
    -------
    nn.Module
        With a part named `head`.

    Raises
    ------
    ValueError
        If the name or an option is unknown, or the network cannot read such inputs.

    Examples
    --------
    >>> import torch
    >>> from nearkin.models import build
    >>> network = build("ren2014-mnist", image_shape=(1, 28, 28), dimension=2, pooling="ceil")
    >>> network(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 2])
    """
    builder = _builder(name)
    given: dict[str, Any] = {**_input(name, builder, image_shape, dimension_in), "normalize": normalize}
    if dimension is not None:
        given["dimension"] = dimension
    known = options_of(name)
    for option, value in options.items():
        if option not in known:
            listed = f"its options are {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{name} has no option {option!r}{nearest_name(option, known)}; {listed}")
        if isinstance(known[option], bool) and not isinstance(value, bool):
            raise ValueError(f"{name}: {option} ({value!r}) must be true or false")
    return builder(**given, **options)


def channels_last(network: nn.Module) -> nn.Module:
    """Store the weights of a network channels last, so that torch computes in that layout, which is faster for convolutions.

    Parameters
    ----------
    network : nn.Module
        Any network; it is changed in place.

    Returns
    -------
    nn.Module
        The same network.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from nearkin.models import channels_last
    >>> channels_last(nn.Conv2d(3, 8, 3)).weight.is_contiguous(memory_format=torch.channels_last)
    True
    """
    laid: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid


def options_of(name: str) -> dict[str, Any]:
    """List the options of a network with their defaults.

    Parameters
    ----------
    name : str
        As of `build`.

    Returns
    -------
    dict

    Examples
    --------
    >>> from nearkin.models import options_of
    >>> options_of("convnet")
    {'widths': (16, 32, 64), 'size': 3, 'hidden': 64}
    """
    parameters = inspect.signature(_builder(name)).parameters
    return {option: parameter.default for option, parameter in parameters.items() if option not in SHARED}


def loads_itself(name: str) -> bool:
    """Whether the network takes `weights` and `frozen` as options, since its weight files are of the body only."""
    return ":" in name or (name in NETWORKS and "frozen" in options_of(name))


def _builder(name: str) -> Builder:
    library, colon, model = name.partition(":")
    if colon and library in LIBRARIES:
        return partial(LIBRARIES[library], model)
    if name in OF_ROWS:
        return OF_ROWS[name]
    if name in UNTRAINED:
        return UNTRAINED[name]
    if name not in NETWORKS:
        others = ", ".join(f"{library}:NAME" for library in LIBRARIES)
        raise ValueError(f"network {name!r} is unknown{nearest_name(name, NETWORKS)}; the networks are {', '.join(NETWORKS)}, {others}")
    return NETWORKS[name]


def _input(name: str, builder: Builder, image_shape: ImageShape | None, dimension_in: int | None) -> Mapping[str, Any]:
    """The input shape under the builder's own name for it. Networks for vectors read images as rows of pixels."""
    if (image_shape is None) == (dimension_in is None):
        raise ValueError("give image_shape=(channels, height, width) or dimension_in, one of the two")
    if image_shape is not None:
        image_shape = check_image_shape(image_shape)
    takes = inspect.signature(builder).parameters
    if "dimension_in" in takes and not (image_shape is not None and "image_shape" in takes):
        return {"dimension_in": dimension_in if image_shape is None else math.prod(image_shape)}
    if image_shape is None:
        raise ValueError(f"{name} reads images, not vectors of {dimension_in} numbers; give image_shape, or use mlp or linear")
    return {"image_shape": image_shape}
