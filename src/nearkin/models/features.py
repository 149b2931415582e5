"""What a network thinks halfway: the output of any of its layers, by name, for probes and pictures."""

import difflib
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn


def layers(network: nn.Module) -> tuple[str, ...]:
    """The names of all its layers, outermost first."""
    return tuple(name for name, _ in network.named_modules() if name)


def features(network: nn.Module, images: Tensor, layer: str) -> Tensor:
    """The output of `layer` for these images, in the mode (training, evaluation, gradients or not) the caller has set.

    A layer that runs more than once gives its last output. It is a copy: the layer after it may work in place.
    """
    modules = dict(network.named_modules())
    if layer not in modules or not layer:
        top = ", ".join(name for name, _ in network.named_children())
        raise ValueError(
            f"layer {layer!r} is unknown{nearest_name(layer, layers(network))}; it has {top}; layers() lists those inside, too"
        )
    caught: list[Tensor] = []
    handle = modules[layer].register_forward_hook(lambda _module, _inputs, output: caught.append(_copied(output, layer)))
    try:
        network(images)
    finally:
        handle.remove()
    if not caught:
        raise ValueError(f"layer {layer!r} was not run for these images; choose another one")
    return caught[-1]


def _copied(output: Any, layer: str) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(f"layer {layer!r} gives a {type(output).__name__}, not a tensor; choose a layer inside it")
    return output.clone()


def nearest_name(name: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)', or nothing when no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
