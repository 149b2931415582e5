"""Evaluate: are the neighbours right?"""

from nearkin.evaluate.neighbours import knn_accuracy, knn_predict, vote

__all__ = ["knn_accuracy", "knn_predict", "vote"]
