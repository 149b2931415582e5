"""Small data with labels: the batches and steps chosen for them, and the lines that report these settings."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nearkin import cli
from nearkin.data import Dataset
from nearkin.train.assemble import assemble
from nearkin.train.config import Run, override
from nearkin.train.recipes import CLIPPED, FEW, SMALL, lengthened, suited
from nearkin.train.training import train
from tests.train.unlabeled import digits

LEAST = int(SMALL["least_steps"])


def of_classes(*sizes):
    """Data with this many points of each class, all equal."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return Dataset("made", torch.zeros(len(labels), 2), labels=labels, classes=tuple(map(str, range(len(sizes)))))


def taken(data, given=()):
    """Batch size and epochs of a run with these settings."""
    run = lengthened(suited(override(Run(), dict(given)), data, dict(given)), len(data))
    return run.batch_size, run.epochs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (64, 75)),  # four batches an epoch
        ({"epochs": "5"}, (64, 5)),
        ({"batch_size": "256"}, (256, 300)),
        ({"least_steps": "0"}, (64, 20)),
        ({"epochs": "20", "batch_size": "256"}, (256, 20)),
        ({"objective.name": "softmax"}, (64, 75)),
        ({"objective.name": "deep_cluster"}, (256, 20)),  # it uses no labels and keeps the defaults
        ({"references": "training_set"}, (256, 20)),  # a step over everything is no small one
        ({"optimizer.learning_rate": "0.02"}, (64, 75)),
    ],
)
def test_default_settings_for_small_data(given, expected):
    assert taken(of_classes(*[29] * 9, 33), given) == expected


def test_numbers_and_sets_get_the_same_settings():
    x = torch.zeros(294, 2)
    numbers = Dataset("numbers", x, targets=torch.zeros(294, 1), target_names=("y",))
    sets = Dataset("sets", x, sets=torch.ones(294, 3, dtype=torch.bool), classes=("a", "b", "c"))
    assert taken(numbers) == taken(sets) == (64, 75)


def test_gradients_are_clipped_for_small_data_and_numbers_unless_the_optimizer_was_set():
    """A squared error of large numbers is too large for SGD at 0.1 and ends in NaN, and so do 300 steps of an MLP."""
    few, many = of_classes(150, 144), of_classes(FEW // 2, FEW // 2)
    numbers = Dataset("numbers", torch.zeros(FEW, 2), targets=torch.zeros(FEW, 1), target_names=("y",))
    assert [suited(Run(), data, ()).optimizer.clip for data in (few, many, numbers)] == [1, 0, 1]
    assert suited(Run(), numbers, ()).batch_size == Run().batch_size and suited(Run(), numbers, ()).least_steps == 0
    for given in ({"optimizer.learning_rate": "0.02"}, {"optimizer.name": "adam"}, {"optimizer.clip": "0"}):
        run = override(Run(), given)
        assert suited(run, few, given).optimizer == suited(run, numbers, given).optimizer == run.optimizer


def test_numbers_are_learned_in_any_unit(tmp_path):
    """Without clipping they are off by 74 and by 193."""
    x = torch.randn(FEW + 100, 5, generator=torch.Generator().manual_seed(0))
    given, split = {"epochs": "4", "validate_every": "100"}, np.array(["train"] * FEW + ["test"] * 100)
    for unit in (100.0, 1000.0):
        data = Dataset("numbers", x, targets=unit * x[:, :1], target_names=("y",), split=split)
        found = train(override(Run(), given), tmp_path / str(unit), data=data, device="cpu", given=given)["test"]
        assert found["mean_absolute_error"] < 0.05 * unit


def test_more_points_mean_fewer_epochs_down_to_the_default():
    found = [taken(of_classes(n // 2, n - n // 2)) for n in (10, 640, FEW - 1, FEW)]
    assert found == [(16, LEAST), (64, 30), (64, 20), (256, 20)]


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        ([10] * 64, 64),  # one of each class
        ([10] * 65, 128),
        ([5] * 190, 192),
        ([3] * 300, 256),  # never more than usual
        ([270, 24], 64),
        ([290, 4], 256),  # in so small a batch the four would be missing, and one class alone is refused
        ([294], 256),
        ([14, 0] * 60, 64),  # empty classes are none
    ],
)
def test_batches_are_small_only_if_they_hold_positives_and_negatives(sizes, batch):
    assert taken(of_classes(*sizes))[0] == batch


def test_small_batches_can_be_drawn_for_the_rarest_class_they_are_chosen_for():
    """Otherwise training would stop with an error about batches of one class."""
    for others in (3, 10, 19, 20, 60, 200):
        data = of_classes(300 - others, others)
        parts = assemble(suited(override(Run(), {"network.name": "mlp"}), data, ()), data, torch.device("cpu"))
        assert all(len(list(parts.sampler.batches(epoch))) == len(parts.sampler) for epoch in range(50))


def test_an_objective_that_needs_all_classes_refuses_partly_labeled_data():
    whole = digits(200, 0)
    some = replace(whole, labels=torch.where(torch.arange(200) % 4 > 0, -1, whole.labels))
    run = suited(override(Run(), {"objective.name": "nca"}), some, ("objective.name",))
    with pytest.raises(ValueError, match="150 of the 200 training points of digits have no class, and nca needs one for each"):
        assemble(run, some, torch.device("cpu"))


def test_a_small_labeled_folder_trains_long_enough_and_the_settings_are_reported(tmp_path, capsys):
    """The size of the training part counts, not of all data: 20 epochs in batches of 256 would be 20 steps."""
    data = digits(100, 0)
    for row, (image, label) in enumerate(zip(data.inputs[:, 0].numpy(), data.labels.tolist(), strict=True)):
        (tmp_path / "photos" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "photos" / str(label) / f"{row}.png")
    words = ["train", str(tmp_path / "photos"), "--device", "cpu", "--network", "mlp", "--set", "validate_every=100", "--dimension", "4"]
    assert cli.main([*words, "--out", str(tmp_path / "m")]) == 0
    output = " ".join(capsys.readouterr().err.split())
    assert "classes, 70 training points: batches of 20, sgd at 0.1 with gradients clipped to norm 1; --set changes that" in output
    assert f"{LEAST // 3} epochs, to make at least {LEAST} steps; --epochs changes that" in output
    assert json.loads((tmp_path / "m" / "metrics.json").read_text())["steps"] == LEAST
    assert cli.main([*words, "--out", str(tmp_path / "n"), "--epochs", "2", "--set", "batch_size=256"]) == 0
    output = " ".join(capsys.readouterr().err.split())
    assert "batches of" not in output and "to make at least" not in output
    assert json.loads((tmp_path / "n" / "metrics.json").read_text())["steps"] == 2


def test_the_rate_finder_uses_the_batch_size_of_the_training(tmp_path):
    np.savez(tmp_path / "d.npz", x=digits(200, 0).inputs.numpy(), y=digits(200, 0).labels.numpy())
    words = ["train", str(tmp_path / "d.npz"), "--network", "mlp", "--epochs", "1", "--find-rate", "--device", "cpu"]
    assert cli.main([*words, "--out", str(tmp_path / "m")]) == 0
    assert json.loads((tmp_path / "m" / "run.json").read_text())["batch_size"] == 35  # of 140 points, in four steps


def test_a_run_from_python_is_unchanged(tmp_path):
    run = override(Run(), {"epochs": "2", "network.name": "mlp"})
    assert train(run, tmp_path / "m", data=digits(100, 0), device="cpu")["steps"] == 2


def test_the_page_on_training_names_these_settings():
    page = (Path(__file__).parents[2] / "docs/how-to/train.md").read_text(encoding="utf-8")
    few = f"fewer than {FEW:,} training points: batches of {SMALL['batch_size']}, at least {LEAST} steps"
    assert f"{few}, and gradients clipped to length {CLIPPED['optimizer.clip']}" in page
