"""Evaluate neighbors whose references are shards larger than memory.

The nearest few are searched in one pass over the shards. Metrics that rank every point need two more passes, and use a sample of the
queries if there are too many.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.cluster.ranking import Ranked, ranked_over
from nearkin.cluster.search import Engine, scored_over
from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points
from nearkin.data.labels import SET_SEPARATOR
from nearkin.data.progress import Report, inform
from nearkin.data.shards import Shards
from nearkin.evaluate import vote, weighted_vote
from nearkin.evaluate.classification import WEIGHTED_K, accuracies, with_vote_temperature
from nearkin.evaluate.retrieval import retrieval_scores
from nearkin.report.measure import AT_ONE, NEAR, Measured, by_means, by_overlap, by_votes, confusions, ks_up_to, random_rows
from nearkin.search import Neighbors
from nearkin.search.exact import Scored, round_scored

MOST_RANKED = 10**9  # queries x points that are ranked; above, a sample of the queries
FEWEST = 100  # queries of such a sample; with fewer the intervals are too wide
CUT = (1, 5, 10)  # k of precision@k and similar metrics


class Queries(NamedTuple):
    """Queries and their labels.

    Parameters
    ----------
    points : Points
        Embeddings and labels: classes (n,) numbered as in the shards, numbers (n, t), or sets (n, C).
    sources : sequence of str
        Their sources. A point of the shards with the same source is the query itself, and is left out.
    supervision : str
        The kind of the labels: "classes", "numbers" or "sets".
    classes : tuple of str, default ()
        Class names: those of the shards first; of sets, those of the queries.
    split : str, optional
        The name of the split of the queries, which is stored with the scores.

    Examples
    --------
    >>> points = Points(torch.tensor([[0.0, 1.0]]), labels=torch.tensor([0]))
    >>> Queries(points, sources=["query.jpg"], supervision="classes", classes=("a", "b")).classes
    ('a', 'b')
    """

    points: Points
    sources: Sequence[str]
    supervision: str
    classes: tuple[str, ...] = ()
    split: str | None = None


class Compute(NamedTuple):
    """Where the work is done.

    Parameters
    ----------
    engine : {"local", "ray"}, default "local"
        In this process, or on a Ray cluster.
    address : str, optional
        The Ray cluster, as host:port or "auto".

    Examples
    --------
    >>> Compute(engine="ray", address="10.0.0.1:6379")
    Compute(engine='ray', address='10.0.0.1:6379')
    """

    engine: Engine = "local"
    address: str | None = None


def judge(queries: Queries, shards: Shards, affinity: Affinity, compute: Compute | None = None, report: Report | None = None) -> Measured:
    """Evaluate the neighbors of queries in a folder of shards.

    Parameters
    ----------
    queries : Queries
        The queries and their labels.
    shards : Shards
        The references, with labels of the same kind.
    affinity : Affinity
        How near two points are.
    compute : Compute, optional
        Where the work is done. By default in this process.
    report : callable, optional
        Receives progress messages.

    Returns
    -------
    Measured
        The metrics of the nearest neighbors; for classes also those that rank every point.

    Raises
    ------
    ValueError
        If labels are missing, or of different kinds.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin import data
    >>> from nearkin.cluster import embed
    >>> from nearkin.compose import SquaredEuclidean
    >>> from nearkin.data.shards import open_shards
    >>> points = np.array([[0, 1], [0.1, 1], [1, 0], [1, 0.1]], np.float32)
    >>> labeled = data.open({"x": points, "y": np.array(["a", "a", "b", "b"])})
    >>> with TemporaryDirectory() as folder:
    ...     written = embed(None, labeled, folder, rows=2)
    ...     shards = open_shards(folder)
    ...     query = Points(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), labels=torch.tensor([0, 1]))
    ...     measured = judge(Queries(query, ["q1", "q2"], "classes", ("a", "b")), shards, SquaredEuclidean())
    >>> measured.scores["prediction from neighbors"]["1-nn"].value
    1.0
    """
    _check(queries, shards)
    compute = compute or Compute()
    measured, supervision = Measured(), shards.about.supervision
    own = torch.from_numpy(shards.places(queries.sources))
    codes = shards.codes() if supervision == "classes" else None
    known = len(shards) if codes is None else int((codes >= 0).sum())
    if known < len(shards):
        measured.notes.append(f"{len(shards) - known:,} points of the shards have no known class and were skipped.")
    others = known - int(bool((own >= 0).any()))
    ks = ks_up_to(others)
    inform(report, f"searching {len(shards):,} points in {len(shards.records):,} shards")
    best = _nearest(queries, shards, codes, affinity, max(*ks, min(WEIGHTED_K, others)), own, compute)
    measured.found = round_scored(best._replace(best=Neighbors(*(part[:, :NEAR] for part in best.best))), affinity)
    if codes is not None:
        _classes(measured, queries, codes, best, affinity, ks)
        _rankings(measured, queries, shards, codes, affinity, own, compute, report)
    elif supervision == "numbers":
        by_means(measured, _labels_at(shards, best.best.positions), _labels(queries), ks, queries.split)
    else:
        _sets(measured, queries, shards, best.best.positions[:, 0])
    return measured


def _check(queries: Queries, shards: Shards) -> None:
    kind = shards.about.supervision
    if kind == "ids":
        raise ValueError(f"{shards.folder} has no labels to evaluate neighbors with; embed data with labels")
    if queries.points.labels is None or queries.supervision == "ids":
        raise ValueError(f"the queries have no labels, and {shards.folder} has {kind}; pass DATA with labels")
    if queries.supervision != kind:
        raise ValueError(f"the queries have {queries.supervision} for labels, and {shards.folder} has {kind}; embed data of the same kind")


def _nearest(
    queries: Queries, shards: Shards, codes: np.ndarray | None, affinity: Affinity, k: int, own: Tensor, compute: Compute
) -> Scored:
    """The k nearest points that have a label, without the query itself."""
    points = Points(queries.points.embeddings)
    groups = None
    if codes is not None and bool((codes < 0).any()):
        groups = torch.ones(len(own), dtype=torch.int64), torch.from_numpy((codes < 0).astype(np.int64))
    found = scored_over(points, shards, k + int(bool((own >= 0).any())), affinity, groups=groups, **compute._asdict())
    return found._replace(best=without(found.best, own.to(found.best.positions.device), k))


def without(found: Neighbors, own: Tensor, k: int) -> Neighbors:
    """The k nearest of each query but the one at its `own` position (n,); the others keep their order."""
    order = (found.positions == own[:, None]).to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
    return Neighbors(found.positions.gather(1, order), found.affinity.gather(1, order))


def _classes(measured: Measured, queries: Queries, codes: np.ndarray, best: Scored, affinity: Affinity, ks: list[int]) -> None:
    labels, references = _labels(queries), torch.from_numpy(codes)
    near = references[best.best.positions.cpu()].long().to(labels.device)  # (n, most)
    few = {k: vote(near[:, :k]) for k in (1, min(10, max(ks)))}
    weights = round_scored(best, with_vote_temperature(affinity)).affinity[:, :WEIGHTED_K]
    predicted = {f"{k}-nn": votes for k, votes in few.items()}
    predicted[f"weighted {weights.shape[1]}-nn"] = weighted_vote(near[:, :WEIGHTED_K], weights)
    present = torch.unique(references).to(labels.device)
    measured.scores["prediction from neighbors"] = accuracies(predicted, labels, present, split=queries.split)
    measured.by_k = by_votes(near, labels, ks, queries.split)
    confusions(measured, labels, near[:, :NEAR], len(queries.classes))


def _rankings(
    measured: Measured,
    queries: Queries,
    shards: Shards,
    codes: np.ndarray,
    affinity: Affinity,
    own: Tensor,
    compute: Compute,
    report: Report | None,
) -> None:
    n, most = len(own), MOST_RANKED // len(shards)
    if most < min(n, FEWEST):
        measured.notes.append(
            f"Metrics that rank every point (precision@k to mrr) were skipped: {n:,} queries and {len(shards):,} points make more than "
            f"{MOST_RANKED:,} pairs, and a sample would have fewer than {FEWEST} queries."
        )
        return
    rows = torch.arange(n)
    if most < n:
        rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values
        measured.notes.append(f"Metrics that rank every point (precision@k to mrr) are of {most:,} of {n:,} queries, sampled at random.")
    inform(report, f"ranking {len(shards):,} points by {len(rows):,} queries")
    some = Ranked(*(part.cpu()[rows] for part in (queries.points.embeddings, _labels(queries), own)))
    ks = tuple(k for k in CUT if k < len(shards))
    found = retrieval_scores(ranked_over(some, shards, codes, affinity, ks, **compute._asdict()), ks, split=queries.split)
    measured.scores["retrieval"] = {name: score for name, score in found.items() if name not in AT_ONE}


def _sets(measured: Measured, queries: Queries, shards: Shards, nearest: Tensor) -> None:
    labels = _labels(queries).cpu()
    names = (*queries.classes, *(name for name in shards.about.classes if name not in queries.classes))
    padded = torch.nn.functional.pad(labels.bool(), (0, len(names) - labels.shape[1]))
    near, drawn = (_members(shards, rows, names) for rows in (nearest.cpu(), random_rows(len(shards), len(labels))))
    by_overlap(measured, padded, near, drawn, queries.split)


def _members(shards: Shards, rows: Tensor, names: Sequence[str]) -> Tensor:
    """(n, C) whether each name is in the set of the point at each position (n,)."""
    found = shards.labels_at(rows.numpy())
    assert found is not None
    held = [set(text.split(SET_SEPARATOR)) if text else set() for text in found.tolist()]
    return torch.tensor([[name in some for name in names] for some in held])


def _labels_at(shards: Shards, positions: Tensor) -> Tensor:
    found = shards.labels_at(positions.cpu().numpy())
    assert found is not None
    return torch.from_numpy(found).to(positions.device)


def _labels(queries: Queries) -> Tensor:
    assert queries.points.labels is not None
    return queries.points.labels
