"""Hamming search: exact, by counting the bits that differ.

Words of 64 bits are compared by one xor and one count. Ties go to the earlier reference, as everywhere.
"""

from importlib.util import find_spec

import numpy as np

from nearkin.search.threads import run_in_threads

TOGETHER = 256  # queries a thread takes at once
_BITS = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


def nearest_codes(queries: np.ndarray, references: np.ndarray, k: int, skip: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Positions and Hamming distances (n, k) of the k nearest of `references` (m, w) uint8 to each of `queries` (n, w).

    `skip` (n,) is a position that a query passes over, -1 for none. Where fewer than k are left: -1, and distance -1.
    """
    n, k = len(queries), min(k, len(references))
    passed = np.full(n, -1, np.int64) if skip is None else np.asarray(skip, np.int64)
    positions, distances = np.full((n, k), -1, np.int64), np.full((n, k), -1, np.int64)
    if not k:
        return positions, distances
    asked, known = _words(queries), _words(references)
    turned = np.ascontiguousarray(known.T) if find_spec("numba") else known

    def work(rows: slice) -> None:
        if find_spec("numba"):
            from nearkin.search.numba_hamming import nearest_rows

            nearest_rows(asked[rows], turned, passed[rows], positions[rows], distances[rows])
        else:
            _nearest_rows(asked[rows], known, passed[rows], positions[rows], distances[rows])

    run_in_threads(work, n, TOGETHER)
    return positions, distances


def _nearest_rows(queries: np.ndarray, references: np.ndarray, skip: np.ndarray, positions: np.ndarray, distances: np.ndarray) -> None:
    """The same without numba, a query at a time."""
    k = positions.shape[1]
    for row, query in enumerate(queries):
        different = (query ^ references).view(np.uint8)
        far = _BITS[different].sum(1, dtype=np.int64)
        if skip[row] >= 0:
            far[skip[row]] = np.iinfo(np.int64).max
        near = np.argsort(far, kind="stable")[:k]
        left = far[near] < np.iinfo(np.int64).max
        positions[row, left], distances[row, left] = near[left], far[near][left]


def _words(codes: np.ndarray) -> np.ndarray:
    """(n, w) bytes as (n, ceil(w / 8)) words of eight, filled up with zeros."""
    short = -codes.shape[1] % 8
    padded = np.pad(codes, ((0, 0), (0, short))) if short else codes
    return np.ascontiguousarray(padded).view(np.uint64)
