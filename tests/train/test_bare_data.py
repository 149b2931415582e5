"""Data without labels: the settings chosen for them, and the lines that report these settings."""

import json
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from nearkin import Points, knn_accuracy, load
from nearkin.compose.affinity import cosine
from nearkin.data import Dataset
from nearkin.data.augment import Swap
from nearkin.objectives import NeighborhoodDiscovery
from nearkin.train.assemble import assemble, cut
from nearkin.train.config import DiscoveryChoice, Run, override
from nearkin.train.inputs import AUTOMATIC_HUE, augmentation
from nearkin.train.recipes import UNLABELED, lengthened, settings_for, suited
from nearkin.train.training import train
from tests.train.unlabeled import BASE, digits, photographs


def test_nothing_is_held_out_where_nothing_has_a_label(tmp_path):
    """All photos are trained on and can be found, and a duplicate is not a leak."""
    pixels = digits(60, 0).inputs
    bare = Dataset("bare", torch.cat([pixels, pixels[:1]]))
    plain = {name: value for name, value in BASE.items() if name != "data.validation"}
    run = override(Run(), {**plain, "batch_size": "20"})
    parts = cut(run, bare)
    assert len(parts.train) == 61 and parts.validation is None and parts.test is None
    train(run, tmp_path / "m", data=bare, device="cpu")
    assert len(load_file(tmp_path / "m" / "references.safetensors")["ids"]) == 61
    card = (tmp_path / "m" / "README.md").read_text()
    assert "| training, last epoch | dimensions used |" in card and "whether neighbors are right was not measured" in card
    assert "test part" not in card and "validation" not in card
    given = Dataset("given", pixels, split=np.array(["train"] * 40 + ["test"] * 20))
    assert [len(part) for part in (cut(run, given).train, cut(run, given).test)] == [40, 20]  # unless the data say so


BARE = Dataset("bare", torch.zeros(100, 1, 8, 8, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("adam", 0.003, 64, 1000)),  # one batch an epoch
        ({"batch_size": "10"}, ("adam", 0.003, 10, 100)),
        ({"epochs": "5"}, ("adam", 0.003, 64, 5)),
        ({"optimizer.learning_rate": "0.2"}, ("sgd", 0.2, 64, 1000)),
        ({"optimizer.name": "adam"}, ("adam", 0.1, 64, 1000)),
        ({"objective.name": "instance_discrimination"}, ("adam", 0.003, 64, 1000)),
        ({"objective.name": "deep_cluster"}, ("sgd", 0.1, 256, 20)),
    ],
)
def test_default_settings_for_data_without_labels(given, expected):
    run = lengthened(suited(override(Run(), given), BARE, given), len(BARE))
    assert (run.optimizer.name, run.optimizer.learning_rate, run.batch_size, run.epochs) == expected


@pytest.mark.parametrize("name", ["auto", "neighborhood_discovery", "noise_as_targets"])
def test_an_objective_without_labels_gets_the_same_settings_by_name_and_by_default(name):
    named = override(Run(), {"objective.name": name})
    for data in (BARE, digits(by="ids"), *([] if name == "auto" else [digits()])):
        assert suited(named, data, ("objective.name",)) == override(named, UNLABELED)


def test_partly_labeled_data_get_the_same_settings_and_hold_out_labeled_points_only():
    whole = digits(200, 0)
    labels = torch.where(torch.arange(len(whole)) % 4 > 0, -1, whole.labels)
    some = replace(whole, labels=labels, split=np.array(["all"] * len(whole)))
    assert suited(Run(), some, ()) == suited(Run(), BARE, ()) != Run()
    parts = cut(override(Run(), {"data.validation": "0.2", "data.test": "0.2"}), some)
    held = [part.labels for part in (parts.validation, parts.test)]
    assert [len(part) for part in held] == [10, 10] and all(bool((part >= 0).all()) for part in held)
    assert len(parts.train) == 180 and int((parts.train.labels < 0).sum()) == 150


def test_the_page_on_training_names_these_settings():
    page = (Path(__file__).parents[2] / "docs/how-to/no-labels.md").read_text(encoding="utf-8")
    adam = f"Adam at {UNLABELED['optimizer.learning_rate']}"
    assert f"Batches of {UNLABELED['batch_size']}, {adam}, at least {int(UNLABELED['least_steps']):,} steps" in page
    assert f"hues turn by at most {AUTOMATIC_HUE} of the circle" in page
    assert f"small folders get at least {int(settings_for('discovery', 'cifar-10', {})['least_steps']):,} steps" in page
    assert f"`discovery.rounds={DiscoveryChoice().rounds}`" in page
    for option in ("k", "temperature", "momentum"):
        assert f"`objective.options.{option}={signature(NeighborhoodDiscovery).parameters[option].default}`" in page


def test_large_data_and_whole_set_steps_keep_the_defaults():
    assert lengthened(suited(Run(), BARE, ()), 6400).epochs == Run().epochs
    assert suited(override(Run(), {"references": "training_set"}), BARE, ("references",)).least_steps == 0


def test_least_steps_adds_epochs_and_reports_them(tmp_path):
    run = override(Run(), {"batch_size": "10", "least_steps": "1000"})
    assert [lengthened(run, points).epochs for points in (3, 25, 499, 500, 5000)] == [1000, 500, 21, 20, 20]
    assert lengthened(override(run, {"references": "training_set"}), 5000).epochs == 1000  # of one step each
    run = override(Run(), {"least_steps": "8", "epochs": "2", "batch_size": "20", "network.name": "mlp"})
    found = train(run, tmp_path / "m", data=digits(40, 0), device="cpu")
    assert found["steps"] >= 8 and found["epochs"] == json.loads((tmp_path / "m" / "run.json").read_text())["epochs"] > 2
    assert f"{found['epochs']} epochs, to make at least 8 steps; --epochs changes that" in (tmp_path / "m" / "log.jsonl").read_text()


def test_the_command_line_reports_settings_for_a_bare_folder_and_python_runs_are_unchanged(tmp_path, capsys):
    from nearkin import cli

    photographs(tmp_path / "photos", 40)
    words = ["train", str(tmp_path / "photos"), "--device", "cpu", "--network", "mlp", "--epochs", "6"]
    assert cli.main([*words, "--out", str(tmp_path / "m")]) == 0
    assert "without labels: batches of 64, adam at 0.003; --set changes that" in " ".join(capsys.readouterr().err.split())
    written = json.loads((tmp_path / "m" / "run.json").read_text())
    assert (written["batch_size"], written["optimizer"]["name"], written["epochs"]) == (64, "adam", 6)
    assert cli.main([*words, "--out", str(tmp_path / "r"), "--find-rate"]) == 0
    found = json.loads((tmp_path / "r" / "learning_rate.json").read_text())["rate"]
    written = json.loads((tmp_path / "r" / "run.json").read_text())
    assert (written["optimizer"]["name"], written["optimizer"]["learning_rate"], written["epochs"]) == ("adam", found, 6)
    run = override(Run(), {"data.source": str(tmp_path / "photos"), "epochs": "5", "network.name": "mlp"})
    train(run, tmp_path / "p", device="cpu")
    assert json.loads((tmp_path / "p" / "run.json").read_text()) == json.loads(run.to_json())


def test_images_without_labels_are_augmented_by_default():
    bare = override(Run(), {name: value for name, value in BASE.items() if not name.startswith("augment")})
    gray = assemble(bare, digits(by="ids").part("train").renumbered(), torch.device("cpu")).step.augment
    assert [type(step).__name__ for step in gray] == ["RandomResizedCrop", "ColorJitter"]
    flipped = override(bare, {"augment.name": "discovery", "augment.options.flip": "true"})  # named, it looks at the channels, too
    named = assemble(flipped, digits(by="ids").part("train").renumbered(), torch.device("cpu")).step.augment
    assert [type(step).__name__ for step in named] == ["HorizontalFlip", "RandomResizedCrop", "ColorJitter"]
    hues = []
    color = Dataset("color", torch.zeros(20, 3, 8, 8, dtype=torch.uint8))
    for settings in ({}, {"augment.options.hue": "0.3"}, {"augment.name": "discovery"}):
        steps = assemble(override(bare, settings), color, torch.device("cpu")).step.augment
        assert [type(step).__name__ for step in steps] == ["RandomResizedCrop", "ColorJitter", "Grayscale"]
        hues.append(steps[1].hue)
    assert hues == [0.1, 0.3, 0.4]  # auto, auto with another hue, the paper's
    known = override(bare, {"objective.name": "nca"})
    assert assemble(known, digits().part("train").renumbered(), torch.device("cpu")).step.augment == ()


def test_vectors_without_labels_are_swapped_by_default():
    bare = Dataset("bare", torch.randn(30, 4))
    some = Dataset("some", torch.randn(30, 4), labels=torch.tensor([0, 1, -1] * 10), classes=("a", "b"))
    known = Dataset("known", torch.randn(30, 4), labels=torch.arange(30) % 2, classes=("a", "b"))
    assert [augmentation(Run(), data, name) for data, name in ((bare, "neighborhood_discovery"), (some, "neighborhood_discovery"))] == [
        (Swap(),)
    ] * 2
    assert (
        augmentation(Run(), known, "nca") == augmentation(override(Run(), {"augment.name": "none"}), bare, "instance_discrimination") == ()
    )
    assert augmentation(override(Run(), {"augment.name": "swap", "augment.options.share": "0.1"}), known, "nca") == (Swap(0.1),)
    for data, name, words in (
        (bare, "crop", "is not for vectors, which bare has; set augment.name=none or swap"),
        (BARE, "swap", "is not for images"),
    ):
        with pytest.raises(ValueError, match=words):
            augmentation(override(Run(), {"augment.name": name}), data, "neighborhood_discovery")


@pytest.mark.soak
def test_vectors_without_labels_keep_their_neighbors(tmp_path):
    """Without swaps a network memorizes every vector, and neighbors are lost."""
    data, place = load_digits(), np.random.default_rng(0).permutation(1797)
    x, y = torch.from_numpy(data.data[place]).float(), torch.from_numpy(data.target[place])
    right = {}
    for name in ("auto", "none"):
        given = {"augment.name": name, "epochs": "40"}
        train(override(Run(), given), tmp_path / name, data=Dataset("digits", x[:500]), device="cpu", given=given)
        z = torch.as_tensor(load(tmp_path / name).encode(x))
        right[name] = knn_accuracy(Points(z[500:], y[500:]), Points(z[:500], y[:500]), 1, cosine())
    assert right["auto"] > right["none"] + 0.02 and right["auto"] > 0.94, right
