"""Linear: maps z = A x fitted on the kernels, with scikit-learn's names and manners."""

from nearkin.estimators.linear.lmnn import LMNN
from nearkin.estimators.linear.ppca import ProbabilisticPCA
from nearkin.estimators.linear.soft import MLKR, LinearNCA, LinearNCARegression

__all__ = ["LMNN", "MLKR", "LinearNCA", "LinearNCARegression", "ProbabilisticPCA"]
