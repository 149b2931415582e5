"""Embedding into shards on one machine: the same rows as encoding them directly, each once, whatever happens in between."""

import errno
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from nearkin import cli, load
from nearkin import data as sources
from nearkin.cluster import embedding
from nearkin.cluster.embedding import Embedded, embed
from nearkin.cluster.encoding import pieces
from nearkin.data.dataset import Dataset
from nearkin.data.shards import files, folder, open_shards
from tests.cluster.model_folder import model_folder

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def points(n: int = 25, d: int = 6, **known: Any) -> Dataset:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(3))
    return Dataset("points", x, **({"labels": torch.arange(n) % 2, "classes": ("a", "b")} | known))


def test_shards_hold_what_the_model_says(model: Path, tmp_path: Path) -> None:
    data, lines = points(), list[str]()
    assert embed(model, data, tmp_path / "s", rows=10, report=lines.append) == Embedded(25, 3, 0, 0)
    found = open_shards(tmp_path / "s", verify=True)
    assert [len(shard.ids) for shard in found] == [10, 10, 5]
    whole = found.read(0)
    assert whole.ids.tolist() == list(range(10)) and whole.labels is not None and whole.labels.tolist() == ["a", "b"] * 5
    assert found.read(2, sources=True).sources.tolist()[0] == "points row 20"  # type: ignore[union-attr]
    vectors = np.concatenate([shard.vectors for shard in found])
    assert np.allclose(vectors, np.asarray(load(model, device="cpu").encode(data.inputs.numpy())), atol=1e-6)  # type: ignore[union-attr]
    assert found.about.metric == "squared_euclidean" and found.about.classes == ("a", "b") and found.about.planned == 3
    assert any("25 of 25 points" in line for line in lines)


def test_numbers_sets_and_nothing_are_kept(model: Path, tmp_path: Path) -> None:
    bare: dict[str, Any] = {"labels": None, "classes": ()}
    embed(model, points(4, **bare, targets=torch.arange(8.0).reshape(4, 2)), tmp_path / "numbers")
    assert open_shards(tmp_path / "numbers").labels().tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]  # type: ignore[union-attr]
    held = torch.tensor([[True, True], [False, True], [True, False], [False, True]])
    embed(model, points(4, **bare | {"classes": ("a", "b")}, sets=held), tmp_path / "sets")
    assert open_shards(tmp_path / "sets").labels().tolist() == ["a|b", "b", "a", "b"]  # type: ignore[union-attr]
    embed(model, points(4, **bare), tmp_path / "none")
    assert open_shards(tmp_path / "none").labels() is None


def test_only_missing_and_damaged_shards_are_made_again(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    embed(model, points(), out, rows=5)
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    (out / "shard-00001.parquet").unlink()
    (out / "shard-00003.parquet").write_bytes(b"half")
    assert embed(model, points(), out, rows=5) == Embedded(25, 2, 3, 0)
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert {name for name in after if after[name] != before[name]} == {"shard-00001.parquet", "shard-00003.parquet"}
    assert np.concatenate([shard.ids for shard in open_shards(out, verify=True)]).tolist() == list(range(25))
    assert embed(model, points(), out, rows=5).made == 0


def test_a_kill_in_the_middle_loses_only_what_was_not_named(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, calls, real = tmp_path / "s", list[int](), embedding.write_piece

    def mortal(*given: Any, **options: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given, **options)

    monkeypatch.setattr(embedding, "write_piece", mortal)
    with pytest.raises(KeyboardInterrupt):
        embed(model, points(), out, rows=5)
    assert len(open_shards(out, partial=True)) == 10
    assert embed(model, points(), out, rows=5) == Embedded(25, 3, 2, 0)


def test_a_full_disk_keeps_what_was_made(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, real, calls = tmp_path / "s", files.replacing, list[Path]()

    def full(path: Path, *more: Any) -> Any:
        calls.append(path)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *more)

    monkeypatch.setattr(files, "replacing", full)
    with pytest.raises(OSError, match="no room is left on the disk .* run the same `nearkin embed` again"):
        embed(model, points(), out, rows=5)
    monkeypatch.undo()
    assert len(open_shards(out, partial=True)) == 20
    assert embed(model, points(), out, rows=5) == Embedded(25, 1, 4, 0)


def test_on_a_disk_without_a_free_byte_the_manifest_still_names_what_was_made(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real_write, real_page, kept = tmp_path / "s", files.replacing, folder.write_checked_json, list[bool]()

    def write(path: Path, *more: Any) -> Any:
        if (out / "shard-00003.parquet").exists():  # from now on there is only the room that was kept
            kept.append((out / ".spare").exists())
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(path, *more)

    def page(path: Path, body: dict[str, Any]) -> None:
        if kept and not (kept[0] and not (out / ".spare").exists()):
            raise OSError(errno.ENOSPC, "No space left on device")
        real_page(path, body)

    monkeypatch.setattr(files, "replacing", write)
    monkeypatch.setattr(folder, "write_checked_json", page)
    with pytest.raises(OSError, match="no room is left on the disk .* The shards written before are complete"):
        embed(model, points(), out, rows=5)
    assert kept == [True] and len(open_shards(out, partial=True)) == 20
    assert sorted(path.name for path in out.iterdir() if path.name != "lock") == [
        *(f"shard-0000{i}.parquet" for i in range(4)),
        "shards.json",
    ]


def test_one_file_on_a_full_disk_is_as_it_was(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros((4, 6), np.float32))
    (tmp_path / "out.npz").write_bytes(b"before")

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert cli.main(["embed", str(model), str(tmp_path / "data.npz"), "--out", str(tmp_path / "out.npz"), "--device", "cpu"]) == 1
    assert "no room is left on the disk" in (message := capsys.readouterr().err) and "run the same command again" in message
    assert (tmp_path / "out.npz").read_bytes() == b"before" and not list(tmp_path.glob(".*"))


def test_errors_of_an_actor_come_back_as_text(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = embedding.Encoder(str(model), str(tmp_path), "cpu")
    (piece,) = pieces(points(5), 5, [0])
    batch = {"number": [0], "piece": [pickle.dumps(piece)]}

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "replacing", full)
    answer = actor(batch)
    with pytest.raises(OSError, match="no room is left on the disk"):
        embedding._record({"number": 0, "record": answer["record"][0]})
    monkeypatch.undo()
    assert embedding._record({"number": 0, "record": actor(batch)["record"][0]})["rows"] == 5
    monkeypatch.setattr(embedding, "write_piece", _refuse)
    with pytest.raises(ValueError, match="not like this"):
        embedding._record({"number": 0, "record": actor(batch)["record"][0]})


def _refuse(*given: object) -> None:
    raise ValueError("not like this")


def test_other_weights_other_data_and_other_shapes_are_refused(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    embed(model, points(), out, rows=5)
    with pytest.raises(ValueError, match="holds embeddings by other weights .*; choose another --out"):
        embed(model_folder(tmp_path / "other", seed=1), points(), out, rows=5)
    with pytest.raises(ValueError, match="holds embeddings of other data, or shards of another size"):
        embed(model, points(24), out, rows=5)
    with pytest.raises(ValueError, match=r"points has points of shape \(5,\), and this model reads \(6,\)"):
        embed(model, points(d=5), tmp_path / "t")
    with pytest.raises(ValueError, match=r"rows \(0\) must be a whole number of at least 1"):
        embed(model, points(), tmp_path / "t", rows=0)
    with pytest.raises(FileNotFoundError, match="is no model folder"):
        embed(tmp_path / "nowhere", points(), tmp_path / "t")


def test_embeddings_that_are_not_finite_are_left_out_and_named(model: Path, tmp_path: Path) -> None:
    data = points()
    data.inputs[7] = torch.inf  # type: ignore[index]
    lines = list[str]()
    assert embed(model, data, tmp_path / "s", rows=10, report=lines.append).damaged == 1
    assert 7 not in np.concatenate([shard.ids for shard in open_shards(tmp_path / "s")])
    assert "skipped: points row 7: its embedding is not finite" in lines


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, draw = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name in ("a", "b"):
        (root / name).mkdir()
        for i in range(6):
            Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8)).save(root / name / f"{i}.png")
    (root / "b" / "2.png").write_bytes(b"no picture")
    (root / "b" / "5.png").write_bytes(b"")
    return root


def test_damaged_files_are_named_and_counted(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_folder(tmp_path / "model", (1, 8, 8))
    command = ["embed", str(model), str(photos), "--out", str(tmp_path / "s"), "--shard-rows", "4", "--device", "cpu"]
    assert cli.main(command) == 0
    message = capsys.readouterr()
    assert "10 embeddings in" in message.out and "shards made: 3; damaged and skipped: 2" in message.out
    assert f"skipped: {photos / 'b' / '2.png'} cannot be decoded" in message.err and "2 of 12 points were skipped" in message.err
    found = open_shards(tmp_path / "s")
    assert np.concatenate([shard.ids for shard in found]).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]
    page = json.loads((tmp_path / "s" / "shards.json").read_text())["body"]
    assert [name for record in page["shards"] for name, _ in record["damaged"]] == [str(photos / "b" / f"{i}.png") for i in (2, 5)]
    assert cli.main(command) == 0
    assert "shards made: 0, already there: 3; damaged and skipped: 2" in capsys.readouterr().out


def test_every_file_of_a_shard_damaged_is_an_empty_shard(photos: Path, tmp_path: Path) -> None:
    data = sources.open(photos, on_error="skip", size=8, channels=1)
    only = data.subset([8, 11, 0])
    found = embed(model_folder(tmp_path / "model", (1, 8, 8)), only, tmp_path / "s", rows=2, report=list[str]().append)
    assert found == Embedded(1, 2, 0, 2) and len(open_shards(tmp_path / "s")) == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--out", "e.npz", "--engine", "ray"], "need a folder of shards, and --out e.npz is a file"),
        (["--out", "e.csv"], "must end in .npz, or name a folder for shards"),
        (["--out", "s", "--address", "10.0.0.1:6379"], "--address is the address of a Ray cluster; pass --engine ray, too"),
    ],
)
def test_options_that_do_not_go_together(model: Path, options: list[str], match: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["embed", str(model), "digits", *options]) == 1
    assert match in capsys.readouterr().err


def test_without_ray_the_extra_is_named(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'nearkin\[ray\]', or use --engine local"):
        embed(model, points(), tmp_path / "s", engine="ray")


def test_without_pyarrow_the_extra_is_named(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'nearkin\[table\]'"):
        embed(model, points(), tmp_path / "s")
