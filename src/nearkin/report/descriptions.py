"""What every figure of an evaluation means, and how its number is written in the terminal and in the report."""

import math
import re

from nearkin.evaluate import Score
from nearkin.evaluate.classification import WEIGHTED_TEMPERATURE

DEFINITIONS = (
    (r"1-nn", "share of queries whose nearest reference has their class"),
    (r"(\d+)-nn", "share of queries whose class has the most votes among their {0} nearest references; a tie goes to the nearest"),
    (
        r"weighted (\d+)-nn",
        "share of queries whose class has the largest weighted vote among their {0} nearest references; "
        f"the weight of a vote is exp(cosine / {WEIGHTED_TEMPERATURE}) for models with cosine, exp(affinity) for others; "
        "the tables of Huang et al. (2019) use 0.1",
    ),
    (r"nearest class mean", "share of queries whose nearest class mean, over the references, is that of their own class"),
    (r"soft neighbors", "share of queries whose class has the largest sum of soft-neighbor probabilities, as in NCA"),
    (r"precision@1", "share of queries whose nearest reference is of their class"),
    (r"recall@1", "the same as precision@1"),
    (r"consistency@1", "share of queries whose nearest other query is of their class"),
    (r"precision@(\d+)", "share of a query's {0} nearest references that are of its class, averaged over queries"),
    (r"recall@(\d+)", "share of queries with at least one reference of their class among the {0} nearest"),
    (r"map@r", "average precision cut at R, the number of references of the query's class, and divided by R"),
    (r"map@(\d+)", "average precision cut at {0}, divided by the smaller of R and {0}"),
    (r"map", "average precision over the ranking of all references"),
    (r"r_precision", "precision at R, the number of references of the query's class"),
    (r"mrr", "one over the rank of the first reference of the query's class, averaged"),
    (r"ndcg@(\d+)", "gain of the positives among the {0} nearest, 1 / log2(1 + rank) each, divided by that of a perfect ranking"),
    (r"fnmr@(.*)", "share of pairs of one class that are missed at the threshold at which a share {0} of pairs of two classes is accepted"),
    (r"hub_skewness", "skewness of how often references are among the 10 nearest: large if few references are neighbors of many queries"),
    (r"hubs", "share of references that are neighbors more than twice as often as the average"),
    (r"anti_hubs", "share of references that are neighbors of no query"),
    (r"silhouette", "how much nearer a point is to its own class than to the next one, from -1 to 1"),
    (r"consistency@(\d+)", "share of queries whose {0} nearest references are all of their class"),
    (
        r"nmi",
        "agreement of k-means with the classes: mutual information over the arithmetic mean of both entropies; "
        "grows with the number of classes",
    ),
    (r"ami", "the same, corrected so that a random clustering gets 0"),
    (r"ari", "agreement on pairs of points, corrected so that a random clustering gets 0"),
    (r"pairwise_f1", "F1 of predicting 'same class' from 'same cluster', over pairs of points"),
    (r"effective_rank", "number of dimensions in use: exp of the entropy of the normalized singular values; near 1 means collapse"),
    (r"mae", "mean absolute difference between the mean target of the nearest references and the true one"),
    (r"rmse", "root of the mean squared difference"),
    (r"r2", "share of the targets' variance that is explained; always predicting the mean gets 0"),
    (r"spearman", "rank correlation of predicted and true targets"),
    (r"probe (.*)", "share of queries that softmax regression on the frozen layer {0} classifies right"),
    (r"overlap@1", "labels that a query and its nearest reference share, divided by the labels of either"),
    (r"average_precision", "area under the precision-recall curve over all pairs of a query and a reference"),
    (r"roc_auc", "probability that a pair of one class is nearer than a pair of two classes"),
)
UNKNOWN = "-"
SHARES = re.compile(
    r".*-nn|probe .*|nearest class mean|soft neighbors|(precision|recall|map|consistency|overlap|ndcg|fnmr)@.*|map|r_precision|mrr"
    r"|pairwise_f1|hubs|anti_hubs"
)


def definition(name: str) -> str:
    """What the figure of this name means; empty for unknown names."""
    for pattern, text in DEFINITIONS:
        if found := re.fullmatch(pattern, name):
            return text.format(*found.groups())
    return ""


def is_share(name: str) -> bool:
    """Whether a figure is a share in 0..1, to be written in percent."""
    return SHARES.fullmatch(name) is not None


def number(value: float | None, name: str) -> str:
    """'97.2 %' for shares, '3.142' for others, '-' for unknown values."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{100 * value:.1f} %" if is_share(name) else f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"


def interval(score: Score) -> str:
    """'96.1 to 98.0 %'."""
    if not (math.isfinite(score.low) and math.isfinite(score.high)):
        return UNKNOWN
    low, high = number(score.low, score.name), number(score.high, score.name)
    return f"{low.removesuffix(' %')} to {high}"


def left_out(score: Score) -> str:
    """'3 (no positive in the gallery)', or empty."""
    return "; ".join(f"{count:,} ({reason})" for reason, count in score.left_out.items() if count)
