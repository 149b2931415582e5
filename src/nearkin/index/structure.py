"""Approximate search by faiss (`pip install 'nearkin[search]'`): HNSW graphs and IVF-PQ codes over the points of an index.

A structure only proposes candidates, by id; the index scores them with its own vectors and affinity. It is built on centered vectors
(unit vectors for cosine), since float32 distances lose their digits far from the origin.
"""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

KINDS = ("hnsw", "ivf_pq")
LINKS, BUILD_EFFORT, EFFORT = 32, 200, 64  # of HNSW: edges per point, candidates visited while building and while searching
FEWEST = 10_000  # points needed to train 256 codes per sub-quantizer
PROBED = 1 / 16  # share of the IVF lists that are searched
SPARE = 10  # candidates per neighbor: the distances of IVF-PQ are coarse


class Structure:
    """A faiss index over points with ids."""

    def __init__(self, kind: str, faiss_index: Any, ids: np.ndarray, center: np.ndarray) -> None:
        self.kind, self.faiss_index, self.ids, self.center = kind, faiss_index, ids, center

    def __len__(self) -> int:
        return len(self.ids)

    def candidates(self, queries: np.ndarray, count: int, unit: bool) -> np.ndarray:
        """(n, count) ids that may be near, -1 where faiss found none."""
        count = min(count * (SPARE if self.kind == "ivf_pq" else 1), len(self))
        # Some packages import faiss.contrib.torch_utils, which replaces search by a function without parameters.
        search = getattr(self.faiss_index, "search_numpy", self.faiss_index.search)
        effort = {"params": _faiss().SearchParametersHNSW(efSearch=max(EFFORT, 2 * count))} if self.kind == "hnsw" else {}
        _, found = search(shifted(queries, self.center, unit), count, **effort)
        return np.where(found < 0, -1, self.ids[found.clip(0)])

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are written to disk."""
        return {"ids": self.ids, "center": self.center, "faiss": _faiss().serialize_index(self.faiss_index)}


def build(kind: str, vectors: np.ndarray, ids: np.ndarray, unit: bool) -> Structure:
    """Build a structure over points (n, d)."""
    if kind not in KINDS:
        raise ValueError(f"backend {kind!r} is unknown; choose exact, {' or '.join(KINDS)}")
    builders: Mapping[str, Callable[[np.ndarray], Any]] = {"hnsw": _hnsw, "ivf_pq": _ivf_pq}
    center = np.zeros(vectors.shape[1], np.float32) if unit else vectors.mean(0, dtype=np.float64).astype(np.float32)
    return Structure(kind, builders[kind](shifted(vectors, center, unit)), np.array(ids), center)


def restored(kind: str, arrays: Mapping[str, np.ndarray]) -> Structure:
    """A structure from its stored arrays."""
    return Structure(kind, _faiss().deserialize_index(np.array(arrays["faiss"])), np.array(arrays["ids"]), np.array(arrays["center"]))


def shifted(vectors: np.ndarray, center: np.ndarray, unit: bool) -> np.ndarray:
    """The vectors as they are passed to faiss."""
    if unit:
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(length > 0, length, 1)
    return np.ascontiguousarray(vectors - center, dtype=np.float32)


def _hnsw(vectors: np.ndarray) -> Any:
    graph = _faiss().IndexHNSWFlat(vectors.shape[1], LINKS)
    graph.hnsw.efConstruction = BUILD_EFFORT
    graph.add(vectors)
    return graph


def _ivf_pq(vectors: np.ndarray) -> Any:
    faiss, (n, d) = _faiss(), vectors.shape
    if n < FEWEST:
        raise ValueError(f"backend ivf_pq needs at least {FEWEST:,} points to train its codes, and there are {n:,}; use exact or hnsw")
    lists = round(math.sqrt(n))
    parts = max(m for m in range(1, max(d // 4, 1) + 1) if d % m == 0)  # one byte for at least four numbers
    codes = faiss.index_factory(d, f"IVF{lists},PQ{parts}x8np")  # np: skips ordering the codes, which takes minutes
    codes.train(vectors)
    codes.add(vectors)
    codes.nprobe = max(1, math.ceil(lists * PROBED))
    return codes


def _faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError as error:
        raise ImportError(
            "approximate search needs faiss, which is not installed; run pip install 'nearkin[search]', or use exact"
        ) from error
