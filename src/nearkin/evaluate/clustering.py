"""Clustering: does k-means on the embedding find the classes?"""

from torch import Tensor

from nearkin.affinity import Affinity
from nearkin.evaluate.score import Score
from nearkin.points import Points


def clustering(
    points: Points,
    affinity: Affinity | None = None,
    *,
    labels: Tensor | None = None,
    clusters: int | None = None,
    restarts: int = 10,
    split: str | None = None,
    seed: int = 0,
) -> dict[str, Score]:
    """nmi (arithmetic average), ami, ari and pairwise_f1 of k-means against the labels, or against `labels` (n,) such as super-categories.

    The value is that of the restart with the least inertia; low and high are the extremes over the restarts.
    As many clusters as there are classes unless told. With a cosine affinity the points are set to length 1 first.
    """
    raise NotImplementedError
