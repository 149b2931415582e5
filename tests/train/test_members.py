"""Interrupted trainings on rows of a table go on from their last checkpoint, and end with the weights of an undisturbed training."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nearkin.cli import main
from nearkin.models.tabular import TabularEncoder
from nearkin.train import DataChoice, NetworkChoice, Run, checkpoint, train
from nearkin.train.reporter import Silence
from nearkin.train.tabular import Schedule, TableRows, Training

OPTIONS = {"members": 3, "hidden": 16}
WRITTEN = ("weights.safetensors", "references.safetensors", "model.json", "split.json", "run.json")


class Listener(Silence):
    """Keeps the lines, and stops the training at one that begins with `at`."""

    def __init__(self, at="never"):
        self.at, self.lines = at, []

    def message(self, line):
        self.lines.append(str(line))
        if line.startswith(self.at):
            raise KeyboardInterrupt

    def trained(self):
        """The members that were trained to their end."""
        return [line[:13] for line in self.lines if line.startswith("member ")]


class CtrlC(Silence):
    """Presses Ctrl-C at the first line that begins so; the training goes on to its next step."""

    def __init__(self, at):
        self.at = at

    def message(self, line):
        if line.startswith(self.at):
            signal.raise_signal(signal.SIGINT)


def write(path: Path, answer: str = "label", seed: int = 0, n: int = 90) -> Path:
    rng = np.random.default_rng(seed)
    x, kinds = rng.normal(size=(n, 2)), rng.choice(["a", "b"], n)
    answers = [float(one) for one in x[:, 0]] if answer == "price" else [["low", "high"][int(one > 0)] for one in x[:, 0]]
    lines = [f"{one[0]},{one[1]},{kind},{found}" for one, kind, found in zip(x, kinds, answers, strict=True)]
    path.write_text("\n".join([f"width,height,kind,{answer}", *lines]) + "\n")
    return path


def run_of(table: Path, answer: str = "label") -> Run:
    data = DataChoice(str(table), **({"target_columns": (answer,)} if answer == "price" else {"label_column": answer}))
    return Run(data=data, network=NetworkChoice("tabular", dimension=4, options=OPTIONS), epochs=3)


def trained(run: Run, folder: Path, **how) -> Listener:
    listener = how.pop("reporter", Listener())
    train(run, folder, device="cpu", reporter=listener, **how)
    return listener


def interrupted(run: Run, folder: Path, at: str, **how) -> Path:
    with pytest.raises(KeyboardInterrupt):
        trained(run, folder, reporter=Listener(at), **how)
    return folder


def same(a: Path, b: Path) -> None:
    for name in WRITTEN:
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    mine, its = (json.loads((folder / "metrics.json").read_text()) for folder in (a, b))
    assert mine | {"seconds": 0} == its | {"seconds": 0} and mine["seconds"] > 0


def kept(folder: Path) -> list[str]:
    """The names of the checkpoints, and of what else is among them."""
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize("answer", ["label", "price"])
def test_finished_members_are_kept_and_the_others_trained(answer: str, tmp_path: Path) -> None:
    run = run_of(write(tmp_path / "rows.csv", answer), answer)
    assert trained(run, tmp_path / "whole").trained() == ["member 1 of 3", "member 2 of 3", "member 3 of 3"]
    folder = interrupted(run, tmp_path / "stopped", "member 1 of 3")
    assert kept(folder) == ["step-00000006"]
    first = load_file(folder / "checkpoints" / "step-00000006" / "tensors.safetensors")
    interrupted(run, folder, "member 2 of 3", resume=True)
    last = trained(run, folder, resume=True)
    assert "resuming after member 2 of 3" in last.lines and last.trained() == ["member 3 of 3"]
    assert kept(folder) == ["step-00000018"]
    same(tmp_path / "whole", folder)
    weights = load_file(folder / "weights.safetensors")
    assert first and all(bool((weights[name] == value).all()) for name, value in first.items())


def test_a_training_stopped_in_its_first_member_says_that_it_starts_over(tmp_path: Path) -> None:
    run = run_of(write(tmp_path / "rows.csv"))
    trained(run, tmp_path / "whole")
    folder = interrupted(run, tmp_path / "stopped", "training member 1 of 3")
    again = trained(run, folder, resume=True)
    assert "no checkpoint to resume from: starting from the beginning, with the same settings" in again.lines
    assert len(again.trained()) == 3
    same(tmp_path / "whole", folder)


def test_a_finished_training_is_not_repeated(tmp_path: Path) -> None:
    run, folder = run_of(write(tmp_path / "rows.csv")), tmp_path / "m"
    trained(run, folder)
    before = {name: (folder / name).read_bytes() for name in (*WRITTEN, "metrics.json", "README.md")}
    (folder / "weights.safetensors").write_bytes(b"damaged")  # and what is damaged is written again
    again = trained(run, folder, resume=True)
    assert "the training is finished: nothing is left to train" in again.lines and not again.trained()
    assert before == {name: (folder / name).read_bytes() for name in before}


def test_a_damaged_checkpoint_is_skipped(tmp_path: Path) -> None:
    run, folder = run_of(write(tmp_path / "rows.csv")), tmp_path / "m"
    trained(run, tmp_path / "whole")
    interrupted(run, folder, "member 2 of 3")
    newest = folder / "checkpoints" / "step-00000012" / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    again = trained(run, folder, resume=True)
    assert any(line.endswith("using step-00000006") for line in again.lines) and len(again.trained()) == 2
    same(tmp_path / "whole", folder)


def test_other_rows_and_another_network_are_refused(tmp_path: Path) -> None:
    run, folder = run_of(write(tmp_path / "rows.csv")), tmp_path / "m"
    interrupted(run, folder, "member 1 of 3")
    before = (folder / "run.json").read_bytes()
    wider = replace(run, network=replace(run.network, dimension=5))
    with pytest.raises(ValueError, match="the network is not that of the checkpoint"):
        trained(wider, folder, resume=True)
    write(tmp_path / "rows.csv", seed=1)
    with pytest.raises(ValueError, match="are not those of the checkpoint: rows have changed"):
        trained(run, folder, resume=True)
    assert (folder / "run.json").read_bytes() == before


def test_the_command_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    table, folder = write(tmp_path / "rows.csv"), tmp_path / "m"
    interrupted(run_of(table), folder, "member 1 of 3")
    assert main(["train", "--resume", str(folder), "--device", "cpu"]) == 0
    assert "resuming after member 1 of 3" in capsys.readouterr().err
    assert main(["train", "--resume", str(folder), "--device", "cpu"]) == 0
    assert "the training is finished" in capsys.readouterr().err
    assert main(["check", str(folder)]) == 0


def training(schedule: Schedule, held_out: bool, answers: str) -> Training:
    """A training that a seed alone decides: numbers, a category with learned vectors, dropout, and held-out rows or none."""
    torch.manual_seed(3)
    made = torch.Generator().manual_seed(4)
    numbers, codes = torch.randn(60, 2, generator=made), torch.randint(0, 21, (60, 1), generator=made)
    classes = (numbers[:, 0] + 0.5 * torch.randn(60, generator=made) > 0).long()
    targets = torch.nn.functional.one_hot(classes).float() if answers == "classes" else numbers[:, :1]
    rows = TableRows(numbers, codes, targets, classes if answers == "classes" else None, torch.ones(60))
    parts = np.arange(44 if held_out else 60), np.arange(44 if held_out else 60, 60)
    return Training(TabularEncoder(2, (20,), 4, hidden=8), rows, parts, schedule, seed=5)


@pytest.mark.parametrize(("held_out", "answers"), [(True, "classes"), (True, "numbers"), (False, "classes")])
def test_a_training_goes_on_from_any_step_as_if_it_had_made_the_steps_itself(held_out: bool, answers: str, tmp_path: Path) -> None:
    schedule = Schedule(batch_size=20, epochs=12, patience=2, learning_rate=0.05)  # so fast that patience ends it
    whole = training(schedule, held_out, answers)
    ended = whole.run(after_step=lambda: checkpoint.save(tmp_path / str(whole.done), whole.done, *whole.state()))
    assert not held_out or len(ended.curve) < schedule.epochs
    for step in range(1, whole.done + 1):
        found = checkpoint.newest(tmp_path / str(step))
        assert found is not None and found.step == step
        again = training(schedule, held_out, answers)
        again.restore(found.tensors, found.state)
        assert again.done == step and again.run() == ended and again.done == whole.done
        for name, value in whole.encoder.state_dict().items():
            assert torch.equal(again.encoder.state_dict()[name], value), (step, name)


def test_ctrl_c_within_a_member_saves_its_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(write(tmp_path / "rows.csv"))
    trained(run, tmp_path / "whole")
    handler = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a script start with SIGINT ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(run, tmp_path / "m", reporter=CtrlC("member 1 of 3"))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert kept(tmp_path / "m") == ["step-00000006", "step-00000007"]
    before = (tmp_path / "m" / "run.json").read_bytes()
    with pytest.raises(ValueError, match=r"settings differ from those of the checkpoint \(batch_size, epochs\); resume with those"):
        trained(replace(run, epochs=4, batch_size=16), tmp_path / "m", resume=True)
    assert (tmp_path / "m" / "run.json").read_bytes() == before
    assert main(["train", "--resume", str(tmp_path / "m"), "--device", "cpu"]) == 0
    assert "resuming member 2 of 3 after step 1" in capsys.readouterr().err
    assert kept(tmp_path / "m") == ["step-00000018"]
    same(tmp_path / "whole", tmp_path / "m")


def test_a_network_killed_while_it_trains_resumes_to_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More than 2,500 rows to learn from: one network, without finished members to keep."""
    table, folder = write(tmp_path / "rows.csv", n=3300), tmp_path / "killed"
    words = ["--dimension", "8", "--epochs", "8", "--device", "cpu", "--set", "network.options.hidden=16"]
    command = ["train", str(table), *words, "--set", "checkpoint_seconds=0.1", "--out"]
    root = Path(__file__).parents[2]
    threads = str(torch.get_num_threads())  # sums are rounded by how they are divided
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    process = subprocess.Popen([sys.executable, "-m", "nearkin", *command, str(folder)], stdout=subprocess.DEVNULL, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/step-*")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL and not (folder / "weights.safetensors").exists()
    found = checkpoint.newest(folder / "checkpoints")
    assert found is not None and found.state["running"]["done"] == found.step and not found.state["trained"]
    assert main(["train", "--resume", str(folder), "--device", "cpu"]) == 0
    assert f"resuming after step {found.step}" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "whole")]) == 0
    assert "member 1" not in capsys.readouterr().err
    last = checkpoint.newest(folder / "checkpoints")
    assert last is not None and last.state["running"] is None and len(kept(folder)) == 1
    for name in WRITTEN:
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
