"""The networks of the papers: parameter counts, sizes layer by layer, and a literal forward pass."""

import pytest
import torch
from torch.nn import functional

from nearkin.models.catalog import build
from nearkin.models.layer_outputs import features

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


def count(network):
    return sum(p.numel() for p in network.parameters())


def on_paper(*arguments, **options):
    """Built on the meta device: sizes only."""
    with torch.device("meta"):
        return build(*arguments, **options)


@pytest.mark.parametrize(
    ("name", "shape", "options", "parameters"),
    [
        ("ren2014-mnist", MNIST, {}, 76_864),
        ("ren2014-mnist", MNIST, {"pooling": "ceil"}, 97_344),
        ("ren2014-cifar", CIFAR, {}, 131_596),
        ("ren2014-cifar", CIFAR, {"pooling": "ceil"}, 176_396),
        ("ren2014-mnist", MNIST, {"dimension": 2}, 76_864 - 62 * 129),
        ("ren2014-mnist", MNIST, {"output": "tanh"}, 76_864),
        ("taylor2010", (1, 128, 128), {}, 28_144),
        ("hao2018-mnist-2d", MNIST, {}, 335_426),
        ("hao2018-mnist", MNIST, {}, 481_984),
        ("hao2018-cifar10", CIFAR, {}, 1_534_464),
        ("hao2018-cifar100", CIFAR, {}, 9_295_040),
        ("hao2018-mnist", MNIST, {"conv_bias": False}, 481_984 - 10 * 64),
        ("resnet18", CIFAR, {}, 11_173_962 - 513 * 10 + 513 * 128),  # the well-known count for ten classes, with 128 dimensions instead
        ("resnet50", CIFAR, {}, 23_520_842 - 2049 * 10 + 2049 * 128),
        ("resnet101", CIFAR, {}, 42_512_970 - 2049 * 10 + 2049 * 128),
        ("alexnet", CIFAR, {}, 9 * (3 * 96 + 96 * 256 + 256 * 384 + 384 * 384 + 384 * 256) + 3 * (96 + 256 + 384 + 384 + 256) + 4097 * 128),
    ],
)
def test_parameters(name, shape, options, parameters):
    assert count(on_paper(name, image_shape=shape, **options)) == parameters


@pytest.mark.parametrize(
    ("name", "shape", "options", "sides"),
    [
        ("ren2014-mnist", MNIST, {}, {"conv1": 28, "pool1": 13, "pool2": 6, "pool3": 2}),
        ("ren2014-mnist", MNIST, {"pooling": "ceil"}, {"pool1": 14, "pool2": 7, "pool3": 3}),
        ("ren2014-cifar", CIFAR, {}, {"pool1": 15, "pool2": 7, "pool3": 3}),
        ("ren2014-cifar", CIFAR, {"pooling": "ceil"}, {"pool1": 16, "pool2": 8, "pool3": 4}),
        ("hao2018-mnist", MNIST, {}, {"conv1": 28, "pool1": 14, "pool2": 7, "pool3": 3}),
        ("hao2018-cifar100", CIFAR, {}, {"pool1": 16, "pool2": 8, "pool3": 4}),
        ("resnet18", CIFAR, {}, {"stem": 32, "stage1": 32, "stage2": 16, "stage3": 8, "stage4": 4, "pool": 1}),
        ("alexnet", CIFAR, {}, {"conv1": 32, "conv2": 16, "conv3": 8, "conv4": 8, "conv5": 8, "pool5": 4}),
    ],
)
def test_sides(name, shape, options, sides):
    network = on_paper(name, image_shape=shape, **options)
    images = torch.zeros(1, *shape, device="meta")
    for layer, side in sides.items():
        assert features(network, images, layer).shape[2:] == (side, side), layer


@pytest.mark.parametrize(("output", "pooling"), [("linear", "floor"), ("tanh", "ceil")])
def test_ren2014_is_its_layers(output, pooling):
    network = build("ren2014-mnist", image_shape=(2, 20, 17), output=output, pooling=pooling)
    images = torch.randn(3, 2, 20, 17)
    weights, x = list(network.parameters()), images
    for i in range(3):
        x = functional.max_pool2d(
            functional.conv2d(x, weights[2 * i], weights[2 * i + 1], padding=2), 3, 2, ceil_mode=pooling == "ceil"
        ).tanh()
    x = (x.flatten(1) @ weights[6].T + weights[7]).tanh() @ weights[8].T + weights[9]
    assert torch.allclose(network(images), x.tanh() if output == "tanh" else x, atol=1e-5)
    assert x.shape == (3, 64)


@pytest.mark.parametrize("name", ["hao2018-mnist", "hao2018-mnist-2d", "hao2018-cifar10"])
def test_hao2018_is_its_table(name):
    counts = {"hao2018-cifar10": (1, 4, 4, 4)}.get(name, (1, 3, 3, 3))
    network = build(name, image_shape=(1, 9, 8)).eval()
    state = iter([p for n, p in network.state_dict().items() if "num_batches" not in n])
    images = x = torch.randn(2, 1, 9, 8)
    for block, layers in enumerate(counts):
        for _ in range(layers):
            weight, bias, scale, shift, mean, var = (next(state) for _ in range(6))
            x = functional.relu(functional.batch_norm(functional.conv2d(x, weight, bias, padding=1), mean, var, scale, shift))
        x = functional.max_pool2d(x, 2) if block else x
    weight, bias = next(state), next(state)
    assert torch.allclose(network(images), x.flatten(1) @ weight.T + bias, atol=1e-5)
    assert next(state, None) is None


def test_hao2018_drops_after_the_first_two_pools_only():
    network = build("hao2018-mnist", image_shape=(1, 8, 8), dropout=0.25)
    order = [name for name, _ in network.named_children()]
    assert order == ["conv0", "conv1", "pool1", "dropout1", "conv2", "pool2", "dropout2", "conv3", "pool3", "head"]
    assert network.dropout1.p == network.dropout2.p == 0.25
    assert build("hao2018-mnist", image_shape=(1, 8, 8)).dropout1.p == 0.1
    assert build("hao2018-mnist-2d", image_shape=(1, 8, 8)).dropout1.p == 0


@pytest.mark.parametrize(("name", "bottleneck", "counts"), [("resnet18", False, (2, 2, 2, 2)), ("resnet50", True, (3, 4, 6, 3))])
def test_resnet_is_the_released_one(name, bottleneck, counts):
    """The released network: stem without a pool, blocks of two or three convolutions, strides 1 2 2 2, mean, linear, unit length."""
    torch.manual_seed(0)
    network = build(name, image_shape=CIFAR, normalize=True).eval()
    state = iter([p for n, p in network.state_dict().items() if "num_batches" not in n])

    def convolved(x, stride=1):
        weight, scale, shift, mean, var = (next(state) for _ in range(5))
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)
        return functional.batch_norm(x, mean, var, scale, shift)

    images = torch.randn(1, *CIFAR)
    x = functional.relu(convolved(images))
    assert x.shape[1:] == (64, 32, 32)
    for stage, blocks in enumerate(counts):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            if bottleneck:
                inner = functional.relu(convolved(functional.relu(convolved(x)), stride))
            else:
                inner = functional.relu(convolved(x, stride))
            inner = convolved(inner)
            x = functional.relu(inner + (convolved(x, stride) if inner.shape != x.shape else x))
    x = functional.avg_pool2d(x, 4).flatten(1) @ next(state).T + next(state)
    assert torch.allclose(network(images), x / x.norm(dim=1, keepdim=True), atol=1e-5)
    assert next(state, None) is None


def test_alexnet_is_its_layers():
    network = build("alexnet", image_shape=(3, 8, 8)).eval()
    state = iter([p for n, p in network.state_dict().items() if "num_batches" not in n])
    images = x = torch.randn(2, 3, 8, 8)
    for i in range(1, 6):
        weight, bias, scale, shift, mean, var = (next(state) for _ in range(6))
        x = functional.relu(functional.batch_norm(functional.conv2d(x, weight, bias, padding=1), mean, var, scale, shift))
        assert torch.allclose(features(network, images, f"conv{i}"), x, atol=1e-5)
        x = functional.max_pool2d(x, 2) if i in (1, 2, 5) else x
    assert torch.allclose(network(images), x.flatten(1) @ next(state).T + next(state), atol=1e-5)


@pytest.mark.parametrize("name", ["ren2014-cifar", "hao2018-mnist", "resnet18", "alexnet"])
def test_every_parameter_has_a_gradient(name):
    torch.manual_seed(0)
    network = build(name, image_shape=(3, 16, 16), normalize=True)
    z = network(torch.randn(4, 3, 16, 16))
    assert torch.allclose(z.norm(dim=1), torch.ones(4), atol=1e-5)
    (z @ torch.randn(z.shape[1])).square().sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in network.parameters())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ren2014-mnist", {"pooling": "round"}, "pooling 'round' is unknown; choose one of floor, ceil"),
        ("ren2014-mnist", {"output": "relu"}, "output 'relu' is unknown; choose one of linear, tanh"),
        ("ren2014-mnist", {"hidden": 0}, r"hidden \(0\) must be a whole number of at least 1"),
        ("ren2014-mnist", {"dimension": 0}, r"dimension \(0\) must be a whole number of at least 1"),
        ("ren2014-mnist", {"image_shape": (1, 4, 4)}, r"this network cannot read images of 1 x 4 x 4"),
        ("hao2018-mnist", {"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
        ("resnet18", {"image_shape": (3, 32)}, r"image_shape \(3, 32\) must be \(channels, height, width\)"),
    ],
)
def test_errors(name, options, words):
    with pytest.raises(ValueError, match=words):
        build(name, **{"image_shape": MNIST, **options})
