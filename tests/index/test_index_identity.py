"""The identity of an index is its content: a rebuilt index, or another one in its place, is another index."""

import shutil
from pathlib import Path

import numpy as np

from nearkin.index.collection import Collection
from nearkin.index.contract import Entries, Where
from nearkin.index.local import LocalIndex
from nearkin.serve.limits import Limits
from nearkin.serve.service import Question, Service


def index_of(folder: Path, seed: int, labels: str = "ab") -> LocalIndex:
    """All such indexes have the same generation, file names and number of points."""
    index = LocalIndex.create(folder, model="m", metric="squared_euclidean", dimension=3)
    vectors = np.random.default_rng(seed).normal(size=(40, 3))
    index.add(Entries(vectors, labels=[labels[i % 2] for i in range(40)], sources=[f"s{i}" for i in range(40)]))
    return index


def moved(old: Path, new: Path) -> None:
    shutil.rmtree(old)
    new.rename(old)


def test_the_identity_follows_the_content(tmp_path) -> None:
    one, same, other, named = (
        index_of(tmp_path / name, seed, text) for name, seed, text in zip("1234", (0, 0, 1, 0), ("ab",) * 3 + ("ac",), strict=True)
    )
    assert one.generation == same.generation == other.generation and one.count == other.count
    assert one.identity == same.identity and len({one.identity, other.identity, named.identity}) == 3
    assert LocalIndex.open(tmp_path / "1").identity == one.identity == one.frozen().identity
    before = one.identity
    one.delete([3])
    assert one.identity != before


def test_an_index_moved_into_place_is_read_anew(tmp_path) -> None:
    index_of(tmp_path / "i", 0)
    reader = LocalIndex.open(tmp_path / "i")
    assert reader.snapshot.entry(0).label == "a"
    new = index_of(tmp_path / "new", 1, "xy")
    expected = np.array(new.snapshot.vectors)
    moved(tmp_path / "i", tmp_path / "new")
    assert reader.refresh() and not reader.refresh()
    assert np.array_equal(reader.snapshot.vectors, expected)  # not the old vectors with the new labels
    assert {reader.snapshot.entry(row).label for row in range(40)} == {"x", "y"}


def test_segments_that_stay_are_not_read_again(tmp_path) -> None:
    index = index_of(tmp_path / "i", 0)
    reader = LocalIndex.open(tmp_path / "i")
    first = reader.snapshot.segments[0]
    index.add(Entries(np.ones((1, 3))))
    assert reader.refresh() and reader.snapshot.segments[0] is first and reader.count == 41


def test_a_running_service_never_mixes_two_indexes(tmp_path) -> None:
    """An index with the same generation, number of points and file names is moved into the place of the one that is served."""
    index_of(tmp_path / "i", 0)
    service = Service(Collection(tmp_path, None, LocalIndex.open(tmp_path / "i")), Limits())  # type: ignore[arg-type]
    service.answer(Question(id=3), 2, Where())
    new = index_of(tmp_path / "new", 1, "xy")
    expected = [(hit.id, hit.affinity, hit.label) for hit in new.search(new.vectors([3]), 2, exclude=[3])[0].hits]
    moved(tmp_path / "i", tmp_path / "new")
    assert service.reload() and not service.reload()
    found = service.answer(Question(id=3), 2, Where()).neighbors
    assert [(one["id"], one["affinity"], one["label"]) for one in found] == expected
