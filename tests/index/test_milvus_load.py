"""Shards into Milvus: in bulk, on from where it stopped, and refused where they do not belong; loaders that are killed lose nothing."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("pymilvus") is None:
    pytest.skip("needs nearkin[milvus]", allow_module_level=True)

from nearkin.data.shards import About, Shard, open_shards, write_manifest, write_shard
from nearkin.index import milvus_load
from nearkin.index.contract import Entries, Where
from nearkin.index.milvus import MilvusIndex
from nearkin.index.milvus_load import load_shards

LOADER = Path(__file__).with_name("milvus_loader.py")
D = 4


def shards(folder: Path, *ids: object, model: str = "m", d: int = D, supervision: str = "classes", metric: str = "squared_euclidean"):
    folder.mkdir()
    rng, records = np.random.default_rng(len(ids)), []
    for number, some in enumerate(ids):
        n = len(some)  # type: ignore[arg-type]
        labels = np.array(["a"] * n, dtype=object) if supervision == "classes" else np.full((n, 2), 1.5, np.float32)
        sources = np.array([f"{number}/{i}" for i in some], dtype=object)  # type: ignore[attr-defined]
        records.append(write_shard(folder, number, Shard(np.asarray(some), rng.normal(size=(n, d)).astype(np.float32), labels, sources)))
    write_manifest(folder, About(model, d, metric, supervision, ("a",)), records)
    return open_shards(folder)


def empty(folder: Path, **options: object) -> MilvusIndex:
    return MilvusIndex.create(str(folder / "i.db"), **{"model": "m", "metric": "squared_euclidean", "dimension": D, **options})


def test_shards_are_loaded_once_and_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(milvus_load, "BATCH", 4)
    given, index = shards(tmp_path / "s", range(10), range(10, 15)), empty(tmp_path)
    assert [step.points for step in load_shards(index, given)] == [4, 8, 10, 14, 15, 15]
    assert index.count == 15 and index.entries([12])[0] == (12, "a", "1/12", {})
    assert np.array_equal(index.vectors(range(10)), given.read(0).vectors)
    assert index.search(given.read(1).vectors[2:3], 1, where=Where(labels=("a",)))[0].hits[0].id == 12
    assert [step.points for step in load_shards(index, given)] == [15]  # nothing is written again
    assert index.add(Entries(np.ones((1, D)))).tolist() == [15]


def test_an_interrupted_load_resumes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(milvus_load, "BATCH", 3)
    monkeypatch.setattr(milvus_load, "LOOKED_UP", 1)  # Milvus tells of so many shards at once
    given, index = shards(tmp_path / "s", range(6), range(6, 12)), empty(tmp_path)
    work = load_shards(index, given)
    assert [next(work).points for _ in range(3)] == [3, 6, 9]
    work.close()
    assert [step.points for step in load_shards(index, given)] == [9, 12, 12] and index.count == 12


def test_texts_for_ids_are_numbered_and_numbers_for_labels_are_kept(tmp_path: Path) -> None:
    index = empty(tmp_path)
    list(load_shards(index, shards(tmp_path / "s", ["x", "y"], ["z"], supervision="numbers")))
    assert index.entries([2])[0] == (2, None, "1/z", {"numbers": [1.5, 1.5], "id": "z"})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"model": "other"}, "holds vectors of other weights"),
        ({"d": 5}, "holds vectors of 5 dimensions, and this index holds 4"),
        ({"metric": "cosine"}, "uses the metric cosine, and this index squared_euclidean"),
    ],
)
def test_vectors_of_another_kind_are_refused(tmp_path: Path, made: dict[str, object], message: str) -> None:
    index = empty(tmp_path)
    with pytest.raises(ValueError, match=message):
        list(load_shards(index, shards(tmp_path / "s", range(3), **made)))  # type: ignore[arg-type]
    assert index.count == 0


def test_two_shards_with_the_same_ids_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shard-00000.parquet and shard-00001.parquet both hold the id 2"):
        shards(tmp_path / "s", range(3), range(2, 5))


@pytest.mark.parametrize("theirs", [range(2, 6), [9, 2, 30]])
def test_ids_that_are_there_from_elsewhere_are_not_overwritten(tmp_path: Path, theirs) -> None:
    index = empty(tmp_path)
    list(load_shards(index, shards(tmp_path / "s", range(3))))
    before = index.vectors([2])
    with pytest.raises(ValueError, match="holds the id 2, which is already in the index from elsewhere"):
        list(load_shards(index, shards(tmp_path / "t", [1000], theirs).of([1])))
    assert index.count == 3 and np.array_equal(index.vectors([2]), before)


def test_a_shard_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    index = empty(tmp_path)
    list(load_shards(index, shards(tmp_path / "s", range(3))))
    with pytest.raises(ValueError, match="is not the shard that was loaded under this name"):
        list(load_shards(index, shards(tmp_path / "t", range(4))))


def killed(folder: Path, kills: int, seed: int) -> str:
    command = [sys.executable, str(LOADER), str(folder), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.soak
def test_a_few_kills_of_a_load(tmp_path: Path) -> None:
    assert killed(tmp_path / "k", 3, 1).startswith("3 kills")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_kills_of_a_load(tmp_path: Path, seed: int) -> None:
    assert killed(tmp_path / "k", 50, seed).startswith("50 kills")
