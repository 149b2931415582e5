"""The contest of texts: parts that share nothing, rows that are saved, and pages of them."""

import json

import pytest
import torch

from nearkin.data import Dataset, Texts
from papers import texts


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
