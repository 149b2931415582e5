"""The folder of an index: what is on disk is whole, whatever happens to those who write it."""

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from nearkin.compose.metrics import METRICS
from nearkin.index import durable
from nearkin.index import local as index_module
from nearkin.index.contract import Entries, Where
from nearkin.index.durable import IndexDamagedError, writing
from nearkin.index.local import LocalIndex
from tests.faults import faults


def made(folder: Path, n: int = 100, d: int = 4) -> LocalIndex:
    index = LocalIndex.create(folder, model="m1", metric="squared_euclidean", dimension=d)
    index.add(batch(n, d))
    return index


def batch(n: int, d: int = 4, seed: int = 0) -> Entries:
    rng = np.random.default_rng(seed)
    return Entries(
        rng.normal(size=(n, d)),
        labels=[str(i % 3) for i in range(n)],
        sources=[f"s{i}" for i in range(n)],
        metadata=[{"i": i} for i in range(n)],
        thumbnails=[bytes([i % 256]) * (i % 5) for i in range(n)],
    )


def same(a: LocalIndex, b: LocalIndex) -> bool:
    x, y = a.snapshot, b.snapshot
    rows = range(len(x))
    return (
        np.array_equal(x.ids, y.ids)
        and np.array_equal(x.vectors, y.vectors)
        and [x.entry(i) for i in rows] == [y.entry(i) for i in rows]
        and [x.thumbnail(i) for i in rows] == [y.thumbnail(i) for i in rows]
    )


def test_the_metrics_are_those_of_the_model() -> None:
    from nearkin.models import folder as model

    assert model.METRICS == METRICS


def test_what_was_added_is_there_after_reopening(tmp_path) -> None:
    index = made(tmp_path / "i")
    index.delete([3, 4])
    again = LocalIndex.open(tmp_path / "i", model="m1")
    assert same(index, again) and again.count == 98
    assert again.snapshot.thumbnail(int(again.snapshot.rows([9])[0])) == bytes([9]) * 4
    again.verify()


def test_vectors_of_one_segment_are_a_memory_map(tmp_path) -> None:
    index = made(tmp_path / "i")
    base = index.snapshot.vectors
    while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
        base = base.base
    assert type(base).__name__ in ("memmap", "mmap")


def test_another_model_is_refused(tmp_path) -> None:
    made(tmp_path / "i")
    with pytest.raises(ValueError, match="was made by another model .version m1, and this is m2.*--replace"):
        LocalIndex.open(tmp_path / "i", model="m2")


def test_an_index_is_not_made_twice_nor_found_where_there_is_none(tmp_path) -> None:
    made(tmp_path / "i")
    with pytest.raises(FileExistsError, match="already holds an index"):
        made(tmp_path / "i")
    with pytest.raises(FileNotFoundError, match="holds no index; create one with `nearkin index DIR DATA`"):
        LocalIndex.open(tmp_path / "j")
    with pytest.raises(ValueError, match="metric 'taxi' is unknown; choose one of"):
        LocalIndex.create(tmp_path / "j", model="m", metric="taxi", dimension=3)
    with pytest.raises(ValueError, match=r"dimension \(0\) must be a whole number of at least 1"):
        LocalIndex.create(tmp_path / "j", model="m", metric="cosine", dimension=0)


def test_many_small_adds_leave_few_segments(tmp_path) -> None:
    index = LocalIndex.create(tmp_path / "i", model="m", metric="squared_euclidean", dimension=4)
    whole = batch(70)
    for i in range(70):
        rows = slice(i, i + 1)
        index.add(Entries(whole.vectors[rows], whole.labels[rows], whole.sources[rows], whole.metadata[rows], whole.thumbnails[rows]))
    assert len(list((tmp_path / "i").glob("segment-*"))) <= 7
    assert same(index, made(tmp_path / "j", 70))


def test_compaction_keeps_the_living_and_sweeps_the_rest(tmp_path) -> None:
    index = made(tmp_path / "i")
    before = index.snapshot
    index.delete(range(0, 100, 2))
    index.add(batch(3, seed=1))
    rest = LocalIndex.open(tmp_path / "i")
    assert rest.count == 53 and len(rest.snapshot) == 53
    index.compact()
    assert same(index, rest) and index.count == 53
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "i").iterdir()) == ["lock", "manifest.json", "segment"]
    assert len(before) == 100 and before.entry(4).source == "s4" and before.thumbnail(4) == bytes([4]) * 4  # an old reader reads on
    assert rest.refresh() and rest.count == 53
    index.delete(index.snapshot.ids.tolist())
    index.compact()
    assert index.count == 0 and index.search(np.zeros((1, 4)), 3)[0].hits == ()


def test_a_replacement_takes_over_only_when_it_is_whole(tmp_path) -> None:
    index = made(tmp_path / "i")
    reader = LocalIndex.open(tmp_path / "i")
    about = {"model": "m2", "metric": "cosine", "dimension": 3}

    def breaking():
        yield batch(5, 3)
        raise RuntimeError("the disk went away")

    with pytest.raises(RuntimeError):
        index.replace(breaking(), **about)
    assert LocalIndex.open(tmp_path / "i", model="m1").count == 100
    assert index.replace([batch(5, 3), batch(6, 3)], **about) == 11
    assert LocalIndex.open(tmp_path / "i", model="m2").snapshot.ids.tolist() == list(range(11))
    with pytest.raises(ValueError, match="was rebuilt by another model"):
        reader.refresh()
    with pytest.raises(ValueError, match="was rebuilt by another model; open it again$"):
        reader.add(batch(1))


def test_a_full_disk_leaves_the_index_as_it_was(tmp_path) -> None:
    index = made(tmp_path / "i")

    for change in (lambda: index.add(batch(3)), lambda: index.delete([1]), index.compact):
        with faults(at=4, fault="ENOSPC"), pytest.raises(OSError, match="No space left"):
            change()
    again = LocalIndex.open(tmp_path / "i")
    again.verify()
    assert again.count == 100 and len(list((tmp_path / "i").iterdir())) == 3
    assert index.add(batch(3)).tolist() == [100, 101, 102]


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest", "manifest text"])
def test_damage_is_named(tmp_path, damage: str) -> None:
    made(tmp_path / "i")
    segment, manifest = next((tmp_path / "i").glob("segment-*")), tmp_path / "i/manifest.json"
    if damage == "truncate":
        segment.write_bytes(segment.read_bytes()[:-1])
    elif damage == "flip":
        raw = bytearray(segment.read_bytes())
        raw[-1] ^= 1
        segment.write_bytes(bytes(raw))
    elif damage == "remove":
        segment.unlink()
    elif damage == "manifest":
        page = json.loads(manifest.read_text())
        page["body"]["next_id"] = 3
        manifest.write_text(json.dumps(page))
    else:
        manifest.write_text('{"sha')
    with pytest.raises(IndexDamagedError, match="rebuild the index"):  # noqa: PT012
        index = LocalIndex.open(tmp_path / "i")
        index.snapshot  # noqa: B018
        index.verify()


def test_a_format_of_the_future_is_refused(tmp_path, monkeypatch) -> None:
    made(tmp_path / "i")
    monkeypatch.setattr(index_module, "FORMAT", 0)
    with pytest.raises(ValueError, match="has format 1, and this version reads 0"):
        LocalIndex.open(tmp_path / "i")


def test_one_writer_at_a_time(tmp_path) -> None:
    made(tmp_path / "i")
    message = rf"is being written by `.*` .process {os.getpid()} on .*, since 20"
    with writing(tmp_path / "i"), pytest.raises(TimeoutError, match=message), writing(tmp_path / "i", 0.05):
        pass
    with writing(tmp_path / "i", 0.05):
        pass


def test_two_writers_lose_nothing_of_each_other(tmp_path) -> None:
    first = made(tmp_path / "i")
    second = LocalIndex.open(tmp_path / "i")
    assert first.add(batch(5)).tolist() == list(range(100, 105))
    assert second.add(batch(5)).tolist() == list(range(105, 110))
    first.delete([107])
    assert second.refresh() and not second.refresh()
    assert first.count == second.count == 109 and same(first, second)


def test_readers_see_whole_changes_while_others_write(tmp_path) -> None:
    """Every change adds or removes ten points of one kind, and now and then everything is rewritten."""
    index = LocalIndex.create(tmp_path / "i", model="m", metric="squared_euclidean", dimension=2)
    wrong: list[str] = []
    over = threading.Event()

    def read() -> None:
        reader = LocalIndex.open(tmp_path / "i")
        last = 0
        while not over.is_set():
            try:
                reader.refresh()
                now = reader.snapshot
                _, counts = np.unique(now.vectors[:, 0], return_counts=True)
                if (counts != 10).any() or reader.generation < last:
                    wrong.append(f"{counts}")
                for row in range(0, len(now), 10):
                    if now.entry(row).source != f"{now.vectors[row, 0]:g}":
                        wrong.append("another's source")
                last = reader.generation
            except Exception as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(40):
        ids = index.add(Entries(np.full((10, 2), i), sources=[f"{i}"] * 10))
        if i % 3 == 2:
            index.delete(ids)
        if i % 7 == 6:
            index.compact()
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert index.count == 10 * (40 - 13)


def test_metadata_must_be_plain(tmp_path) -> None:
    index = made(tmp_path / "i")
    for value in (object(), float("nan")):
        with pytest.raises(ValueError, match="metadata of 's' cannot be written as JSON"):
            index.add(Entries(np.ones((1, 4)), sources=["s"], metadata=[{"x": value}]))
    assert index.count == 100


def test_codes_take_a_bit_a_dimension_and_filters_exclusion_and_copies_hold(tmp_path) -> None:
    x = np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32)
    index = LocalIndex.create(tmp_path / "i", model="m", metric="hamming", dimension=64)
    index.add(Entries(x, labels=["ab"[i % 2] for i in range(200)]))
    now = index.snapshot
    assert now.segments[0]["vectors"].nbytes == 200 * 8
    assert np.array_equal(now.vectors[5], np.where(x[5] >= 0, 1, -1))
    answer = index.search(x[5:6], 3, where=Where(labels=("b",)), exclude=[5])[0]
    far = [(int(((x[i] >= 0) != (x[5] >= 0)).sum()), i) for i in range(1, 200, 2) if i != 5]
    assert [(hit.id, -hit.affinity) for hit in answer.hits] == [(i, d) for d, i in sorted(far)[:3]] and answer.exact
    assert index.search(x[5:6], 3, where=Where(labels=("a",)), exclude=[5])[0].hits[0].label == "a"
    index.delete([5])
    index.compact()
    assert LocalIndex.open(tmp_path / "i").search(x[5:6], 1)[0].hits[0].affinity < 0


def test_nothing_but_our_own_files_is_ever_removed(tmp_path) -> None:
    """Files of others stay, whatever they are called: only what the index has written itself is removed."""
    index = made(tmp_path / "i")
    others = ["photo.jpg", "segment-00000001-0000.safetensors.bak", "deleted-00000001-0000.safetensors", ".hidden"]
    for name in others:
        (tmp_path / "i" / name).write_text("precious")
    index.add(batch(5))
    index.delete([3])
    index.compact()
    assert all((tmp_path / "i" / name).read_text() == "precious" for name in others)
    assert len(list((tmp_path / "i").glob("segment-*.safetensors"))) == 1  # and ours of older generations are gone
    LocalIndex.open(tmp_path / "i").verify()


def test_a_file_of_others_in_the_way_is_not_overwritten(tmp_path) -> None:
    index = made(tmp_path / "i")
    other = tmp_path / f"i/segment-{index.generation + 1:08d}-0000.safetensors"
    other.write_text("precious")
    with pytest.raises(FileExistsError, match="is in the way of the index, which did not write it; move it elsewhere"):
        index.add(batch(5))
    assert other.read_text() == "precious" and LocalIndex.open(tmp_path / "i").count == 100


def test_a_folder_of_others_is_refused_before_anything_is_written(tmp_path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/photo.jpg").write_text("precious")
    (tmp_path / "i").symlink_to(tmp_path / "disk")
    for place, message in ((tmp_path / "i", "is a symbolic link"), (tmp_path / "disk", "holds 'photo.jpg', which is not part of an index")):
        with pytest.raises((ValueError, FileExistsError), match=message):
            made(place)
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["photo.jpg"]
    (tmp_path / "disk/photo.jpg").unlink()
    index = made(tmp_path / "disk")
    with pytest.raises(ValueError, match="is a symbolic link"):
        LocalIndex.open(tmp_path / "i").add(batch(2))
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "disk/lock").unlink()
    (tmp_path / "disk/lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="lock is a symbolic link; the files of an index must be real files"):
        index.add(batch(2))
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path) -> None:
    index = made(tmp_path / "i")
    half = tmp_path / "i/segment-00000009-0000.safetensors"
    durable.write_arrays(half, {"ids": np.arange(3)})
    assert half.exists()
    index.add(batch(1))
    assert not half.exists()
