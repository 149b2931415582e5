"""A model folder remembers where its known set was found, so that later commands need no --data-root."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearkin.data.opener import absolute_root, same_set
from tests.data.official_files import write_idx

ROOT = Path(__file__).parents[2]
SMALL = ("--network", "mlp", "--dimension", "4", "--epochs", "1", "--device", "cpu", "--set", "data.leaks=allow")


def nearkin(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a fresh process that works in `folder`."""
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nearkin", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_later_commands_read_a_known_set_from_where_training_found_it(tmp_path: Path) -> None:
    write_idx(tmp_path / "sets" / "fashion-mnist", train=60, test=20, classes=2)
    run, home, other = tmp_path / "run", tmp_path / "home", tmp_path / "other"
    succeeded(nearkin(home, "train", "fashion-mnist", "--data-root", "../sets", "--out", str(run), *SMALL))
    assert json.loads((run / "run.json").read_text())["data"]["root"] == str(tmp_path / "sets")

    assert "20 queries" in succeeded(nearkin(other, "evaluate", str(run), "--no-pictures", "--device", "cpu"))
    assert "80 points" in succeeded(nearkin(other, "index", str(run), "Fashion_MNIST", "--device", "cpu"))
    assert "80 embeddings" in succeeded(nearkin(other, "embed", str(run), "fashion", "--out", "e.npz", "--device", "cpu"))

    # The flag wins over what the run remembers, and its error names both folders.
    failed = nearkin(other, "evaluate", str(run), "--no-pictures", "--data-root", "nowhere")
    assert failed.returncode == 1 and f"from the data root {tmp_path / 'sets'}; leave out --data-root nowhere" in failed.stderr

    (tmp_path / "sets").rename(tmp_path / "moved")
    failed = nearkin(other, "evaluate", str(run), "--no-pictures")
    assert failed.returncode == 1 and f"{run} was trained on fashion-mnist from the data root {tmp_path / 'sets'}" in failed.stderr
    assert "if it was moved, pass --data-root FOLDER" in failed.stderr
    failed = nearkin(other, "train", "--resume", str(run), "--device", "cpu")
    assert (
        failed.returncode == 1
        and f"{tmp_path / 'sets'}, which no longer exists; move it back, or pass its new path as --data-root" in failed.stderr
    )
    succeeded(nearkin(other, "evaluate", str(run), "--no-pictures", "--data-root", "../moved", "--device", "cpu"))
    succeeded(nearkin(other, "train", "--resume", str(run), "--data-root", "../moved", "--device", "cpu"))
    assert json.loads((run / "run.json").read_text())["data"]["root"] == str(tmp_path / "moved")


@pytest.mark.parametrize(("what", "kept"), [("mnist", True), ("digits", False), ("stick-figures", False), ("photos/", False)])
def test_only_known_sets_on_disk_have_a_root(what: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_root(what, "sets") == (str(tmp_path / "sets") if kept else "")


def test_names_of_one_set_are_the_same() -> None:
    assert same_set("fashion", "Fashion_MNIST") and not same_set("mnist", "fashion-mnist") and not same_set("photos", "photos")
