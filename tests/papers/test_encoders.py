"""The contest of encoders: parts that share nothing, rows that are saved, and a page with all of them."""

import json

import pytest
import torch

from nearkin.data import Dataset
from papers import encoders


@pytest.fixture
def features() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(240) % 12
    x = torch.randn(240, 16, generator=generator) * torch.linspace(0.5, 4, 16) + 3 * torch.eye(16)[labels]
    return Dataset("toy", x, labels=labels, classes=tuple("abcdefghijkl"))


@pytest.mark.parametrize(("kind", "labels"), [("seen", 5), ("seen", None), ("unseen", None)])
def test_parts_share_no_point_and_unseen_classes_are_not_trained_on(features, kind, labels):
    task = encoders.task_of(features, kind, labels, 0)
    parts = [{tuple(row) for row in part.inputs.tolist()} for part in (task.train, task.validation, task.test)]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    trained, held, tested = (set(part.labels.tolist()) for part in (task.train, task.validation, task.test))
    assert (tested == trained) == (kind == "seen") and bool(trained & held) == (kind == "seen") and (kind == "seen" or not trained & tested)
    if labels is not None:
        assert task.train.labels.bincount().tolist() == [labels] * 12
    assert encoders.task_of(features, kind, labels, 1).test.ids.tolist() != task.test.ids.tolist() or kind == "unseen"


def test_every_row_is_saved_once_and_on_the_page(features, tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(encoders, "features_of", lambda *_: calls.append(1) or features)
    monkeypatch.setattr(encoders, "SEEDS", (0,))
    monkeypatch.setattr(encoders, "EPOCHS", 1)
    words = ["--sets", "toy", "--out", str(tmp_path / "results")]
    assert encoders.main(words) == 0 and encoders.main(words) == 0 and len(calls) == 1  # the second time nothing is missing
    saved = json.loads((tmp_path / "results" / "encoders.json").read_text())
    assert set(saved) == set(encoders.keys("toy")) and len(saved) == 23
    assert saved["toy/seen/all/linear map/0"]["scores"]["map@r"] > saved["toy/seen/all/frozen/0"]["scores"]["map@r"]
    page = (tmp_path / "papers" / "encoders.md").read_text()
    assert "## toy, seen classes, 5 labels a class" in page and "## toy, unseen classes" in page and "(its accuracy)" in page
