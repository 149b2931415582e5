"""Rejection of queries that are like nothing in an index, for every backend: the rule is fitted by searching the index itself."""

from collections.abc import Sequence

import numpy as np

from nearkin.index.contract import Answer, VectorIndex, Where
from nearkin.search.rejection import Rejection, mean_of_finite, neighbors_for, rejection_of

MOST = 2000  # points whose neighbors are searched: the rate is then right to half a point
HELD_OUT = 40  # points of a part below which all points are used
TOGETHER = 512


def fit(index: VectorIndex, seed: int = 0) -> Rejection:
    """The rule of an index: how near its own points are to the others, those of the validation or test part if there are enough."""
    filters = [Where(metadata={"split": name}) for name in ("validation", "test")]
    where = next((one for one in filters if index.page(one, limit=1).total >= HELD_OUT), None)
    total = index.page(where, limit=1).total
    places = np.sort(np.random.default_rng(seed).permutation(total)[:MOST])
    ids = _ids(index, where, places)
    k, parts = neighbors_for(index.count, len(index.labels)), [ids[at : at + TOGETHER] for at in range(0, len(ids), TOGETHER)]
    known = [familiarity(index, index.vectors(part), k, part) for part in parts]
    return rejection_of(np.concatenate([np.empty(0), *known]), k)


def familiarity(index: VectorIndex, vectors: np.ndarray, k: int, exclude: Sequence[int] | None = None) -> np.ndarray:
    """(n,) the mean affinity of each query (n, d) to its k nearest points."""
    found = index.search(vectors, k, exclude=exclude)
    rows = [[hit.affinity for hit in answer.hits] for answer in found]
    return mean_of_finite(np.array([row + [-np.inf] * (k - len(row)) for row in rows]))


def judged(
    answers: Sequence[Answer], index: VectorIndex, rule: Rejection, vectors: np.ndarray, reject: float, exclude: Sequence[int] | None = None
) -> list[Answer]:
    """The answers with their p-values, and whether their queries are rejected."""
    near = familiarity(index, vectors, rule.neighbors, exclude)
    pairs = zip(answers, rule.p_values(near).tolist(), rule.rejects(near, reject).tolist(), strict=True)
    return [answer._replace(p_value=p, rejected=rejected) for answer, p, rejected in pairs]


def _ids(index: VectorIndex, where: Where | None, places: np.ndarray) -> list[int]:
    """The ids of the points in these places of a listing, some at a time."""
    found: list[int] = []
    for start in range(0, int(places.max(initial=-1)) + 1, TOGETHER):
        inside = places[(places >= start) & (places < start + TOGETHER)] - start
        if len(inside):
            entries = index.page(where, start, TOGETHER).entries
            found += [entries[at].id for at in inside.tolist() if at < len(entries)]
    return found
