"""The contest of texts: parts that share nothing, rows that are saved, and pages of them."""

import json
from pathlib import Path

import pytest
import torch

from nearkin.data import Dataset, Texts
from papers import texts

ROOT = Path(__file__).parents[2]


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


def test_labeled_texts_are_of_the_training_file(files, monkeypatch):
    monkeypatch.setattr(texts, "LABELS", (4,))
    drawn = texts.drawn(*files)
    assert isinstance(drawn.inputs, Texts) and drawn.parts == {"train": 24, "test": 18, "development": 12}
    features = Dataset("f", torch.zeros(len(drawn), 2), labels=drawn.labels, classes=drawn.classes)
    task = texts.task_of(drawn, features, 0.0, 4, 1)
    assert task.train.labels.bincount().tolist() == [4, 4, 4] and len(task.test) == 18
    labeled, others = set(texts.chosen_texts(drawn, 4, 1)[0]), [drawn.inputs.texts[row] for row in range(len(drawn))]
    parts = [{text for text, part in zip(others, drawn.split, strict=True) if part == name} for name in ("test", "development")]
    assert len(labeled) == 12 and not labeled & parts[0] and not labeled & parts[1] and all("train" in text for text in parts[1])


def test_settings_are_chosen_by_their_trials_and_then_run(files, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "LABELS", (4,))
    monkeypatch.setattr(texts, "SEEDS", (0, 1))
    asked = []

    def rows(saved, keys, row, drawn, setting, *_, **__):
        asked.append((list(keys), setting))
        for key in keys:
            accuracy = 0.9 if texts.SETTINGS[2].name in key or "tuned" in key else 0.5
            saved.keep(key, {"scores": {"accuracy": accuracy}, "steps": 3, "passes": 100})
        return 0

    monkeypatch.setattr(texts, "run_rows", rows)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "texts.json").write_text(json.dumps({"seconds of a text": {"tuned": 0.25, "SetFit": 0.5}}))
    words = ["--train", str(files[0]), "--test", str(files[1]), "--out", str(tmp_path / "results")]
    assert texts.main([*words, "--methods", "tuned,SetFit"]) == 0
    (first, none), (second, setting) = asked
    assert none is None and setting == texts.SETTINGS[2] and second == ["4/tuned/0", "4/tuned/1"]
    assert first[:2] == ["4/SetFit/0", "4/SetFit/1"] and len(first) == 2 + len(texts.SETTINGS)
    page = (tmp_path / "papers" / "texts.md").read_text()
    assert "(ours) (3 steps) | 90.0 ± 0.0 |  |  | 25.0 | 2 |" in page and "(3 steps) | 50.0 ± 0.0 |  |  | 50.0 | 2 |" in page
    assert f"| {texts.SETTINGS[2].words} (chosen) | 90.0 |" in page


def test_the_figures_of_the_guide_are_those_of_the_results():
    saved = json.loads((ROOT / "docs/results/texts.json").read_text(encoding="utf-8"))
    guide = " ".join((ROOT / "docs/how-to/texts.md").read_text(encoding="utf-8").split())

    def means(method: str) -> list[str]:
        rows = [[saved[f"{labels}/{method}/{seed}"]["scores"]["accuracy"] for seed in texts.SEEDS] for labels in texts.LABELS]
        return [f"{100 * sum(some) / len(some):.1f}" for some in rows]

    for method in ("tuned", "frozen"):
        first, second, third = means(method)
        assert f"{first}, {second} and {third}" in guide
    assert texts.page_of(saved) == (ROOT / "docs/papers/texts.md").read_text(encoding="utf-8")
