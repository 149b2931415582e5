"""Estimators with scikit-learn's API: trained networks (Neighborhood*), tables (TabularNCA*) and linear maps (LinearNCA and others)."""

from nearkin.estimators.embedding import NeighborhoodEmbedding
from nearkin.estimators.linear import LMNN, MLKR, LinearNCA, LinearNCARegression, ProbabilisticPCA
from nearkin.estimators.prediction import NeighborhoodClassifier, NeighborhoodRegressor
from nearkin.estimators.tabular import TabularNCAClassifier, TabularNCARegressor

__all__ = [
    "LMNN",
    "MLKR",
    "LinearNCA",
    "LinearNCARegression",
    "NeighborhoodClassifier",
    "NeighborhoodEmbedding",
    "NeighborhoodRegressor",
    "ProbabilisticPCA",
    "TabularNCAClassifier",
    "TabularNCARegressor",
]
