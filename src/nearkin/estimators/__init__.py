"""Estimators with scikit-learn's API: trained networks (Neighborhood*) and linear maps (LinearNCA, LMNN, MLKR and others)."""

from nearkin.estimators.embedding import NeighborhoodEmbedding
from nearkin.estimators.linear import LMNN, MLKR, LinearNCA, LinearNCARegression, ProbabilisticPCA
from nearkin.estimators.prediction import NeighborhoodClassifier, NeighborhoodRegressor

__all__ = [
    "LMNN",
    "MLKR",
    "LinearNCA",
    "LinearNCARegression",
    "NeighborhoodClassifier",
    "NeighborhoodEmbedding",
    "NeighborhoodRegressor",
    "ProbabilisticPCA",
]
