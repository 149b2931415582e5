"""Grad-CAM of a neighbor decision: which parts of an image make it near to its neighbor? [selvaraju2017gradcam]

The score is the affinity s(f(x), r) of a query x to one neighbor r instead of a class's logit. At a layer with maps A_m,

    alpha_m = mean over positions of ds / dA_m,        heat = [sum_m alpha_m A_m]+

so that heat stands where more of the layer's answer would bring the two nearer. A distance alone asks how the two differ, and of a
pair one side is cold: to become nearer the one needs more and the other less. Why this neighbor rather than others is asked
with `against`: then the score is s(f(x), r) minus the mean of s(f(x), r') over other references r', in which a distance's own
square cancels.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.compose.affinity import Affinity, SquaredEuclidean
from nearkin.data.preprocess import nearest_name
from nearkin.models.layer_outputs import layers


def grad_cam(
    network: nn.Module,
    inputs: Tensor,
    neighbors: Tensor,
    layer: str,
    affinity: Affinity | None = None,
    *,
    against: Tensor | None = None,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """Heat (n, h, w), never negative, for n prepared inputs (n, c, h, w) and the embedding (n, d) of one neighbor each.

    `layer` is any layer that gives maps (n, maps, h', w'); `networks.layers` lists the names. `against` are embeddings (m, d) of other
    references. The heat is brought to `size`, the inputs' own unless told, by bilinear interpolation. The network runs in evaluation
    mode, and its mode and gradients are put back.
    """
    _check(network, inputs, neighbors, layer)
    if against is not None and (against.ndim != 2 or against.shape[1] != neighbors.shape[1] or not len(against)):
        raise ValueError(f"against has shape {tuple(against.shape)}; give embeddings (m, {neighbors.shape[1]}) of other references")
    maps, score = _scored(network, inputs, neighbors, layer, affinity or SquaredEuclidean(), against)
    (slope,) = torch.autograd.grad(score, maps)
    weight = slope.mean((2, 3), keepdim=True)  # (n, maps, 1, 1)
    heat = (weight * maps.detach()).sum(1, keepdim=True).clamp_min(0)  # (n, 1, h', w')
    return functional.interpolate(heat, size or tuple(inputs.shape[2:]), mode="bilinear", align_corners=False)[:, 0]


def last_maps(network: nn.Module, inputs: Tensor) -> str:
    """The name of the last layer whose maps (n, maps, h, w) still have sides of 4 pixels, or else 2, for these inputs: a good choice."""
    found: list[tuple[str, int]] = []
    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: found.append((name, _side(output))))
        for name, module in network.named_modules()
        if name
    ]
    try:
        _run(network, inputs[:1])
    finally:
        for handle in handles:
            handle.remove()
    for least in (4, 2):
        if names := [name for name, side in found if side >= least]:
            return names[-1]
    raise ValueError("the network has no layer that gives maps of more than one pixel; Grad-CAM needs one")


def _side(output: object) -> int:
    """The shorter side of maps in pixels, 0 for anything else."""
    return min(output.shape[2:]) if isinstance(output, Tensor) and output.ndim == 4 else 0


@torch.no_grad()
def _run(network: nn.Module, inputs: Tensor) -> None:
    mode = network.training
    network.eval()
    try:
        network(inputs)
    finally:
        network.train(mode)


def _scored(
    network: nn.Module, inputs: Tensor, neighbors: Tensor, layer: str, affinity: Affinity, against: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The layer's output as a leaf of the graph, and the sum over the inputs of their affinity to their own neighbor."""
    caught: list[Tensor] = []

    def cut(_module: nn.Module, _inputs: object, output: object) -> Tensor:
        if not isinstance(output, Tensor) or output.ndim != 4:
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(f"layer {layer!r} gives {shape}; Grad-CAM needs maps (n, maps, h, w): choose a convolution or a pool")
        caught.append(output.detach().requires_grad_())  # a leaf: frozen weights below it do not matter
        return caught[-1].clone()  # the layer after it may work in place

    mode = network.training
    handle = dict(network.named_modules())[layer].register_forward_hook(cut)
    network.eval()
    try:
        with torch.enable_grad():
            embeddings = network(inputs)
            if not caught:
                raise ValueError(f"layer {layer!r} was not run for these inputs; choose another one")
            if embeddings.shape != neighbors.shape:
                raise ValueError(
                    f"neighbors have shape {tuple(neighbors.shape)} for embeddings {tuple(embeddings.shape)}; give one for each"
                )
            near = torch.cat([affinity(embeddings[i : i + 1], neighbors[i : i + 1]) for i in range(len(inputs))])  # (n, 1)
            usual = near.new_zeros(()) if against is None else affinity(embeddings, against).mean(1).sum()
            return caught[-1], near.sum() - usual
    finally:
        handle.remove()
        network.train(mode)


def _check(network: nn.Module, inputs: Tensor, neighbors: Tensor, layer: str) -> None:
    known = layers(network)
    if layer not in known:
        raise ValueError(f"layer {layer!r} is unknown{nearest_name(layer, known)}; the layers are {', '.join(known)}")
    if inputs.ndim != 4 or not len(inputs):
        raise ValueError(f"inputs have shape {tuple(inputs.shape)}; give prepared images (n, c, h, w)")
    if neighbors.ndim != 2 or len(neighbors) != len(inputs):
        raise ValueError(
            f"neighbors have shape {tuple(neighbors.shape)}; give the embedding (n, d) of one for each of {len(inputs)} inputs"
        )
