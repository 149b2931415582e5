"""The table of scales: rows that differ in the scale alone, measured on held-out images."""

import math
from typing import Any, cast

import numpy as np
import pytest
import torch

from nearkin.data import Dataset
from nearkin.train.config import Run, override
from nearkin.train.objective_choice import build
from papers import omniglot_classes, trial_run
from papers.cell import Trial
from papers.hao2018_scales import CELLS, DEFAULT, ROWS, SETS, TRIALS, trial_name
from papers.ledger import Job
from papers.trial_run import Place


def _scale(data: str, row: str) -> float:
    """What an anchor's unit length is multiplied by in the softmax."""
    settings = next(trial.settings for trial in TRIALS if trial.name == trial_name(data, row))
    run = override(Run(), settings)
    facts = {"num_classes": SETS[data].classes, "dimension": run.network.dimension, "size": 1}
    made = build("nearest_class_mean", run.objective.options, **facts, unit_length=run.network.normalize)
    return float(cast(Any, made).references.vectors[0].norm()) / cast(Any, made).affinity.temperature


@pytest.mark.parametrize("data", SETS)
def test_the_rows_are_multiples_of_the_default(data: str) -> None:
    clear = math.log(99 * (SETS[data].classes - 1)) / math.sqrt(2)
    expected = {DEFAULT: clear, "half": clear / 2, "double": 2 * clear, "clear": clear, "unit": clear, "printed": 1.0}
    assert {row: _scale(data, row) for row in expected} == pytest.approx(expected, abs=1e-3)
    assert _scale(data, "cosine") == pytest.approx(math.sqrt(2) * clear, abs=1e-3)


@pytest.mark.parametrize("data", SETS)
def test_the_default_of_a_training_is_a_row_of_the_table(data: str) -> None:
    settings = next(trial.settings for trial in TRIALS if trial.name == trial_name(data, DEFAULT))
    known = {"num_classes": SETS[data].classes, "dimension": 256, "size": 1}
    row = build("nearest_class_mean", override(Run(), settings).objective.options, **known)
    made = build("nearest_class_mean", {}, **known)
    assert cast(Any, made).affinity.temperature == pytest.approx(1.0) == cast(Any, row).affinity.temperature
    torch.testing.assert_close(cast(Any, made).references.vectors, cast(Any, row).references.vectors, atol=1e-3, rtol=1e-3)


def test_every_row_is_measured_on_held_out_images_of_every_set() -> None:
    assert all(trial.held_out and not trial.tune for trial in TRIALS)
    assert len(TRIALS) == len(CELLS) == len(ROWS) * len(SETS)


def test_200_characters_of_all_alphabets() -> None:
    labels = torch.arange(900).repeat_interleave(2)
    names = tuple(f"alphabet {c // 30}/{c}" for c in range(900))
    whole = Dataset("made", torch.randn(1800, 3), labels=labels, classes=names, split=np.array(["train"] * 1700 + ["test"] * 100))
    data = omniglot_classes.some_classes(whole)
    assert len(data) == 400 and set(data.parts) == {"train"} and len(data.classes) == 200
    assert data.labels is not None and data.labels.tolist() == sorted([*range(200)] * 2)
    assert [data.classes[int(c)] for c in data.labels[::2]] == [names[4 * c] for c in range(200)]


def test_early_stopping_holds_images_out_and_the_rate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Run] = []

    def spied(run: Run, *rest: Any, **more: Any) -> dict[str, Any]:
        seen.append(run)
        return trained(run, *rest, **more)

    trained = trial_run.train
    monkeypatch.setattr(trial_run, "train", spied)
    settings = {"network.name": "mlp", "epochs": "2", "patience": "1", "validate_every": "1", "schedule.name": "plateau"}
    trial = Trial("made", "digits", settings, find_rate=True)
    found = trial_run.perform(Job(trial, {}, 0), Place("data", "cpu"))["figures"]
    assert seen[0].data.validation == 0.1 and trial.selection == "rate finder"
    assert found["rate found"] == seen[0].optimizer.learning_rate != Run().optimizer.learning_rate and found["epochs"] in (1.0, 2.0)
    assert 0 < found["1-nn"] <= 1
