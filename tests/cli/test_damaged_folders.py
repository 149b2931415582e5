"""Damaged, cut, foreign and read-only folders, a full disk and two writers: one line that names the file and the fix, never a traceback."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nearkin
from nearkin import cli
from nearkin.data.checksums import CHECKSUMS, check_all
from nearkin.data.disk import FileDamagedError
from nearkin.index.collection import open_index
from nearkin.index.local import LocalIndex
from nearkin.train.config import Run, override
from nearkin.train.training import train
from tests.faults import calls, faults

SETTINGS = {"network.name": "mlp", "network.dimension": "4", "network.options.hidden": "[8]", "epochs": "2", "batch_size": "30"}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained model with an index and checkpoints, and its data."""
    folder = tmp_path_factory.mktemp("damaged")
    x = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32)
    y = np.array(["a", "b", "c"])[np.arange(90) % 3]
    x[:, 0] += 3 * (np.arange(90) % 3)
    np.savez(folder / "points.npz", x=x, y=y)
    train(override(Run(), {**SETTINGS, "data.source": str(folder / "points.npz")}), folder / "model", device="cpu")
    assert cli.main(["index", str(folder / "model"), str(folder / "points.npz"), "--device", "cpu"]) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "model", tmp_path / "model")


def run(capsys: pytest.CaptureFixture[str], *arguments: object, device: bool = True) -> tuple[int, str, str]:
    status = cli.main([*map(str, arguments), *(["--device", "cpu"] if device else [])])
    said = capsys.readouterr()
    return status, said.out, said.err


def flip(path: Path, at: float = 0.9) -> None:
    raw = bytearray(path.read_bytes())
    raw[int(at * (len(raw) - 1))] ^= 4
    path.write_bytes(bytes(raw))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


WAYS: dict[str, Callable[[Path], None]] = {"flip": flip, "cut": cut, "empty": lambda path: os.truncate(path, 0)}
READ = {  # the files that each command reads
    "search": ("model.json", "best.safetensors", "references.safetensors"),
    "evaluate": ("model.json", "best.safetensors", "references.safetensors", "run.json", "split.json"),
}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("verb", list(READ))
def test_every_damaged_file_is_named_with_a_fix(folder: Path, capsys, verb: str, way: str) -> None:
    options = {"search": ["--id", "3"], "evaluate": ["--no-pictures", "--out", str(folder.parent / "out")]}[verb]
    for name in READ[verb]:
        whole = (folder / name).read_bytes()
        WAYS[way](folder / name)
        status, out, err = run(capsys, verb, folder, *options)
        last = err.splitlines()[-1]
        assert status == 1 and not out and last.startswith(f"nearkin {verb}: {folder / name} is damaged") and "Traceback" not in err, err
        assert "restore it" in err or "writes it again" in err
        (folder / name).write_bytes(whole)
    assert run(capsys, verb, folder, *options)[0] == 0


def test_what_can_still_be_used_is_said_and_true(folder: Path) -> None:
    flip(folder / "best.safetensors")
    with pytest.raises(FileDamagedError, match=r"weights.safetensors can still be used, the last weights: --weights last .which='last'."):
        nearkin.load(folder)
    assert nearkin.load(folder, which="last").encode(np.zeros((1, 5), np.float32)).shape == (1, 4)
    assert nearkin.load(folder, verify=False) is not None
    flip(folder / "references-last.safetensors")
    with pytest.raises(FileDamagedError, match="searching, indexing, embedding and exporting do not need it: remove it"):
        nearkin.load(folder, which="last")
    (folder / "references-last.safetensors").unlink()
    with pytest.raises(FileDamagedError, match="references-last.safetensors is damaged: it is missing"):
        nearkin.load(folder, which="last")


def test_no_verify_opens_what_can_be_read(folder: Path, capsys) -> None:
    segment = next((folder / "index").glob("segment-*"))
    whole = segment.read_bytes()
    vectors = 8 + int.from_bytes(whole[:8], "little")  # after the header
    segment.write_bytes(whole[:vectors] + bytes([whole[vectors] ^ 4]) + whole[vectors + 1 :])  # a low bit of the first number
    status, _, err = run(capsys, "search", folder, "--id", 3)
    assert status == 1 and f"{segment} is damaged: it does not match its checksum. The model is not affected: rebuild the index" in err
    assert run(capsys, "search", folder, "--id", 3, "--no-verify")[0] == 0
    rows = whole.index(b'{"source"')
    segment.write_bytes(whole[:rows] + bytes(255 - byte for byte in whole[rows:]))
    status, _, err = run(capsys, "search", folder, "--id", 3, "--no-verify")
    assert status == 1 and "the source and metadata of a point cannot be read" in err and "rebuild the index" in err


@pytest.mark.parametrize("damaged", ["manifest.json", "segment"])
def test_a_damaged_index_is_rebuilt_as_the_message_says(made: Path, folder: Path, capsys, damaged: str) -> None:
    cut(next((folder / "index").glob(f"{damaged}*")))
    assert run(capsys, "search", folder, "--id", 3)[0] == 1
    assert run(capsys, "index", folder, made / "points.npz", "--replace")[0] == 0
    index = open_index(folder, device="cpu").index
    index.verify()
    assert index.count == 90 and len(list((folder / "index").glob("segment-*"))) == 1


def test_check_lists_every_file_and_the_damaged_ones_first(folder: Path, capsys) -> None:
    status, out, _ = run(capsys, "check", folder, device=False)
    names = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    expected = {"model.json", "run.json", "split.json", "metrics.json", "README.md", "best.safetensors", "weights.safetensors"}
    assert status == 0 and "0 damaged: every file matches its checksum" in out and expected <= set(names)
    assert "index/manifest.json" in names and any(name.startswith("index/segment-") for name in names)
    assert any(name.startswith("checkpoints/step-") for name in names)
    left = {path.name for path in folder.iterdir() if path.is_file()} - set(names)
    assert left == {"log.jsonl", ".lock"}  # a log has no checksum
    for path in (folder / "run.json", next((folder / "index").glob("segment-*")), next((folder / "checkpoints").glob("*/tensors*"))):
        flip(path)
    status, out, _ = run(capsys, "check", folder, device=False)
    assert status == 1 and ", 3 damaged" in out and "rebuild the index" in out and "the checkpoint before it is used" in out
    assert out.index("does not match") < out.index("whole")


def test_an_edit_on_purpose_is_accepted(folder: Path, capsys) -> None:
    page = folder / "model.json"
    page.write_text(json.dumps(json.loads(page.read_text()) | {"note": "mine"}))
    assert run(capsys, "check", folder, device=False)[0] == 1
    status, out, _ = run(capsys, "check", folder, "--accept", device=False)
    assert status == 0 and "1 changed files are recorded as they are now" in out
    assert nearkin.load(folder).about["note"] == "mine"


def test_check_of_shards_and_of_nothing(made: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("pyarrow")
    assert run(capsys, "shard", made / "points.npz", "--out", tmp_path / "shards", "--shard-rows", 30)[0] == 0
    assert run(capsys, "check", tmp_path / "shards", device=False)[0] == 0
    flip(tmp_path / "shards/shard-00001.parquet")
    status, out, _ = run(capsys, "check", tmp_path / "shards", device=False)
    assert status == 1 and "1 damaged" in out and "does not match its checksum" in out
    (tmp_path / "empty").mkdir()
    status, _, err = run(capsys, "check", tmp_path / "empty", device=False)
    assert status == 1 and "holds nothing with checksums" in err


def test_a_folder_without_checksums_opens_as_before(folder: Path, capsys) -> None:
    (folder / CHECKSUMS).unlink()
    assert run(capsys, "search", folder, "--id", 3)[0] == 0
    cut(folder / "best.safetensors")
    status, _, err = run(capsys, "search", folder, "--id", 3)
    assert status == 1 and "best.safetensors is not a complete safetensors file" in err and "can still be used" in err


@pytest.mark.parametrize(
    "damaged", [["run.json"], ["best.safetensors"], ["checksums.json"], ["run.json", "best.safetensors", "model.json", "split.json"]]
)
def test_a_training_resumes_from_its_checkpoint_whatever_else_is_damaged(made: Path, folder: Path, capsys, damaged: list[str]) -> None:
    expected = (made / "model/weights.safetensors").read_bytes()
    for name in damaged:
        cut(folder / name)
    status, _, err = run(capsys, "train", "--resume", folder)
    assert status == 0, err
    assert (folder / "weights.safetensors").read_bytes() == expected
    assert ("The settings are those of step-" in err) == ("run.json" in damaged)
    assert ("the best weights so far are damaged" in err) == ("best.safetensors" in damaged)
    assert all(not one.wrong for one in check_all(folder))
    (folder / "run.json").unlink()
    assert run(capsys, "train", "--resume", folder)[0] == 0


def test_a_full_disk_is_one_line_with_a_way_on(made: Path, folder: Path, capsys) -> None:
    data = made / "points.npz"
    (folder.parent / "out").mkdir()
    commands = {
        "train": ["train", data, "--out", folder.parent / "new", *(f"--set={name}={value}" for name, value in SETTINGS.items())],
        "evaluate": ["evaluate", folder, "--no-pictures"],
        "index": ["index", folder, data, "--replace"],
        "embed": ["embed", folder, data, "--out", folder.parent / "out/e.npz"],
    }
    for verb, words in commands.items():
        with faults(at=2, fault="ENOSPC") as disk:
            status, _, err = run(capsys, *words)
        said = [line for line in err.splitlines() if line.startswith(f"nearkin {verb}: ")]
        assert disk.met and status == 1 and len(said) == 1, (verb, err)
        assert "no room is left on the disk of" in said[0] and "Traceback" not in err
        shutil.rmtree(folder.parent / "new", ignore_errors=True)
        if verb != "train":
            assert run(capsys, *words)[0] == 0
    assert all(not one.wrong for one in check_all(folder))


def at_once(commands: list[list[str]], folder: Path) -> list[tuple[int, str]]:
    """Run commands at the same time, each in a forked process; their exit states, and what they wrote to stderr."""
    children = []
    for number, words in enumerate(commands):
        child = os.fork()
        if child == 0:
            try:
                with open(folder / f"said-{number}", "w") as said, open(os.devnull, "w") as nowhere:
                    os.dup2(said.fileno(), 2)
                    sys.stderr, sys.stdout = said, nowhere
                    state = cli.main(words)
                    said.flush()
                    os._exit(state)
            finally:
                os._exit(3)
        children.append(child)
    states = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return [(state, (folder / f"said-{number}").read_text()) for number, state in enumerate(states)]


def two_writers(data: Path, model: Path, out: Path) -> int:
    """Two times `index --add`, and two times `train`, at once; returns how many were refused."""
    extra, points = out / "more.npz", LocalIndex.open(model / "index").count
    np.savez(extra, x=np.random.default_rng(1).normal(size=(2000, 5)).astype(np.float32), y=np.full(2000, "a"))
    settings = [f"--set={name}={value}" for name, value in {**SETTINGS, "epochs": "20"}.items()]
    adding = ["index", str(model), "--add", str(extra), "--device", "cpu"]
    training = ["train", str(data), "--out", str(out / "new"), "--device", "cpu", *settings]
    refused = 0
    for command in (adding, training):
        found = at_once([command, command], out)
        failed = [said for state, said in found if state]
        assert len(failed) <= 1 and {state for state, _ in found} <= {0, 1}, found
        assert all("is being written by `" in said or "already holds a training" in said for said in failed), found
        refused += len(failed)
    index = LocalIndex.open(model / "index")
    index.verify()
    assert index.count == points + 2000 and len(set(index.snapshot.sources())) == points + 2000
    assert not any(one.wrong for one in check_all(out / "new")) and (out / "new/metrics.json").exists()
    return refused


def test_two_writers_of_one_folder(made: Path, folder: Path, tmp_path: Path) -> None:
    """The second is refused at once, with the name of the first, or comes too late to do harm; nothing is there twice."""
    assert two_writers(made / "points.npz", folder, tmp_path) >= 1


def test_huge_ranges_of_ids_are_refused_before_they_are_counted(folder: Path, capsys) -> None:
    for ids in ("5-99999999999", "0-9999999999999999999999", "1-9000000,1-9000000"):
        status, _, err = run(capsys, "index", folder, "--delete", ids)
        assert status == 1 and "name at most 10,000,000 at a time" in err


def test_escape_sequences_are_shown_and_not_obeyed(tmp_path: Path, made: Path, capsys) -> None:
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    np.savez(tmp_path / "evil.npz", x=x, y=np.array(["\x1b[2J\x1b]0;title\x07wiped", "b\u202eb"])[np.arange(60) % 2])
    model = shutil.copytree(made / "model", tmp_path / "model")
    shutil.rmtree(model / "index")
    assert run(capsys, "index", model, tmp_path / "evil.npz")[0] == 0
    status, out, _ = run(capsys, "search", model, "--id", 0, "-k", 9)
    assert status == 0 and "\\x1b[2J\\x1b]0;title\\x07wiped" in out and "\\u202e" in out
    assert not set(out) & set("\x1b\x07\u202e")
    status, _, err = run(capsys, "search", model, "\x1b[31mno.png")
    assert status == 1 and "\x1b" not in err


def test_a_folder_that_may_only_be_read_is_explored_and_exported(folder: Path, capsys, monkeypatch) -> None:
    """Nothing is written into it: its files and their dates stay as they are."""
    from nearkin.serve.atlas import store

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store, "replacing", refused)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    status, _, err = run(capsys, "export", folder, "--page", folder.parent / "page", "--map", "pca")
    assert status == 0 and "the map is not kept for next time (Permission denied)" in err
    assert run(capsys, "search", folder, "--id", 3)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before


def test_a_failed_export_can_be_repeated(folder: Path, capsys) -> None:
    out = folder.parent / "page"
    words = ["export", folder, "--page", out, "--map", "pca"]
    assert run(capsys, *words)[0] == 0  # this one also keeps the map
    n = calls(lambda: run(capsys, *words)).count
    for at in (2, n // 2, n - 2):
        with faults(at, "EIO"):
            assert run(capsys, *words)[0] == 1
        assert not (out / "atlas.js").exists()  # no old data beside new files
        assert run(capsys, *words)[0] == 0 and (out / "atlas.js").exists()
    (out / "mine.txt").write_text("precious")
    status, _, err = run(capsys, *words)
    assert status == 1 and "holds other files" in err


@pytest.mark.parametrize("array", [np.array([["a"] * 4]), np.zeros((0, 4), np.float32), np.zeros((2, 3, 4), np.float32)])
def test_embeddings_that_are_none_are_refused(folder: Path, capsys, array: np.ndarray) -> None:
    np.save(folder.parent / "v.npy", array)
    status, _, err = run(capsys, "search", folder, "--vector", folder.parent / "v.npy")
    assert status == 1 and f"holds {array.dtype} {array.shape}" in err and "pass numbers (n, 4), at least one row" in err
