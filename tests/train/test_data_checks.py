"""Data that can teach nothing are refused before anything is trained, with the mend for whoever has a folder of photos."""

import shlex

import numpy as np
import pytest

from nearkin import cli
from tests.data.picture_files import save_tree

HOW = ["--epochs", "5", "--dimension", "4", "--device", "cpu"]


def refused(capsys, *words: str) -> str:
    """What a training says that must not begin."""
    assert cli.main(["train", *words, *HOW]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "epoch 1" not in said and "drop_last" not in said
    return said


@pytest.mark.parametrize("more", [[], ["--find-rate"]])
def test_a_folder_that_holds_one_folder_is_told_how_to_learn_without_labels(more, tmp_path, capsys):
    save_tree(tmp_path / "my photos", *(f"2024/{i}.png" for i in range(24)))
    said = refused(capsys, str(tmp_path / "my photos"), "--out", str(tmp_path / "m"), *more)
    command = shlex.join(["nearkin", "train", str(tmp_path / "my photos" / "2024")])
    assert "has one class only (2024)" in said and f"`{command}` learns without labels" in said
    assert "a folder for each class learns classes" in said and "a table with the single column `path`" in said


def test_the_command_that_is_named_and_an_objective_without_labels_both_train(tmp_path):
    save_tree(tmp_path / "photos", *(f"2024/{i}.png" for i in range(24)))
    photos, short = tmp_path / "photos", ["--set", "least_steps=0", *HOW]
    assert cli.main(["train", str(photos / "2024"), "--out", str(tmp_path / "a"), *short]) == 0
    named = ["--objective", "neighborhood_discovery"]
    assert cli.main(["train", str(photos), "--out", str(tmp_path / "b"), *named, *short, "--set", "data.leaks=allow"]) == 0


def test_where_folders_are_nested_no_folder_is_named(tmp_path, capsys):
    """photos/2024 holds classes again: to train on it would not learn without labels."""
    save_tree(tmp_path / "photos", *(f"2024/{month}/{i}.png" for month in ("may", "june") for i in range(12)))
    said = refused(capsys, str(tmp_path / "photos"), "--out", str(tmp_path / "m"))
    assert "one class only (2024)" in said and "`nearkin train" not in said and "a table with the single column `path`" in said


def test_arrays_of_one_class_are_told_to_leave_the_labels_out(tmp_path, capsys):
    np.savez(tmp_path / "v.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=np.full(40, "cat"))
    said = refused(capsys, str(tmp_path / "v.npz"), "--out", str(tmp_path / "m"))
    assert "has one class only (cat)" in said and "leave out the labels to learn without them" in said


def test_one_photo_is_too_few(tmp_path, capsys):
    save_tree(tmp_path / "photos", "a.png")
    said = refused(capsys, str(tmp_path / "photos"), "--out", str(tmp_path / "m"))
    assert "photos holds 1 image; training needs at least 2" in said and "k (1)" not in said


@pytest.mark.parametrize(("count", "told"), [(3, True), (20, False)])
def test_a_handful_is_trained_on_and_said_to_teach_nothing(count, told, tmp_path, capsys):
    save_tree(tmp_path / "photos", *(f"{i}.png" for i in range(count)))
    assert cli.main(["train", str(tmp_path / "photos"), "--out", str(tmp_path / "m"), *HOW]) == 0
    assert (f"{count} images are too few to learn much from" in capsys.readouterr().err) == told
