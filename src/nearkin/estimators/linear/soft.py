"""Linear maps with soft neighbors: NCA for classes, NCA regression and MLKR for numbers."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets

from nearkin.estimators.linear.losses import Cached, Loss, MLKRLoss, NCALoss, NCARegressionLoss, solver_points
from nearkin.estimators.linear.scaling import Units
from nearkin.estimators.linear.transformer import LinearTransformer


def standardized(y: np.ndarray) -> np.ndarray:
    """Targets (n, t) with mean 0 and total variance 1, so that `tol` means the same in any units."""
    columns = y.reshape(len(y), -1).astype(np.float64)
    columns = columns - columns.mean(0)
    variance = columns.var(0).sum()
    if not variance > 0:
        raise ValueError("y holds one value only, so there is nothing to predict; give targets that differ")
    standard: np.ndarray = columns / np.sqrt(variance)
    return standard


class _Soft(LinearTransformer):
    """The parameters that all maps with soft neighbors share."""

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
    """Numeric targets, standardized as a whole; `loss_` is the mean over points."""

    def _numbers(self) -> bool:
        return True

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        return standardized(y)

    def _mean(self, value: float, n: int) -> float:
        return value / n


class LinearNCA(_Soft):
    r"""Linear neighborhood components analysis: the map under which a soft nearest neighbor has the same class most often.

    .. math::
        \max_A \sum_i \sum_{j \ne i,\, y_j = y_i} p_{ij}, \qquad
        p_{ij} = \frac{\exp(-\|A x_i - A x_j\|^2)}{\sum_{k \ne i} \exp(-\|A x_i - A x_k\|^2)}

    Objective, starts and parameters are those of scikit-learn's NeighborhoodComponentsAnalysis. Memory is O(n d), not
    O(n^2).

    If the start puts all points so far apart (or so close together) that the objective has no gradient, the start is
    rescaled with a warning. A fit that did not converge warns with `ConvergenceWarning`.

    Parameters
    ----------
    n_components : int, default=None
        Rows of the map, at most the number of features. None keeps the number of features.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray of shape (n_components, n_features), default="auto"
        "auto" takes "lda" where it finds enough directions, "pca" where it drops some, "identity" otherwise.
        "random" draws standard normal numbers; an array is taken as it is.
    solver : {"lbfgs", "conjugate_gradient"}, default="lbfgs"
        L-BFGS, or Polak and Ribiere's nonlinear conjugate gradient, the optimizer of [taylor2010pose].
    warm_start : bool, default=False
        Start from the `components_` of the last fit.
    max_iter : int, default=50
        Largest number of iterations. Raise it when a `ConvergenceWarning` says so.
    tol : float, default=1e-5
        Stop when an iteration lowers the objective by less than this share of it, or when no entry of the gradient is
        larger.
    callback : callable, default=None
        Called after every iteration with the flat map (n_components * n_features,) and the number of the iteration.
    verbose : int, default=0
        Print the objective after every iteration if not 0.
    random_state : int, RandomState or None, default=None
        Seed of `init="random"`, and of "pca" when there are fewer points than features.
    whiten : bool, default=False
        Let the solver work in whitened units. It then needs fewer iterations on features of different scales and reaches another local
        optimum, which classified held-out points worse on three of four sets. False is scikit-learn's fit.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map A.
    n_iter_ : int
        Iterations made.
    loss_ : float
        Mean of 1 - p_i, the expected leave-one-out error of a soft nearest neighbor.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had names that are all strings.

    See Also
    --------
    LMNN : A margin between a few target neighbors and all points of other classes.
    LinearNCARegression : The same for numbers instead of classes.
    NeighborhoodEmbedding : A network instead of a linear map.

    Notes
    -----
    Differs: the solver works in whitened units of the features, which changes the path but not the objective.

    References
    ----------
    [goldberger2005nca]; [taylor2010pose] eq. (8)-(17) and (27)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nearkin.estimators import LinearNCA
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LinearNCA(2, tol=1e-3), KNeighborsClassifier(3))
    >>> bool(model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
    True
    >>> model[1].components_.shape
    (2, 4)
    """

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
        whiten: bool = False,
    ) -> None:
        super().__init__(
            n_components,
            init=init,
            solver=solver,
            warm_start=warm_start,
            max_iter=max_iter,
            tol=tol,
            callback=callback,
            verbose=verbose,
            random_state=random_state,
        )
        self.whiten = whiten

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        codes: np.ndarray = np.unique(y, return_inverse=True)[1]
        return codes

    def _loss(self, x: np.ndarray, targets: np.ndarray, units: Units, exact: bool) -> Loss:
        order = np.argsort(targets, kind="stable")
        return Cached(NCALoss(solver_points(x, units, order, exact), torch.from_numpy(targets[order])))

    def _mean(self, value: float, n: int) -> float:
        return 1 + value / n


class LinearNCARegression(_SoftRegression):
    r"""Linear NCA regression: the map under which copying a soft nearest neighbor's target has the least squared error.

    .. math::
        \min_A \sum_i \sum_{j \ne i} p_{ij} \|y_i - y_j\|^2

    with :math:`p_{ij}` as in `LinearNCA`. y is centered and divided by its total standard deviation. `loss_` is
    therefore a share of the variance, and 2 is chance: it is the expected difference of two independent targets.

    Parameters
    ----------
    n_components : int, default=None
        Rows of the map, at most the number of features. None keeps the number of features.
    init : {"auto", "pca", "identity", "random"} or ndarray of shape (n_components, n_features), default="auto"
        "auto" takes "pca" where it drops directions, "identity" otherwise.
        "random" draws standard normal numbers; an array is taken as it is.
    solver : {"lbfgs", "conjugate_gradient"}, default="lbfgs"
        L-BFGS, or Polak and Ribiere's nonlinear conjugate gradient, the optimizer of [taylor2010pose].
    warm_start : bool, default=False
        Start from the `components_` of the last fit.
    max_iter : int, default=50
        Largest number of iterations. Raise it when a `ConvergenceWarning` says so.
    tol : float, default=1e-5
        Stop when an iteration lowers the objective by less than this share of it, or when no entry of the gradient is
        larger.
    callback : callable, default=None
        Called after every iteration with the flat map (n_components * n_features,) and the number of the iteration.
    verbose : int, default=0
        Print the objective after every iteration if not 0.
    random_state : int, RandomState or None, default=None
        Seed of `init="random"`, and of "pca" when there are fewer points than features.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map A.
    n_iter_ : int
        Iterations made.
    loss_ : float
        Mean over points of the expected squared error, in units of the variance of y.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had names that are all strings.

    See Also
    --------
    MLKR : Squared error of the mean prediction instead of a single neighbor's.
    LinearNCA : The same for classes.
    NeighborhoodRegressor : A network instead of a linear map.

    References
    ----------
    [taylor2010pose] eq. (19)-(27)

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.estimators import LinearNCARegression
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> model = LinearNCARegression(1, tol=1e-3).fit(X, X[:, 0])
    >>> int(np.abs(model.components_).argmax())  # the only feature that matters
    0
    >>> model.transform(X).shape
    (100, 1)
    """

    def _loss(self, x: np.ndarray, targets: np.ndarray, units: Units, exact: bool) -> Loss:
        return Cached(NCARegressionLoss(solver_points(x, units, exact=exact), torch.from_numpy(targets)))


class MLKR(_SoftRegression):
    r"""Metric learning for kernel regression: the map under which the soft mean of the neighbors' targets predicts best.

    .. math::
        \min_A \sum_i \Bigl\|y_i - \sum_{j \ne i} p_{ij} y_j\Bigr\|^2

    with :math:`p_{ij}` as in `LinearNCA`. This is the squared error of the mean prediction, where `LinearNCARegression`
    takes the expected squared error of a single neighbor: in MLKR, neighbors that err to opposite sides cancel out.
    y is (n,) or (n, t) and is standardized as a whole.

    Parameters
    ----------
    n_components : int, default=None
        Rows of the map, at most the number of features. None keeps the number of features.
    init : {"auto", "pca", "identity", "random"} or ndarray of shape (n_components, n_features), default="auto"
        "auto" takes "pca" where it drops directions, "identity" otherwise.
        "random" draws standard normal numbers; an array is taken as it is.
    solver : {"lbfgs", "conjugate_gradient"}, default="lbfgs"
        L-BFGS, or Polak and Ribiere's nonlinear conjugate gradient, the optimizer of [taylor2010pose].
    warm_start : bool, default=False
        Start from the `components_` of the last fit.
    max_iter : int, default=50
        Largest number of iterations. Raise it when a `ConvergenceWarning` says so.
    tol : float, default=1e-5
        Stop when an iteration lowers the objective by less than this share of it, or when no entry of the gradient is
        larger.
    callback : callable, default=None
        Called after every iteration with the flat map (n_components * n_features,) and the number of the iteration.
    verbose : int, default=0
        Print the objective after every iteration if not 0.
    random_state : int, RandomState or None, default=None
        Seed of `init="random"`, and of "pca" when there are fewer points than features.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map A.
    n_iter_ : int
        Iterations made.
    loss_ : float
        Share of the variance of y that the leave-one-out prediction leaves unexplained.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had names that are all strings.

    See Also
    --------
    LinearNCARegression : Expected error of one neighbor; keeps the neighbors themselves alike.
    NeighborhoodRegressor : Nearest neighbors regression with a trained network.

    References
    ----------
    [weinberger2007mlkr]

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.estimators import MLKR
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> model = MLKR(1, tol=1e-3).fit(X, X[:, 0])
    >>> bool(model.loss_ < 0.1)
    True
    """

    def _loss(self, x: np.ndarray, targets: np.ndarray, units: Units, exact: bool) -> Loss:
        return Cached(MLKRLoss(solver_points(x, units, exact=exact), torch.from_numpy(targets)))
