"""A model folder whose index is in Milvus: built, searched, extended, reduced, refused and loaded from shards by the command line."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("pymilvus") is None:
    pytest.skip("needs nearkin[milvus]", allow_module_level=True)

import nearkin
from nearkin import cli
from nearkin.index.collection import build_index, open_index
from nearkin.index.contract import Where
from nearkin.index.milvus import MilvusIndex
from nearkin.index.milvus_folder import address
from tests.serve.small_model import make_model, make_pictures, opened, picture


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(one) for one in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(one) for one in arguments]) == 1
    return capsys.readouterr().err


def test_search_in_milvus_returns_the_same_as_in_the_folder(tmp_path: Path, capsys) -> None:
    model, pictures, uri = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures"), tmp_path / "points.db"
    shutil.copytree(model, tmp_path / "local")
    assert "backend milvus needs uri (--uri)" in refused(capsys, "index", model, pictures, "--backend", "milvus")
    assert "--uri x.db needs --backend milvus" in refused(capsys, "index", model, pictures, "--uri", "x.db")
    printed = run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri, "--device", "cpu")
    assert "60 points added" in printed and f"60 points of 8 dimensions in {uri}, nearkin, searched by milvus FLAT" in printed
    assert "likely of the same class from affinity" in printed
    assert address(model) is not None and not (model / "index").exists()
    run(capsys, "index", tmp_path / "local", pictures, "--device", "cpu")
    query = sorted(pictures.rglob("*.png"))[5]
    there, here = (json.loads(run(capsys, "search", folder, query, "-k", 7, "--json")) for folder in (model, tmp_path / "local"))
    assert there[0]["exact"]
    for name in ("source", "label", "same_kind", "metadata"):
        assert [hit[name] for hit in there[0]["neighbors"]] == [hit[name] for hit in here[0]["neighbors"]]
    by_id = json.loads(run(capsys, "search", model, "--id", 3, "-k", 2, "--label", "red", "--json"))[0]["neighbors"]
    assert len(by_id) == 2 and {hit["label"] for hit in by_id} == {"red"} and 3 not in {hit["id"] for hit in by_id}
    assert cli.main(["search", str(model), "--id", "3", "--label", "rde"]) == 0
    assert "no point has the label 'rde'; the labels are blue, green, red" in capsys.readouterr().err
    assert "60 were already in the index" in run(capsys, "index", model, "--add", pictures)
    assert "2 points removed" in run(capsys, "index", model, "--delete", "0,7")
    assert "no point has the id 7; the index holds 58 points; nothing was removed" in refused(capsys, "index", model, "--delete", "7")
    for option in ("--compact", "--check"):
        assert "the index is in Milvus, which maintains its own files" in refused(capsys, "index", model, option)
    assert "already holds an index named 'nearkin'" in refused(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri)
    assert "already has a local index" in refused(capsys, "index", tmp_path / "local", pictures, "--backend", "milvus", "--uri", uri)
    assert "60 points of 8" in run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri, "--replace", "--device", "cpu")


def test_one_collection_class_serves_both(tmp_path: Path) -> None:
    model, pictures = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures")
    built, added = build_index(model, opened(pictures), backend="milvus", uri=str(tmp_path / "points.db"), device="cpu")
    assert added == (60, 0, 0) and isinstance(built.index, MilvusIndex)
    collection = nearkin.open_index(model, device="cpu")
    assert type(collection) is type(built) and collection.index.generation == built.index.generation
    entry = collection.index.entries([7])[0]
    by_file = collection.search(entry.source, 6)
    assert by_file.exact and by_file.hits[0].id == 7 and by_file.hits[0].same_kind is True
    assert [hit.id for hit in collection.search(7, 5).hits] == [hit.id for hit in by_file.hits[1:]]
    assert [hit.id for hit in collection.search(collection.index.vectors([7])[0], 6).hits] == [hit.id for hit in by_file.hits]
    assert {hit.label for hit in collection.search(7, 5, where=Where(labels=("green",))).hits} == {"green"}
    assert collection.index.labels == ("blue", "green", "red") and collection.index.thumbnails([7]) == [b""]
    assert {hit.label for hit in collection.search(picture("red", 9999), 5).hits} == {"red"}
    assert collection.add(opened(pictures)) == (0, 60, 0)
    with pytest.raises(FileExistsError, match="has its index in Milvus; pass backend 'milvus', or remove"):
        build_index(model, opened(pictures), device="cpu")


def test_what_milvus_does_not_support_is_refused(tmp_path: Path) -> None:
    index = MilvusIndex.create(str(tmp_path / "i.db"), model="m", metric="cosine", dimension=2)
    for call, message in (
        (lambda: index.compact(), "compact is not available in Milvus"),
        (lambda: index.verify(), "checksums are not available in Milvus"),
        (lambda: index.build("hnsw"), "backend 'hnsw' cannot be built in Milvus .*--milvus-index FLAT"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert index.frozen() is index and index.calibrate() is None


def test_more_labels_than_are_listed_and_pages_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearkin.index import milvus
    from nearkin.index.contract import Entries

    monkeypatch.setattr(milvus, "LABELS", 3)
    monkeypatch.setattr(milvus, "MOST", 20)
    index = MilvusIndex.create(str(tmp_path / "i.db"), model="m", metric="squared_euclidean", dimension=2)
    index.add(Entries(np.eye(2), labels=["b", "a"]))
    assert index.labels == ("a", "b")
    index.add(Entries(np.random.default_rng(0).normal(size=(28, 2)), labels=["c", "d"] * 14))
    assert index.labels == () and index.page(Where(labels=("d",)), 10, 10).total == 14
    with pytest.raises(ValueError, match=r"offset \+ limit \(25\) must be at most 20, which is Milvus's limit; use a filter"):
        index.page(None, 15, 10)


def test_loading_shards_resumes_with_the_same_command(tmp_path: Path, capsys) -> None:
    model, pictures, uri = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures"), tmp_path / "points.db"
    run(capsys, "embed", model, pictures, "--out", tmp_path / "shards", "--device", "cpu")
    assert "--backend milvus --uri URI can load" in refused(capsys, "index", model, tmp_path / "shards")
    for _ in range(2):
        printed = run(capsys, "index", model, tmp_path / "shards", "--backend", "milvus", "--uri", uri, "--device", "cpu")
        assert "60 points of" in printed and f"60 points of 8 dimensions in {uri}" in printed
    collection = open_index(model, device="cpu")
    assert collection.index.count == 60 and collection.search(4, 3).exact


def test_data_that_cannot_be_loaded_leave_the_index_as_it_is(tmp_path: Path, capsys) -> None:
    model, pictures, uri = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures"), tmp_path / "points.db"
    run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", uri, "--device", "cpu")
    run(capsys, "embed", model, pictures, "--out", tmp_path / "lost", "--shard-rows", 20, "--device", "cpu")
    (tmp_path / "lost" / "shard-00001.parquet").unlink()
    run(capsys, "embed", make_model(tmp_path / "other", seed=1), pictures, "--out", tmp_path / "others", "--device", "cpu")
    for what, where, message in (
        ("lost", uri, "shard-00001.parquet is missing"),
        ("others", uri, "of other weights"),
        ("nowhere", uri, "nowhere"),
        ("lost", tmp_path / "new.db", "shard-00001.parquet is missing"),
    ):
        command = "index", model, tmp_path / what, "--backend", "milvus", "--uri", where, "--replace", "--device", "cpu"
        assert message in refused(capsys, *command)
    assert not (tmp_path / "new.db").exists()
    elsewhere = refused(capsys, "index", model, pictures, "--backend", "milvus", "--uri", tmp_path / "new.db", "--device", "cpu")
    assert f"has its index in {uri}, nearkin; add to that one, or pass --replace" in elsewhere
    assert open_index(model, device="cpu").index.count == 60
    run(capsys, "index", model, pictures, "--backend", "milvus", "--uri", tmp_path / "new.db", "--replace", "--device", "cpu")
    assert address(model).uri == str(tmp_path / "new.db")  # type: ignore[union-attr]
