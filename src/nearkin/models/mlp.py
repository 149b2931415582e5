"""For vectors: a linear map, and layers of them. A head on somebody else's embeddings is the commonest job of all."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from torch import nn

from nearkin.compose.validation import check_choice, check_share, check_whole
from nearkin.models.head import Head

Activation = Literal["relu", "gelu", "tanh"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


def linear(dimension_in: int, dimension: int = 64, *, normalize: bool = False, bias: bool = False) -> nn.Module:
    """z = A x: the map of linear NCA. A bias moves all points alike, so distances do not see it; cosines do."""
    check_whole("dimension_in", dimension_in)
    return nn.Sequential(OrderedDict([("head", Head(dimension_in, dimension, normalize=normalize, bias=bias))]))


def mlp(
    dimension_in: int,
    dimension: int = 64,
    *,
    normalize: bool = False,
    hidden: Sequence[int] = (256,),
    activation: Activation = "relu",
    batch_norm: bool = False,
    dropout: float = 0.0,
) -> nn.Module:
    """Layers `fc1`, `fc2`, ... of `hidden` units, then the head; images are taken as rows of pixels."""
    check_whole("dimension_in", dimension_in)
    check_choice("activation", activation, tuple(ACTIVATIONS))
    check_share("dropout", dropout, below_one=True)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for i, units in enumerate(hidden, start=1):
        check_whole("hidden", units)
        layer: list[nn.Module] = [nn.Linear(dimension_in, units)]
        if batch_norm:
            layer.append(nn.BatchNorm1d(units))
        layer.append(ACTIVATIONS[activation]())
        if dropout:
            layer.append(nn.Dropout(dropout))
        layers[f"fc{i}"] = nn.Sequential(*layer)
        dimension_in = units
    layers["head"] = Head(dimension_in, dimension, normalize=normalize)
    return nn.Sequential(layers)
