"""Stages of a training: found in order, loaded completely, and each with its own heat maps."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.models.folder import Model
from nearkin.report.grad_cam import grad_cam
from nearkin.report.stages import heat_of_nearest, load_weights, saved_weights

ABOUT = {"prepare": [], "metric": "squared_euclidean", "shape": [1, 9, 9], "classes": [], "supervision": "ids"}


def small(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))


def kept(folder: Path) -> Path:
    """A model folder with rounds, checkpoints and both weights, each with a seed of its own."""
    for name, seed in {"step-00000025-round-10": 10, "step-00000020-round-2": 2, "step-00000030": 30, "step-00000100": 100}.items():
        (folder / "checkpoints" / name).mkdir(parents=True)
        tensors = {f"network.{name}": value for name, value in small(seed).state_dict().items()} | {"random.torch": torch.zeros(3)}
        save_file(tensors, folder / "checkpoints" / name / "tensors.safetensors")
    save_file(small(1).state_dict(), folder / "best.safetensors")
    save_file(small(100).state_dict(), folder / "weights.safetensors")
    return folder


def same(network: nn.Module, seed: int) -> bool:
    return all(torch.equal(value, small(seed).state_dict()[name]) for name, value in network.state_dict().items())


def test_stages_are_in_the_order_of_the_training_and_put_back_whole(tmp_path: Path) -> None:
    found = saved_weights(kept(tmp_path))
    assert list(found) == ["round 2", "round 10", "step 30", "best", "last"], "the newest checkpoint is the last weights"
    model = Model(small(0), ABOUT)
    for weights, seed in zip(found.values(), (2, 10, 30, 1, 100), strict=True):
        load_weights(model, weights)
        assert same(model.network, seed)
    assert saved_weights(tmp_path / "nothing") == {}


@pytest.mark.parametrize("layer", [None, "0", "1"])
def test_a_look_is_the_heat_of_the_nearest_by_the_present_weights(tmp_path: Path, layer: str | None) -> None:
    generator = torch.Generator().manual_seed(0)
    images, there = (torch.randint(256, (count, 1, 9, 9), generator=generator, dtype=torch.uint8) for count in (3, 40))
    model, seen = Model(small(0), ABOUT), []
    for weights in saved_weights(kept(tmp_path)).values():
        load_weights(model, weights)
        known: Tensor = torch.as_tensor(model.encode(there))
        look = heat_of_nearest(model, images, Points(known), layer=layer)
        gaps = torch.cdist(torch.as_tensor(model.encode(images)).double(), known.double())
        assert look.found.tolist() == gaps.argmin(1).tolist()
        inputs = model._prepared(images)
        torch.testing.assert_close(look.heat, grad_cam(model.network, inputs, known[look.found], layer or "1", against=known))
        seen.append(look.heat)
    assert not torch.allclose(seen[0], seen[-1])


def test_a_query_in_the_gallery_is_passed_over_by_id(tmp_path: Path) -> None:
    images = torch.randint(256, (12, 1, 9, 9), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    model = Model(small(0), ABOUT)
    known = Points(torch.as_tensor(model.encode(images)), ids=torch.arange(12))
    assert heat_of_nearest(model, images[:4], known).found.tolist() == [0, 1, 2, 3]
    found = heat_of_nearest(model, images[:4], known, torch.arange(4)).found
    assert not (found == torch.arange(4)).any() and load_file(kept(tmp_path) / "best.safetensors")
