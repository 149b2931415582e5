"""The model card: what it states, and that no name or path can add markup to it."""

from pathlib import Path
from typing import Any

from nearkin.train.card import write_card
from nearkin.train.config import Run, override

ABOUT: dict[str, Any] = {
    "kind": "images",
    "shape": [1, 8, 8],
    "metric": "cosine",
    "objective": "nca",
    "why": "the data have classes",
    "network": {"name": "convnet", "dimension": 8, "normalize": True},
}
METRICS: dict[str, Any] = {"epochs": 2, "steps": 1234, "seconds": 1.25, "device": "cpu", "weights": "best", "test": {"1-nn": 0.5}}


def card(folder: Path, source: str, curve: list[dict[str, Any]], metrics: dict[str, Any]) -> str:
    folder.mkdir()
    run = override(Run(), {"data.source": source, "epochs": "2"})
    write_card(folder, run, ABOUT, {**metrics, "curve": curve}, {"train": 1000, "test": 10})
    return (folder / "README.md").read_text(encoding="utf-8")


def test_figures_curve_and_settings_are_tables(tmp_path: Path) -> None:
    curve = [{"epoch": i, "loss": 1 / i, "steps": i, "points_per_second": 9, "1-nn": 0.25} for i in range(1, 101)]
    text = card(tmp_path / "m", "photos", curve, METRICS)
    assert text.startswith("# m\n\nAn embedding of images (1 x 8 x 8) with 8 dimensions. Neighbors are found by cosine similarity.\n")
    assert "| test | 1-nn | 0.5000 |\n| validation, last epoch | 1-nn | 0.2500 |\n\nThe test part was evaluated once" in text
    assert (
        "| epoch | loss | steps | points_per_second | 1-nn |\n|---|---|---|---|---|\n| 1 | 1.0000 |" in text and "| 100 | 0.0100 |" in text
    )
    assert "20 of 100 epochs" in text and '| data.source | `"photos"` |' in text and "train 1,000, test 10." in text


def test_a_path_adds_no_markup(tmp_path: Path) -> None:
    text = card(tmp_path / "<script>m", "/photos/<script>alert(1)</script>`|`", [], {**METRICS, "test": {}})
    assert "# &lt;script&gt;m\n" in text and '/<script>m")' in text.partition("```python")[2]
    assert "- **Data**: `` /photos/<script>alert(1)</script>`|` ``;" in text and "`\\|` ``" not in text.partition("## Settings")[0]
    assert '| data.source | `` "/photos/<script>alert(1)</script>`\\|`" `` |' in text and "No epoch was trained." in text


def test_without_labels_it_says_that_nothing_was_measured(tmp_path: Path) -> None:
    metrics = {name: value for name, value in METRICS.items() if name != "test"}
    text = card(tmp_path / "m", "", [{"epoch": 1, "loss": 1.0, "dimensions used": 3.0}], metrics)
    assert "whether neighbors are right was not measured" in text and "passed as arrays; train" in text and "test part" not in text
