"""Figures of the report as functions: points without a class, and names for classes."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("matplotlib")
from nearkin.report import plot_accuracy_by_k, plot_confusions, plot_map, plot_neighbors, plot_pairs, plots


def test_points_without_a_class_get_no_class_name() -> None:
    assert plots._names(torch.tensor([-1, 0, 1, 7]), ["cat", "dog"]) == ["unknown", "cat", "dog", "7"]


def test_points_without_a_class_are_left_out_of_the_confusions() -> None:
    x, y = np.arange(18.0)[:, None], np.array([0] * 6 + [-1] * 6 + [1] * 6)
    assert type(plot_confusions(x, y, classes=["cat", "dog"])).__name__ == "Figure"


def drawn(figure: object) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="raw", dpi=50)  # type: ignore[attr-defined]
    return file.getvalue()


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_names_of_classes_are_labels_too(kind: Callable[[list[str]], Any]) -> None:
    x, codes, names = np.arange(24.0)[:, None], np.array([0, 1, 1, 2] * 6), ["ant", "bee", "cat"]
    labels, images = kind([names[code] for code in codes]), np.zeros((24, 4, 4), dtype=np.uint8)
    for plot, more in (
        (plot_map, {"method": "pca", "classes": names}),
        (plot_confusions, {"classes": names}),
        (plot_accuracy_by_k, {}),
        (plot_pairs, {}),
    ):
        assert drawn(plot(x, labels, **more)) == drawn(plot(x, codes, **more))
    assert drawn(plot_neighbors(x, images, labels, rows=[3])) == drawn(plot_neighbors(x, images, codes, rows=[3], classes=names))
    assert drawn(plot_confusions(x, labels)) == drawn(plot_confusions(x, codes, classes=names))  # without classes: the names themselves


def test_missing_and_unknown_names() -> None:
    numbers, names = plots._classes(pd.Series(["b", None, "a", float("nan"), ""]), 5, ())
    assert (numbers.tolist(), names) == ([1, -1, 0, -1, -1], ["a", "b"])
    with pytest.raises(ValueError, match=r"labels name cow, which classes does not hold \(ant\); add them, or leave classes out"):
        plot_confusions(np.eye(2), ["ant", "cow"], classes=["ant"])
    with pytest.raises(ValueError, match=r"labels have shape \(2,\) for 3 embeddings"):
        plot_confusions(np.eye(3), ["a", "b"])
