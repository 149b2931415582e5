"""Exact Hamming search, by counting the bits that differ.

Words of 64 bits are compared by one xor and one bit count. Ties go to the earlier reference.
"""

from importlib.util import find_spec

import numpy as np

from nearkin.search.threads import run_in_threads

TOGETHER = 256  # queries of one task of a thread
_BITS = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


def nearest_codes(queries: np.ndarray, references: np.ndarray, k: int, skip: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Find the k nearest packed codes of every query by Hamming distance, exactly.

    Ties go to the earlier reference.

    Parameters
    ----------
    queries : ndarray (n, w) uint8
        Packed codes, as `pack` makes them.
    references : ndarray (m, w) uint8
        Packed codes of the same width.
    k : int
        How many neighbors; clamped to m.
    skip : ndarray (n,) int, optional
        One position to exclude for each query, -1 for none.

    Returns
    -------
    positions : ndarray (n, k) int64
        Nearest first; -1 where fewer than k references are left.
    distances : ndarray (n, k) int64
        The number of bits that differ; -1 where the position is -1.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.search import nearest_codes, pack
    >>> codes = pack(np.array([[1, 1, 1], [1, 1, -1], [-1, -1, -1]]))
    >>> positions, distances = nearest_codes(codes[:1], codes, k=3)
    >>> positions, distances
    (array([[0, 1, 2]]), array([[0, 1, 3]]))
    """
    n, k = len(queries), min(k, len(references))
    excluded = np.full(n, -1, np.int64) if skip is None else np.asarray(skip, np.int64)
    positions, distances = np.full((n, k), -1, np.int64), np.full((n, k), -1, np.int64)
    if not k:
        return positions, distances
    words, known = _words(queries), _words(references)
    turned = np.ascontiguousarray(known.T) if find_spec("numba") else known

    def work(rows: slice) -> None:
        if find_spec("numba"):
            from nearkin.search.numba_hamming import nearest_rows

            nearest_rows(words[rows], turned, excluded[rows], positions[rows], distances[rows])
        else:
            _nearest_rows(words[rows], known, excluded[rows], positions[rows], distances[rows])

    run_in_threads(work, n, TOGETHER)
    return positions, distances


def _nearest_rows(queries: np.ndarray, references: np.ndarray, skip: np.ndarray, positions: np.ndarray, distances: np.ndarray) -> None:
    """Search without numba, one query at a time."""
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
    """(n, w) bytes as (n, ceil(w / 8)) words of eight bytes, padded with zeros."""
    short = -codes.shape[1] % 8
    padded = np.pad(codes, ((0, 0), (0, short))) if short else codes
    return np.ascontiguousarray(padded).view(np.uint64)
