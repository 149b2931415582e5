"""What every figure of an evaluation means, in words: they stand beside the numbers in the terminal and in the report."""

import math
import re

from nearkin.evaluate import Score

DEFINITIONS = (
    (r"1-nn", "share of queries whose nearest reference has their class"),
    (r"(\d+)-nn", "share of queries whose class has the most votes among their {0} nearest references; a tie goes to the nearest"),
    (
        r"weighted (\d+)-nn",
        "the same with {0} votes, each weighing exp(affinity / temperature); for a cosine the temperature is 0.07 "
        "(the tables of Huang et al., 2019, use 0.1)",
    ),
    (r"nearest class mean", "share of queries that lie nearest to the mean of their own class's references"),
    (r"soft neighbors", "share of queries whose class has the largest summed soft-neighbor probability, as NCA chooses"),
    (r"precision@1", "share of queries whose nearest is of their class"),
    (r"recall@1", "the same: one of their class among the nearest one"),
    (r"consistency@1", "share of points whose nearest is of their class"),
    (r"precision@(\d+)", "share of a query's {0} nearest that are of its class, averaged over queries"),
    (r"recall@(\d+)", "share of queries with at least one of their class among the {0} nearest"),
    (r"map@r", "average precision cut at R, the number of kin a query has, divided by R"),
    (r"map@(\d+)", "average precision cut at {0}, divided by the smaller of R and {0}"),
    (r"map", "average precision over the whole ranking of the gallery"),
    (r"r_precision", "precision at R, the number of kin a query has"),
    (r"mrr", "one over the rank of the first of its class, averaged"),
    (r"consistency@(\d+)", "share of points all of whose {0} nearest are of their class"),
    (
        r"nmi",
        "agreement of k-means with the classes: mutual information over the arithmetic mean of both entropies; grows with the classes",
    ),
    (r"ami", "the same, corrected so that a random clustering gets 0"),
    (r"ari", "agreement on pairs of points, corrected so that a random clustering gets 0"),
    (r"pairwise_f1", "F1 of 'in one cluster' as a sign of 'of one class', over pairs of points"),
    (r"effective_rank", "how many dimensions are in use: exp of the entropy of the normalized singular values; near 1 means collapse"),
    (r"mae", "mean absolute difference between the mean target of the nearest references and the true one"),
    (r"rmse", "root of the mean squared difference"),
    (r"r2", "share of the targets' variance that is explained; 0 is what the mean target explains, below 0 is worse"),
    (r"spearman", "rank correlation of predicted and true targets"),
    (r"probe (.*)", "share of queries that softmax regression on the frozen layer {0} names rightly"),
    (r"overlap@1", "members that a query's label set and its nearest reference's share, over the members of either"),
    (r"average_precision", "area under precision over recall of all pairs of a query and a gallery point"),
    (r"roc_auc", "chance that a pair of kin is nearer than a pair of strangers"),
)
UNKNOWN = "-"
SHARES = re.compile(
    r".*-nn|probe .*|nearest class mean|soft neighbors|(precision|recall|map|consistency|overlap)@.*|map|r_precision|mrr|pairwise_f1"
)


def definition(name: str) -> str:
    """What a figure of this name is; nothing for a name nobody knows."""
    for pattern, text in DEFINITIONS:
        if found := re.fullmatch(pattern, name):
            return text.format(*found.groups())
    return ""


def is_share(name: str) -> bool:
    """Whether a figure lies in 0..1 as a share and is best read in percent."""
    return SHARES.fullmatch(name) is not None


def number(value: float | None, name: str) -> str:
    """'97.2 %' for shares, '3.142' for others, '-' for what is not known."""
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
    """'3 (no kin in the gallery)', or nothing."""
    return "; ".join(f"{count:,} ({reason})" for reason, count in score.left_out.items() if count)
