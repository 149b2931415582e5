"""Vectors of any units are standardized, the same in training, prediction and evaluation, and the output says so."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

import nearkin
from nearkin.data import Dataset, preprocess
from nearkin.train import Run, override, train
from nearkin.train.inputs import preparation


class Lines:
    """A reporter that keeps the messages."""

    def __init__(self) -> None:
        self.lines = list[str]()

    def message(self, line: str) -> None:
        self.lines.append(line)

    def started(self, steps: int, done: int) -> None: ...

    def step(self, done: int, figures: object) -> None: ...

    def epoch(self, figures: object) -> None: ...


def wine() -> Dataset:
    x, y = load_wine(return_X_y=True)
    return Dataset("wine", torch.from_numpy(x).float(), torch.from_numpy(y), ("0", "1", "2"))


def test_wine_does_not_collapse_and_new_vectors_are_scaled_alike(tmp_path: Path) -> None:
    said = Lines()
    run = override(Run(), {"epochs": "30", "network.dimension": "8"})
    metrics = train(run, tmp_path / "m", data=wine(), device="cpu", reporter=said)
    assert metrics["test"]["10-nn"] >= 0.9 and metrics["curve"][-1]["dimensions used"] > 1.2
    assert any("the columns of the vectors are standardized; preprocess.name=none" in line for line in said.lines)
    model = nearkin.load(tmp_path / "m", device="cpu")
    (step,) = model.prepare
    x = wine().inputs
    assert isinstance(x, torch.Tensor) and isinstance(step, preprocess.StandardizeColumns)
    with torch.no_grad():
        expected = model.network((x - torch.tensor(step.mean)) / torch.tensor(step.std))
    torch.testing.assert_close(torch.as_tensor(model.encode(x)), expected, rtol=1e-4, atol=1e-4)
    assert float((np.asarray(model.predict(x.numpy(), numbers=True)) == wine().labels.numpy()).mean()) > 0.9


def test_the_statistics_are_exact_for_large_numbers_in_parts() -> None:
    x = torch.randn(1000, 3, dtype=torch.float64) * torch.tensor([1e-3, 1.0, 50.0]) + torch.tensor([1e6, 0.0, -3.0])
    step = preprocess.StandardizeColumns.fitted(torch.split(x, 300))
    np.testing.assert_allclose(step.mean, x.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(step.std[1:], x.std(0, correction=0)[1:], rtol=1e-9)
    assert preprocess.restore(preprocess.describe([step])) == (step,)


def test_a_wrong_name_is_refused_and_none_leaves_vectors_alone() -> None:
    assert preparation(override(Run(), {"preprocess.name": "none"}), wine()) == ()
    with pytest.raises(ValueError, match=r"preprocess 'standardze' is unknown \(did you mean 'standardize'\?\)"):
        preparation(override(Run(), {"preprocess.name": "standardze"}), wine())
    with pytest.raises(ValueError, match=r"preprocess.options \(crop\) are for images, and wine has vectors"):
        preparation(override(Run(), {"preprocess.options.crop": "3"}), wine())
