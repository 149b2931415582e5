"""Vectors stored as int8 and as bits: their bytes, their neighbors, and every operation of the index on them."""

import numpy as np
import pytest
import torch

import nearkin
from nearkin import Points, retrieval
from nearkin.cli import main
from nearkin.compose.affinity import SquaredEuclidean
from nearkin.index import Entries, LocalIndex
from nearkin.index.store import Store

N, D, CLASSES = 3000, 64, 40


def clusters(n=N, seed=0):
    rng = np.random.default_rng(7)
    centers = rng.normal(size=(CLASSES, D))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n)
    return (centers[labels] + 1.2 * rng.normal(size=(n, D)) + 3).astype(np.float32), labels


def made(folder, metric="squared_euclidean", n=N):
    vectors, labels = clusters(n)
    index = LocalIndex.create(folder, model="v", metric=metric, dimension=D)
    for start in range(0, n, n // 3):
        rows = slice(start, start + n // 3)
        index.add(Entries(vectors[rows], labels=[str(label) for label in labels[rows]]))
    return index


def found(index, queries, k=10):
    return np.array([[hit.id for hit in answer.hits] for answer in index.search(queries, k)])


def recall_at_10(index, queries, labels):
    """The share of queries with a neighbor of their class among ten, and among one."""
    near = np.array([[int(hit.label) for hit in answer.hits] for answer in index.search(queries, 10)])
    return (near == labels[:, None]).any(1).mean()


def test_int8_is_within_a_step_of_each_number():
    vectors, _ = clusters(50)
    store = Store("int8", vectors.mean(0))
    kept = store.encoded(vectors)
    gap = np.abs(store.decoded(kept["vectors"], kept["scales"]) - vectors)
    assert kept["vectors"].dtype == np.int8 and (gap <= kept["scales"][:, None] * 0.501).all()
    zeros = store.encoded(np.repeat(vectors.mean(0)[None], 2, 0))
    assert np.allclose(store.decoded(zeros["vectors"], zeros["scales"]), vectors.mean(0), atol=1e-6)


@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine"])
def test_int8_needs_a_quarter_of_the_bytes_and_finds_nearly_the_same(tmp_path, metric):
    index = made(tmp_path / "i", metric)
    queries, labels = clusters(400, seed=1)
    before, plain, exact = index.vector_bytes, recall_at_10(index, queries, labels), found(index, queries)
    index.set_store("int8")
    again = LocalIndex.open(tmp_path / "i")
    assert again.store == "int8" and again.vector_bytes <= 0.27 * before
    assert abs(recall_at_10(again, queries, labels) - plain) <= 0.005
    now = found(again, queries)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, now, strict=True)]) > 0.97
    assert all(answer.exact for answer in again.search(queries[:3]))


def test_neighbors_of_stored_vectors_are_exactly_those_of_the_decoded_ones(tmp_path):
    index = made(tmp_path / "i", n=300)
    index.set_store("int8")
    vectors, queries = index.read_all().vectors, clusters(5, seed=1)[0]
    distance = ((queries[:, None].astype(np.float64) - vectors[None]) ** 2).sum(2)
    assert (found(index, queries) == np.argsort(distance, axis=1, kind="stable")[:, :10]).all()
    own = index.search(index.vectors([3]), 2, exclude=[3])[0]
    assert 3 not in [hit.id for hit in own.hits]
    assert {hit.label for hit in index.search(queries[:1], 5, where=nearkin.Where(labels="7"))[0].hits} <= {"7"}


def test_bits_are_scored_again_with_the_numbers_of_the_query(tmp_path):
    index = made(tmp_path / "i", "cosine")
    queries, labels = clusters(200, seed=1)
    before, plain = index.vector_bytes, recall_at_10(index, queries, labels)
    index.set_store("binary")
    assert index.vector_bytes <= before / 32 + 4 * N and recall_at_10(index, queries, labels) > plain - 0.05
    answer = index.search(queries[:1], 10)[0]
    assert not answer.exact
    decoded = index.vectors([hit.id for hit in answer.hits])
    cosines = decoded @ queries[0] / (np.linalg.norm(decoded, axis=1) * np.linalg.norm(queries[0]))
    assert np.allclose([hit.affinity for hit in answer.hits], cosines, atol=1e-5) and (np.diff(cosines) <= 1e-6).all()
    signs = Points(torch.from_numpy(index.read_all().vectors))
    assert len(signs.embeddings) == N


def test_points_are_added_deleted_and_compacted_in_a_smaller_store(tmp_path):
    index = made(tmp_path / "i", n=90)
    index.set_store("int8")
    extra, _ = clusters(10, seed=3)
    ids = index.add(Entries(extra, labels=["new"] * 10))
    assert np.abs(index.vectors(ids) - extra).max() < 0.05
    index.delete([0, 1, 2])
    index.compact()
    assert index.count == 97 and index.store == "int8" and index.search(extra[:1], 1)[0].hits[0].id == ids[0]
    index.build("hnsw")
    assert index.search(extra[:1], 1)[0].hits[0].id == ids[0]
    index.verify()
    index.set_store("float32")
    assert index.store == "float32" and np.abs(index.vectors(ids) - extra).max() < 0.05
    index.replace([Entries(extra)], model="v", metric="cosine", dimension=D)
    assert index.store == "float32" and index.count == 10


def test_what_cannot_be_stored_smaller_is_refused(tmp_path):
    empty = LocalIndex.create(tmp_path / "e", model="v", metric="cosine", dimension=2)
    with pytest.raises(ValueError, match="this one is empty; add points first"):
        empty.set_store("int8")
    with pytest.raises(ValueError, match="store"):
        empty.set_store("int4")
    bits = LocalIndex.create(tmp_path / "b", model="v", metric="hamming", dimension=2)
    with pytest.raises(ValueError, match="stores bits already"):
        bits.set_store("int8")


def test_the_command_line_chooses_the_store(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors, labels = clusters(200)
    np.savez("v.npz", x=vectors, y=labels)
    assert main(["index", "v.npz", "--store", "int8"]) == 0
    assert "vectors stored as int8: 0.0 MB, before 0.1 MB" in capsys.readouterr().out
    assert main(["search", "v.npz", "--id", "3", "-k", "2"]) == 0
    data = nearkin.open_index("v.nearkin")
    assert retrieval(Points(torch.from_numpy(data.index.read_all().vectors), torch.from_numpy(labels)), None, SquaredEuclidean(), draws=0)


def test_any_number_of_points_and_dimensions(tmp_path):
    """Bytes before numbers in a file: none of the numbers may be misread where they are not aligned."""
    for store in ("int8", "binary"):
        index = LocalIndex.create(tmp_path / store, model="v", metric="squared_euclidean", dimension=7)
        vectors = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
        index.add(Entries(vectors, labels=["a", None, "b", "a", "a"], ids=[3, 10**12, 7, 9, 11]))
        index.set_store(store)
        again = LocalIndex.open(tmp_path / store)
        assert again.search(vectors[:1], 5)[0].hits[0].id == 3
        assert 10**12 not in [hit.id for hit in again.search(vectors[1:2], 5, exclude=[10**12])[0].hits]
        assert again.entries([7])[0].label == "b"
