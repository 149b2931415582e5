"""faiss behind the index: full answers, right affinities, and never an approximate neighbor shown as exact."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nearkin.index import structure
from nearkin.index.contract import Answer, Entries, Where
from nearkin.index.local import LocalIndex

faiss = pytest.importorskip("faiss")


def clustered(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(50, d))[rng.integers(0, 50, n)] * 3 + rng.normal(size=(n, d))).astype(np.float32)


def made(folder: Path, vectors: np.ndarray, backend: str, metric: str = "squared_euclidean", **known) -> LocalIndex:
    index = LocalIndex.create(folder, model="m", metric=metric, dimension=vectors.shape[1])
    index.add(Entries(vectors, **known))
    index.build(backend)
    return index


def ids(answers: list[Answer]) -> np.ndarray:
    return np.array([[hit.id for hit in answer.hits] for answer in answers])


def recall(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), true.tolist(), strict=True)]))


@pytest.mark.parametrize(("backend", "least"), [("hnsw", 0.99), ("ivf_pq", 0.85)])
@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine"])
def test_most_are_found_and_all_are_marked(backend: str, least: float, metric: str, tmp_path) -> None:
    vectors = clustered(10_000 if backend == "ivf_pq" else 3000, 8)
    index = made(tmp_path / "i", vectors, backend, metric)
    queries = clustered(100, 8, 1)
    approximate = index.search(queries, 10)
    assert index.backend == backend and not any(answer.exact for answer in approximate)
    index.build("exact")
    exact = index.search(queries, 10)
    assert index.backend == "exact" and all(answer.exact for answer in exact)
    assert recall(ids(approximate), ids(exact)) >= least
    right = {hit.id: hit.affinity for hit in exact[0].hits}
    shared = [hit for hit in approximate[0].hits if hit.id in right]
    assert shared and all(hit.affinity == pytest.approx(right[hit.id], rel=1e-4) for hit in shared)


def test_far_from_the_origin_neighbors_stay_right(tmp_path) -> None:
    vectors = clustered(2000, 8) + 1000
    index = made(tmp_path / "i", vectors, "hnsw")
    found = index.search(vectors[:50], 5)
    index.build("exact")
    assert recall(ids(found), ids(index.search(vectors[:50], 5))) >= 0.99


@pytest.mark.parametrize("share", [0.01, 0.1, 0.6, 0.9])
def test_filters_of_every_width_are_filled(share: float, tmp_path) -> None:
    vectors = clustered(3000, 8)
    kept = np.random.default_rng(3).random(3000) < share
    index = made(tmp_path / "i", vectors, "hnsw", labels=["in" if one else "out" for one in kept])
    queries = clustered(40, 8, 1)
    answers = index.search(queries, 10, where=Where(labels=("in",)))
    assert all(len(answer.hits) == 10 and {hit.label for hit in answer.hits} == {"in"} for answer in answers)
    assert all(answer.exact for answer in answers) == (share < 0.5)


def test_a_graph_that_comes_back_short_is_helped_out_exactly(tmp_path, monkeypatch) -> None:
    vectors = clustered(500, 8)
    index = made(tmp_path / "i", vectors, "hnsw")
    monkeypatch.setattr(structure.Structure, "candidates", lambda *given: np.full((len(given[1]), given[2]), -1))
    true = [int(np.argmin(((vectors - one) ** 2).sum(1))) for one in vectors[:3]]
    answers = index.search(vectors[:3], 4)
    assert ids(answers)[:, 0].tolist() == true and all(answer.exact and len(answer.hits) == 4 for answer in answers)
    answers = index.search(vectors[:3], 4, exclude=[0, 1, 2])
    assert all(answer.exact and len(answer.hits) == 4 for answer in answers)
    assert not {0} & set(ids(answers)[0])


def test_points_the_graph_does_not_know_are_found_and_in_time_built_in(tmp_path) -> None:
    vectors = clustered(1200, 8)
    index = made(tmp_path / "i", vectors[:1000], "hnsw")
    first = index._manifest["structure"]
    index.add(Entries(vectors[1000:1050]))
    assert index._manifest["structure"] == first
    assert ids(index.search(vectors[1000:1050], 1))[:, 0].tolist() == list(range(1000, 1050))
    index.add(Entries(vectors[1050:]), rebuild=False)
    assert index._manifest["structure"] == first
    index.rebuild_if_stale()
    assert index._manifest["structure"]["rows"] == 1200
    assert LocalIndex.open(tmp_path / "i").search(vectors[1100:1101], 1)[0].hits[0].id == 1100


def test_compaction_builds_the_graph_again(tmp_path) -> None:
    vectors = clustered(300, 8)
    index = made(tmp_path / "i", vectors, "hnsw")
    index.delete(range(100))
    index.compact()
    index.verify()
    assert index.backend == "hnsw" and index._manifest["structure"]["rows"] == 200
    assert ids(index.search(vectors[150:151], 1)).tolist() == [[150]]


@pytest.mark.parametrize(
    ("backend", "n", "message"),
    [
        ("annoy", 10, "backend 'annoy' is unknown; choose exact, hnsw or ivf_pq"),
        ("ivf_pq", 100, "ivf_pq needs at least 10,000 points to train its codes, and there are 100; use exact or hnsw"),
    ],
)
def test_backends_that_cannot_be_built_are_refused(backend: str, n: int, message: str, tmp_path) -> None:
    with pytest.raises(ValueError, match=message):
        made(tmp_path / "i", clustered(n, 8), backend)
    assert LocalIndex.open(tmp_path / "i").backend == "exact"


def test_an_empty_index_cannot_be_built(tmp_path) -> None:
    index = LocalIndex.create(tmp_path / "i", model="m", metric="cosine", dimension=3)
    with pytest.raises(ValueError, match="hnsw cannot be built on an empty index"):
        index.build("hnsw")


def test_without_faiss_the_extra_is_named(tmp_path, monkeypatch) -> None:
    made(tmp_path / "i", clustered(50, 8), "hnsw")
    monkeypatch.setitem(sys.modules, "faiss", None)
    index = LocalIndex.open(tmp_path / "i")
    with pytest.raises(ImportError, match=r"pip install 'nearkin\[search\]', or use exact"):
        index.search(np.zeros((1, 8)), 1)
    index.build("exact")
    assert index.search(np.zeros((1, 8)), 1)[0].exact


def test_a_package_that_patches_faiss_for_torch_does_no_harm() -> None:
    code = (
        "import faiss, faiss.contrib.torch_utils, numpy as np\n"
        "from nearkin.index.structure import build\n"
        "x = np.random.default_rng(0).normal(size=(300, 8)).astype('float32')\n"
        "assert 5 in build('hnsw', x, np.arange(300), False).candidates(x[5:6], 3, False)[0]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_codes_have_no_structure(tmp_path) -> None:
    index = LocalIndex.create(tmp_path / "i", model="m", metric="hamming", dimension=8)
    index.add(Entries(np.ones((20, 8))))
    with pytest.raises(ValueError, match="backend hnsw needs real vectors, and this index holds binary codes"):
        index.build("hnsw")
