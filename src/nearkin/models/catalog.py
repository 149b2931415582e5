"""The one door to all networks: a name, the shape of the input, the size of the embedding, and the network's own options."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from nearkin.models.adapters import from_timm, from_torchvision
from nearkin.models.alexnet import alexnet
from nearkin.models.convnet import convnet
from nearkin.models.features import nearest_name
from nearkin.models.hao2018 import hao2018_cifar10, hao2018_cifar100, hao2018_mnist, hao2018_mnist_2d
from nearkin.models.head import ImageShape, check_image_shape
from nearkin.models.mlp import linear, mlp
from nearkin.models.mobilenet import mobilenet_v2
from nearkin.models.ren2014 import ren2014_cifar, ren2014_mnist
from nearkin.models.resnet import resnet18, resnet50, resnet101
from nearkin.models.taylor2010 import taylor2010

Builder = Callable[..., nn.Module]

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
}
LIBRARIES: dict[str, Builder] = {"timm": from_timm, "torchvision": from_torchvision}  # timm:NAME, torchvision:NAME


SHARED = ("image_shape", "dimension_in", "dimension", "normalize")  # what build() itself takes for every network


def build(
    name: str,
    *,
    image_shape: ImageShape | None = None,
    dimension_in: int | None = None,
    dimension: int | None = None,
    normalize: bool = False,
    **options: Any,
) -> nn.Module:
    """A network from its name, for images of (channels, height, width) or vectors of `dimension_in` numbers.

    `dimension` is the size of the embedding (the document's own when None), `normalize` gives it unit length. The options of a
    network are the other arguments of its function; `options_of(name)` lists them.

    >>> build("ren2014-mnist", image_shape=(1, 28, 28), dimension=2, pooling="ceil")
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
    """The network with weights laid out channels last: torch then computes in that layout, in which convolutions and pools are quicker."""
    laid: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid


def options_of(name: str) -> dict[str, Any]:
    """The options of a network and their defaults."""
    parameters = inspect.signature(_builder(name)).parameters
    return {option: parameter.default for option, parameter in parameters.items() if option not in SHARED}


def loads_itself(name: str) -> bool:
    """Whether the network takes `weights` and `frozen` as options, since the names in the file are those of its body alone."""
    return ":" in name or (name in NETWORKS and "frozen" in options_of(name))


def _builder(name: str) -> Builder:
    library, colon, model = name.partition(":")
    if colon and library in LIBRARIES:
        return partial(LIBRARIES[library], model)
    if name not in NETWORKS:
        others = ", ".join(f"{library}:NAME" for library in LIBRARIES)
        raise ValueError(f"network {name!r} is unknown{nearest_name(name, NETWORKS)}; the networks are {', '.join(NETWORKS)}, {others}")
    return NETWORKS[name]


def _input(name: str, builder: Builder, image_shape: ImageShape | None, dimension_in: int | None) -> Mapping[str, Any]:
    """Under the name the builder gives it. Networks for vectors take images as rows of pixels; the other way round cannot be."""
    if (image_shape is None) == (dimension_in is None):
        raise ValueError("give image_shape=(channels, height, width) or dimension_in, one of the two")
    if image_shape is not None:
        image_shape = check_image_shape(image_shape)
    if "dimension_in" in inspect.signature(builder).parameters:
        return {"dimension_in": dimension_in if image_shape is None else math.prod(image_shape)}
    if image_shape is None:
        raise ValueError(f"{name} reads images, not vectors of {dimension_in} numbers; give image_shape, or take mlp or linear")
    return {"image_shape": image_shape}
