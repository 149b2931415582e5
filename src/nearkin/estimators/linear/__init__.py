"""Linear maps z = A x with scikit-learn's API, fitted by the kernels in O(n d) memory."""

from nearkin.estimators.linear.lmnn import LMNN
from nearkin.estimators.linear.ppca import ProbabilisticPCA
from nearkin.estimators.linear.soft import MLKR, LinearNCA, LinearNCARegression

__all__ = ["LMNN", "MLKR", "LinearNCA", "LinearNCARegression", "ProbabilisticPCA"]
