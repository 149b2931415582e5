"""Evaluate: are the neighbours right?"""

from nearkin.evaluate.classification import ClassRow, accuracy, classification, confusion, per_class, predictions
from nearkin.evaluate.clustering import clustering
from nearkin.evaluate.curves import pr_curve, roc_curve
from nearkin.evaluate.geometry import collapse, consistency
from nearkin.evaluate.neighbours import knn_accuracy, knn_predict, vote
from nearkin.evaluate.probes import linear_probes
from nearkin.evaluate.regression import angular_error, regression
from nearkin.evaluate.retrieval import retrieval
from nearkin.evaluate.score import Curve, Score, best

__all__ = [
    "ClassRow",
    "Curve",
    "Score",
    "accuracy",
    "angular_error",
    "best",
    "classification",
    "clustering",
    "collapse",
    "confusion",
    "consistency",
    "knn_accuracy",
    "knn_predict",
    "linear_probes",
    "per_class",
    "pr_curve",
    "predictions",
    "regression",
    "retrieval",
    "roc_curve",
    "vote",
]
