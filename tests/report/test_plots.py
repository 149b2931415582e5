"""Figures of the report as functions: points without a class."""

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
from nearkin.report import plot_confusions, plots


def test_points_without_a_class_get_no_class_name() -> None:
    assert plots._names(torch.tensor([-1, 0, 1, 7]), ["cat", "dog"]) == ["-1", "cat", "dog", "7"]


def test_points_without_a_class_are_left_out_of_the_confusions() -> None:
    x, y = np.arange(18.0)[:, None], np.array([0] * 6 + [-1] * 6 + [1] * 6)
    assert type(plot_confusions(x, y, classes=["cat", "dog"])).__name__ == "Figure"
