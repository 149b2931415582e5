"""Linear: maps z = A x fitted on the kernels, with scikit-learn's names and manners."""

from nearkin.linear.lmnn import LMNN
from nearkin.linear.ppca import ProbabilisticPCA
from nearkin.linear.soft import MLKR, LinearNCA, LinearNCARegression

__all__ = ["LMNN", "MLKR", "LinearNCA", "LinearNCARegression", "ProbabilisticPCA"]
