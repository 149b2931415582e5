"""Are the neighbours right, when the references are shards larger than memory? The figures that the nearest few decide."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.affinity import Affinity
from nearkin.cluster.search import Engine, nearest_over
from nearkin.evaluate import Score, accuracy, regression, vote
from nearkin.points import Points
from nearkin.search import Neighbours
from nearkin.shards import Shards

KS = (1, 2, 5, 10, 20, 50, 100, 200)
REGRESSED = 10  # neighbours whose mean is predicted


class Judged(NamedTuple):
    """The figures, and whom they were read from."""

    scores: dict[str, Score]
    found: Neighbours  # (n, k) positions among all points of the shards, each query's own left out


def judge(
    queries: Points,
    sources: Sequence[str],
    shards: Shards,
    affinity: Affinity,
    *,
    split: str | None = None,
    engine: Engine = "local",
    address: str | None = None,
) -> Judged:
    """k-NN accuracy for classes (numbered as the shards number them), or the errors of 10-NN regression for numbers.

    A point of the shards with the query's source is the query itself, and is not its neighbour.
    """
    if queries.labels is None or shards.about.supervision not in ("classes", "numbers"):
        raise ValueError(f"{shards.folder} has no labels to judge neighbours by: it knows only {shards.about.supervision}")
    own = torch.from_numpy(shards.places(sources))
    most = min(max(KS), len(shards) - int(bool((own >= 0).any())))
    if most < 1:
        raise ValueError(f"{shards.folder} holds the query alone; nobody is left to answer")
    found = nearest_over(queries.embeddings, shards, most + 1, affinity, engine=engine, address=address)
    found = without(found, own.to(found.positions.device), most)
    if shards.about.supervision == "numbers":
        return Judged(_errors(queries.labels, shards, found, split), found)
    theirs = torch.from_numpy(shards.codes()).to(found.positions.device)[found.positions].long()
    ks = [k for k in KS if k <= most] or [most]
    return Judged({f"{k}-nn": accuracy(vote(theirs[:, :k]), queries.labels, name=f"{k}-nn", split=split) for k in ks}, found)


def without(found: Neighbours, own: Tensor, k: int) -> Neighbours:
    """The k nearest of each query but the one at its `own` position (n,); the others keep their order."""
    order = (found.positions == own[:, None]).to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
    return Neighbours(found.positions.gather(1, order), found.affinity.gather(1, order))


def _errors(targets: Tensor, shards: Shards, found: Neighbours, split: str | None) -> dict[str, Score]:
    labels = shards.labels()
    assert labels is not None
    k = min(REGRESSED, found.positions.shape[1])
    predicted = torch.from_numpy(labels).to(found.positions.device)[found.positions[:, :k]].mean(1)
    return regression(predicted, targets.reshape(len(targets), -1), split=split)
