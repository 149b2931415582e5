"""The real sets, from the folder that NEARKIN_DATA names, or from data/; skipped if they are not there."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.data import Loader
from nearkin.data import open as open_data

ROOT = Path(os.environ.get("NEARKIN_DATA", Path(__file__).resolve().parents[2] / "data"))


def root_of(name):
    if not (ROOT / name).is_dir():
        pytest.skip(f"{name} is not in {ROOT}; set NEARKIN_DATA to a folder that has it")
    return ROOT


def test_mnist():
    data = open_data("mnist", data_root=root_of("mnist"))
    assert data.parts == {"train": 60_000, "test": 10_000} and data.shape == (1, 28, 28)
    assert torch.bincount(data.part("train").labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    share = np.bincount(data.part("train").inputs.numpy().ravel(), minlength=256) / (60_000 * 28 * 28)
    gray = np.arange(256) / 255
    mean = (share * gray).sum()
    spread = np.sqrt((share * (gray - mean) ** 2).sum())
    assert abs(mean - 0.1307) < 1e-4 and abs(spread - 0.3081) < 1e-4  # the published constants


def test_omniglot():
    data = open_data("omniglot", data_root=root_of("omniglot"))
    assert len(data) == 1623 * 20 and len(data.classes) == 1623 and data.shape[0] == 1
    assert torch.equal(torch.bincount(data.labels), torch.full((1623,), 20))
    assert len(data.part("test").labels.unique()) == 659


def test_coil_20(tmp_path):
    root = root_of("coil20")
    packed = sorted((root / "coil20").glob("*.zip"))
    if packed and not (root / "coil20" / "manifest.csv").exists():
        with zipfile.ZipFile(packed[0]) as archive:
            archive.extractall(tmp_path)
        root = tmp_path
    data = open_data("coil-20", data_root=root)
    assert len(data) == 1440 and len(data.classes) == 20 and data.shape == (1, 128, 128)
    assert sorted(set(data.targets.flatten().tolist())) == [5.0 * step for step in range(72)]
    ((images, _),) = Loader(data, resident_bytes=0)([torch.arange(0, 1440, 72)])
    assert images.shape == (20, 1, 128, 128) and images.float().std() > 10
