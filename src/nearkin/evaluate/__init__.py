"""Metrics of embeddings: pure functions of embeddings, labels and ids.

`classification`, `retrieval`, `verification`, `clustering`, `silhouette`, `regression`, `consistency`, `hubness` and `collapse` each
return `Score` objects: a value with its 95% interval, its chance level and what was left out. The predictors they score (`knn_predict`,
`soft_probabilities`, ...) and the curves over pairs (`pr_curve`, `roc_curve`) are here too. All of them accept torch tensors or numpy
arrays, exclude a query by its id, take the expected value of ties, and clamp a k above the number of candidates and report it. `vote` and
`weighted_vote` come from `nearkin.search`. `label_errors` and `clean` list what is probably wrong in data, `pick` what to label next.
"""

from nearkin.evaluate.calibration import expected_calibration_error
from nearkin.evaluate.classification import NO_PREDICTION, ClassRow, accuracy, classification, confusion, per_class, predictions
from nearkin.evaluate.cleaning import Problem, Problems, clean
from nearkin.evaluate.clustering import agreement, clustering
from nearkin.evaluate.curves import pair_curves, pr_curve, roc_curve
from nearkin.evaluate.geometry import collapse, consistency
from nearkin.evaluate.hubness import hubness
from nearkin.evaluate.label_errors import LabelErrors, label_errors
from nearkin.evaluate.neighbors import (
    class_means,
    knn_accuracy,
    knn_predict,
    knn_regress,
    nearest_mean_predict,
    soft_mean,
    soft_probabilities,
    weighted_knn_predict,
)
from nearkin.evaluate.picking import Picks, pick
from nearkin.evaluate.probes import linear_probes
from nearkin.evaluate.regression import angular_error, regression
from nearkin.evaluate.retrieval import retrieval
from nearkin.evaluate.score import Curve, Score, best
from nearkin.evaluate.silhouette import silhouette
from nearkin.evaluate.verification import verification
from nearkin.search.voting import vote, weighted_vote

__all__ = [
    "NO_PREDICTION",
    "ClassRow",
    "Curve",
    "LabelErrors",
    "Picks",
    "Problem",
    "Problems",
    "Score",
    "accuracy",
    "agreement",
    "angular_error",
    "best",
    "class_means",
    "classification",
    "clean",
    "clustering",
    "collapse",
    "confusion",
    "consistency",
    "expected_calibration_error",
    "hubness",
    "knn_accuracy",
    "knn_predict",
    "knn_regress",
    "label_errors",
    "linear_probes",
    "nearest_mean_predict",
    "pair_curves",
    "per_class",
    "pick",
    "pr_curve",
    "predictions",
    "regression",
    "retrieval",
    "roc_curve",
    "silhouette",
    "soft_mean",
    "soft_probabilities",
    "verification",
    "vote",
    "weighted_knn_predict",
    "weighted_vote",
]
