"""The contest of texts and that of tuning: parts that share nothing, rows that are saved, and pages of them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nearkin.data import Dataset, Texts
from papers import texts, tuning


@pytest.fixture
def files(tmp_path):
    paths = []
    for part, many in (("train", 12), ("test", 6)):
        lines = [f"{kind}\t{kind} {part} word{n} other{n % 3}" for kind in "abc" for n in range(many)]
        path = tmp_path / f"{part}.tab"
        path.write_text("\n".join(["Category\tText", "d\tstring", "class\t", "", *lines]))
        paths.append(path)
    return paths


def test_every_row_of_texts_is_saved_and_on_the_page(files, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "LABELS", (4,))
    monkeypatch.setattr(texts, "SEEDS", (0,))

    def features(drawn: Dataset, _):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(len(drawn), 8, generator=generator) + 2 * torch.eye(8)[drawn.labels]
        return Dataset("f", x, labels=drawn.labels, classes=drawn.classes).with_split(drawn.split), 0.5

    monkeypatch.setattr(texts, "features_of", features)
    words = ["--train", str(files[0]), "--test", str(files[1]), "--out", str(tmp_path / "results")]
    words += ["--methods", "frozen,logistic regression,linear map,start"]
    assert texts.main(words) == 0 and texts.main(words) == 0
    saved = json.loads((tmp_path / "results" / "texts.json").read_text())
    assert set(saved) == {f"4/{method}/0" for method in list(texts.METHODS)[:4]} and saved["4/frozen/0"]["points"] == [12, 18]
    assert saved["4/frozen/0"]["seconds"] == 6.0  # twelve features
    assert "| frozen + linear map in closed form (ours) |" in (tmp_path / "papers" / "texts.md").read_text()


def test_labeled_texts_are_of_the_training_file(files):
    drawn = texts.drawn(*files)
    assert isinstance(drawn.inputs, Texts) and drawn.parts == {"train": 36, "test": 18}
    features = Dataset("f", torch.zeros(len(drawn), 2), labels=drawn.labels, classes=drawn.classes)
    task = texts.task_of(drawn, features, 0.0, 4, 1)
    assert task.train.labels.bincount().tolist() == [4, 4, 4] and not set(task.texts[0]) & set(task.texts[1])
    assert all("test" in text for text in task.texts[1])


def test_tuning_chooses_on_held_out_classes_and_tests_once(tmp_path, monkeypatch):
    asked = []

    def trained(run, images, name, seed, arguments, *, tested):
        asked.append((name, seed, tested))
        return {"scores": {"p@1": 0.9 if name == "all-nca" else 0.5, "map@r": 0.1}, "seconds": 1.0}

    monkeypatch.setattr(tuning, "opened", lambda _: (None, None))
    monkeypatch.setattr(tuning, "trained", trained)
    words = ["--rows", "none,head,all-nca", "--out", str(tmp_path / "results")]
    assert tuning.main(words) == 0 and tuning.main(words) == 0
    assert asked == [(name, 0, False) for name in ("none", "head", "all-nca")] + [
        ("none", 0, True),
        *(("all-nca", s, True) for s in (0, 1, 2)),
    ]
    assert "| all-nca | test | 90.0" in (tmp_path / "papers" / "tuning.md").read_text()


def test_classes_are_split_for_tuning(tmp_path, monkeypatch):
    labels = np.arange(200).repeat(2)
    parts = tuning.split_of(labels, tested=True)
    assert [parts.count(name) for name in ("train", "validation", "test")] == [160, 40, 200]
    assert "test" not in tuning.split_of(labels, tested=False)


def test_a_row_of_tuning_is_trained_without_the_tested_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "TRAINED", 6)
    monkeypatch.setattr(tuning, "HELD", 2)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % 8
    images = Dataset(
        "toy", torch.randint(0, 255, (80, 1, 8, 8), generator=generator, dtype=torch.uint8), labels=labels, classes=tuple("abcdefgh")
    )
    run = tuning.override(tuning.Run(), {"data.leaks": "allow", "epochs": "1", "network.dimension": "4", "network.name": "convnet"})
    monkeypatch.setattr(tuning, "ROWS", {"plain": {}})
    arguments = SimpleNamespace(work=str(tmp_path), encoder="timm:x/y", device="cpu")
    for tested in (False, True):
        row = tuning.trained(run, images, "plain", 0, arguments, tested=tested)
        assert 0 <= row["scores"]["p@1"] <= 1
    metrics = json.loads((tmp_path / "timm-x-y-plain-0" / "metrics.json").read_text())
    assert "test" not in metrics
