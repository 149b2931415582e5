"""Shards on disk: what is written is read back, and errors of a folder name the file and the fix."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearkin.data.shards import About, Shard, ShardDamagedError, files, is_sharded, open_shards, write_manifest, write_shard
from tests.faults import faults

pytest.importorskip("pyarrow")


def some(n: int, first: int = 0, d: int = 3, seed: int = 0, **columns: Any) -> Shard:
    vectors = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    labels = np.array(["cat" if i % 2 else None for i in range(n)], dtype=object)
    return Shard(**{"ids": np.arange(first, first + n), "vectors": vectors, "labels": labels, "sources": np.full(n, "a.png"), **columns})


def folder_of(path: Path, *parts: Shard, **about: Any) -> Path:
    path.mkdir(exist_ok=True)
    both = {"model": "m", "dimension": 3, "metric": "cosine", "supervision": "classes", "classes": ("cat",), **about}
    write_manifest(path, About(**both), [write_shard(path, number, part) for number, part in enumerate(parts)])
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    parts = some(5), some(4, 5, seed=1)
    found = open_shards(folder_of(tmp_path, *parts), verify=True)
    assert is_sharded(tmp_path) and len(found) == 9 and found.dimension == 3 and found.starts() == [0, 5, 9]
    for ours, theirs in zip(parts, found, strict=True):
        assert np.array_equal(ours.ids, theirs.ids) and theirs.ids.dtype == np.int64
        assert np.array_equal(ours.vectors, theirs.vectors) and theirs.vectors.dtype == np.float32
        assert theirs.labels is not None and ours.labels is not None and theirs.labels.tolist() == ours.labels.tolist()
    together = found.labels()
    assert together is not None and together.tolist() == [None, "cat"] * 2 + [None] + [None, "cat"] * 2
    assert found.read(1, sources=True).sources.tolist() == ["a.png"] * 4  # type: ignore[union-attr]


def test_row_groups_are_the_shard_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP", 6)  # two rows of three numbers
    whole = some(5)
    found = open_shards(folder_of(tmp_path, whole))
    pieces = list(found.blocks())
    assert [len(piece.ids) for piece in pieces] == [2, 2, 1]
    assert np.array_equal(np.concatenate([piece.vectors for piece in pieces]), whole.vectors)
    assert np.array_equal(found.read(0).vectors, whole.vectors)


def test_text_ids_number_labels_and_no_labels(tmp_path: Path) -> None:
    texts = some(2, ids=np.array(["b", "a"]), labels=np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    back = open_shards(folder_of(tmp_path / "a", texts, supervision="numbers", classes=())).read(0)
    assert back.ids.tolist() == ["b", "a"] and back.labels is not None and back.labels.tolist() == [[1, 2], [3, 4]]
    plain = some(2, labels=None, sources=None)
    found = open_shards(folder_of(tmp_path / "b", plain, supervision="ids", classes=()))
    assert found.read(0).labels is None and found.labels() is None


def test_an_empty_shard_is_skipped(tmp_path: Path) -> None:
    empty = Shard(np.empty(0, np.int64), np.empty((0, 3), np.float32), np.empty(0, object), np.empty(0, object))
    found = open_shards(folder_of(tmp_path, some(2), empty, some(2, 2)))
    assert [len(shard.ids) for shard in found] == [2, 2] and found.starts() == [0, 2, 2, 4]


def _lose(folder: Path) -> None:
    (folder / "shard-00001.parquet").unlink()


def _truncate(folder: Path) -> None:
    path = folder / "shard-00001.parquet"
    path.write_bytes(path.read_bytes()[:-40])


def _scribble(folder: Path) -> None:
    path = folder / "shard-00001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 255
    path.write_bytes(bytes(content))


def _tear_the_manifest(folder: Path) -> None:
    page = folder / "shards.json"
    page.write_text(page.read_text()[:-20])


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (_lose, "shard-00001.parquet is missing; run the same `nearkin embed` again"),
        (_truncate, "shard-00001.parquet has .* bytes, and shards.json says .*; run the same"),
        (_scribble, "shard-00001.parquet does not match its checksum; remove it and run the same"),
        (_tear_the_manifest, "shards.json is damaged: it does not match its own checksum"),
    ],
)
def test_damaged_shards_are_named(tmp_path: Path, damage: Callable[[Path], None], match: str) -> None:
    folder = folder_of(tmp_path, some(50), some(50, 50))
    damage(folder)
    with pytest.raises(ShardDamagedError, match=match):
        open_shards(folder, verify=True)


def test_a_shard_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, some(5))
    size = (folder / "shard-00000.parquet").stat().st_size
    (folder / "shard-00000.parquet").write_bytes(b"x" * size)
    with pytest.raises(ShardDamagedError, match="shard-00000.parquet cannot be read .*; remove it"):
        list(open_shards(folder))


def test_the_same_id_in_two_shards_raises(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, some(5), some(5, 9, seed=1), some(5, 3, seed=2))
    with pytest.raises(ValueError, match="shard-00000.parquet and shard-00002.parquet both hold the id 3, and 2 ids are there twice"):
        open_shards(folder)
    odd, even = np.arange(1, 9, 2), np.arange(0, 8, 2)  # ranges overlap, ids do not
    assert len(open_shards(folder_of(tmp_path / "a", some(4, ids=odd), some(4, ids=even)))) == 8


def test_ids_of_two_kinds_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="some shards have numbers as ids and others texts"):
        open_shards(folder_of(tmp_path, some(2), some(2, ids=np.array(["x", "y"]))))


def test_another_dimension_raises(tmp_path: Path) -> None:
    with pytest.raises(ShardDamagedError, match="has vectors of 4 dimensions, and shards.json says 3"):
        list(open_shards(folder_of(tmp_path, some(2, d=4))))


def test_vectors_of_another_model_raise(tmp_path: Path) -> None:
    found = open_shards(folder_of(tmp_path, some(2)))
    found.check_model("m")
    with pytest.raises(ValueError, match=r"holds vectors of other weights \(model m, this one is other\); embed the data again"):
        found.check_model("other")


def test_an_incomplete_folder_raises_unless_partial(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, some(2), planned=3)
    with pytest.raises(ShardDamagedError, match="is not complete: it has 1 of 3 shards"):
        open_shards(folder)
    assert len(open_shards(folder, partial=True)) == 2


def test_a_folder_without_shards_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no shards: it has no shards.json; `nearkin embed MODEL DATA --out"):
        open_shards(tmp_path)
    with pytest.raises(ShardDamagedError, match="holds no points"):
        open_shards(folder_of(tmp_path))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"vectors": np.zeros((2, 3))}, "vectors are float64"),
        ({"labels": np.array(["a"], dtype=object)}, "labels has 1 entries for 2 ids"),
        ({"vectors": np.full((2, 3), np.nan, np.float32)}, "vectors hold NaN or infinity"),
        ({"ids": np.array([1, 1])}, "ids has duplicates; give every point an id of its own"),
    ],
)
def test_wrong_shards_raise(tmp_path: Path, wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        write_shard(tmp_path, 0, some(2, **wrong))


def test_a_full_disk_keeps_existing_shards(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, some(2))
    message = "no room is left on the disk of .*; free some and run the same .* again"
    with faults(at=2, fault="ENOSPC"), pytest.raises(OSError, match=message):
        write_shard(folder, 1, some(2, 2))
    assert sorted(path.name for path in folder.iterdir()) == ["shard-00000.parquet", "shards.json"]
    assert len(open_shards(folder)) == 2
