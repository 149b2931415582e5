"""Are two points kin? Precision, recall and false alarms of every threshold on the affinity of a pair."""

from nearkin.affinity import Affinity
from nearkin.evaluate.comparison import Groups
from nearkin.evaluate.score import Curve
from nearkin.points import Points


def pr_curve(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    *,
    groups: Groups | None = None,
    split: str | None = None,
) -> Curve:
    """Recall (x) and precision (y) over all pairs of a query and a gallery point; the area is the average precision."""
    raise NotImplementedError


def roc_curve(
    queries: Points,
    gallery: Points | None = None,
    affinity: Affinity | None = None,
    *,
    groups: Groups | None = None,
    split: str | None = None,
) -> Curve:
    """False positive rate (x) and true positive rate (y) over all pairs; the area is the chance that kin are nearer than strangers."""
    raise NotImplementedError
