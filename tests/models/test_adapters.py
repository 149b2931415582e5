"""Bodies of other libraries. timm and torchvision are replaced by small modules with the same functions, so neither need be installed."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from nearkin.models.adapters import Adapted, adapt
from nearkin.models.catalog import build
from nearkin.models.encoders import find_encoder

SHAPE = (3, 8, 8)


class Backbone(nn.Module):
    """What both libraries have in common: a pooled trunk and a classifier named `fc`."""

    def __init__(self, channels=3, classes=10):
        super().__init__()
        self.conv = nn.Conv2d(channels, 5, 3)
        self.norm = nn.BatchNorm2d(5)
        self.fc = nn.Linear(5, classes) if classes else nn.Identity()
        self.pretrained_cfg = {"classifier": "fc"}

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).mean((2, 3)))


def made_by_timm(name, pretrained, num_classes, in_chans):
    assert not pretrained
    return Backbone(in_chans, num_classes)


def made_by_torchvision(name, weights):
    assert weights is None
    return Backbone()


@pytest.fixture
def libraries(monkeypatch):
    timm, torchvision, models = ModuleType("timm"), ModuleType("torchvision"), ModuleType("torchvision.models")
    timm.is_model = lambda name: name == "tiny"
    timm.list_models = lambda: ["tiny"]
    timm.create_model = made_by_timm
    models.list_models = lambda module: ["tiny", "tiny_v2"] if module is models else []
    models.get_model = made_by_torchvision
    for module in (timm, torchvision, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return SimpleNamespace(timm=timm, models=models)


@pytest.fixture
def whole(tmp_path):
    """A classifier as its authors publish it."""
    torch.manual_seed(3)
    model = Backbone()
    path = tmp_path / "tiny.safetensors"
    save_file(model.state_dict(), path)
    return SimpleNamespace(model=model.eval(), path=path)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_model_of_a_library_with_our_head(library, libraries, whole):
    network = build(f"{library}:tiny", image_shape=SHAPE, dimension=4, normalize=True, weights=str(whole.path)).eval()
    images = torch.randn(2, *SHAPE)
    trunk = whole.model.norm(whole.model.conv(images)).mean((2, 3))
    assert torch.allclose(network.body(images), trunk, atol=1e-6)
    assert network(images).shape == (2, 4) and torch.allclose(network(images).norm(dim=1), torch.ones(2))
    assert build(f"{library}:tiny", image_shape=SHAPE)(images).shape == (2, 128)


def test_timm_reads_any_number_of_channels_and_torchvision_three(libraries):
    assert build("timm:tiny", image_shape=(1, 8, 8))(torch.randn(2, 1, 8, 8)).shape == (2, 128)
    with pytest.raises(
        ValueError, match=r"image_shape \(1, 8, 8\) has 1 channels, and torchvision's models read 3; repeat the channel, or use timm"
    ):
        build("torchvision:tiny", image_shape=(1, 8, 8))


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_library_that_is_not_there(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.models", None)
    with pytest.raises(ImportError, match=rf"{library} is not installed; pip install {library}"):
        build(f"{library}:resnet18", image_shape=SHAPE)


def test_a_model_that_is_not_there(libraries):
    with pytest.raises(ValueError, match=r"timm has no model 'tin' \(did you mean 'tiny'\?\); timm.list_models\(\) lists all"):
        build("timm:tin", image_shape=SHAPE)
    with pytest.raises(ValueError, match=r"timm has no model 'x'; timm.list_models\(\) lists all"):
        build("timm:x", image_shape=SHAPE)
    with pytest.raises(
        ValueError, match=r"torchvision has no model 'tiny_v3' \(did you mean 'tiny_v2'\?\) that classifies; the models are tiny, tiny_v2"
    ):
        build("torchvision:tiny_v3", image_shape=SHAPE)


def test_frozen_bodies_stay_as_they_are(libraries, whole):
    network = build("timm:tiny", image_shape=SHAPE, dimension=4, weights=whole.path, frozen=True)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    assert network.head.training and not network.body.norm.training
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
    network(torch.randn(4, *SHAPE)).square().sum().backward()
    optimizer.step()
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"head.linear.weight", "head.linear.bias"}


def test_any_module():
    torch.manual_seed(0)
    module, images = Backbone(classes=6), torch.randn(2, *SHAPE)
    module.norm.eval()
    plain = adapt(module, SHAPE)
    assert isinstance(plain, Adapted)
    module.eval()
    assert torch.equal(plain(images), module(images))
    assert torch.allclose(adapt(module, SHAPE, normalize=True)(images).norm(dim=1), torch.ones(2))
    assert adapt(module, SHAPE, 3)(images).shape == (2, 3)
    assert adapt(nn.Conv2d(3, 2, 3), SHAPE, 3)(images).shape == (2, 3)  # maps are flattened
    assert adapt(nn.Linear(5, 4), (5,), 3)(torch.randn(2, 5)).shape == (2, 3)


def test_adapting_a_module_keeps_its_modes_and_statistics():
    module = Backbone()
    module.norm.eval()
    before = module.norm.running_mean.clone()
    adapt(module, SHAPE, 3)
    assert torch.equal(module.norm.running_mean, before)
    mixed = nn.Sequential(nn.Dropout(), nn.BatchNorm2d(3).eval())
    from nearkin.models.head import features_after

    features_after(mixed, SHAPE)
    assert mixed.training and mixed[0].training and not mixed[1].training


def test_errors():
    with pytest.raises(TypeError, match=r"module must be an nn.Module, not function"):
        adapt(lambda x: x, SHAPE)
    with pytest.raises(TypeError, match="the network returns a tuple, not a tensor; wrap it"):
        adapt(nn.LSTM(5, 4), (5, 5))
    with pytest.raises(ValueError, match=r"this network cannot read images of 3 x 2 x 2 \(.*\); resize them"):
        adapt(Backbone(), (3, 2, 2))


def test_the_preprocessing_is_that_of_the_weights_file_that_is_given(libraries, tmp_path):
    def weights(name: str, short: int) -> SimpleNamespace:
        steps = SimpleNamespace(crop_size=[8], resize_size=[short], interpolation=SimpleNamespace(value="bilinear"), mean=[0.5], std=[0.5])
        return SimpleNamespace(url=f"https://x/{name}.pth", transforms=lambda: steps)

    class Known(list):
        DEFAULT = weights("tiny-new", 10)

    libraries.models.get_model_weights = lambda _: Known([weights("tiny-old", 16), Known.DEFAULT])
    for name, share in (("tiny-old", 0.5), ("tiny-new", 0.8), ("mine", 0.8)):
        path = tmp_path / f"{name}.safetensors"
        save_file(Backbone().state_dict(), path)
        assert find_encoder("torchvision:tiny", path).reading.framing.crop == share
