"""Interrupted trainings on rows of a table keep their finished members, and end with the weights of an undisturbed training."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from nearkin.cli import main
from nearkin.train import DataChoice, NetworkChoice, Run, train
from nearkin.train.reporter import Silence

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


def write(path: Path, answer: str = "label", seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    x, kinds = rng.normal(size=(90, 2)), rng.choice(["a", "b"], 90)
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


@pytest.mark.parametrize("answer", ["label", "price"])
def test_finished_members_are_kept_and_the_others_trained(answer: str, tmp_path: Path) -> None:
    run = run_of(write(tmp_path / "rows.csv", answer), answer)
    assert trained(run, tmp_path / "whole").trained() == ["member 1 of 3", "member 2 of 3", "member 3 of 3"]
    folder = interrupted(run, tmp_path / "stopped", "member 1 of 3")
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-00000001"]
    first = load_file(folder / "checkpoints" / "step-00000001" / "tensors.safetensors")
    interrupted(run, folder, "member 2 of 3", resume=True)
    last = trained(run, folder, resume=True)
    assert "resuming after member 2 of 3" in last.lines and last.trained() == ["member 3 of 3"]
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
    newest = folder / "checkpoints" / "step-00000002" / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    again = trained(run, folder, resume=True)
    assert any(line.endswith("using step-00000001") for line in again.lines) and len(again.trained()) == 2
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
