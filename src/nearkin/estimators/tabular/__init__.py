"""Classify and regress rows of tables by soft nearest neighbors in a trained embedding."""

from nearkin.estimators.tabular.classifier import TabularNCAClassifier
from nearkin.estimators.tabular.regressor import TabularNCARegressor

__all__ = ["TabularNCAClassifier", "TabularNCARegressor"]
