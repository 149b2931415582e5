"""The network of Taylor et al. (2010): sizes, the printed backward pass as a loop, connectivity, convolution and not correlation."""

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d

from nearkin.models.catalog import build
from nearkin.models.layer_outputs import features
from nearkin.models.taylor2010 import taylor2010

POOLS = (5, 4)
NAMES = {
    "k1": "conv1.filters",
    "b1": "conv1.bias",
    "beta2": "pool1.gain",
    "k3": "conv2.filters",
    "b3": "conv2.bias",
    "beta4": "pool2.gain",
    "A": "head.linear.weight",
}


def count(network):
    return sum(p.numel() for p in network.parameters())


def test_sizes_and_parameters_of_the_paper():
    network, image = build("taylor2010", image_shape=(1, 128, 128)), torch.rand(1, 1, 128, 128)
    sides = [features(network, image, layer).shape[1:] for layer in ("conv1", "pool1", "conv2", "pool2", "head")]
    assert sides == [(16, 120, 120), (16, 24, 24), (32, 16, 16), (32, 4, 4), (32,)]
    assert count(network) == 28_144
    assert {n: p.numel() for n, p in network.named_parameters()} == {
        "conv1.filters": 1296,
        "conv1.bias": 16,
        "pool1.gain": 16,
        "conv2.filters": 10_368,
        "conv2.bias": 32,
        "pool2.gain": 32,
        "head.linear.weight": 16_384,
    }


def test_sizes_of_the_small_variant():
    network, image = build("taylor2010", image_shape=(1, 64, 64), size=5), torch.rand(1, 1, 64, 64)
    sides = [features(network, image, layer).shape[1:] for layer in ("conv1", "pool1", "conv2", "pool2")]
    assert sides == [(16, 60, 60), (16, 12, 12), (32, 8, 8), (32, 2, 2)]
    assert network.head.linear.in_features == 128


# The paper's forward (28)-(32) and backward (33)-(42), one case and one map at a time.


def toy(seed=0):
    torch.manual_seed(seed)
    network = taylor2010((1, 64, 64), 3, maps=(5, 3), size=5, connections=2, seed=seed).double()
    with torch.no_grad():
        for p in network.parameters():  # far from the flat initial values, so that every gradient counts
            p.copy_(torch.randn_like(p) * 0.3)
        network.head.linear.weight.mul_(10)
    return network


def down(x, m):
    return x.reshape(x.shape[0] // m, m, x.shape[1] // m, m).mean((1, 3))


def up(delta, m, averaged=True):
    return np.kron(delta, np.ones((m, m))) / (m * m if averaged else 1)


def slope(u):
    return np.sign(np.tanh(u)) * (1 - np.tanh(u) ** 2)


def rot180(x):
    return x[::-1, ::-1]


def manual_forward(p, reads, x0):
    u1 = [convolve2d(x0, k[0], "valid") + b for k, b in zip(p["k1"], p["b1"], strict=True)]
    pooled1 = [down(np.abs(np.tanh(u)), POOLS[0]) for u in u1]
    x2 = [beta * x for beta, x in zip(p["beta2"], pooled1, strict=True)]
    u3 = [sum(convolve2d(x2[i], p["k3"][j, n], "valid") for n, i in enumerate(inputs)) + p["b3"][j] for j, inputs in enumerate(reads)]
    pooled3 = [down(np.abs(np.tanh(u)), POOLS[1]) for u in u3]
    x4 = np.stack([beta * x for beta, x in zip(p["beta4"], pooled3, strict=True)])
    return p["A"] @ x4.reshape(-1), (u1, pooled1, x2, u3, pooled3, x4)


def manual_backward(p, reads, x0, kept, delta5, averaged=True):
    u1, pooled1, x2, u3, pooled3, x4 = kept
    g = {name: np.zeros_like(value) for name, value in p.items()}
    g["A"] += np.outer(delta5, x4.reshape(-1))
    delta4 = (p["A"].T @ delta5).reshape(x4.shape)  # (33)
    delta2 = [np.zeros_like(x) for x in x2]
    for j, inputs in enumerate(reads):
        g["beta4"][j] += (delta4[j] * pooled3[j]).sum()  # (34)
        delta3 = p["beta4"][j] * slope(u3[j]) * up(delta4[j], POOLS[1], averaged)  # (35)
        g["b3"][j] += delta3.sum()  # (36)
        for n, i in enumerate(inputs):
            g["k3"][j, n] += rot180(convolve2d(x2[i], rot180(delta3), "valid"))  # (37)
            delta2[i] += convolve2d(delta3, rot180(p["k3"][j, n]), "full")  # (38)
    for j in range(len(x2)):
        g["beta2"][j] += (delta2[j] * pooled1[j]).sum()  # (39)
        delta1 = p["beta2"][j] * slope(u1[j]) * up(delta2[j], POOLS[0], averaged)  # (40)
        g["b1"][j] += delta1.sum()  # (41)
        g["k1"][j, 0] += rot180(convolve2d(x0, rot180(delta1), "valid"))  # (42)
    return g


def ncar_slope(z, y):
    """Equation (26)."""
    n = len(z)
    d = ((z[:, None] - z[None]) ** 2).sum(2)
    e = np.exp(-d) * (1 - np.eye(n))
    prob = e / e.sum(1, keepdims=True)
    y2 = (y[:, None] - y[None]) ** 2
    expected = (prob * y2).sum(1)
    g = np.zeros_like(z)
    for k in range(n):
        for j in range(n):
            if j != k:
                g[k] -= 2 * (z[k] - z[j]) * (prob[k, j] * (y2[k, j] - expected[k]) + prob[j, k] * (y2[j, k] - expected[j]))
    return g


def ncar(z, y):
    d = (z[:, None] - z[None]).square().sum(2).fill_diagonal_(torch.inf)
    return ((-d).softmax(1) * (y[:, None] - y[None]).square()).sum()


def both_gradients(averaged):
    network = toy()
    images = torch.randn(4, 1, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    images = images * torch.tensor([0.2, 0.5, 1.0, 2.0])[:, None, None, None]  # different from one another, so that the loss has a slope
    targets = torch.tensor([0.0, 0.3, 1.0, -0.5], dtype=torch.float64)
    z = network(images)
    ncar(z, targets).backward()
    parameters = dict(network.named_parameters())
    p = {short: parameters[name].detach().numpy() for short, name in NAMES.items()}
    reads = network.conv2.inputs.tolist()
    passes = [manual_forward(p, reads, image) for image in images[:, 0].numpy()]
    manual_z = np.stack([one for one, _ in passes])
    assert np.allclose(manual_z, z.detach().numpy(), rtol=1e-12, atol=1e-12)
    delta5 = ncar_slope(manual_z, targets.numpy())
    manual = [manual_backward(p, reads, images[i, 0].numpy(), kept, delta5[i], averaged) for i, (_, kept) in enumerate(passes)]
    by_hand = {short: sum(g[short] for g in manual) for short in NAMES}
    return by_hand, {short: parameters[name].grad.numpy() for short, name in NAMES.items()}


def test_the_printed_backward_pass_is_autograd_s():
    by_hand, automatic = both_gradients(averaged=True)
    for short in NAMES:
        scale = np.abs(automatic[short]).max()
        assert scale > 1e-3, short
        assert np.abs(by_hand[short] - automatic[short]).max() < 1e-12 * scale, short


def test_without_the_one_over_m_squared_the_five_lower_gradients_are_wrong():
    by_hand, automatic = both_gradients(averaged=False)
    for short in ("A", "beta4"):
        assert np.allclose(by_hand[short], automatic[short], rtol=1e-10)
    for short in ("k1", "b1", "beta2", "k3", "b3"):
        assert np.abs(by_hand[short] - automatic[short]).max() > 0.5 * np.abs(automatic[short]).max(), short


def test_each_second_map_reads_four_distinct_maps_fixed_by_the_seed():
    first, same, other = (build("taylor2010", image_shape=(1, 64, 64), size=5, seed=s) for s in (7, 7, 8))
    reads = first.conv2.inputs
    assert reads.shape == (32, 4) and all(len(set(row)) == 4 and min(row) >= 0 and max(row) < 16 for row in reads.tolist())
    assert torch.equal(reads, same.conv2.inputs) and not torch.equal(reads, other.conv2.inputs)
    other.load_state_dict(first.state_dict())
    assert torch.equal(reads, other.conv2.inputs)
    images = torch.rand(2, 1, 64, 64)
    assert torch.equal(first(images), other(images))


def test_an_unconnected_map_has_no_gradient():
    conv = taylor2010((1, 64, 64), size=5).conv2
    x = torch.rand(1, 16, 12, 12, requires_grad=True)
    for j in (0, 13, 31):
        (slope_,) = torch.autograd.grad(conv(x)[0, j].sum(), x, retain_graph=True)
        touched = slope_[0].abs().amax((1, 2)) > 0
        assert touched.nonzero()[:, 0].tolist() == conv.inputs[j].tolist()


def test_convolution_not_correlation():
    conv = toy().conv1
    image = np.random.default_rng(0).random((64, 64))
    with torch.no_grad():
        got = conv(torch.from_numpy(image)[None, None])[0].numpy()
        filters, bias = conv.filters.numpy(), conv.bias.numpy()
    for j in range(5):
        assert np.allclose(got[j], convolve2d(image, filters[j, 0], "valid") + bias[j], atol=1e-12)
        assert not np.allclose(got[j], convolve2d(image, rot180(filters[j, 0]), "valid") + bias[j], atol=1e-3)


def test_initial_values():
    torch.manual_seed(0)
    network = build("taylor2010", image_shape=(1, 128, 128)).requires_grad_(False)
    for p in (network.conv1.filters, network.conv2.filters, network.head.linear.weight):
        assert abs(float(p.std()) - 0.01) < 0.001
    assert abs(float(network.pool2.gain.mean()) - 1) < 0.01
    assert float(network.conv1.bias.abs().max()) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"image_shape": (1, 100, 128)},
            r"image height \(100\) cannot be divided evenly by filters of 9 and pools of 5 and 4; resize the images to",
        ),
        ({"image_shape": (1, 128, 130)}, r"image width \(130\) cannot be divided evenly .* to 128 or 148"),
        ({"image_shape": (1, 128, 128), "connections": 17}, r"connections \(17\) must be between 1 and the number of first maps \(16\)"),
        ({"image_shape": (1, 128, 128), "size": 0}, r"size \(0\) must be a whole number of at least 1"),
    ],
)
def test_errors(options, words):
    with pytest.raises(ValueError, match=words):
        build("taylor2010", **options)
