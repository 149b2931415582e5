"""Saved files have the permissions of any new file, so that a server of another user can read a model folder."""

import os
from pathlib import Path

import pytest
import torch

from nearkin import cli
from nearkin.models.weights import convert_weights


@pytest.fixture(params=[0o022, 0o027], ids=oct)
def mask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_of_a_model_and_its_index_have_default_permissions(mask: int, tmp_path: Path) -> None:
    model = tmp_path / "model"
    words = ["train", "digits", "--network", "mlp", "--epochs", "1", "--set", "checkpoint_seconds=0", "--device", "cpu"]
    assert cli.main([*words, "--out", str(model)]) == 0 and cli.main(["index", str(model), "digits"]) == 0
    saved = [path for path in model.rglob("*") if path.is_file()]
    modes = {path.relative_to(model).as_posix(): path.stat().st_mode & 0o777 for path in saved}
    assert {name: oct(mode) for name, mode in modes.items() if mode != 0o666 & ~mask} == {}
    assert len([name for name in modes if name.endswith(".safetensors")]) >= 4 and "model.json" in modes


def test_converted_weights_have_default_permissions(mask: int, tmp_path: Path) -> None:
    torch.save({"layer": torch.ones(3)}, tmp_path / "net.pth")
    assert convert_weights(tmp_path / "net.pth").stat().st_mode & 0o777 == 0o666 & ~mask
