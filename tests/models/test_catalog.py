import copy
from pathlib import Path

import pytest
import torch

import nearkin.models
from nearkin.models.catalog import NETWORKS, build, channels_last, options_of
from nearkin.models.head import Head, unit_length
from nearkin.models.layer_outputs import features, layers


def test_no_exported_name_is_hidden_by_a_module_of_the_same_name():
    """`from nearkin.models import features` must be the function, also after its module was imported."""
    modules = {path.stem for path in Path(nearkin.models.__file__).parent.glob("*.py")}
    assert modules.isdisjoint(nearkin.models.__all__)


def test_the_signature_is_the_schema():
    assert options_of("ren2014-cifar") == {"hidden": 200, "pooling": "floor", "output": "linear"}
    assert options_of("hao2018-cifar100") == {"dropout": 0.1, "conv_bias": True}
    assert options_of("resnet101") == {"stem": "small", "projection": 0, "projected": 128} and options_of("alexnet") == {}
    assert options_of("timm:resnet18") == {"weights": None, "frozen": False, "head": True}
    assert set(options_of("mlp")) == {"hidden", "activation", "batch_norm", "dropout"}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_built_from_its_name_alone(name):
    side = 128 if name == "taylor2010" else 32
    with torch.device("meta"):
        network = build(name, image_shape=(1, side, side), dimension=7)
        assert network(torch.zeros(2, 1, side, side)).shape == (2, 7)
    assert isinstance(network.head, Head)


@pytest.mark.parametrize("name", ["convnet", "ren2014-mnist", "resnet18"])
def test_channels_last_changes_nothing_but_the_layout(name):
    torch.manual_seed(0)
    plain = build(name, image_shape=(3, 28, 28), dimension=8)
    laid = channels_last(copy.deepcopy(plain))
    images, gradients = torch.randn(4, 3, 28, 28), []
    for network in (plain, copy.deepcopy(laid)):
        network.double()(images.double()).square().sum().backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])
    kernels = [weight for weight in laid.state_dict().values() if weight.ndim == 4 and weight.shape[1] > 1]
    assert kernels and all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)
    first = next(layer for layer in laid.modules() if isinstance(layer, torch.nn.Conv2d))
    assert first(images).is_contiguous(memory_format=torch.channels_last)  # and all later layers, too


def test_vectors():
    torch.manual_seed(0)
    x = torch.randn(5, 6)
    network = build("linear", dimension_in=6, dimension=3)
    assert torch.allclose(network(x), x @ network.head.linear.weight.T) and network.head.linear.bias is None
    network = build("mlp", dimension_in=6, dimension=3, hidden=[8, 4], activation="tanh", batch_norm=True, dropout=0.5)
    assert [name for name, _ in network.named_children()] == ["flatten", "fc1", "fc2", "head"]
    assert network(x).shape == (5, 3)
    images = torch.rand(5, 2, 3, 4)
    for name in ("mlp", "linear"):
        assert torch.equal((network := build(name, image_shape=(2, 3, 4)))(images), network(images.flatten(1)))
    assert sum(p.numel() for p in build("mlp", dimension_in=6, dimension=3, hidden=(8,)).parameters()) == 7 * 8 + 9 * 3


def test_head():
    torch.manual_seed(0)
    x = torch.randn(4, 5)
    head = Head(5, 3, normalize=True)
    assert torch.allclose(head(x).norm(dim=1), torch.ones(4))
    plain = Head(5, 3, output="tanh")
    plain.load_state_dict(head.state_dict())
    assert torch.allclose(plain(x), (x @ head.linear.weight.T + head.linear.bias).tanh())
    assert unit_length(torch.randn(2, 3).bfloat16()).dtype == torch.float32
    assert unit_length(torch.randn(2, 3).double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert head(x).dtype == torch.float32


def test_features_of_any_layer():
    torch.manual_seed(0)
    network, x = build("mlp", dimension_in=6, hidden=(8, 4)), torch.randn(3, 6)
    assert layers(network)[:3] == ("flatten", "fc1", "fc1.0") and "head.linear" in layers(network)
    expected = x @ network.fc1[0].weight.T + network.fc1[0].bias
    assert torch.allclose(features(network, x, "fc1.0"), expected)
    assert torch.allclose(features(network, x, "fc1"), expected.relu())
    assert torch.equal(features(network, x, "head"), network(x))
    assert not network.fc1._forward_hooks
    features(network, x, "fc1").sum().backward()  # with gradients the graph is kept


def test_features_are_not_changed_by_the_next_layer():
    network = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True))
    assert (features(network, torch.randn(50, 3), "0") < 0).any()


class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = torch.nn.LSTM(3, 3)
        self.unused = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.pair(x)[0]


def test_features_errors():
    x = torch.randn(2, 6)
    with pytest.raises(
        ValueError, match=r"layer 'fc3' is unknown \(did you mean 'fc1'\?\); it has flatten, fc1, head; layers\(\) also lists"
    ):
        features(build("mlp", dimension_in=6), x, "fc3")
    with pytest.raises(TypeError, match="layer 'pair' returns a tuple, not a tensor; choose a layer inside it"):
        features(Odd(), torch.randn(2, 3), "pair")
    with pytest.raises(ValueError, match="layer 'unused' did not run for these images"):
        features(Odd(), torch.randn(2, 3), "unused")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (
            "resnet19",
            {},
            r"network 'resnet19' is unknown \(did you mean 'resnet18'\?\); the networks are .*linear.*timm:NAME, torchvision:NAME",
        ),
        ("zzz", {}, r"network 'zzz' is unknown; the networks are"),
        ("huggingface:vit", {}, r"network 'huggingface:vit' is unknown"),
        (
            "ren2014-mnist",
            {"poolin": "ceil"},
            r"ren2014-mnist has no option 'poolin' \(did you mean 'pooling'\?\); its options are hidden, pooling",
        ),
        ("alexnet", {"depth": 3}, "alexnet has no option 'depth'; it has none"),
        ("hao2018-mnist", {"conv_bias": "no"}, r"hao2018-mnist: conv_bias \('no'\) must be true or false"),
        (
            "resnet18",
            {"image_shape": None, "dimension_in": 5},
            "resnet18 reads images, not vectors of 5 numbers; give image_shape, or use mlp",
        ),
        ("resnet18", {"dimension_in": 5}, r"give image_shape=\(channels, height, width\) or dimension_in, one of the two"),
        ("mlp", {"image_shape": None}, "give image_shape=.* or dimension_in, one of the two"),
        ("mlp", {"activation": "swish"}, "activation 'swish' is unknown; choose one of relu, gelu, tanh"),
        ("mlp", {"hidden": (0,)}, r"hidden \(0\) must be a whole number of at least 1"),
        ("mlp", {"dropout": -1}, r"dropout \(-1\) must be at least 0 and below 1"),
        ("linear", {"image_shape": None, "dimension_in": 0}, r"dimension_in \(0\) must be a whole number of at least 1"),
    ],
)
def test_errors(name, options, words):
    with pytest.raises(ValueError, match=words):
        build(name, **{"image_shape": (1, 28, 28), **options})


def test_a_projection_is_for_the_objective_alone() -> None:
    torch.manual_seed(0)
    network = build("resnet18", image_shape=(3, 8, 8), dimension=512, normalize=True, projection=16, projected=8)
    images = torch.randn(4, 3, 8, 8)
    seen = network.train()(images)
    assert seen.shape == (4, network.head.trained_dimension) == (4, 8)
    body = torch.nn.Sequential(*list(network.eval())[:-1])
    torch.testing.assert_close(network(images), torch.nn.functional.normalize(body(images).flatten(1), dim=1))
    with pytest.raises(ValueError, match=r"the embedding is the 512 features before it: set dimension=512, not 128"):
        build("resnet18", image_shape=(3, 8, 8), dimension=128, projection=16)
    with pytest.raises(ValueError, match="projection"):
        build("resnet18", image_shape=(3, 8, 8), projection=-1)
