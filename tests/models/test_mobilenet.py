"""MobileNetV2: torchvision's names and sizes, so that its file loads as it is."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nearkin.models import build
from nearkin.models.catalog import loads_itself
from nearkin.models.folding import folded
from nearkin.models.mobilenet import MobileNetV2


def test_names_and_sizes_are_torchvisions() -> None:
    body = MobileNetV2()
    held = body.state_dict()
    assert sum(p.numel() for p in body.parameters()) == 2_223_872 and len(held) == 312  # 3,504,872 minus the classifier's 1,281,000
    assert {name: tuple(held[name].shape) for name in ("features.0.0.weight", "features.18.0.weight", "features.17.conv.2.weight")} == {
        "features.0.0.weight": (32, 3, 3, 3),
        "features.18.0.weight": (1280, 320, 1, 1),
        "features.17.conv.2.weight": (320, 960, 1, 1),
    }
    assert tuple(held["features.1.conv.0.0.weight"].shape) == (32, 1, 3, 3)  # the first block does not widen
    alike = [number for number, block in enumerate(body.features[1:18], start=1) if block.same]
    assert alike == [3, 5, 6, 8, 9, 10, 12, 13, 15, 16]  # all but the first of every stage


def test_an_image_is_halved_five_times_and_averaged() -> None:
    body = MobileNetV2().eval()
    images = torch.randn(2, 3, 64, 96)
    maps = body.features(images)
    assert maps.shape == (2, 1280, 2, 3)
    torch.testing.assert_close(body(images), maps.mean((2, 3)))


def test_weights_of_a_file_are_loaded_without_its_classifier(tmp_path: Path) -> None:
    held = MobileNetV2().state_dict()
    save_file({**held, "classifier.1.weight": torch.zeros(1000, 1280), "classifier.1.bias": torch.zeros(1000)}, tmp_path / "m.safetensors")
    network = build("mobilenet-v2", image_shape=(3, 32, 32), dimension=4, normalize=True, weights=tmp_path / "m.safetensors", frozen=True)
    torch.testing.assert_close(network.body.features[0][0].weight, held["features.0.0.weight"])
    assert [name for name, p in network.named_parameters() if p.requires_grad] == ["head.linear.weight", "head.linear.bias"]
    torch.testing.assert_close(network(torch.randn(3, 3, 32, 32)).norm(dim=1), torch.ones(3))
    with pytest.raises(ValueError, match=r"features.0.0.weight has shape \(32, 3, 3, 3\), the network's \(32, 1, 3, 3\)"):
        build("mobilenet-v2", image_shape=(1, 32, 32), weights=tmp_path / "m.safetensors")


def test_networks_that_load_weights_themselves() -> None:
    assert loads_itself("mobilenet-v2") and loads_itself("timm:resnet18") and not loads_itself("resnet18") and not loads_itself("auto")


def test_folded_normalization_gives_the_same_features_and_leaves_the_network_alone() -> None:
    torch.manual_seed(0)
    body = MobileNetV2()
    for part in body.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1), part.running_var.uniform_(0.5, 2)
    before = {name: value.clone() for name, value in body.state_dict().items()}
    made, images = folded(body), torch.rand(2, 3, 32, 32)
    assert body.training and all(torch.equal(before[name], value) for name, value in body.state_dict().items())
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in made.modules())
    with torch.no_grad():
        torch.testing.assert_close(made(images), body.eval()(images), rtol=1e-4, atol=1e-5)
