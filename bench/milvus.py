"""milvus-lite measured: `python -m bench.milvus [--points N] [--out FILE.json]`.

- What a single query costs, by the number of points, next to the local exact index on the same vectors.
- Whether answers are right: recall@10 of FLAT and of HNSW against the definition, alone, with a filter that lets a tenth pass, and after a
  tenth was deleted.
- How fast points are loaded.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.service import clustered
from nearkin.index.contract import Entries, Where
from nearkin.index.local import LocalIndex
from nearkin.index.milvus import MilvusIndex
from nearkin.search import nearest

K, QUERIES, TENTH = 10, 50, Where(labels=("3",))


def entries(vectors: np.ndarray) -> Entries:
    return Entries(vectors, labels=[str(i % 10) for i in range(len(vectors))])


def recall(index: MilvusIndex, queries: np.ndarray, vectors: np.ndarray, allowed: np.ndarray, where: Where | None) -> float:
    """The share of the true ten nearest among the allowed rows that come back."""
    truth = allowed[nearest(torch.from_numpy(queries), torch.from_numpy(vectors[allowed]), K).positions.numpy()]
    found = [{hit.id for hit in answer.hits} for answer in index.search(queries, K, where=where)]
    return float(np.mean([len(set(t.tolist()) & f) / K for t, f in zip(truth, found, strict=True)]))


def milliseconds(ask: Callable[[np.ndarray], object], queries: np.ndarray) -> float:
    """The median of single queries."""
    took = []
    for query in queries:
        started = time.perf_counter()
        ask(query[None])
        took.append(1000 * (time.perf_counter() - started))
    return statistics.median(took)


def measured(kind: str, n: int, folder: Path) -> dict[str, Any]:
    """One index of n points."""
    vectors, queries = clustered(n, 1), clustered(QUERIES, 2)
    index = MilvusIndex.create(
        str(folder / f"{kind}-{n}.db"), model="m", metric="squared_euclidean", dimension=vectors.shape[1], kind=kind, timeout=120
    )
    started = time.perf_counter()
    for start in range(0, n, 5000):
        index.write(entries(vectors[start : start + 5000]), np.arange(start, min(start + 5000, n)))
    index.settle()
    loaded = time.perf_counter() - started
    rows, filtered = np.arange(n), np.arange(3, n, 10)
    index.search(queries[:1], K)  # loads
    found = {
        "kind": kind,
        "points": n,
        "points_per_second_loaded": n / loaded,
        "query_ms": milliseconds(lambda q: index.search(q, K), queries[:20]),
        "recall": recall(index, queries, vectors, rows, None),
        "recall_filtered": recall(index, queries, vectors, filtered, TENTH),
        "query_filtered_ms": milliseconds(lambda q: index.search(q, K, where=TENTH), queries[:20]),
    }
    index.delete(rows[::10].tolist())
    found["recall_after_deletes"] = recall(index, queries, vectors, rows[rows % 10 != 0], None)
    found["recall_filtered_after_deletes"] = recall(index, queries, vectors, filtered, TENTH)
    index.close()
    return found


def local(n: int, folder: Path) -> float:
    vectors, queries = clustered(n, 1), clustered(QUERIES, 2)
    index = LocalIndex.create(folder / f"local-{n}", model="m", metric="squared_euclidean", dimension=vectors.shape[1])
    index.add(entries(vectors))
    index.search(queries[:1], K)
    return milliseconds(lambda q: index.search(q, K), queries[:20])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        runs = [measured(kind, n, Path(place)) for n in arguments.points for kind in ("FLAT", "HNSW")]
        local_ms = {str(n): local(n, Path(place)) for n in arguments.points}
    found = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "milvus_lite": version("milvus-lite"),
        "dimension": int(clustered(1, 0).shape[1]),
        "queries": QUERIES,
        "runs": runs,
        "local_query_ms": local_ms,
    }
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
