"""Exact search over shards gives the ids, order and ties of the search over one array."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, InnerProduct, SquaredEuclidean, cosine
from nearkin.compose.points import Points
from nearkin.data.shards import About, Shard, ShardDamagedError, Shards, open_shards, write_manifest, write_shard
from nearkin.data.shards import files as storage
from nearkin.search import nearest
from nearkin.search.exact import merge_scored, round_scored, score_nearest

pytest.importorskip("pyarrow")


def tied(n: int, d: int = 5, seed: int = 0, far: float = 0.0) -> np.ndarray:
    """Few different coordinates, so that many references are equally far, and copies among them."""
    x = np.random.default_rng(seed).integers(-2, 3, (n, d)).astype(np.float32)
    x[n // 2 : n // 2 + n // 8] = x[: n // 8]
    return x + np.float32(far)


def sharded(folder: Path, vectors: np.ndarray, sizes: list[int], ids: np.ndarray | None = None) -> Shards:
    folder.mkdir(parents=True)
    ids = np.arange(len(vectors)) if ids is None else ids
    records, start = [], 0
    for number, size in enumerate(sizes):
        at = slice(start, start + size)
        records.append(write_shard(folder, number, Shard(ids[at], vectors[at], None)))
        start += size
    assert start == len(vectors)
    write_manifest(folder, About("m", vectors.shape[1], "squared_euclidean"), records)
    return open_shards(folder)


AFFINITIES = [SquaredEuclidean(), InnerProduct(0.5), cosine()]


@pytest.mark.parametrize("affinity", AFFINITIES, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("far", [0.0, 1000.0])
@pytest.mark.parametrize("n", [3, 40])
def test_sharded_is_unsharded_to_the_last_id(
    affinity: Affinity, far: float, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "GROUP", 5 * 37)  # row groups of 37 points
    references = tied(600, far=far) + (0.5 if far == 0 else 0)  # no point at the origin, which has no direction
    queries = torch.from_numpy(tied(n, seed=1, far=far) + np.float32(0.5))
    found = sharded(tmp_path / "s", references, [1, 299, 0, 200, 100])
    whole = nearest(queries, torch.from_numpy(references), 90, affinity)
    parts = nearest(queries, found, 90, affinity)
    assert torch.equal(whole.positions, parts.positions) and torch.equal(whole.affinity, parts.affinity)


def test_ids_are_excluded_wherever_they_are(tmp_path: Path) -> None:
    references = tied(300)
    ids = np.random.default_rng(2).permutation(10_000)[:300].astype(np.int64)
    queries = Points(torch.from_numpy(references[:50]), None, torch.from_numpy(ids[:50]))
    found = sharded(tmp_path / "s", references, [100, 100, 100], ids)
    whole = nearest(queries, Points(torch.from_numpy(references), None, torch.from_numpy(ids)), 20, exclude_same_id=True)
    parts = nearest(queries, found, 20, exclude_same_id=True)
    assert torch.equal(whole.positions, parts.positions) and torch.equal(whole.affinity, parts.affinity)


def test_parts_are_merged_by_scores_that_are_not_rounded() -> None:
    """Two distances that differ in float64 alone: rounding before the merge would make them a tie and keep the earlier one."""
    query = torch.tensor([[1e4, 0.0]])
    farther, nearer = torch.tensor([[0.0, 0.02]]), torch.tensor([[0.0, 0.01]])
    whole = nearest(query, torch.cat([farther, nearer]), 1)
    assert whole.positions.tolist() == [[1]] and float(nearest(query, farther, 1).affinity) == float(nearest(query, nearer, 1).affinity)
    a, b = score_nearest(query, farther, 1), score_nearest(query, nearer, 1)
    assert round_scored(merge_scored(a, b, 1)).positions.tolist() == [[1]]


def test_merging_is_associative_and_counts() -> None:
    x, q = torch.from_numpy(tied(120)), torch.from_numpy(tied(9, seed=4))
    parts = [score_nearest(q, some, 15) for some in torch.split(x, [50, 3, 67])]
    left = merge_scored(merge_scored(parts[0], parts[1], 15), parts[2], 15)
    right = merge_scored(parts[0], merge_scored(parts[1], parts[2], 15), 15)
    whole = nearest(q, x, 15)
    for found in (left, right):
        assert found.references == 120 and torch.equal(round_scored(found).positions, whole.positions)


def test_a_part_smaller_than_k() -> None:
    x, q = torch.from_numpy(tied(30)), torch.from_numpy(tied(6, seed=4))
    found = merge_scored(score_nearest(q, x[:2], 25), score_nearest(q, x[2:], 25), 25)
    assert torch.equal(round_scored(found).positions, nearest(q, x, 25).positions)


def _queries(d: int = 5) -> Tensor:
    return torch.zeros(5, d)


def test_errors_of_shards(tmp_path: Path) -> None:
    found = sharded(tmp_path / "s", tied(60), [30, 30])
    with pytest.raises(ValueError, match="queries have 4 dimensions and references 5"):
        nearest(_queries(4), found, 3)
    (tmp_path / "s" / "shard-00001.parquet").unlink()
    with pytest.raises(ShardDamagedError, match="shard-00001.parquet cannot be read"):
        nearest(_queries(), found, 3)
    texts = sharded(tmp_path / "t", tied(60), [60], np.array([f"p{i:02d}" for i in range(60)]))
    assert nearest(_queries(), texts, 3).positions.shape == (5, 3)
    with pytest.raises(ValueError, match="exclude_same_id needs ids on both sides"):
        nearest(Points(_queries(), None, torch.arange(5)), texts, 3, exclude_same_id=True)


MEMORY = """
import resource, sys, torch
from nearkin.search import nearest
from nearkin.data.shards import open_shards

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

torch.set_num_threads(1)
shards, queries = open_shards(sys.argv[1]), torch.zeros(8, 64)
nearest(queries, shards.of([0, 1]), 5)
before = peak()
found = nearest(queries, shards, 5)
print(peak() - before, int(found.positions[0, 0]))
"""


def test_more_shards_take_no_more_memory(tmp_path: Path) -> None:
    """After two shards the search has all the memory it needs: twenty more, 100 MB, are read into the same memory."""
    folder, drawn = tmp_path / "s", np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    folder.mkdir()
    records = []
    for number in range(22):
        vectors = drawn + np.float32(number)
        vectors[-1] = 0 if number == 21 else 9  # the nearest is the last of all
        records.append(write_shard(folder, number, Shard(np.arange(20_000) + 20_000 * number, vectors, None)))
    write_manifest(folder, About("m", 64, "squared_euclidean"), records)
    done = subprocess.run([sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=True)
    grown, nearest_one = done.stdout.split()
    assert float(grown) < 30 and int(nearest_one) == 22 * 20_000 - 1
