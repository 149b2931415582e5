"""The compiled loop of the Hamming search: distances of a block are counted without a branch, and few are looked at twice."""

from typing import Any

import numpy as np
from numba.extending import intrinsic

from nearkin.search.numba_scan import Array, compiled

BLOCK = 4096  # references whose words stay in the L1 cache


def _bits_set(_context: Any, word: Any) -> Any:
    """The number of bits set in a word, by one machine instruction."""
    return word(word), lambda _context, builder, _signature, arguments: builder.ctpop(arguments[0])


_ones: Any = intrinsic(_bits_set)


@compiled(set())
def _put(positions: Array, distances: Array, held: int, position: int, distance: int) -> int:
    """Insert one entry into a sorted row, after its equals; the last entry drops out. Return the number of entries."""
    k = positions.size
    at = min(held, k - 1)
    while at > 0 and distances[at - 1] > distance:
        distances[at], positions[at] = distances[at - 1], positions[at - 1]
        at -= 1
    distances[at], positions[at] = distance, position
    return min(held + 1, k)


@compiled(set())
def nearest_rows(queries: Array, references: Array, skip: Array, positions: Array, distances: Array) -> None:
    """Fill positions and distances (r, k) for queries (r, w) and references (w, m) of 64-bit words, transposed for contiguous reads."""
    words, m = references.shape
    rows, k = positions.shape
    held = np.zeros(rows, np.int64)
    bound = np.full(rows, 64 * words + 1, np.int64)  # only smaller distances can still enter
    far, passes = np.empty(BLOCK, np.uint64), np.zeros(BLOCK, np.uint8)
    eights = passes.view(np.uint64)  # eight columns that do not pass are skipped by one comparison
    for left in range(0, m, BLOCK):
        width = min(BLOCK, m - left)
        passes[:] = 0
        for i in range(rows):
            query = queries[i, 0]
            for j in range(width):
                far[j] = _ones(query ^ references[0, left + j])
            for w in range(1, words):
                query = queries[i, w]
                for j in range(width):
                    far[j] += _ones(query ^ references[w, left + j])
            limit = np.uint64(bound[i])
            for j in range(width):
                passes[j] = far[j] < limit
            for eight in range((width + 7) // 8):
                if eights[eight] == 0:
                    continue
                for j in range(8 * eight, min(8 * eight + 8, width)):
                    distance = np.int64(far[j])
                    if distance >= bound[i] or left + j == skip[i]:
                        continue
                    held[i] = _put(positions[i], distances[i], held[i], left + j, distance)
                    if held[i] == k:
                        bound[i] = distances[i, k - 1]
