"""Grad-CAM of a neighbor decision: equal to literal loops, for any layer, leaving the network as it was."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nearkin.compose.affinity import SquaredEuclidean, cosine
from nearkin.report.grad_cam import grad_cam, last_maps


def small(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    parts = OrderedDict(
        conv1=nn.Conv2d(2, 3, 3), act1=nn.ReLU(), conv2=nn.Conv2d(3, 4, 2), act2=nn.ReLU(inplace=True), pool=nn.AdaptiveAvgPool2d(1)
    )
    return nn.Sequential(OrderedDict(**parts, flat=nn.Flatten(), head=nn.Linear(4, 3))).double()


def convolved(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A valid convolution of (c, h, w) by (m, c, k, k), literally."""
    m, c, k, _ = weight.shape
    out = np.zeros((m, x.shape[1] - k + 1, x.shape[2] - k + 1))
    for o in range(m):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                out[o, i, j] = bias[o] + sum(weight[o, a, p, q] * x[a, i + p, j + q] for a in range(c) for p in range(k) for q in range(k))
    return out


def above(maps: np.ndarray, net: nn.Sequential, neighbor: np.ndarray) -> float:
    """From the first layer's maps, after the ReLU, to minus the squared distance to the neighbor."""
    second = np.maximum(convolved(maps, net.conv2.weight.detach().numpy(), net.conv2.bias.detach().numpy()), 0)
    embedding = net.head.weight.detach().numpy() @ second.mean((1, 2)) + net.head.bias.detach().numpy()
    return -float(((embedding - neighbor) ** 2).sum())


def literal_heat(image: np.ndarray, net: nn.Sequential, neighbor: np.ndarray, others: Sequence[np.ndarray] = ()) -> np.ndarray:
    """The definition with every derivative a difference quotient."""

    def score(maps: np.ndarray) -> float:
        usual = sum(above(maps, net, other) for other in others) / len(others) if others else 0.0
        return above(maps, net, neighbor) - usual

    maps = np.maximum(convolved(image, net.conv1.weight.detach().numpy(), net.conv1.bias.detach().numpy()), 0)
    step, heat = 1e-6, np.zeros(maps.shape[1:])
    for m in range(len(maps)):
        total = 0.0
        for i in range(maps.shape[1]):
            for j in range(maps.shape[2]):
                up, down = maps.copy(), maps.copy()
                up[m, i, j] += step
                down[m, i, j] -= step
                total += (score(up) - score(down)) / (2 * step)
        heat += total / heat.size * maps[m]
    return np.maximum(heat, 0)


@pytest.mark.parametrize("others", [0, 3])
def test_equal_to_literal_loops(others: int) -> None:
    net = small()
    images, neighbors = torch.randn(3, 2, 6, 7, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    against = torch.randn(others, 3, dtype=torch.float64) if others else None
    found = grad_cam(net, images, neighbors, "act1", against=against, size=(4, 5))  # the maps' own size: nothing is interpolated
    rest = [] if against is None else [other.numpy() for other in against]
    expected = np.stack([literal_heat(x.numpy(), net, r.numpy(), rest) for x, r in zip(images, neighbors, strict=True)])
    assert expected.max() > 0
    assert np.allclose(found.numpy(), expected, rtol=1e-6, atol=1e-8)


def test_a_linear_case_by_hand() -> None:
    """One map that is the image, its mean the embedding: the heat is the image where a larger mean brings the two nearer."""
    net = nn.Sequential(OrderedDict(same=nn.Identity(), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten())).double()
    image = torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]], dtype=torch.float64)  # mean 1.5
    above_it, below_it = torch.tensor([[2.5]], dtype=torch.float64), torch.tensor([[0.5]], dtype=torch.float64)
    assert torch.allclose(grad_cam(net, image, above_it, "same")[0], 2 * 1.0 / 4 * image[0, 0])
    assert torch.equal(grad_cam(net, image, below_it, "same"), torch.zeros(1, 2, 2, dtype=torch.float64))


@pytest.mark.parametrize("affinity", [SquaredEuclidean(), cosine()])
@pytest.mark.parametrize("layer", ["conv1", "act1", "conv2", "act2"])
def test_laws_of_the_heat(layer: str, affinity: object) -> None:
    net = small().requires_grad_(False).train()
    images, neighbors = torch.randn(4, 2, 8, 8, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    heat = grad_cam(net, images, neighbors, layer, affinity)  # type: ignore[arg-type]
    assert heat.shape == (4, 8, 8) and bool((heat >= 0).all())
    one_by_one = [grad_cam(net, images[i : i + 1], neighbors[i : i + 1], layer, affinity) for i in range(4)]  # type: ignore[arg-type]
    assert torch.allclose(heat, torch.cat(one_by_one))
    assert net.training and all(p.grad is None for p in net.parameters()) and not net.conv1._forward_hooks
    with torch.no_grad():
        assert torch.allclose(grad_cam(net, images, neighbors, layer, affinity), heat)  # type: ignore[arg-type]


def test_against_others_a_distance_forgets_its_own_square() -> None:
    """-|q - r|^2 minus its mean over r' has the slope 2 (r - mean r'), wherever the query is."""
    net = nn.Sequential(OrderedDict(same=nn.Identity(), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten())).double()
    image = torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]], dtype=torch.float64)
    near, others = torch.tensor([[1.5]], dtype=torch.float64), torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    assert torch.equal(grad_cam(net, image, near, "same"), torch.zeros(1, 2, 2, dtype=torch.float64))  # it is there already
    assert torch.allclose(grad_cam(net, image, near, "same", against=others)[0], 2 * (1.5 - 0.5) / 4 * image[0, 0])


def test_the_last_layer_with_maps() -> None:
    net = small()
    assert last_maps(net, torch.zeros(1, 2, 8, 8, dtype=torch.float64)) == "act2"  # 5 x 5
    assert last_maps(net, torch.zeros(1, 2, 6, 6, dtype=torch.float64)) == "act1"  # 4 x 4, where act2 has 3 x 3
    assert last_maps(net, torch.zeros(1, 2, 5, 5, dtype=torch.float64)) == "act2"  # nothing has 4
    with pytest.raises(ValueError, match="no layer whose maps"):
        last_maps(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.zeros(1, 1, 2, 2))


def test_errors_of_grad_cam() -> None:
    net = small()
    images, neighbors = torch.zeros(2, 2, 8, 8, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)

    def wrong(message: str, inputs: Tensor = images, near: Tensor = neighbors, layer: str = "conv1") -> None:
        with pytest.raises(ValueError, match=message):
            grad_cam(net, inputs, near, layer)

    wrong(r"layer 'conv3' is unknown \(did you mean 'conv2'\?\)", layer="conv3")
    wrong(r"layer 'head' outputs \(2, 3\); Grad-CAM needs maps", layer="head")
    wrong(r"inputs have shape \(2, 8, 8\)", inputs=images[0])
    wrong(r"neighbors have shape \(1, 3\); pass one embedding", near=neighbors[:1])
    with pytest.raises(ValueError, match=r"against has shape \(5, 2\); pass embeddings \(m, 3\) of other references"):
        grad_cam(net, images, neighbors, "conv1", against=torch.zeros(5, 2))
    wrong(r"neighbors have shape \(2, 2\) for embeddings \(2, 3\)", near=neighbors[:, :2])
