"""Prefixes beside models of their size: settings are chosen without the test part, and finished rows are kept."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.data import Dataset
from nearkin.train.objective_choice import build
from papers import matryoshka
from papers.__main__ import main


def features(path: Path) -> Path:
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    x = rng.normal(size=(240, 12)) + 3 * np.eye(12)[y]
    split = np.where(np.arange(240) < 160, "train", "test")
    np.savez(path, x=x.astype(np.float32), y=y, split=split)
    return path


def test_rows_are_chosen_without_the_test_part_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, train = list[tuple[int, int]](), matryoshka.train
    monkeypatch.setattr(matryoshka, "SIZES", (4, 8))
    monkeypatch.setattr(matryoshka, "WEIGHTS", {"equal": (1, 1), "halved": (2, 1)})
    monkeypatch.setattr(matryoshka, "SETS", {"cub": {**matryoshka.SETS["cub"], "batch_size": "32"}})
    monkeypatch.setattr(matryoshka, "RATES", {"cub": ("1e-2",)})
    monkeypatch.setattr(matryoshka, "TRIED", {"cub": ("equal", "halved")})
    monkeypatch.setattr(matryoshka, "CUTS", {"cub": 2})

    def watched(run: object, folder: Path, *, data: Dataset, **more: object) -> object:
        seen.append((len(data.part("train")), len(data.part("test"))))
        return train(run, folder, data=data, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(matryoshka, "train", watched)
    words = ["matryoshka", "--sets", "cub", "--features", str(features(tmp_path / "f.npz")), "--seeds", "1", "--epochs", "1"]
    words += ["--device", "cpu", "--out", str(tmp_path / "results")]
    assert main(words) == 0
    held_out, whole = [(144, 16)] * 2, [(160, 80)]  # two cuts of the training part, each of which every way is tried on
    assert seen == 2 * held_out + whole + held_out + whole + held_out + whole
    saved = json.loads((tmp_path / "results" / "matryoshka.json").read_text())
    assert set(saved["cub/prefixes/test/0"]["scores"]) == {"4", "8"} and set(saved["cub/4/test/0"]["scores"]) == {"4"}
    assert saved["cub/8/test/0"]["scores"]["8"] > 0.6
    page = (tmp_path / "papers" / "matryoshka.md").read_text()
    assert "| numbers | trained alone | prefix of 128 | difference |" in page and page.count("\n| ") == 3
    assert main(words) == 0 and len(seen) == 11  # nothing is trained again
    for key, row in saved.items():
        if key.startswith("cub/prefixes/held out/1e-2 equal"):
            row["scores"] = {"4": 1.0, "8": 1.0}
        elif key.startswith("cub/prefixes/test"):
            row["weights"] = "halved"
    (tmp_path / "results" / "matryoshka.json").write_text(json.dumps(saved))
    assert main(words) == 0 and seen[11:] == whole  # of another choice than the one that was made before


def test_the_weights_of_prefixes_reach_the_objective() -> None:
    made = build("matryoshka", {"dimensions": [2, 4], "weights": [2.0, 0.5]}, num_classes=3, dimension=4, size=9)
    z, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    terms = made.named_objectives()
    expected = 2 * terms["2"](z[:, :2], y) + 0.5 * terms["4"](z, y)
    torch.testing.assert_close(made(z, y), expected)
