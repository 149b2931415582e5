"""Networks for vectors, such as embeddings of another model: a linear map, and a multilayer perceptron."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from torch import nn

from nearkin.compose.validation import check_choice, check_share, check_whole
from nearkin.models.head import Head

Activation = Literal["relu", "gelu", "tanh"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


def identity(dimension_in: int, dimension: int | None = None, *, normalize: bool = False) -> nn.Module:
    """Build the network of vectors that are given: it returns them as they are.

    Parameters
    ----------
    dimension_in : int
        Length of the vectors.
    dimension : int, optional
        The same length.
    normalize : bool, default=False
        Must be False; choose cosine as the metric instead.

    Returns
    -------
    nn.Module
        Without parameters.

    Raises
    ------
    ValueError
        If `dimension` is another length, or `normalize` is True.
    """
    check_whole("dimension_in", dimension_in)
    if dimension not in (None, dimension_in) or normalize:
        raise ValueError(
            f"identity returns vectors of {dimension_in} numbers as they are, not normalized and not in {dimension} dimensions; use linear"
        )
    return nn.Sequential(OrderedDict([("head", nn.Identity())]))


def linear(dimension_in: int, dimension: int = 64, *, normalize: bool = False, bias: bool = False) -> nn.Module:
    """Build the map of linear NCA: z = A x.

    Parameters
    ----------
    dimension_in : int
        Length of the vectors.
    dimension : int, default=64
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    bias : bool, default=False
        Add a bias. It changes cosines, but not distances.

    Returns
    -------
    nn.Module
    """
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
    """Build a multilayer perceptron; it reads images as rows of pixels.

    Parameters
    ----------
    dimension_in : int
        Length of the vectors.
    dimension : int, default=64
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    hidden : sequence of int, default=(256,)
        Units of the layers fc1, fc2, ...
    activation : {"relu", "gelu", "tanh"}, default="relu"
        Non-linearity of these layers.
    batch_norm : bool, default=False
        Add batch normalization to each of them.
    dropout : float, default=0
        Probability of dropout after each of them.

    Returns
    -------
    nn.Module
    """
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
