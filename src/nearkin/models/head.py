"""The head: from a network's last features to the embedding, with or without unit length.

Every network here ends in a `Head` named `head`; everything before it is the body. The name separates the two: to give them different
learning rates, to freeze one, or to read the features below the embedding.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.compose.validation import check_choice, check_whole

ImageShape = tuple[int, int, int]  # channels, height, width
Output = Literal["linear", "tanh"]
HALF = (torch.float16, torch.bfloat16)


class Head(nn.Module):
    """The last layer of a network: a linear map, optionally followed by tanh and by unit length; or the features, and a projection of them.

    Parameters
    ----------
    features : int
        Numbers of each input, flattened.
    dimension : int
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    bias : bool, default=True
        Add a bias.
    output : {"linear", "tanh"}, default="linear"
        Non-linearity after the linear map; "tanh" is one reading of [ren2014convolutional].
    projection : int, default=0
        Hidden width of a perceptron in the place of the linear map, which gives what the objective sees in training mode. In evaluation
        mode the features before it are the embedding, so `dimension` must be their number [chen2020simclr]. 0 is none.
    projected : int, default=128
        Size of what the objective sees then.

    Examples
    --------
    >>> import torch
    >>> from nearkin.models import Head
    >>> Head(12, 4, normalize=True)(torch.ones(2, 3, 2, 2)).norm(dim=1).detach().round(decimals=4)
    tensor([1., 1.])

    References
    ----------
    [ren2014convolutional], [chen2020simclr]
    """

    def __init__(
        self,
        features: int,
        dimension: int,
        *,
        normalize: bool = False,
        bias: bool = True,
        output: Output = "linear",
        projection: int = 0,
        projected: int = 128,
    ) -> None:
        super().__init__()
        check_whole("dimension", dimension)
        check_whole("projection", projection, 0)
        check_whole("projected", projected)
        check_choice("output", output, ("linear", "tanh"))
        if projection and dimension != features:
            raise ValueError(
                f"with projection ({projection}) the embedding is the {features:,} features before it: set dimension={features}, "
                f"not {dimension}; `projected` ({projected}) is the size of what the objective sees"
            )
        self.linear = nn.Identity() if projection else nn.Linear(features, dimension, bias=bias)
        self.normalize = normalize
        self.output = output
        self.trained_dimension = projected if projection else dimension  # of what comes out in training mode
        self.project = (
            nn.Sequential(nn.Linear(features, projection), nn.BatchNorm1d(projection), nn.ReLU(), nn.Linear(projection, projected))
            if projection
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map features to embeddings.

        Parameters
        ----------
        x : Tensor
            (n, ...) features, which are flattened.

        Returns
        -------
        Tensor
            (n, dimension) embeddings; in training mode with a projection, (n, projected).
        """
        x = self.linear(x.flatten(1))
        if self.output == "tanh":
            x = x.tanh()
        if self.project is not None and self.training:
            x = self.project(x)
        return unit_length(x) if self.normalize else x


class UnitLength(nn.Module):
    """A head for bodies whose output is already the embedding."""

    def forward(self, x: Tensor) -> Tensor:
        return unit_length(x.flatten(1))


def unit_length(x: Tensor) -> Tensor:
    """Divide each row by its 2-norm; in float32 at least, because bfloat16 has two digits only."""
    return functional.normalize(x.float() if x.dtype in HALF else x, dim=1)


def features_after(body: nn.Module, image_shape: tuple[int, ...]) -> int:
    """Numbers that a body returns for one image, found with a black one in evaluation mode; all modes are restored."""
    like = next(body.parameters(), torch.zeros(()))
    modes = [(module, module.training) for module in body.modules()]
    body.eval()
    try:
        with torch.no_grad():
            result = body(torch.zeros(1, *image_shape, dtype=like.dtype, device=like.device))
    except RuntimeError as error:
        shape = " x ".join(map(str, image_shape))
        raise ValueError(f"this network cannot read images of {shape} ({error}); resize them or choose another network") from error
    finally:
        for module, mode in modes:
            module.training = mode
    if not isinstance(result, Tensor):
        raise TypeError(f"the network returns a {type(result).__name__}, not a tensor; wrap it so that it returns its features only")
    return math.prod(result.shape[1:])


def check_image_shape(image_shape: Any) -> ImageShape:
    """Check (channels, height, width)."""
    if len(tuple(image_shape)) != 3 or any(not isinstance(n, int) or n < 1 for n in image_shape):
        raise ValueError(f"image_shape {tuple(image_shape)} must be (channels, height, width), whole numbers above 0")
    channels, height, width = image_shape
    return channels, height, width
