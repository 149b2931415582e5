"""The pairs set apart (see `apart.py`), compiled: what torch would gather row by row into memory is read in place."""

import numpy as np

from nearkin.kernels.numba_loops import Array, outer


@outer
def pair_affinities(queries: Array, references: Array, squared: bool, rows: Array, columns: Array, out: Array) -> None:
    """s of each pair, summed in float64."""
    for p in range(rows.size):
        query, reference = queries[rows[p]], references[columns[p]]
        total = 0.0
        for k in range(query.size):
            if squared:
                gap = np.float64(query[k]) - np.float64(reference[k])
                total -= gap * gap
            else:
                total += np.float64(query[k]) * np.float64(reference[k])
        out[p] = total


@outer
def push_pairs(
    queries: Array, references: Array, squared: bool, rows: Array, columns: Array, weights: Array, to_queries: Array, to_references: Array
) -> None:
    """Add the gradient of sum_p weight_p s_p, one pair after the other; an empty `to_references` takes none."""
    for p in range(rows.size):
        query, reference = queries[rows[p]], references[columns[p]]
        forth, back = to_queries[rows[p]], to_references[columns[p]] if len(to_references) else to_references[:0].ravel()
        weight = weights[p]
        for k in range(query.size):
            forth[k] += 2 * weight * (reference[k] - query[k]) if squared else weight * reference[k]
        for k in range(back.size):
            back[k] += 2 * weight * (query[k] - reference[k]) if squared else weight * query[k]
