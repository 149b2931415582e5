"""Linear maps for soft neighbors: NCA for classes, NCA regression and MLKR for numbers."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets

from nearkin.estimators.linear.losses import CopiedTarget, PredictedTarget, Price, Remembered, WrongChoice, laid_out
from nearkin.estimators.linear.scaling import Units
from nearkin.estimators.linear.transformer import LinearTransformer


def standardized(y: np.ndarray) -> np.ndarray:
    """Targets (n, t) with mean 0 and total variance 1, so that a price is a share of the variance and tolerances mean the same always."""
    columns = y.reshape(len(y), -1).astype(np.float64)
    columns = columns - columns.mean(0)
    variance = columns.var(0).sum()
    if not variance > 0:
        raise ValueError("y holds one value only: there is nothing to predict; give targets that differ")
    standard: np.ndarray = columns / np.sqrt(variance)
    return standard


class _Soft(LinearTransformer):
    """The settings that all maps with soft neighbors share."""

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: Any = "auto",
        solver: str = "lbfgs",
        warm_start: bool = False,
        max_iter: int = 50,
        tol: float = 1e-5,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state


class _SoftRegression(_Soft):
    """Answers that are numbers, standardized as a whole; `loss_` is the mean over points."""

    def _numbers(self) -> bool:
        return True

    def _answers(self, y: np.ndarray) -> np.ndarray:
        return standardized(y)

    def _mean(self, value: float, n: int) -> float:
        return value / n


class LinearNCA(_Soft):
    """Linear neighborhood components analysis: the map under which a soft nearest neighbor is most often of the same class.

        maximize  sum_i sum_(j != i, y_j = y_i) p_ij,   p_ij = exp(-|A x_i - A x_j|^2) / sum_(k != i) exp(-|A x_i - A x_k|^2)

    The objective, the starts and the parameters are those of scikit-learn's NeighborhoodComponentsAnalysis, in O(n d) memory.
    `solver` is "lbfgs" or "conjugate_gradient"; `callback` is called with the flat transformation and the iteration's number.
    Fitted: `components_` (n_components, d), `n_iter_`, `loss_` (the mean of 1 - p_i, the expected leave-one-out error).
    Data so far apart that nothing has a gradient are scaled, with a warning; a fit that did not converge warns.
    [goldberger2005nca]; [taylor2010pose] eq. (8)-(17) and (27)
    """

    def _answers(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        codes: np.ndarray = np.unique(y, return_inverse=True)[1]
        return codes

    def _price(self, x: np.ndarray, answers: np.ndarray, units: Units, exact: bool) -> Price:
        order = np.argsort(answers, kind="stable")
        return Remembered(WrongChoice(laid_out(x, units, order, exact), torch.from_numpy(answers[order])))

    def _mean(self, value: float, n: int) -> float:
        return 1 + value / n


class LinearNCARegression(_SoftRegression):
    """Linear NCA regression: the map under which copying a soft nearest neighbor's target costs the least squared error.

        minimize  sum_i sum_(j != i) p_ij |y_i - y_j|^2,   p_ij as in LinearNCA

    y is (n,) or (n, t); it is centerd and divided by its total standard deviation, so that `loss_`, the mean over points, is a share
    of the variance (the two targets of a pair differ, so chance is 2). [taylor2010pose] eq. (19)-(27)
    """

    def _price(self, x: np.ndarray, answers: np.ndarray, units: Units, exact: bool) -> Price:
        return Remembered(CopiedTarget(laid_out(x, units, exact=exact), torch.from_numpy(answers)))


class MLKR(_SoftRegression):
    """Metric learning for kernel regression: the map under which the soft mean of the neighbors' targets predicts best.

        minimize  sum_i |y_i - sum_(j != i) p_ij y_j|^2,   p_ij as in LinearNCA

    The squared error of the soft prediction, where NCA regression takes the expected squared error of a single neighbor: MLKR does not
    mind neighbors that err to either side. y is (n,) or (n, t), standardized as a whole; `loss_` is the share of the variance that is
    left, by leave-one-out. [weinberger2007mlkr]
    """

    def _price(self, x: np.ndarray, answers: np.ndarray, units: Units, exact: bool) -> Price:
        return Remembered(PredictedTarget(laid_out(x, units, exact=exact), torch.from_numpy(answers)))
