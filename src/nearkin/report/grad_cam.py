"""Grad-CAM of a neighbor decision: which parts of an image make it near to its neighbor? [selvaraju2017gradcam]"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.compose.affinity import Affinity, SquaredEuclidean
from nearkin.compose.validation import nearest_name
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
    """Heat maps of the parts of an image that make it near to its neighbor.

    The score is the affinity s(f(x), r) of a query x to its neighbor r. At a layer with maps A_m,

        alpha_m = mean over positions of ds / dA_m,        heat = max(0, sum_m alpha_m A_m)

    so the heat is high where more activation would bring the two nearer.

    Parameters
    ----------
    network : torch.nn.Module
        The network. It runs in evaluation mode; its mode and gradients are restored.
    inputs : Tensor of shape (n, c, h, w)
        Preprocessed images.
    neighbors : Tensor of shape (n, d)
        The embedding of one neighbor for each image.
    layer : str
        The name of a layer that outputs maps (n, maps, h', w'); `nearkin.models.layer_outputs.layers` lists the names.
    affinity : Affinity, optional
        The affinity of the model, minus the squared Euclidean distance by default.
    against : Tensor of shape (m, d), optional
        Embeddings of other references. The score is then s(f(x), r) minus the mean of s(f(x), r') over them, which shows why
        this neighbor is nearer than others. Recommended for distances: without it, one image of a pair usually stays dark.
    size : (int, int), optional
        Height and width of the heat maps, by bilinear interpolation; those of the inputs by default.

    Returns
    -------
    Tensor of shape (n, h, w)
        The heat maps, never negative.

    Raises
    ------
    ValueError
        If the layer is unknown or outputs no maps, or if a shape does not match.

    References
    ----------
    [selvaraju2017gradcam]. Differs: the score is an affinity to a neighbor instead of the logit of a class.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from nearkin.report import grad_cam
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    >>> grad_cam(network, torch.rand(3, 1, 8, 8), torch.rand(3, 2), layer="1").shape
    torch.Size([3, 8, 8])
    """
    _check(network, inputs, neighbors, layer)
    if against is not None and (against.ndim != 2 or against.shape[1] != neighbors.shape[1] or not len(against)):
        raise ValueError(f"against has shape {tuple(against.shape)}; pass embeddings (m, {neighbors.shape[1]}) of other references")
    maps, score = _scored(network, inputs, neighbors, layer, affinity or SquaredEuclidean(), against)
    (slope,) = torch.autograd.grad(score, maps)
    weight = slope.mean((2, 3), keepdim=True)  # (n, maps, 1, 1)
    heat = (weight * maps.detach()).sum(1, keepdim=True).clamp_min(0)  # (n, 1, h', w')
    return functional.interpolate(heat, size or tuple(inputs.shape[2:]), mode="bilinear", align_corners=False)[:, 0]


def last_maps(network: nn.Module, inputs: Tensor) -> str:
    """The last layer whose maps are at least 4 pixels wide and high, or else 2: a good choice for `grad_cam`."""
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
    raise ValueError("the network has no layer whose maps have more than one pixel, which Grad-CAM needs; use a convolutional network")


def _side(output: object) -> int:
    """The shorter side of maps in pixels; 0 for other outputs."""
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
    """The layer's output as a leaf of the graph, and the sum of the scores over the inputs."""
    caught: list[Tensor] = []

    def cut(_module: nn.Module, _inputs: object, output: object) -> Tensor:
        if not isinstance(output, Tensor) or output.ndim != 4:
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(
                f"layer {layer!r} outputs {shape}; Grad-CAM needs maps (n, maps, h, w): choose a convolution or a pooling layer"
            )
        caught.append(output.detach().requires_grad_())  # a leaf, so that frozen weights below it do not matter
        return caught[-1].clone()  # the next layer may work in place

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
                    f"neighbors have shape {tuple(neighbors.shape)} for embeddings {tuple(embeddings.shape)}; pass one for each"
                )
            near = torch.cat([affinity(embeddings[i : i + 1], neighbors[i : i + 1]) for i in range(len(inputs))])  # (n, 1)
            mean = near.new_zeros(()) if against is None else affinity(embeddings, against).mean(1).sum()
            return caught[-1], near.sum() - mean
    finally:
        handle.remove()
        network.train(mode)


def _check(network: nn.Module, inputs: Tensor, neighbors: Tensor, layer: str) -> None:
    known = layers(network)
    if layer not in known:
        raise ValueError(f"layer {layer!r} is unknown{nearest_name(layer, known)}; the layers are {', '.join(known)}")
    if inputs.ndim != 4 or not len(inputs):
        raise ValueError(f"inputs have shape {tuple(inputs.shape)}; pass preprocessed images (n, c, h, w)")
    if neighbors.ndim != 2 or len(neighbors) != len(inputs):
        raise ValueError(f"neighbors have shape {tuple(neighbors.shape)}; pass one embedding (n, d) for each of {len(inputs)} inputs")
