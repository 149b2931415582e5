"""A model folder whose index is in Milvus, through the command line: made, asked, added to, thinned out, refused; and from shards."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("pymilvus") is None:
    pytest.skip("needs nearkin[milvus]", allow_module_level=True)

from nearkin import cli
from nearkin.index.collection import open_index
from nearkin.index.remote import address, open_remote
from tests.serve.small_model import make_model, make_pictures


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(one) for one in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(one) for one in arguments]) == 1
    return capsys.readouterr().err


def test_pictures_in_milvus_are_found_as_in_the_folder(tmp_path: Path, capsys) -> None:
    model, pictures, uri = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures"), tmp_path / "points.db"
    shutil.copytree(model, tmp_path / "local")
    assert "--backend milvus needs --uri" in refused(capsys, "index", model, pictures, "--backend", "milvus")
    assert "--uri x.db is for --backend milvus" in refused(capsys, "index", model, pictures, "--uri", "x.db")
    told = run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri, "--device", "cpu")
    assert "60 points added" in told and f"60 points of 8 dimensions in {uri}, nearkin, searched by milvus FLAT" in told
    assert address(model) is not None and not (model / "index").exists()
    run(capsys, "index", tmp_path / "local", pictures, "--device", "cpu")
    query = sorted(pictures.rglob("*.png"))[5]
    there, here = (json.loads(run(capsys, "search", folder, query, "-k", 7, "--json")) for folder in (model, tmp_path / "local"))
    assert [hit["source"] for hit in there[0]["neighbors"]] == [hit["source"] for hit in here[0]["neighbors"]] and there[0]["exact"]
    by_id = json.loads(run(capsys, "search", model, "--id", 3, "-k", 2, "--label", "red", "--json"))[0]["neighbors"]
    assert len(by_id) == 2 and {hit["label"] for hit in by_id} == {"red"} and 3 not in {hit["id"] for hit in by_id}
    assert "60 were there already" in run(capsys, "index", model, "--add", pictures)
    assert "2 points removed" in run(capsys, "index", model, "--delete", "0,7")
    assert "no point has the id 7; the index holds 58 points; nothing was removed" in refused(capsys, "index", model, "--delete", "7")
    assert "looks after its files itself" in refused(capsys, "index", model, "--compact")
    assert "holds an index named 'nearkin' already" in refused(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri)
    assert "has an index of its own already" in refused(capsys, "index", tmp_path / "local", pictures, "--backend", "milvus", "--uri", uri)
    with pytest.raises(ValueError, match=r"is in Milvus \(milvus.json\): `nearkin search` asks it"):
        open_index(model)
    assert "60 points of 8" in run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri, "--replace", "--device", "cpu")


def test_shards_are_loaded_and_go_on_by_the_same_command(tmp_path: Path, capsys) -> None:
    model, pictures, uri = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures"), tmp_path / "points.db"
    run(capsys, "embed", model, pictures, "--out", tmp_path / "shards", "--device", "cpu")
    assert "--backend milvus --uri URI loads" in refused(capsys, "index", model, tmp_path / "shards")
    for _ in range(2):
        told = run(capsys, "index", model, tmp_path / "shards", "--backend", "milvus", "--uri", uri, "--device", "cpu")
        assert "60 points of" in told and f"60 points of 8 dimensions in {uri}" in told
    collection = open_remote(model, device="cpu")
    assert collection.index.count == 60 and collection.search(4, 3).exact


def test_what_cannot_be_loaded_leaves_the_index_that_is_there(tmp_path: Path, capsys) -> None:
    model, pictures, uri = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures"), tmp_path / "points.db"
    run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri, "--device", "cpu")
    run(capsys, "embed", model, pictures, "--out", tmp_path / "lost", "--shard-rows", 20, "--device", "cpu")
    (tmp_path / "lost" / "shard-00001.parquet").unlink()
    run(capsys, "embed", make_model(tmp_path / "other", seed=1), pictures, "--out", tmp_path / "others", "--device", "cpu")
    for what, where, told in (
        ("lost", uri, "shard-00001.parquet is missing; run the same"),
        ("others", uri, "holds vectors of other weights"),
        ("nowhere", uri, "nowhere"),
        ("lost", tmp_path / "new.db", "shard-00001.parquet is missing"),
    ):
        command = "index", model, tmp_path / what, "--backend", "milvus", "--uri", where, "--replace", "--device", "cpu"
        assert told in refused(capsys, *command)
    assert not (tmp_path / "new.db").exists()
    elsewhere = refused(capsys, "index", model, pictures, "--backend", "milvus", "--uri", tmp_path / "new.db", "--device", "cpu")
    assert f"has its index in {uri}, nearkin; add to that, or make one here by --replace" in elsewhere
    assert open_remote(model, device="cpu").index.count == 60
    run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", tmp_path / "new.db", "--replace", "--device", "cpu")
    assert address(model).uri == str(tmp_path / "new.db")  # type: ignore[union-attr]


def test_a_folder_without_such_an_index_is_told(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="has no index in Milvus; `nearkin index .* DATA --backend milvus --uri URI` makes one"):
        open_remote(tmp_path / "model")
