"""Geometry: has the embedding collapsed, and are its neighbourhoods pure?"""

from collections.abc import Sequence

from torch import Tensor

from nearkin.affinity import Affinity
from nearkin.evaluate.retrieval import Groups
from nearkin.evaluate.score import DRAWS, Score
from nearkin.points import Points


def collapse(points: Points | Tensor, *, split: str | None = None, draws: int = DRAWS, seed: int = 0) -> dict[str, Score]:
    """effective_rank: how many dimensions (n, d) embeddings use, exp of the entropy of the normalised singular values after centring; 1 to d."""
    raise NotImplementedError


def consistency(
    points: Points,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1,),
    *,
    selected: Tensor | None = None,
    groups: Groups | None = None,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """consistency@k: the share of points all of whose k nearest others are of their class, over `selected` (n,) bool if told."""
    raise NotImplementedError
