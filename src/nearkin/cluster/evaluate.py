"""Are the neighbors right, when the references are shards larger than memory? As in memory, but for what needs all pairs at once.

The nearest few are searched once; rankings of everything are counted while the shards pass by twice more, for as many queries as that
can be waited for.
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

MOST_RANKED = 10**9  # queries x points that are ranked; of more, a sample of the queries
FEWEST = 100  # queries of such a sample: with fewer the intervals say nothing
CUT = (1, 5, 10)  # of precision@k and its like


class Asked(NamedTuple):
    """Queries, and what is known of them."""

    points: Points  # labels: classes (n,) numbered as the shards number theirs, numbers (n, t), or sets (n, C)
    sources: Sequence[str]  # a point of the shards with the query's source is the query itself
    supervision: str
    classes: tuple[str, ...] = ()  # those of the shards first; of sets, those of the queries
    split: str | None = None


class Where(NamedTuple):
    """Who searches."""

    engine: Engine = "local"
    address: str | None = None


def judge(asked: Asked, shards: Shards, affinity: Affinity, where: Where | None = None, report: Report | None = None) -> Measured:
    """Every figure that the nearest few decide; for classes also the rankings of everything, of as many queries as can be waited for."""
    _check(asked, shards)
    where = where or Where()
    measured, supervision = Measured(), shards.about.supervision
    own = torch.from_numpy(shards.places(asked.sources))
    codes = shards.codes() if supervision == "classes" else None
    known = len(shards) if codes is None else int((codes >= 0).sum())
    if known < len(shards):
        measured.notes.append(f"{len(shards) - known:,} points of the shards are of no known class and were passed over.")
    others = known - int(bool((own >= 0).any()))
    ks = ks_up_to(others)
    inform(report, f"searching {len(shards):,} points in {len(shards.records):,} shards")
    best = _nearest(asked, shards, codes, affinity, max(*ks, min(WEIGHTED_K, others)), own, where)
    measured.found = round_scored(best._replace(best=Neighbors(*(part[:, :NEAR] for part in best.best))), affinity)
    if codes is not None:
        _classes(measured, asked, codes, best, affinity, ks)
        _rankings(measured, asked, shards, codes, affinity, own, where, report)
    elif supervision == "numbers":
        by_means(measured, _labels_at(shards, best.best.positions), _labels(asked), ks, asked.split)
    else:
        _sets(measured, asked, shards, best.best.positions[:, 0])
    return measured


def _check(asked: Asked, shards: Shards) -> None:
    theirs = shards.about.supervision
    if theirs == "ids":
        raise ValueError(f"{shards.folder} has no labels to judge neighbors by; embed data that have labels")
    if asked.points.labels is None or asked.supervision == "ids":
        raise ValueError(f"the queries have no labels to be judged by, and {shards.folder} has {theirs}; give DATA with labels")
    if asked.supervision != theirs:
        raise ValueError(f"the queries have {asked.supervision} for labels and {shards.folder} has {theirs}; embed data of the same kind")


def _nearest(asked: Asked, shards: Shards, codes: np.ndarray | None, affinity: Affinity, k: int, own: Tensor, where: Where) -> Scored:
    """The k nearest that have a label, each query's own left out."""
    queries = Points(asked.points.embeddings)
    groups = None
    if codes is not None and bool((codes < 0).any()):
        groups = torch.ones(len(own), dtype=torch.int64), torch.from_numpy((codes < 0).astype(np.int64))
    found = scored_over(queries, shards, k + int(bool((own >= 0).any())), affinity, groups=groups, **where._asdict())
    return found._replace(best=without(found.best, own.to(found.best.positions.device), k))


def without(found: Neighbors, own: Tensor, k: int) -> Neighbors:
    """The k nearest of each query but the one at its `own` position (n,); the others keep their order."""
    order = (found.positions == own[:, None]).to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
    return Neighbors(found.positions.gather(1, order), found.affinity.gather(1, order))


def _classes(measured: Measured, asked: Asked, codes: np.ndarray, best: Scored, affinity: Affinity, ks: list[int]) -> None:
    labels, theirs = _labels(asked), torch.from_numpy(codes)
    near = theirs[best.best.positions.cpu()].long().to(labels.device)  # (n, most)
    few = {k: vote(near[:, :k]) for k in (1, min(10, max(ks)))}
    weights = round_scored(best, with_vote_temperature(affinity)).affinity[:, :WEIGHTED_K]
    predicted = {f"{k}-nn": votes for k, votes in few.items()}
    predicted[f"weighted {weights.shape[1]}-nn"] = weighted_vote(near[:, :WEIGHTED_K], weights)
    measured.scores["prediction from neighbors"] = accuracies(predicted, labels, torch.unique(theirs).to(labels.device), split=asked.split)
    measured.by_k = by_votes(near, labels, ks, asked.split)
    confusions(measured, labels, near[:, :NEAR], len(asked.classes))


def _rankings(
    measured: Measured,
    asked: Asked,
    shards: Shards,
    codes: np.ndarray,
    affinity: Affinity,
    own: Tensor,
    where: Where,
    report: Report | None,
) -> None:
    n, most = len(own), MOST_RANKED // len(shards)
    if most < min(n, FEWEST):
        measured.notes.append(
            f"Figures that rank every point (precision@k to mrr) are left out: {n:,} queries and {len(shards):,} points make more than "
            f"{MOST_RANKED:,} pairs, and fewer than {FEWEST} queries would be left of them."
        )
        return
    rows = torch.arange(n)
    if most < n:
        rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values
        measured.notes.append(f"Figures that rank every point (precision@k to mrr) are of {most:,} of {n:,} queries, drawn at random.")
    inform(report, f"ranking {len(shards):,} points by {len(rows):,} queries")
    some = Ranked(*(part.cpu()[rows] for part in (asked.points.embeddings, _labels(asked), own)))
    ks = tuple(k for k in CUT if k < len(shards))
    found = retrieval_scores(ranked_over(some, shards, codes, affinity, ks, **where._asdict()), ks, split=asked.split)
    measured.scores["retrieval"] = {name: score for name, score in found.items() if name not in AT_ONE}


def _sets(measured: Measured, asked: Asked, shards: Shards, nearest: Tensor) -> None:
    labels = _labels(asked).cpu()
    names = (*asked.classes, *(name for name in shards.about.classes if name not in asked.classes))
    padded = torch.nn.functional.pad(labels.bool(), (0, len(names) - labels.shape[1]))
    near, drawn = (_members(shards, rows, names) for rows in (nearest.cpu(), random_rows(len(shards), len(labels))))
    by_overlap(measured, padded, near, drawn, asked.split)


def _members(shards: Shards, rows: Tensor, names: Sequence[str]) -> Tensor:
    """(n, C) truth values: which of the names are in the sets of the points at these places (n,)."""
    found = shards.labels_at(rows.numpy())
    assert found is not None
    held = [set(text.split(SET_SEPARATOR)) if text else set() for text in found.tolist()]
    return torch.tensor([[name in some for name in names] for some in held])


def _labels_at(shards: Shards, positions: Tensor) -> Tensor:
    found = shards.labels_at(positions.cpu().numpy())
    assert found is not None
    return torch.from_numpy(found).to(positions.device)


def _labels(asked: Asked) -> Tensor:
    assert asked.points.labels is not None
    return asked.points.labels
