"""The slopes that docs/scale.md rests on: `python -m bench.scale [--out FILE.json]`. CPU time of one thread, 64 dimensions.

- CPU time of a pair by exact search over numbers and over codes, at two sizes: is it flat?
- Bytes a point of every kind of index, from the files themselves.
- Recall@10 and CPU time of IVF-PQ against the share of lists that is looked into; building time of it a point.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.measure import best_seconds, threads
from bench.service import clustered
from nearkin.data.shards import Shard, write_shard
from nearkin.index import structure
from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex
from nearkin.search import nearest
from nearkin.search.hamming import nearest_codes
from nearkin.search.packing import pack

K, ASKED = 10, 200
SIZES = (25_000, 100_000)
PROBES = (1 / 256, 1 / 64, 1 / 16, 1 / 4)


def pair_nanoseconds(search: Callable[[], object], pairs: int) -> float:
    return 1e9 * best_seconds(search, 3) / pairs


def exact_slopes() -> dict[str, dict[str, float]]:
    queries, found = clustered(ASKED, 2), {"numbers": dict[str, float](), "codes": dict[str, float]()}
    for n in SIZES:
        known = clustered(n, 1)
        q, r, q_code, r_code = torch.from_numpy(queries), torch.from_numpy(known), pack(queries), pack(known)
        found["numbers"][str(n)] = pair_nanoseconds(lambda q=q, r=r: nearest(q, r, K), n * ASKED)
        found["codes"][str(n)] = pair_nanoseconds(lambda q=q_code, r=r_code: nearest_codes(q, r, K), n * ASKED)
    return found


def bytes_a_point() -> dict[str, float]:
    """Of the files of an index, sources of 40 letters and no thumbnails; of the structures beside it; and of shards of the same points."""
    vectors, found = clustered(SIZES[0], 1), {}
    sources = [f"photos/{i:033d}" for i in range(len(vectors))]
    for metric, name in (("squared_euclidean", "numbers"), ("hamming", "codes")):
        with tempfile.TemporaryDirectory() as place:
            index = LocalIndex.create(Path(place) / "i", model="m", metric=metric, dimension=vectors.shape[1])
            index.add(Entries(vectors, labels=["a"] * len(vectors), sources=sources))
            found[name] = sum(path.stat().st_size for path in (Path(place) / "i").glob("segment-*")) / len(vectors)
    with tempfile.TemporaryDirectory() as place:
        labels, texts = np.full(len(vectors), "a", dtype=object), np.array(sources, dtype=object)
        found["shards"] = write_shard(Path(place), 0, Shard(np.arange(len(vectors)), vectors, labels, texts))["bytes"] / len(vectors)
    for kind in ("hnsw", "ivf_pq"):
        made = structure.build(kind, vectors, np.arange(len(vectors)), unit=False)
        found[kind] = sum(array.nbytes for array in made.arrays().values()) / len(vectors)
    return found


def probes() -> dict[str, Any]:
    """Recall@10 of IVF-PQ, its candidates scored again, against the share of lists that is looked into."""
    n = SIZES[-1]
    known, queries = clustered(n, 1), clustered(ASKED, 2)
    started = time.process_time()
    made = structure.build("ivf_pq", known, np.arange(n), unit=False)
    built = (time.process_time() - started) / n
    truth = nearest(torch.from_numpy(queries), torch.from_numpy(known), K).positions.numpy()
    lists, rows = made.faiss_index.nlist, []
    for share in PROBES:
        made.faiss_index.nprobe = max(1, round(lists * share))
        proposed = made.candidates(queries, K, unit=False)
        gaps = ((known[proposed] - queries[:, None]) ** 2).sum(2)
        best = np.take_along_axis(proposed, np.argsort(gaps, 1)[:, :K], 1)
        right = np.mean([len(set(a) & set(b)) / K for a, b in zip(best.tolist(), truth.tolist(), strict=True)])
        seconds = best_seconds(lambda: made.candidates(queries, K, unit=False), 3) / ASKED
        rows.append({"share": made.faiss_index.nprobe / lists, "recall": float(right), "cpu_ms": 1000 * seconds})
    return {"points": n, "lists": lists, "build_cpu_us_a_point": 1e6 * built, "probes": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with threads(1):
        found = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": platform.machine(),
            "dimension": int(clustered(1, 0).shape[1]),
            "ns_a_pair": exact_slopes(),
            "bytes_a_point": bytes_a_point(),
            "ivf_pq": probes(),
        }
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
