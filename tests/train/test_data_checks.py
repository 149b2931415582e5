"""Data that are not enough to learn from are refused before training, with a fix for a user with a folder of photos."""

import shlex

import numpy as np
import pytest

from nearkin import cli
from tests.data.picture_files import save_tree

HOW = ["--epochs", "5", "--dimension", "4", "--device", "cpu"]


def refused(capsys, *words: str) -> str:
    """The error output of a training that must not start."""
    assert cli.main(["train", *words, *HOW]) == 1
    output = " ".join(capsys.readouterr().err.split())
    assert "epoch 1" not in output and "drop_last" not in output
    return output


@pytest.mark.parametrize("more", [[], ["--find-rate"]])
def test_a_folder_with_one_class_folder_names_the_command_without_labels(more, tmp_path, capsys):
    save_tree(tmp_path / "my photos", *(f"2024/{i}.png" for i in range(24)))
    output = refused(capsys, str(tmp_path / "my photos"), "--out", str(tmp_path / "m"), *more)
    command = shlex.join(["nearkin", "train", str(tmp_path / "my photos" / "2024")])
    assert "has one class only (2024)" in output and f"`{command}` learns without labels" in output
    assert "a folder for each class learns classes" in output and "a table with the single column `path`" in output


def test_the_named_command_and_an_objective_without_labels_both_train(tmp_path):
    save_tree(tmp_path / "photos", *(f"2024/{i}.png" for i in range(24)))
    photos, short = tmp_path / "photos", ["--set", "least_steps=0", *HOW]
    assert cli.main(["train", str(photos / "2024"), "--out", str(tmp_path / "a"), *short]) == 0
    named = ["--objective", "neighborhood_discovery"]
    assert cli.main(["train", str(photos), "--out", str(tmp_path / "b"), *named, *short, "--set", "data.leaks=allow"]) == 0


def test_nested_folders_are_not_suggested(tmp_path, capsys):
    """photos/2024 has class folders itself, so training on it would not be without labels."""
    save_tree(tmp_path / "photos", *(f"2024/{month}/{i}.png" for month in ("may", "june") for i in range(12)))
    output = refused(capsys, str(tmp_path / "photos"), "--out", str(tmp_path / "m"))
    assert "one class only (2024)" in output and "`nearkin train" not in output and "a table with the single column `path`" in output


def test_arrays_of_one_class_suggest_to_leave_out_the_labels(tmp_path, capsys):
    np.savez(tmp_path / "v.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=np.full(40, "cat"))
    output = refused(capsys, str(tmp_path / "v.npz"), "--out", str(tmp_path / "m"))
    assert "has one class only (cat)" in output and "leave out the labels to learn without them" in output


def test_one_photo_is_too_few(tmp_path, capsys):
    save_tree(tmp_path / "photos", "a.png")
    output = refused(capsys, str(tmp_path / "photos"), "--out", str(tmp_path / "m"))
    assert "photos holds 1 image; training needs at least 2" in output and "k (1)" not in output


@pytest.mark.parametrize(("count", "warned"), [(3, True), (20, False)])
def test_a_handful_is_trained_on_with_a_warning(count, warned, tmp_path, capsys):
    save_tree(tmp_path / "photos", *(f"{i}.png" for i in range(count)))
    assert cli.main(["train", str(tmp_path / "photos"), "--out", str(tmp_path / "m"), *HOW]) == 0
    assert (f"{count} images are too few to learn much from" in capsys.readouterr().err) == warned
