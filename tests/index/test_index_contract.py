"""The contract of an index, over every backend that claims to fulfil it: one line in MAKERS admits another."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearkin.compose.metrics import METRICS
from nearkin.index import structure
from nearkin.index.contract import Answer, Entries, VectorIndex, Where
from nearkin.index.local import LocalIndex
from nearkin.index.milvus import MilvusIndex

D = 6
Maker = Callable[[Path, str, np.ndarray, dict[str, Any]], VectorIndex]


def local(backend: str) -> Maker:
    def make(folder: Path, metric: str, vectors: np.ndarray, known: dict[str, Any]) -> VectorIndex:
        index = LocalIndex.create(folder, model="m1", metric=metric, dimension=vectors.shape[1])
        index.add(Entries(vectors, **known))
        few = backend == "ivf_pq" and len(vectors) < structure.FEWEST
        if metric not in ("hamming", "inner_product") and not few:  # these are always searched exactly
            index.build(backend)
        return index

    return make


def milvus(folder: Path, metric: str, vectors: np.ndarray, known: dict[str, Any]) -> VectorIndex:
    index = MilvusIndex.create(f"{folder}.db", model="m1", metric=metric, dimension=vectors.shape[1])
    index.add(Entries(vectors, **known))
    return index


MAKERS: dict[str, Maker] = {"exact": local("exact"), "hnsw": local("hnsw"), "ivf_pq": local("ivf_pq"), "milvus": milvus}


NEEDS = {"hnsw": ("faiss", "search"), "ivf_pq": ("faiss", "search"), "milvus": ("pymilvus", "milvus")}


def lacking(name: str) -> pytest.MarkDecorator:
    """Skips a backend whose extra is not installed."""
    module, extra = NEEDS.get(name, ("numpy", ""))
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs nearkin[{extra}]")


@pytest.fixture(params=[pytest.param(name, marks=lacking(name)) for name in MAKERS])
def maker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Maker:
    for name, value in (("FEWEST", 256), ("PROBED", 1.0), ("SPARE", 300)):  # IVF-PQ of few points, which proposes all of them
        monkeypatch.setattr(structure, name, value)
    return MAKERS[request.param]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, D)).astype(np.float32) + 3


def spread(metric: str, vectors: np.ndarray) -> np.ndarray:
    """Far from the origin, where float32 has few digits; codes need signs."""
    return vectors - 3 if metric == "hamming" else vectors


KNOWN = {
    "labels": [None if i % 50 == 0 else "abc"[i % 3] for i in range(300)],
    "sources": [f"photos/{i}.jpg" for i in range(300)],
    "metadata": [{"film": i // 100, "split": "test" if i % 10 == 0 else "train"} for i in range(300)],
}


def affinity(metric: str, q: np.ndarray, r: np.ndarray) -> float:
    """The definition, one pair at a time, in float64."""
    q, r = q.astype(np.float64), r.astype(np.float64)
    if metric == "hamming":
        return -float(sum((a >= 0) != (b >= 0) for a, b in zip(q, r, strict=True)))
    if metric == "squared_euclidean":
        return -sum((a - b) ** 2 for a, b in zip(q, r, strict=True))
    product = float(sum(a * b for a, b in zip(q, r, strict=True)))
    return product if metric == "inner_product" else product / float(np.sqrt((q * q).sum() * (r * r).sum()))


def oracle(metric: str, query: np.ndarray, vectors: np.ndarray, k: int, allowed: Sequence[int]) -> list[int]:
    return sorted(allowed, key=lambda i: (-affinity(metric, query, vectors[i]), i))[:k]


def ids(answer: Answer) -> list[int]:
    return [hit.id for hit in answer.hits]


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_neighbors_are_those_of_the_definition_with_all_that_is_known(maker: Maker, metric: str, vectors, tmp_path) -> None:
    vectors = spread(metric, vectors)
    index = maker(tmp_path / "i", metric, vectors, KNOWN)
    assert (index.count, index.dimension, index.metric, index.model) == (300, D, metric, "m1")
    queries = vectors[:20] + 0.1
    for query, answer in zip(queries, index.search(queries, 7), strict=True):
        assert ids(answer) == oracle(metric, query, vectors, 7, range(300))  # so few points, that approximate ones are right too
        for hit in answer.hits:
            assert hit.affinity == pytest.approx(affinity(metric, query, vectors[hit.id]), rel=1e-4, abs=1e-5)
            assert (hit.label, hit.source, hit.metadata) == (KNOWN["labels"][hit.id], KNOWN["sources"][hit.id], KNOWN["metadata"][hit.id])
            assert hit.same_kind is None


FILTERS = {
    "label": (Where(labels=("a",)), lambda i: KNOWN["labels"][i] == "a"),
    "labels": (Where(labels=("a", "c", "never seen")), lambda i: KNOWN["labels"][i] in ("a", "c")),
    "metadata": (Where(metadata={"film": 2}), lambda i: i >= 200),
    "metadata as text": (Where(metadata={"film": "2"}), lambda i: i >= 200),
    "metadata as another number": (Where(metadata={"film": 2.0}), lambda i: i >= 200),
    "two at once": (Where(labels=("b",), metadata={"split": "test"}), lambda i: KNOWN["labels"][i] == "b" and i % 10 == 0),
    "ids": (Where(ids=(3, 5, 299, 12345)), lambda i: i in (3, 5, 299)),
    "most of them": (Where(metadata={"split": "train"}), lambda i: i % 10 != 0),
    "one in a hundred": (Where(ids=tuple(range(0, 300, 100))), lambda i: i % 100 == 0),
}


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_filters_are_filled_and_exact(maker: Maker, name: str, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors, KNOWN)
    where, test = FILTERS[name]
    allowed = [i for i in range(300) if test(i)]
    for query, answer in zip(vectors[:5], index.search(vectors[:5], 10, where=where), strict=True):
        assert ids(answer) == oracle("squared_euclidean", query, vectors, 10, allowed)
        assert answer.exact or len(allowed) > 150  # only a filter that lets most pass may be left to a graph


@pytest.mark.parametrize("where", [Where(labels=("nobody",)), Where(metadata={"nothing": 1}), Where(ids=())])
def test_a_filter_that_no_point_passes_gives_no_hits(maker: Maker, where: Where, vectors, tmp_path) -> None:
    assert maker(tmp_path / "i", "cosine", vectors, KNOWN).search(vectors[:2], 3, where=where) == [Answer((), True)] * 2


def test_more_than_there_are_gives_all_and_never_minus_one(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors[:7], {})
    for answer in index.search(vectors[:3], 50):
        assert sorted(ids(answer)) == list(range(7))
        assert all(np.isfinite(hit.affinity) for hit in answer.hits)


def test_a_point_is_left_out_by_its_id_though_its_copies_stay(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", np.repeat(vectors[:20], 3, axis=0), {})
    assert ids(index.search(vectors[1:2], 3, exclude=[4])[0])[:2] == [3, 5]
    assert 4 in ids(index.search(vectors[1:2], 3, exclude=[12345])[0])


def test_deleted_points_are_gone_and_others_fill_their_place(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors, KNOWN)
    gone = oracle("squared_euclidean", vectors[0], vectors, 40, range(300))
    index.delete(gone)
    assert index.count == 260
    left = [i for i in range(300) if i not in gone]
    assert ids(index.search(vectors[:1], 5)[0]) == oracle("squared_euclidean", vectors[0], vectors, 5, left)
    with pytest.raises(KeyError, match=f"no point has the id {gone[0]}"):
        index.entries([gone[0]])


def test_vectors_come_back(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors, {})
    assert np.array_equal(index.vectors([7, 3]), vectors[[7, 3]])
    with pytest.raises(KeyError, match="no point has the id 300"):
        index.vectors([300])


def test_points_are_listed_and_read_in_one_order(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors, KNOWN)
    assert index.labels == ("a", "b", "c") and index.location and index.backend
    every = index.page(None, 0, 300)
    assert every.total == 300 and [entry.id for entry in every.entries] == list(range(300))
    assert [entry.id for entry in index.page(None, 298, 10).entries] == [298, 299] and index.page(None, 300).entries == []
    some = index.page(Where(labels=("a",), metadata={"split": "test"}), 1, 2)
    right = [i for i in range(300) if KNOWN["labels"][i] == "a" and i % 10 == 0]
    assert some.total == len(right) and [entry.id for entry in some.entries] == right[1:3]
    assert index.page(Where(ids=())) == (0, [])
    stored = index.read_all()
    assert stored.ids.tolist() == list(range(300)) and np.array_equal(stored.vectors, vectors) and stored.entries == every.entries


def test_known_sources_are_found(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors, KNOWN)
    asked = [f"photos/{i}.jpg" for i in range(290, 1500)]
    assert index.known_sources(asked) == {f"photos/{i}.jpg": i for i in range(290, 300)} and index.known_sources([]) == {}
    index.add(Entries(vectors[:1], sources=["photos/295.jpg"]), rebuild=False)
    assert index.known_sources(["photos/295.jpg"]) == {"photos/295.jpg": 295}  # the first that has it


def test_every_change_raises_the_generation_and_others_see_it(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors, KNOWN)
    before, was = index.generation, index.identity
    assert not index.refresh() and index.frozen().generation == before and index.frozen().identity == was
    index.add(Entries(vectors[:3], labels=["new"] * 3), rebuild=False)
    index.rebuild_if_stale()
    added = index.generation
    index.delete([300])
    assert was != index.identity == index.frozen().identity
    assert before < added < index.generation and "new" in index.labels and index.frozen().count == 302


def test_thumbnails_come_back_or_are_empty(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors[:9], {"thumbnails": [b"", *[bytes([i]) for i in range(1, 9)]]})
    kept = [bool(content) for content in index.thumbnails([0, 7])]
    assert kept == index.has_thumbnails([0, 7]) and not kept[0]  # Milvus stores none
    with pytest.raises(KeyError, match="no point has the id 9"):
        index.thumbnails([9])


def test_calibration_marks_hits_as_the_same_kind(maker: Maker, tmp_path) -> None:
    labels = np.arange(300) % 3
    vectors = (10 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(300, 3))).astype(np.float32)
    metadata = [{"split": "validation" if i % 2 else "train"} for i in range(300)]
    index = maker(tmp_path / "i", "squared_euclidean", vectors, {"labels": [f"class {label}" for label in labels], "metadata": metadata})
    assert index.calibration is None
    rule = index.calibrate()
    assert rule is not None and rule == index.calibration and rule["fitted_on"] == "validation pairs" and rule["queries"] == 150
    assert [hit.same_kind for hit in index.search(vectors[:1], 300)[0].hits] == [
        hit.affinity >= rule["threshold"] for hit in index.search(vectors[:1], 300)[0].hits
    ]


def test_deleting_an_unknown_id_removes_nothing(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors, KNOWN)
    with pytest.raises(KeyError, match="no point has the id 999; the index holds 300 points"):
        index.delete([1, 999])
    assert index.count == 300 and index.entries([1])[0].source == "photos/1.jpg"


def test_added_points_are_found_at_once_and_keep_their_ids(maker: Maker, vectors, tmp_path) -> None:
    index = maker(tmp_path / "i", "squared_euclidean", vectors[:200], {})
    assert index.add(Entries(vectors[200:230])).tolist() == list(range(200, 230))
    assert index.add(Entries(vectors[230:], ids=range(1230, 1300))).tolist() == list(range(1230, 1300))
    assert [ids(a)[0] for a in index.search(vectors[[150, 210, 290]], 1)] == [150, 210, 1290]
    assert index.add(Entries(vectors[:1])).tolist() == [1300]
    with pytest.raises(ValueError, match="ids: 1250 is already in the index"):
        index.add(Entries(vectors[:2], ids=[7777, 1250]))
    assert index.count == 301


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i, v: i.search(v[:, :3], 5), r"vectors have shape \(300, 3\); this index holds points of 6 dimensions"),
        (lambda i, v: i.search(v[0], 5), r"vectors have shape \(6,\)"),
        (lambda i, v: i.search(v * np.nan, 5), "vectors hold NaN or infinity"),
        (lambda i, v: i.search(v, 0), r"k \(0\) must be a whole number of at least 1"),
        (lambda i, v: i.search(v, 1.5), r"k \(1.5\) must be a whole number"),
        (lambda i, v: i.search(v, 1, exclude=[1]), "exclude has 1 ids for 300 queries"),
        (lambda i, v: i.add(Entries(v[:, :3])), "vectors have 3 dimensions where this index holds 6"),
    ],
)
def test_wrong_calls_are_refused(maker: Maker, call, message: str, vectors, tmp_path) -> None:
    with pytest.raises(ValueError, match=message):
        call(maker(tmp_path / "i", "squared_euclidean", vectors, {}), vectors)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"vectors": np.ones(3)}, r"vectors have shape \(3,\); pass \(n, d\)"),
        ({"vectors": np.ones((0, 3))}, "at least one row"),
        ({"vectors": [[1, np.inf]]}, "hold NaN or infinity in 1 rows, first in .0"),
        ({"vectors": np.ones((2, 3)), "labels": ["a"]}, "labels has 1 entries for 2 vectors"),
        ({"vectors": np.ones((2, 3)), "ids": [1.5, 2]}, "ids are float64"),
        ({"vectors": np.ones((2, 3)), "ids": [-1, 2]}, "ids contain -1; ids start at 0"),
        ({"vectors": np.ones((2, 3)), "ids": [2, 2]}, "ids contain a number twice"),
    ],
)
def test_wrong_entries_are_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Entries(**entries)


def test_a_filter_takes_whole_labels_and_whole_numbers_are_names(tmp_path: Path) -> None:
    """One name is one name: "at" is no part of "cat"."""
    index = LocalIndex.create(tmp_path / "i", model="m", metric="squared_euclidean", dimension=2)
    index.add(Entries(np.eye(7, 2), labels=["a", "at", "cat", "tomcat", 5, None, float("nan")]))
    asked = np.zeros((1, 2), np.float32)

    def found(where: Where) -> list[str | None]:
        return [hit.label for hit in index.search(asked, 10, where=where)[0].hits]

    assert found(Where(labels="cat")) == ["cat"] and found(Where(labels=["5"])) == found(Where(labels=(np.int64(5),))) == ["5"]  # type: ignore[arg-type]
    assert sorted(hit.label or "" for hit in index.search(asked, np.int64(10))[0].hits) == ["", "", "5", "a", "at", "cat", "tomcat"]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"label 0.5 is a float; pass names, whole numbers, or None where there is none"):
        Entries(np.eye(2), labels=["x", 0.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"labels \(\(None,\)\) contain None"):
        Where(labels=(None,))  # type: ignore[arg-type]


def test_metadata_are_filtered_by_numpy_numbers(tmp_path: Path) -> None:
    index = LocalIndex.create(tmp_path / "i", model="m", metric="squared_euclidean", dimension=2)
    index.add(Entries(np.eye(3, 2), metadata=[{"n": 3}, {"n": 4}, {}]))
    assert [hit.id for hit in index.search(np.zeros((1, 2)), 5, where=Where(metadata={"n": np.int64(4)}))[0].hits] == [1]
    with pytest.raises(TypeError, match=r"is a set; pass text, a number or a truth value"):
        index.search(np.zeros((1, 2)), 5, where=Where(metadata={"n": {1, 2}}))
