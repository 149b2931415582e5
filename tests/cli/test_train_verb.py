"""`nearkin train`, `embed` and `export` as a new user would type them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import nearkin
from nearkin import cli
from nearkin.cli.progress import TrainingView
from nearkin.data.sample import short_name
from nearkin.index.collection import open_index
from nearkin.train.recipes import RECIPES, settings_for
from tests.train.unlabeled import photographs

SMALL = ["--epochs", "2", "--dimension", "4", "--set", "batch_size=32", "--device", "cpu"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each class: bright squares and dark ones."""
    root = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for name, brightness in (("dark", 40), ("bright", 200)):
        (root / name).mkdir()
        for i in range(60):
            pixels = generator.normal(brightness, 20, (12, 12, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def model(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "photos"
    assert cli.main(["train", str(photos), "--out", str(folder), *SMALL]) == 0
    return folder


def test_a_folder_of_photos_becomes_a_model(model: Path, photos: Path) -> None:
    loaded = nearkin.load(model, device="cpu")
    assert loaded.classes == ("bright", "dark")
    files = [photos / "dark" / "0.png", photos / "bright" / "0.png"]
    assert loaded.predict(files, k=3) == ["dark", "bright"]
    log = [json.loads(line) for line in (model / "log.jsonl").read_text().splitlines()]
    assert any("objective nca: the data have classes" in line.get("text", "") for line in log)
    assert [line["epoch"] for line in log if line["kind"] == "epoch"] == [1, 2]


def test_a_table_whose_columns_have_names_of_their_own_keeps_its_labels(photos: Path, tmp_path: Path, capsys) -> None:
    """The training stores which column holds what, so that verbs that embed the same table need no options."""
    table, folder = tmp_path / "kinds.csv", tmp_path / "m"
    rows = [f"{path},{path.parent.name},{'test' if i % 4 == 0 else 'train'},{i}" for i, path in enumerate(sorted(photos.rglob("*.png")))]
    table.write_text("\n".join(["photo,kind,part,taken", *rows, ""]))
    names = {"path_column": "photo", "label_column": "kind", "split_column": "part", "group_column": "taken"}
    settings = [word for leaf, name in names.items() for word in ("--set", f"data.{leaf}={name}")]
    assert cli.main(["train", str(table), "--out", str(folder), *SMALL, *settings]) == 0
    assert "train 90, test 30" in capsys.readouterr().err
    assert cli.main(["index", str(folder), str(table), "--device", "cpu"]) == 0
    assert sorted(open_index(folder, device="cpu").index.labels) == ["bright", "dark"]
    assert cli.main(["embed", str(folder), str(table), "--out", str(tmp_path / "e.npz"), "--device", "cpu"]) == 0
    assert np.bincount(np.load(tmp_path / "e.npz")["labels"]).tolist() == [60, 60]
    assert cli.main(["embed", str(folder), str(photos), "--out", str(tmp_path / "f.npz"), "--device", "cpu"]) == 0


def test_the_end_names_commands_that_run_as_printed(photos: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    """Commands in backquotes: a report, an index of the data, the second time instead of the first, and the page that shows it."""
    shown: list[int] = []
    monkeypatch.setattr("nearkin.serve.listen.serve", lambda collection, **_: shown.append(collection.index.count))
    data, folder = shutil.copytree(photos, tmp_path / "my photos"), tmp_path / "a model"
    for words in ([str(data), "--out", str(folder), *SMALL], ["--resume", str(folder), "--device", "cpu"]):
        assert cli.main(["train", *words]) == 0
        commands = re.findall(r"`nearkin (.*?)`", capsys.readouterr().out.splitlines()[-1])
        assert [cli.main(shlex.split(command)) for command in commands] == [0, 0, 0]
        assert [command.split()[0] for command in commands] == ["evaluate", "index", "serve"]
    assert shown == [120, 120]


@pytest.mark.soak
def test_the_end_names_commands_for_known_sets_and_for_shards(photos: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("pyarrow")
    assert cli.main(["shard", str(photos), "--out", str(tmp_path / "shards")]) == 0
    for data in (str(tmp_path / "shards"), "digits"):
        out = tmp_path / f"model of {Path(data).name}"
        assert cli.main(["train", data, "--out", str(out), *SMALL, "--epochs", "1"]) == 0
        commands = re.findall(r"`nearkin (.*?)`", capsys.readouterr().out.splitlines()[-1])
        assert cli.main(shlex.split(commands[0])) == 0


def test_embeddings_of_any_data(model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["embed", str(model), str(photos), "--out", str(tmp_path / "deep" / "e.npz"), "--device", "cpu"]) == 0
    assert "120 embeddings of 4 dimensions" in capsys.readouterr().out
    held = np.load(tmp_path / "deep" / "e.npz")
    assert held["embeddings"].shape == (120, 4) and len(held["labels"]) == 120
    assert cli.main(["embed", str(model), str(photos), "--out", str(tmp_path / "e.csv"), "--device", "cpu"]) == 1
    assert "must end in .npz" in capsys.readouterr().err


def test_embeddings_are_data_again(model: Path, photos: Path, tmp_path: Path) -> None:
    """A head on existing embeddings, the most common job."""
    cli.main(["embed", str(model), str(photos), "--out", str(tmp_path / "e.npz"), "--device", "cpu"])
    held = np.load(tmp_path / "e.npz")
    np.savez(tmp_path / "vectors.npz", x=held["embeddings"], y=held["labels"])
    assert cli.main(["train", str(tmp_path / "vectors.npz"), "--out", str(tmp_path / "m"), *SMALL]) == 0
    loaded = nearkin.load(tmp_path / "m", device="cpu")
    assert loaded.encode(held["embeddings"][:3]).shape == (3, 4)


@pytest.mark.soak  # tests/train/test_export.py has the export itself
def test_an_export_is_compared_with_the_model_and_reported_in_one_line(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nearkin", "export", str(model), "--onnx", str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # the libraries print at their first import
    assert json.loads(done.stdout)["file"] == str(tmp_path / "m.onnx") and (tmp_path / "m.onnx").stat().st_size > 1000
    assert done.stderr == ""


def test_the_rate_is_found_used_and_kept(photos: Path, tmp_path: Path) -> None:
    assert cli.main(["train", str(photos), "--out", str(tmp_path / "m"), "--find-rate", *SMALL]) == 0
    swept = json.loads((tmp_path / "m" / "learning_rate.json").read_text())
    assert json.loads((tmp_path / "m" / "run.json").read_text())["optimizer"]["learning_rate"] == pytest.approx(swept["rate"])
    assert (tmp_path / "m" / "learning_rate.png").exists()


class Ended(TrainingView):
    """Ctrl-C after the first epoch."""

    def epoch(self, figures: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("seconds", "message"), [("0", "continues from step-"), ("1000", "starts over: no checkpoint was written yet")])
def test_a_stopped_training_says_how_to_resume(seconds, message, photos: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    folder = tmp_path / "m"
    monkeypatch.setattr("nearkin.cli.train.TrainingView", Ended)
    first = ["train", str(photos), "--out", str(folder), *SMALL, "--set", f"checkpoint_seconds={seconds}"]
    stopped = cli.main(first)
    said = " ".join(capsys.readouterr().err.split())
    assert stopped == 130 and f"`nearkin train --resume {folder}` {message}" in said and said.endswith("stopped")
    with pytest.raises(FileNotFoundError, match="the training has not finished; `nearkin train --resume "):
        nearkin.load(folder, which="last")
    monkeypatch.undo()
    assert cli.main(["train", "--resume", str(folder), "--device", "cpu"]) == 0 and nearkin.load(folder).classes == ("bright", "dark")


def test_a_file_damaged_since_is_to_be_put_back_before_resuming(photos: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    """Leaving it out, as a new training may, would leave the checkpoint's points: both pieces of advice are followed here."""
    data, folder = shutil.copytree(photos, tmp_path / "photos"), tmp_path / "m"
    monkeypatch.setattr("nearkin.cli.train.TrainingView", Ended)
    assert cli.main(["train", str(data), "--out", str(folder), *SMALL, "--set", "checkpoint_seconds=0"]) == 130
    monkeypatch.undo()
    again, was = ["train", "--resume", str(folder), "--device", "cpu"], (data / "dark" / "3.png").read_bytes()
    (data / "dark" / "3.png").write_bytes(b"\x89PNG")
    capsys.readouterr()
    assert cli.main(again) == 1
    output = capsys.readouterr().err.strip().splitlines()[-1]
    advice = "restore the file and resume, or start a new training in another folder with --skip-damaged"
    assert "3.png cannot be decoded" in output and output.endswith(advice) and "remove the file" not in output
    assert cli.main(["train", str(data), "--out", str(tmp_path / "other"), *SMALL, "--set", "data.on_error=skip"]) == 0
    (data / "dark" / "3.png").write_bytes(was)
    assert cli.main(again) == 0 and nearkin.load(folder).classes == ("bright", "dark")


@pytest.mark.parametrize("columns", [80, 200])
def test_a_narrow_terminal_shows_the_whole_bar(columns: int) -> None:
    """The words go on in a second line rather than push out the count and the time left."""
    view, drawn = TrainingView(), StringIO()
    view.epoch({"epoch": 1, "loss": 5.83, "steps": 31, "points_per_second": 735, "dimensions used": 36.07})
    view.started(1023, 0)
    view.step(120, {"loss": 5.83, "valid": "64/64"})
    Console(file=drawn, width=columns).print(view.bar.get_renderable())
    lines = drawn.getvalue().splitlines()
    assert len(lines) == 1 + (columns < 100) and lines[0].split()[-3:] == ["120/1023", "0:00:00", "-:--:--"] and "…" not in drawn.getvalue()


@pytest.mark.parametrize(("steps", "said"), [(1000, "training: about 0:49:51 left after 3 of 1,000 steps\n"), (20, "")])
def test_without_a_terminal_a_line_says_early_if_it_will_take_long(steps, said, capsys, monkeypatch) -> None:
    """After the first epoch, whose validation is counted."""
    clock = [100.0]
    monkeypatch.setattr("nearkin.cli.progress.monotonic", lambda: clock[0])
    view = TrainingView()
    view.started(steps, 0)
    for step, now in ((1, 100.0), (2, 101.0), (3, 102.0)):
        clock[0] = now
        view.step(step, {"loss": 1.0})
    clock[0] = 106.0  # two steps took two seconds, and validation four
    view.epoch({"epoch": 1, "loss": 1.0, "steps": 3, "points_per_second": 5})
    assert [line for line in capsys.readouterr().err.splitlines(keepends=True) if "epoch" not in line] == ([said] if said else [])


def test_a_long_first_epoch_has_an_estimate_without_validation(capsys, monkeypatch) -> None:
    clock = iter([100.0, 161.0, 161.0])
    monkeypatch.setattr("nearkin.cli.progress.monotonic", lambda: next(clock))
    view = TrainingView()
    view.started(1000, 0)
    for step in (1, 2):
        view.step(step, {"loss": 1.0})
    assert "left after 2 of 1,000 steps, not counting validation" in capsys.readouterr().err


def test_an_epoch_says_what_its_figures_were_measured_on(capsys) -> None:
    view = TrainingView()
    view.epoch({"epoch": 1, "loss": 1.0, "steps": 3, "points_per_second": 5, "1-nn": 0.5, "validation points": 12, "dimensions used": 3.0})
    assert "points/s; validation (12 points): 1-nn 0.5000; dimensions used 3.0000" in capsys.readouterr().err


@pytest.mark.parametrize(("epochs", "lines"), [(1, 1), (60, 60), (100, 100), (150, 100), (1000, 100)])
def test_many_epochs_have_a_line_every_few_and_the_last_has_one(epochs, lines, capsys) -> None:
    view = TrainingView()
    view.started(3 * epochs, 0)
    for epoch in range(1, epochs + 1):
        view.epoch({"epoch": epoch, "loss": 1.0, "steps": 3 * epoch, "points_per_second": 5})
    output = capsys.readouterr().err.splitlines()
    assert len(output) == lines and output[-1].startswith(f"epoch {epochs}: loss 1.0000")


def test_the_bar_knows_the_time_left_where_a_step_takes_a_minute() -> None:
    view, now = TrainingView(), [0.0]
    view.bar.get_time = lambda: now[0]
    view.started(11, 0)
    for step in (1, 2, 3):
        now[0] = 60.0 * step
        view.step(step, {"loss": 1.0})
    assert view.bar.tasks[0].time_remaining == 480


def test_resuming_a_finished_training_changes_nothing(model: Path) -> None:
    before = (model / "weights.safetensors").read_bytes()
    assert cli.main(["train", "--resume", str(model), "--device", "cpu"]) == 0
    assert (model / "weights.safetensors").read_bytes() == before


def test_a_run_is_resumed_and_evaluated_from_another_folder(photos: Path, tmp_path: Path, monkeypatch) -> None:
    """run.json has absolute paths of data and corrections, although relative ones were typed."""
    elsewhere, folder = tmp_path / "elsewhere", str(tmp_path / "m")
    elsewhere.mkdir()
    (tmp_path / "labels.csv").write_text(f"path,label\n{photos / 'dark' / '0.png'},bright\n")
    monkeypatch.chdir(photos.parent)
    typed = os.path.relpath(tmp_path / "labels.csv")
    assert cli.main(["train", photos.name, "--labels", typed, "--out", folder, *SMALL]) == 0
    kept = json.loads((tmp_path / "m" / "run.json").read_text())["data"]
    assert (kept["source"], kept["corrections"]) == (str(photos), str(tmp_path / "labels.csv"))
    monkeypatch.chdir(elsewhere)
    assert cli.main(["train", os.path.relpath(photos), "--resume", folder, "--device", "cpu"]) == 0
    assert cli.main(["evaluate", folder, "--no-pictures", "--device", "cpu"]) == 0


def test_a_training_whose_data_were_moved_says_how_to_resume(photos: Path, tmp_path: Path, capsys) -> None:
    data, folder = shutil.copytree(photos, tmp_path / "here"), tmp_path / "m"
    assert cli.main(["train", str(data), "--out", str(folder), *SMALL]) == 0
    before, page = (folder / "weights.safetensors").read_bytes(), folder / "run.json"
    moved = data.rename(tmp_path / "there")
    capsys.readouterr()
    assert cli.main(["train", "--resume", str(folder), "--device", "cpu"]) == 1
    said = capsys.readouterr().err
    assert f"{folder} was trained on {data}, which no longer exists; put it back, or write its new path into {page} (data, source)" in said
    run = json.loads(page.read_text())
    run["data"]["source"] = str(moved)
    page.write_text(json.dumps(run))
    assert cli.main(["train", "--resume", str(folder), "--device", "cpu"]) == 0  # what was proposed
    assert (folder / "weights.safetensors").read_bytes() == before


def test_proposed_commands_take_folders_with_spaces(photos: Path, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "my runs"
    for words, message in (
        (["--resume", str(folder)], f"`nearkin train DATA --out '{folder}'` starts one"),
        ([str(photos), "--out", str(folder)], f"resume it: `nearkin train --resume '{folder}'`"),
    ):
        assert cli.main(["train", *words]) == 1 and message in capsys.readouterr().err
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=re.escape(f"`nearkin train DATA --out '{folder}'` makes one")):
        nearkin.load(folder)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "epochs=9", "--seed", "3"], "a resumed training keeps its settings"),
        (["--for", "retrieval"], "leave out --for, or pass another folder as --out"),
        (["elsewhere"], "was trained on"),
    ],
)
def test_a_resumed_training_refuses_other_settings(model: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", *more, "--resume", str(model), "--device", "cpu"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "DATA is missing: name a folder"),
        (["PHOTOS", "--set", "epoch=3"], "setting 'epoch' is unknown (did you mean 'epochs'?"),
        (["PHOTOS", "--set", "epochs"], "must read SETTING=VALUE"),
        (["PHOTOS", "--objective", "ncaa"], "objective 'ncaa' is unknown (did you mean 'nca'?"),
        (["PHOTOS", "--network", "resnet"], "network 'resnet' is unknown"),
        (["PHOTOS", "--set", "epochs=two"], "epochs ('two') must be of type int"),
        (["--resume", "nowhere"], "nowhere holds no training to resume"),
        (["PHOTOS", "--set", "sampler.options.per_clas=3"], "sampler shuffled has no option 'per_clas'"),
    ],
)
def test_errors_name_the_fix(arguments: list[str], message: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(photos) if word == "PHOTOS" else word for word in arguments]
    out = [] if "--resume" in words else ["--out", str(tmp_path / "m")]
    assert cli.main(["train", *words, *out]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "m" / "weights.safetensors").exists()


def test_a_damaged_file_is_named_and_skipped_only_when_asked(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("dark", "bright"):
        (tmp_path / "mixed" / name).mkdir(parents=True)
        for path in sorted((photos / name).iterdir())[:30]:
            (tmp_path / "mixed" / name / path.name).write_bytes(path.read_bytes())
    (tmp_path / "mixed" / "dark" / "broken.png").write_bytes(b"not a picture")
    assert cli.main(["train", str(tmp_path / "mixed"), "--out", str(tmp_path / "m"), *SMALL]) == 1
    assert "broken.png" in capsys.readouterr().err
    assert cli.main(["train", str(tmp_path / "mixed"), "--out", str(tmp_path / "n"), *SMALL, "--skip-damaged"]) == 0
    assert cli.main(["index", str(tmp_path / "n"), str(tmp_path / "mixed"), "--device", "cpu"]) == 0
    held = json.loads((tmp_path / "n" / "split.json").read_text())["names"]
    found = {entry.source: entry.metadata["split"] for entry in open_index(tmp_path / "n", device="cpu").index.entries(list(range(60)))}
    assert len(found) == 60 and all(short_name(source) in held[split] for source, split in found.items()), "by names, not by rows"


@pytest.mark.parametrize(
    ("part", "content", "message", "streamed"),
    [("val", b"", "odd.png cannot be decoded", False), ("test", b"no picture", "odd.png cannot be decoded", True)],
)
def test_a_held_out_image_that_cannot_be_used_is_reported_before_the_first_epoch(
    part, content, message, streamed, photos: Path, tmp_path: Path, capsys
) -> None:
    for name, rows in (("train", slice(0, 20)), ("val", slice(20, 30)), ("test", slice(30, 40))):
        for kind in ("dark", "bright"):
            (tmp_path / "data" / name / kind).mkdir(parents=True)
            for path in sorted((photos / kind).iterdir())[rows]:
                shutil.copy(path, tmp_path / "data" / name / kind)
    odd = tmp_path / "data" / part / "dark" / "odd.png"
    odd.write_bytes(content)
    command = ["train", str(tmp_path / "data"), "--out", str(tmp_path / "m"), *SMALL, "--set", "preprocess.name=local_contrast"]
    command += ["--set", f"data.resident_gigabytes={0 if streamed else 4}"]
    assert cli.main(command) == 1
    said = capsys.readouterr().err
    assert message in said and "epoch 1" not in said and not (tmp_path / "m" / "run.json").exists()
    odd.unlink()
    assert cli.main(command) == 0  # into the very same folder


def test_numbers_in_a_table(tmp_path: Path) -> None:
    x = torch.randn(120, 3, generator=torch.Generator().manual_seed(0)).numpy()
    np.savez(tmp_path / "t.npz", x=x, targets=x[:, :1] * 2)
    assert cli.main(["train", str(tmp_path / "t.npz"), "--out", str(tmp_path / "m"), *SMALL]) == 0
    assert json.loads((tmp_path / "m" / "model.json").read_text())["objective"] == "nca_regression"


def test_for_retrieval_takes_the_recipe_and_judges_on_unseen_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Birds of ten kinds and of different sizes, in a folder for each."""
    generator = np.random.default_rng(0)
    for kind in range(10):
        (tmp_path / "birds" / f"kind{kind}").mkdir(parents=True)
        for i in range(12):
            side = 20 + i
            pixels = generator.normal(20 * kind + 30, 10, (side, side + 3, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "birds" / f"kind{kind}" / f"{i}.png")
    out, quick = tmp_path / "model", ["--epochs", "1", "--set", "data.size=16", "--set", "batch_size=12", "--device", "cpu"]
    assert cli.main(["train", str(tmp_path / "birds"), "--for", "retrieval", "--out", str(out), *quick]) == 0
    run = json.loads((out / "run.json").read_text())
    recipe = RECIPES["retrieval"].settings
    assert run["objective"]["name"] == recipe["objective.name"] and run["sampler"]["name"] == recipe["sampler.name"]
    assert (run["data"]["size"], run["batch_size"], recipe["batch_size"]) == (16, 12, "64")  # what is set comes before the recipe
    metrics, printed = json.loads((out / "metrics.json").read_text()), capsys.readouterr()
    assert "recall@1" in metrics["test"] and f"test part, {metrics['test points']} points" in printed.out
    output = " ".join(printed.err.split())
    assert " ".join(RECIPES["retrieval"].words.split()) in output and "; here with batch_size=12" in output
    assert settings_for("retrieval", str(tmp_path), {})["data.size"] == "128" and "data.size" not in settings_for(
        "retrieval", "omniglot", {}
    )
    assert settings_for("retrieval", "omniglot", {})["least_steps"] == "1000" and run["least_steps"] == 0  # epochs were given
    assert settings_for("retrieval", "omniglot", {"network.weights": "some.safetensors"})["least_steps"] == "500"
    for purpose in ("retrieval", "discovery"):
        other, same = (
            settings_for(purpose, "omniglot", {"objective.name": name}) for name in ("nca", RECIPES[purpose].settings["objective.name"])
        )
        assert not [leaf for leaf in other if leaf.startswith(("objective", "discovery"))]
        assert same == settings_for(purpose, "omniglot", {})
    assert cli.main(["train", "digits", "--for", "sleep", "--out", str(tmp_path / "no")]) == 1
    assert "--for 'sleep' is unknown; choose one of retrieval" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("purpose", "device", "gpu", "warned"),
    [
        ("discovery", None, False, True),
        ("discovery", "cpu", True, True),
        ("discovery", None, True, False),
        ("retrieval", None, False, False),
    ],
)
def test_for_discovery_without_a_gpu_suggests_the_small_network(purpose, device, gpu, warned, tmp_path: Path, capsys, monkeypatch) -> None:
    """At once, before the data are read and anything is trained."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr("nearkin.cli.train.train", lambda *_, **__: (_ for _ in ()).throw(ValueError("training begins")))
    photographs(tmp_path / "my photos", 20)
    words = ["train", str(tmp_path / "my photos"), "--for", purpose, "--out", str(tmp_path / "m")]
    assert cli.main([*words, *(["--device", device] if device else [])]) == 1
    said = " ".join(capsys.readouterr().err.split())
    command = shlex.join(["nearkin", "train", str(tmp_path / "my photos")])
    warning = f"these settings are for a GPU and may take hours on a CPU; `{command}` trains a small network instead"
    assert said.endswith("training begins") and (warning in said) == warned


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "gpu"], "--device 'gpu' cannot be used here"),
        (["--set", "data.test=0.95"], "data.validation (0.1) and data.test (0.95) leave nothing to train on: their sum must be below 1"),
        (["--set", "lr=0.1"], "setting 'lr' is unknown; choose one of "),
        (["--objective", "foo"], "objective 'foo' is unknown; choose one of "),
        (
            ["--objective", "nca_regression"],
            "objective nca_regression learns from numbers, but digits has classes: use nca, or leave it at auto",
        ),
    ],
)
def test_ordinary_mistakes_are_reported_in_a_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "digits", "--out", str(tmp_path / "m"), *words]) == 1
    assert message in capsys.readouterr().err


def test_a_folder_called_like_a_number_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photographs(tmp_path / "2024", 20)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "2024", "--out", "m", "--network", "mlp", "--epochs", "5", "--device", "cpu"]) == 0


def test_files_of_others_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")
    for more in ([], ["--find-rate"]):
        assert cli.main(["train", "digits", "--out", str(tmp_path), "--network", "mlp", "--epochs", "1", *more]) == 1
        assert "holds README.md, which a training would overwrite; choose another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"] and (tmp_path / "README.md").read_text() == "mine"


def test_a_folder_named_like_a_known_set_is_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photographs(tmp_path / "digits", 20)
    monkeypatch.chdir(tmp_path)
    words = ["--network", "mlp", "--epochs", "5", "--device", "cpu"]
    assert cli.main(["train", "digits", "--out", "m", *words]) == 0
    assert "digits names a known set, which is opened; for the file or folder of that name write ./digits" in capsys.readouterr().err
    assert cli.main(["train", "./digits", "--out", "n", *words]) == 0 and "digits: 20 gray images" in capsys.readouterr().err
