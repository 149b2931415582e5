"""Trackers: what they write, and that training reports to them."""

import sys

import pytest

from nearkin.cli import main
from nearkin.train import DataChoice, NetworkChoice, Run
from nearkin.train.trackers import Tracker, tracker
from nearkin.train.training import train
from tests.train.test_training import Notes

RUN = Run(data=DataChoice("digits"), network=NetworkChoice("linear", dimension=2), epochs=2, batch_size=64)


def test_a_tracker_gets_steps_and_epochs_and_forwards_everything(tmp_path):
    written, notes = [], Notes()
    train(RUN, tmp_path / "m", device="cpu", reporter=Tracker(lambda numbers, step: written.append((step, dict(numbers))), notes))
    steps = [step for step, numbers in written if "step/loss" in numbers]
    epochs = [numbers for _, numbers in written if "epoch/loss" in numbers]
    assert steps and all(step % 10 == 0 for step in steps) and len(epochs) == 2 and len(notes.epochs) == 2 and notes.lines
    assert all(isinstance(value, float) for _, numbers in written for value in numbers.values())
    assert any(name.endswith("1-nn") for name in epochs[0])


def test_an_unknown_or_missing_tracker_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="choose one of tensorboard, wandb, mlflow"):
        tracker("paper", tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"track mlflow needs the library mlflow .*pip install 'nearkin\[track\]'"):
        tracker("mlflow", tmp_path)


def test_tensorboard_has_the_curves(tmp_path):
    pytest.importorskip("tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    words = ["train", "digits", "--network", "linear", "--epochs", "1", "--out", str(tmp_path / "m"), "--device", "cpu"]
    assert main([*words, "--track", "tensorboard"]) == 0
    events = accumulator.EventAccumulator(str(tmp_path / "m" / "tensorboard")).Reload()
    assert "epoch/loss" in events.Tags()["scalars"] and "step/loss" in events.Tags()["scalars"]


def test_mlflow_has_settings_and_curves(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    made = tracker("mlflow", tmp_path / "store", RUN)
    made.epoch({"epoch": 1, "steps": 3, "loss": 0.5, "validation": {"recall@1": 0.75}})
    made.close()
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    held = client.search_runs([client.get_experiment_by_name("nearkin").experiment_id])[0].data
    assert held.params["network.name"] == "linear" and held.metrics["epoch/validation/recall at 1"] == 0.75


def test_weights_and_biases_stays_offline(tmp_path):
    pytest.importorskip("wandb")
    made = tracker("wandb", tmp_path / "store", RUN)
    made.epoch({"epoch": 1, "steps": 3, "loss": 0.5})
    made.close()
    assert list((tmp_path / "store" / "wandb").glob("offline-run-*"))
