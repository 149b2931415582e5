"""A model folder with its index: search by file, id and vector; adding, replacing, and refusing other weights."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import nearkin
from nearkin import data as sources
from nearkin.data.checksums import write_json
from nearkin.data.sample import sample_of
from nearkin.index import thumbnail
from nearkin.index.collection import build_index, open_index
from nearkin.index.contract import Where
from tests.serve.small_model import SIDE, D, encoded, make_collection, make_model, make_pictures, opened, picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    make_collection(folder)
    return folder


def test_an_image_in_one_line(folder: Path, tmp_path: Path) -> None:
    picture("red", 9999).save(tmp_path / "query.png")
    answer = nearkin.open_index(folder / "model").search(str(tmp_path / "query.png"), 5)
    assert answer.exact and len(answer.hits) == 5 and {hit.label for hit in answer.hits} == {"red"}
    nearest = answer.hits[0]
    assert nearest.source == str((folder / "pictures/red" / Path(nearest.source).name).absolute())
    assert nearest.same_kind is True and nearest.metadata == {"data": "pictures"}


def test_by_id_by_vector_and_by_file_agree(folder: Path) -> None:
    collection = open_index(folder / "model", device="cpu")
    entry = collection.index.entries([7])[0]
    by_file = collection.search(entry.source, 6)
    assert by_file.hits[0].id == 7 and by_file.hits[0].affinity == pytest.approx(0, abs=1e-6)
    by_id = collection.search(7, 5)
    assert [hit.id for hit in by_id.hits] == [hit.id for hit in by_file.hits[1:]]
    row = int(collection.index.snapshot.rows([7])[0])
    by_vector = collection.search(np.array(collection.index.snapshot.vectors[row]), 6)
    assert [hit.id for hit in by_vector.hits] == [hit.id for hit in by_file.hits]
    for same in (torch.from_numpy(collection.index.snapshot.vectors[row].copy()), Image.open(entry.source)):
        assert [hit.id for hit in collection.search(same, 6).hits] == [hit.id for hit in by_file.hits]
    with pytest.raises(ValueError, match=r"query has shape \(2, \d+\); pass one embedding \(d,\), or several to search_vectors"):
        collection.search(np.array(collection.index.snapshot.vectors[:2]), 6)
    assert [a.hits[0].id for a in collection.search_files([entry.source] * 3, 1)] == [7, 7, 7]
    assert {hit.label for hit in collection.search(7, 5, where=Where(labels=("green",))).hits} == {"green"}


def test_an_interrupted_add_resumes(tmp_path: Path) -> None:
    collection = make_collection(tmp_path)
    more = make_pictures(tmp_path / "more", 2, first=500)
    (more / "red/broken.png").write_bytes(encoded(picture("red", 1))[:60])
    data = sources.open(more, size=SIDE, channels=3, on_error="skip")
    said: list[str] = []
    assert collection.add(data, said.append) == (6, 0, 1)
    assert any("broken.png cannot be decoded" in line for line in said)
    assert collection.add(data, said.append) == (0, 6, 1)
    said.clear()
    assert collection.add(opened(tmp_path / "pictures"), said.append) == (0, 60, 0)
    assert said == ["60 of 60 points are already in the index"]
    assert collection.index.count == 66


def test_an_index_is_replaced_only_on_request(tmp_path: Path) -> None:
    make_collection(tmp_path)
    few = opened(make_pictures(tmp_path / "few", 3))
    with pytest.raises(FileExistsError, match="already has an index; add to it \\(--add\\), or rebuild it \\(--replace\\)"):
        build_index(tmp_path / "model", few, device="cpu")
    collection, added = build_index(tmp_path / "model", few, replace=True, backend="hnsw", device="cpu")
    assert added == (9, 0, 0) and collection.index.count == 9 and collection.index.backend == "hnsw"
    assert open_index(tmp_path / "model", device="cpu").search(0, 2).hits[0].label == "blue"


@pytest.mark.parametrize("change", ["weights", "model.json"])
def test_other_weights_are_refused(tmp_path: Path, change: str) -> None:
    make_collection(tmp_path)
    if change == "weights":
        make_model(tmp_path / "model", seed=1)
    else:
        page = tmp_path / "model/model.json"
        write_json(page, json.loads(page.read_text()) | {"prepare": [{"step": "CenterCrop", "size": 8}]})
    with pytest.raises(ValueError, match="was made by another model"):
        open_index(tmp_path / "model")
    build_index(tmp_path / "model", opened(tmp_path / "pictures"), replace=True, device="cpu")
    assert open_index(tmp_path / "model").index.count == 60


def test_a_model_of_vectors_has_no_pictures(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    page = folder / "model.json"
    about = json.loads(page.read_text()) | {"kind": "vectors", "shape": [5]}
    about["network"] |= {"name": "mlp"}
    from nearkin.models.folder import build_network
    from nearkin.train.loop import save

    save(folder, build_network(about), about)
    x = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    targets = {"x": x, "targets": x[:, :2], "split": np.array(["train", "validation"] * 25)}
    collection, added = build_index(folder, sources.open(targets), device="cpu")
    assert added.added == 50 and collection.index.calibration is None
    hit = collection.search(3, 1).hits[0]
    assert (
        hit.label is None
        and hit.metadata["target 0"] == pytest.approx(float(x[hit.id, 0]))
        and hit.metadata["split"] in ("train", "validation")
    )
    assert collection.index.snapshot.thumbnail(0) == b"" and not collection.index.snapshot.has_thumbnail(0)
    with pytest.raises(ValueError, match="reads vectors of 5 numbers, not images; search by id or by vector"):
        collection.image_reading()


def test_the_split_of_training_is_remembered_and_calibrates(tmp_path: Path) -> None:
    collection = make_collection(tmp_path)
    split = {"how": "stratified", "seed": 0, "fractions": {}, "points": 60, "rows": {"train": [0], "validation": list(range(1, 60))}}
    (tmp_path / "model/split.json").write_text(json.dumps(split))
    (tmp_path / "model/run.json").write_text(json.dumps({"data": {"source": str(tmp_path / "pictures")}}))
    collection, _ = build_index(tmp_path / "model", opened(tmp_path / "pictures"), replace=True, device="cpu")
    assert [entry.metadata["split"] for entry in collection.index.entries([0, 1])] == ["train", "validation"]
    rule = collection.index.calibration
    assert rule is not None and rule["fitted_on"] == "validation pairs" and rule["queries"] == 59
    given = {
        "how": "given, with a validation part cut from train",
        "cut": {**split, "points": 40, "rows": {"validation": [0], "train": [1]}},
    }
    (tmp_path / "model/split.json").write_text(json.dumps(given))
    data = opened(tmp_path / "pictures").with_split(["test"] * 20 + ["train"] * 40)
    collection, _ = build_index(tmp_path / "model", data, replace=True, device="cpu")
    assert [entry.metadata["split"] for entry in collection.index.entries([0, 20, 21])] == ["test", "validation", "train"]
    (tmp_path / "model/split.json").write_text('{"how": "nothing is held out", "points": 60}')
    data = opened(tmp_path / "pictures")
    collection, _ = build_index(tmp_path / "model", data, replace=True, device="cpu")
    assert {entry.metadata["split"] for entry in collection.index.entries(list(range(60)))} == {"train"}
    (tmp_path / "model/split.json").write_text(json.dumps({"how": "nothing is held out", "points": 60, "sample": sample_of(data)}))
    collection, _ = build_index(tmp_path / "model", data, replace=True, device="cpu")
    assert collection.index.entries([7])[0].metadata["split"] == "train"
    (tmp_path / "model/split.json").write_text('{"how": "nothing is held out", "points": 60, "sample": "of other pictures"}')
    said: list[str] = []
    collection, _ = build_index(tmp_path / "model", data, replace=True, device="cpu", report=said.append)
    assert "split" not in collection.index.entries([7])[0].metadata
    assert any("has the name of the data of training, and other points" in line for line in said)
    for name, points in (("others", 60), ("pictures", 61)):  # others, and other ones under the same name
        (tmp_path / "model/split.json").write_text(f'{{"how": "nothing is held out", "points": {points}}}')
        collection, _ = build_index(tmp_path / "model", replace(data, name=name), replace=True, device="cpu")
        assert all("split" not in entry.metadata for entry in collection.index.entries(list(range(60))))


def test_a_thumbnail_is_what_the_network_sees(tmp_path: Path) -> None:
    clear = np.zeros((8, 8, 4), np.uint8)
    clear[:4] = (10, 20, 30, 255)
    Image.fromarray(clear).save(tmp_path / "clear.png")
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(tmp_path / "deep.png")
    clear_one, deep = (
        np.array(Image.open(io.BytesIO(thumbnail.of_file(str(tmp_path / name)))).convert("RGB")) for name in ("clear.png", "deep.png")
    )
    assert clear_one[0, 0].tolist() == [10, 20, 30] and clear_one[-1, -1].tolist() == [255, 255, 255], "on white"
    assert np.abs(deep.astype(int) - 40_000 // 257).max() <= 1


def test_embeddings_are_the_models(folder: Path) -> None:
    collection = open_index(folder / "model", device="cpu")
    data = opened(folder / "pictures")
    true = collection.model.encode(data.read(data.ids))
    assert isinstance(true, torch.Tensor) and true.shape == (60, D)
    assert np.allclose(collection.index.snapshot.vectors, true.numpy(), atol=1e-6)
