"""Single pairs (see `single_pairs.py`), compiled: rows that torch would copy into memory are read in place."""

import numpy as np

from nearkin.kernels.numba_loops import Array, outer


@outer
def pair_affinities(queries: Array, references: Array, squared: bool, rows: Array, columns: Array, out: Array) -> None:
    """Compute s of each pair, summed in float64."""
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
def add_pair_gradients(
    queries: Array, references: Array, squared: bool, rows: Array, columns: Array, weights: Array, to_queries: Array, to_references: Array
) -> None:
    """Add the gradient of sum_p weight_p s_p, one pair after the other; an empty `to_references` is left alone."""
    both = len(to_references) > 0
    for p in range(rows.size):
        query, reference, forth = queries[rows[p]], references[columns[p]], to_queries[rows[p]]
        weight = np.float32(2 * weights[p] if squared else weights[p])
        if squared:
            for k in range(query.size):
                forth[k] += weight * (reference[k] - query[k])
        else:
            for k in range(query.size):
                forth[k] += weight * reference[k]
        if both:
            back = to_references[columns[p]]
            if squared:
                for k in range(query.size):
                    back[k] += weight * (query[k] - reference[k])
            else:
                for k in range(query.size):
                    back[k] += weight * query[k]
