"""Features: the output of any layer of a network, by name, for probes and pictures."""

from typing import Any

from torch import Tensor, nn

from nearkin.compose.validation import nearest_name


def layers(network: nn.Module) -> tuple[str, ...]:
    """List the names of all layers of a network, outer ones before those inside them.

    Parameters
    ----------
    network : nn.Module
        Any network.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from nearkin.models import build, layers
    >>> layers(build("linear", dimension_in=4, dimension=2))
    ('head', 'head.linear')
    """
    return tuple(name for name, _ in network.named_modules() if name)


def features(network: nn.Module, images: Tensor, layer: str) -> Tensor:
    """Return the output of a layer.

    The network runs in its current mode (training or evaluation, with or without gradients).

    Parameters
    ----------
    network : nn.Module
        Any network.
    images : Tensor
        A batch of its inputs.
    layer : str
        Name of the layer, as of `layers`.

    Returns
    -------
    Tensor
        A copy of the layer's output, since the next layer may work in place; of the last one, if the layer runs more than once.

    Raises
    ------
    ValueError
        If the layer is unknown or does not run.
    TypeError
        If its output is not a tensor.

    Examples
    --------
    >>> import torch
    >>> from nearkin.models import build, features
    >>> network = build("convnet", image_shape=(1, 8, 8)).eval()
    >>> features(network, torch.zeros(2, 1, 8, 8), "conv1").shape
    torch.Size([2, 16, 8, 8])
    """
    modules = dict(network.named_modules())
    if layer not in modules or not layer:
        top = ", ".join(name for name, _ in network.named_children())
        raise ValueError(
            f"layer {layer!r} is unknown{nearest_name(layer, layers(network))}; it has {top}; layers() also lists those inside"
        )
    caught: list[Tensor] = []
    handle = modules[layer].register_forward_hook(lambda _module, _inputs, output: caught.append(_copied(output, layer)))
    try:
        network(images)
    finally:
        handle.remove()
    if not caught:
        raise ValueError(f"layer {layer!r} did not run for these images; choose another one")
    return caught[-1]


def _copied(output: Any, layer: str) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(f"layer {layer!r} returns a {type(output).__name__}, not a tensor; choose a layer inside it")
    return output.clone()
