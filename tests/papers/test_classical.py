"""The classical rows of the tables."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.data import Dataset
from papers import classical
from papers.cell import Trial
from papers.classical import deskewed


def slanted(slope: float) -> np.ndarray:
    """A bar of three columns whose middle moves by `slope` a row, drawn with soft edges."""
    row, column = np.mgrid[:28, :28]
    bar = np.clip(2 - np.abs(column - 13.5 - slope * (row - 13.5)), 0, 1) * ((row > 4) & (row < 23))
    return np.asarray(bar, dtype=np.float32)[None, None]


def lean(image: np.ndarray) -> float:
    """How far the middle of a row moves from row to row."""
    ink, column = image[0, 0], np.arange(28)
    rows = np.flatnonzero(ink.sum(1) > 0.5)
    return float(np.polyfit(rows, (ink[rows] * column).sum(1) / ink[rows].sum(1), 1)[0])


@pytest.mark.parametrize("slope", [0.0, 0.3, -0.4])
def test_a_slanted_bar_is_set_deskewed_and_keeps_its_ink(slope: float) -> None:
    image = slanted(slope)
    made = deskewed(image)
    assert abs(lean(image) - slope) < 0.02 and abs(lean(made)) < 0.02
    assert made.sum() == pytest.approx(image.sum(), rel=0.03)
    np.testing.assert_allclose(made, slanted(0.0), atol=0.3 if slope else 1e-4)


def test_images_without_ink_or_with_one_row_of_it_stay() -> None:
    images = np.zeros((2, 1, 5, 5), dtype=np.float32)
    images[1, 0, 2, 1:4] = 1
    np.testing.assert_allclose(deskewed(images), images, atol=1e-6)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 training and 50 test bars of two slants, in place of MNIST."""
    slopes = np.random.default_rng(0).normal(np.repeat([-0.4, 0.4], 125), 0.05)
    images = np.concatenate([slanted(slope) for slope in slopes])
    data = Dataset(
        name="bars",
        inputs=torch.from_numpy((255 * images).astype(np.uint8)),
        labels=torch.arange(250) // 125,
        split=np.where(np.arange(250) % 5 == 0, "test", "train"),
    )
    monkeypatch.setattr(classical, "open_data", lambda *_, **__: data)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("raw", {}),
        ("pca", {"dimension": "5"}),
        ("ppca", {"dimension": "2", "first": "10"}),
        ("lda", {"dimension": "1"}),
        ("linear_nca", {"dimension": "2", "first": "5", "fitted": "100", "iterations": "5"}),
        ("lmnn", {"dimension": "5", "first": "5", "iterations": "5"}),
    ],
)
def test_every_method_separates_two_slants_and_leaves_a_map(few: None, method: str, settings: dict[str, str]) -> None:
    figures, kept = classical.perform(Trial("made", "bars", settings, method=method), 0, {}, Path(), "cpu")
    assert set(figures) == {"1-nn", "3-nn", "10-nn"} and min(figures.values()) > 0.95
    assert len(kept["embeddings"]) == len(kept["labels"]) == 50


def test_both_parts_are_deskewed_and_only_where_it_is_set(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(classical, "deskewed", lambda images: [seen.append(len(images)), images][1])
    for settings, parts in (({"deskew": "true"}, [200, 50]), ({}, [])):
        seen.clear()
        classical.perform(Trial("made", "bars", settings, method="raw"), 0, {}, Path(), "cpu")
        assert seen == parts


def test_an_unknown_method_is_named(few: None) -> None:
    with pytest.raises(ValueError, match="method 'svm' is unknown; choose one of raw, pca"):
        classical.perform(Trial("made", "bars", method="svm"), 0, {}, Path(), "cpu")
