"""Estimators: networks trained for their nearest neighbours, with scikit-learn's names and manners."""

from nearkin.estimators.embedding import NeighbourhoodEmbedding
from nearkin.estimators.prediction import NeighbourhoodClassifier, NeighbourhoodRegressor

__all__ = ["NeighbourhoodClassifier", "NeighbourhoodEmbedding", "NeighbourhoodRegressor"]
