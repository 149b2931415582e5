"""The compiled loop of the Hamming search."""

import numpy as np

from nearkin.search.numba_scan import Array, compiled


@compiled(set())
def nearest_rows(queries: Array, references: Array, skip: Array, positions: Array, distances: Array) -> None:
    """Fill positions and distances (r, k) for queries (r, w) and references (m, w) of 64-bit words."""
    m, words, k = references.shape[0], references.shape[1], positions.shape[1]
    far, most = np.empty(m, np.int32), 64 * words + 1
    for i in range(queries.shape[0]):
        counts = np.zeros(most + 1, np.int64)
        for j in range(m):
            total = np.uint64(0)
            for w in range(words):
                x = queries[i, w] ^ references[j, w]
                x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
                x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
                x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
                total += (x * np.uint64(0x0101010101010101)) >> np.uint64(56)
            far[j] = np.int32(total)
        if skip[i] >= 0:
            far[skip[i]] = most
        for j in range(m):
            counts[far[j]] += 1
        counts[most] = 0  # who is passed over is nobody's neighbour
        last, seen = 0, 0
        while last < most and seen + counts[last] < k:
            seen += counts[last]
            last += 1
        start = np.int64(0)
        for value in range(last + 1):  # from counts to the place where each distance begins
            here = counts[value]
            counts[value] = start
            start += here
        for j in range(m):
            if far[j] <= last and far[j] < most:
                at = counts[far[j]]
                if at < k:
                    positions[i, at] = j
                    distances[i, at] = far[j]
                    counts[far[j]] = at + 1
