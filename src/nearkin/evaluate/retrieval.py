"""Retrieval: how high do a query's kin stand in its ranking of the gallery?"""

from collections.abc import Sequence

from torch import Tensor

from nearkin.affinity import Affinity
from nearkin.evaluate.score import DRAWS, Score
from nearkin.points import Points

Groups = Tensor | tuple[Tensor, Tensor]


def retrieval(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    ks: Sequence[int] = (1, 5, 10),
    *,
    groups: Groups | None = None,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """precision@k, recall@k, map@k and consistency@k for each k, r_precision, map, map@r and mrr, in one pass.

    Without a gallery the queries are ranked among themselves. A gallery point with the query's id is the query and is never
    ranked; with `groups`, (n,) or a pair of (n,) and (m,), neither are the points of the query's group. Queries with no
    kin in the gallery are left out and counted. Ties give the expected value over all their orders.
    """
    raise NotImplementedError
