"""Smaller vectors: an index can store them as int8 or as bits instead of float32.

    int8     (x - center) / scale, rounded, with one scale for each row: a quarter of the bytes
    binary   the signs of x - center, and their mean size for each row: about a thirty-second

Searches compare the query, in float32, with the decoded vectors. With bits, candidates are found by the differing bits first, and then
scored again in this way. `center` is the mean of the vectors when the store was chosen; it is kept in the manifest.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearkin.search.packing import pack, unpack

STORES = ("float32", "int8", "binary")
LARGEST = 127  # of int8


class Store(NamedTuple):
    """How vectors are stored: int8 or binary, around a center (d,)."""

    kind: str
    center: np.ndarray  # (d,) float32

    def encoded(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of a segment for vectors (n, d) float32."""
        centered = np.asarray(vectors, dtype=np.float32) - self.center
        if self.kind == "binary":
            return {"vectors": pack(centered), "scales": np.abs(centered).mean(1).astype(np.float32)}
        scales = (np.abs(centered).max(1) / LARGEST).astype(np.float32)
        codes = np.round(centered / np.where(scales > 0, scales, 1)[:, None]).clip(-LARGEST, LARGEST)
        return {"vectors": codes.astype(np.int8), "scales": scales}

    def decoded(self, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Vectors (n, d) float32 from their codes."""
        numbers = unpack(codes, len(self.center)) if self.kind == "binary" else codes.astype(np.float32)
        return np.asarray(numbers * scales[:, None] + self.center, dtype=np.float32)

    def empty(self) -> np.ndarray:
        """No codes, in their shape and type."""
        width = (len(self.center) + 7) // 8 if self.kind == "binary" else len(self.center)
        return np.empty((0, width), np.uint8 if self.kind == "binary" else np.int8)


class StoredRows:
    """Stored vectors that can be indexed like an array (n, d) of float32: only the selected rows are decoded."""

    def __init__(self, store: Store, codes: np.ndarray, scales: np.ndarray) -> None:
        self.store, self.codes, self.scales = store, codes, scales

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.codes), len(self.store.center)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: int | slice | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            return self.store.decoded(self.codes[rows], self.scales[rows])
        at = np.asarray(rows)
        found = self.store.decoded(self.codes[at.reshape(-1)], self.scales[at.reshape(-1)])
        return found.reshape(*at.shape, -1)


def store_of(manifest: Mapping[str, Any]) -> Store | None:
    """The store that a manifest names; None for float32."""
    kept = manifest.get("store")
    return None if kept is None else Store(kept["kind"], np.asarray(kept["center"], dtype=np.float32))
