"""Networks of other libraries as bodies under our head: `timm:NAME`, `torchvision:NAME`, or any nn.Module.

Neither library is needed until it is named, and nothing is ever downloaded: weights come from a local file. A frozen body stays
as it is, its batch-normalization statistics included; otherwise it is fine-tuned.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from nearkin.compose.validation import nearest_name
from nearkin.models.head import Head, ImageShape, UnitLength, check_image_shape, features_after
from nearkin.models.weights import load_weights


class Adapted(nn.Module):
    """A body and a head; a frozen body has no gradients and stays in evaluation mode, also after `train()`."""

    def __init__(self, body: nn.Module, head: nn.Module, frozen: bool) -> None:
        super().__init__()
        self.body = body.requires_grad_(not frozen)
        self.head = head
        self.frozen = frozen
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.frozen:
            self.body.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        embeddings: Tensor = self.head(self.body(images))
        return embeddings


def adapt(
    module: nn.Module,
    image_shape: tuple[int, ...],
    dimension: int | None = None,
    *,
    normalize: bool = False,
    frozen: bool = False,
    head: bool = True,
) -> nn.Module:
    """Put a head on a network of yours.

    Parameters
    ----------
    module : nn.Module
        The body: any module that returns one tensor for a batch. Its output is flattened for the head.
    image_shape : tuple of int
        Shape of one input: (channels, height, width) for images, (d,) for vectors.
    dimension : int, optional
        Size of the embedding. By default there is no linear layer, and the flattened output is the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    frozen : bool, default=False
        Train the head only; the body keeps its weights and its batch-normalization statistics.
    head : bool, default=True
        Put a linear layer on the body. False takes the body's own output as the embedding, whatever `dimension` says.

    Returns
    -------
    nn.Module
        With the parts `body` and `head`.

    Raises
    ------
    TypeError
        If `module` is not an nn.Module, or does not return a tensor.
    ValueError
        If it cannot read inputs of this shape.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from nearkin.models import adapt
    >>> network = adapt(nn.Conv2d(3, 8, 3), (3, 8, 8), dimension=16, normalize=True)
    >>> network(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 16])
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be an nn.Module, not {type(module).__name__}")
    features = features_after(module, tuple(image_shape))
    if head is False:
        dimension = None
    if dimension is not None:
        return Adapted(module, Head(features, dimension, normalize=normalize), frozen)
    return Adapted(module, UnitLength() if normalize else nn.Flatten(), frozen)


def from_timm(
    model: str,
    image_shape: ImageShape,
    dimension: int | None = 128,
    *,
    normalize: bool = False,
    weights: str | Path | None = None,
    frozen: bool = False,
    head: bool = True,
) -> nn.Module:
    """A model of timm without its classifier; `weights` is a local file of that model, whose classifier is ignored."""
    channels = check_image_shape(image_shape)[0]
    timm = library("timm", "timm")
    if not timm.is_model(model):
        raise ValueError(f"timm has no model {model!r}{nearest_name(model, timm.list_models())}; timm.list_models() lists all")
    body = timm.create_model(model, pretrained=False, num_classes=0, in_chans=channels)
    if weights is not None:
        classifier = body.pretrained_cfg.get("classifier", "fc")
        load_weights(body, weights, cut=(classifier,) if isinstance(classifier, str) else tuple(classifier))
    return adapt(body, image_shape, dimension, normalize=normalize, frozen=frozen, head=head)


def from_torchvision(
    model: str,
    image_shape: ImageShape,
    dimension: int | None = 128,
    *,
    normalize: bool = False,
    weights: str | Path | None = None,
    frozen: bool = False,
    head: bool = True,
) -> nn.Module:
    """A classification model of torchvision without its last linear layer; `weights` is a local file of that model."""
    channels = check_image_shape(image_shape)[0]
    if channels != 3:
        raise ValueError(
            f"image_shape {tuple(image_shape)} has {channels} channels, and torchvision's models read 3; repeat the channel, or use timm"
        )
    models = library("torchvision", "torchvision.models")
    known = models.list_models(models)
    if model not in known:
        raise ValueError(
            f"torchvision has no model {model!r}{nearest_name(model, known)} that classifies; the models are {', '.join(known)}"
        )
    body = models.get_model(model, weights=None)
    body.aux_logits = False  # in training two of the models would return the outputs of auxiliary classifiers, too
    classifier = [name for name, layer in body.named_modules() if isinstance(layer, nn.Linear)][-1:]
    for name in classifier:
        parent, _, leaf = name.rpartition(".")
        setattr(body.get_submodule(parent), leaf, nn.Identity())
    if weights is not None:
        load_weights(body, weights, cut=classifier)
    return adapt(body, image_shape, dimension, normalize=normalize, frozen=frozen, head=head)


def library(name: str, module: str) -> Any:
    """Import a library of networks; an error says whether it is missing, or installed and broken."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name in (module, module.partition(".")[0]):
            raise ImportError(f"{name} is not installed; pip install {name}") from error
        raise ImportError(f"{name} cannot be imported, because {error.name} is missing; pip install {error.name}") from error
    except (ImportError, RuntimeError) as error:  # a torchvision made for another torch raises RuntimeError
        import torch

        broken = "torchvision" if "torchvision" in str(error) else name
        fix = f"install the {broken} that belongs to torch {torch.__version__}"
        raise ImportError(f"{name} is installed and cannot be imported ({error}); {fix}") from error
