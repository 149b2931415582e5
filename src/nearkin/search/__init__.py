"""Exact k-nearest-neighbor search, under the same affinity that an objective was trained with.

`nearest` is the one search function of nearkin: discovery, evaluation, indexes and the server all call it. It ranks in float64, breaks
ties by position, excludes a query's own id or group, and accepts references larger than memory. `nearest_codes`, `pack` and `unpack` do the
same for binary codes by Hamming distance. `vote` and `weighted_vote` turn the labels of neighbors into a predicted class. `hard_negatives`
finds points of other classes to train against, `suspected_labels` those whose neighbors contradict their label. `fit_rejection` learns
which queries belong to no known class, and `rescaled` corrects affinities for hubs by CSLS or local scaling.
"""

from nearkin.search.exact import Neighbors, nearest
from nearkin.search.hamming import nearest_codes
from nearkin.search.mining import Mined, hard_negatives, suspected_labels
from nearkin.search.packing import pack, unpack
from nearkin.search.rejection import Rejection, familiarity, fit_rejection
from nearkin.search.rescaled import Rescaled, rescaled
from nearkin.search.voting import vote, weighted_vote

__all__ = [
    "Mined",
    "Neighbors",
    "Rejection",
    "Rescaled",
    "familiarity",
    "fit_rejection",
    "hard_negatives",
    "nearest",
    "nearest_codes",
    "pack",
    "rescaled",
    "suspected_labels",
    "unpack",
    "vote",
    "weighted_vote",
]
