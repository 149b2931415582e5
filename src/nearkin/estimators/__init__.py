"""Estimators: networks trained for their nearest neighbors, with scikit-learn's names and manners."""

from nearkin.estimators.embedding import NeighborhoodEmbedding
from nearkin.estimators.prediction import NeighborhoodClassifier, NeighborhoodRegressor

__all__ = ["NeighborhoodClassifier", "NeighborhoodEmbedding", "NeighborhoodRegressor"]
