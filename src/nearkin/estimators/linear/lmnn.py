"""LMNN: target neighbors are nearer than any point of another class, by a margin."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.compose.validation import check_whole
from nearkin.estimators.linear.impostors import LMNNLoss, joined
from nearkin.estimators.linear.losses import Loss, solver_points
from nearkin.estimators.linear.scaling import Units
from nearkin.estimators.linear.solve import Callback, Solution, solve
from nearkin.estimators.linear.transformer import LinearTransformer
from nearkin.search import nearest

ROUND = 10  # iterations between two scans for impostors


class LMNN(LinearTransformer):
    r"""Large margin nearest neighbors: pull target neighbors near, push impostors out of a margin of 1 around them.

    .. math::
        \min_A\; (1 - \mu) \sum_{i, j} \|A x_i - A x_j\|^2
        + \mu \sum_{i, j, l} \bigl[1 + \|A x_i - A x_j\|^2 - \|A x_i - A x_l\|^2\bigr]_+

    j runs over the `n_neighbors` target neighbors of i: the nearest points of its class among the features as given.
    l runs over all points of other classes; those inside the margin are called impostors. With as many components as
    features the problem is convex in :math:`A^T A`.

    Parameters
    ----------
    n_components : int, default=None
        Rows of the map, at most the number of features. None keeps the number of features.
    n_neighbors : int, default=3
        Target neighbors of each point. If the smallest class has no more members than that, it is lowered for all classes, with a warning.
    mu : float, default=0.5
        Weight of the push, between 0 and 1; the pull has the weight 1 - mu.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray of shape (n_components, n_features), default="auto"
        "auto" takes "lda" where it finds enough directions, "pca" where it drops some, "identity" otherwise.
        "random" draws standard normal numbers; an array is taken as it is.
    solver : {"lbfgs", "conjugate_gradient"}, default="lbfgs"
        L-BFGS, or Polak and Ribiere's nonlinear conjugate gradient, the optimizer of [taylor2010pose].
    warm_start : bool, default=False
        Start from the `components_` of the last fit.
    max_iter : int, default=200
        Largest number of iterations. Raise it when a `ConvergenceWarning` says so.
    tol : float, default=1e-4
        Stop when a scan for impostors finds the objective lower by less than this share of it.
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
        Mean over points of pull and push.
    n_neighbors_ : int
        Target neighbors that were used: `n_neighbors`, or fewer if a class is smaller.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had names that are all strings.

    Raises
    ------
    ValueError
        If a class has one member only.

    See Also
    --------
    LinearNCA : Soft neighbors instead of a margin; takes classes of any size.

    Notes
    -----
    Differs: L-BFGS on A instead of projected gradient on A^T A. Impostors are searched for every few iterations, and the
    fit ends on the exact loss.

    References
    ----------
    [weinberger2009lmnn]

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearkin.estimators import LMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LMNN(2, n_neighbors=3, tol=1e-2).fit(X, y)
    >>> model.transform(X).shape
    (150, 2)
    """

    n_neighbors_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 3,
        mu: float = 0.5,
        init: Any = "auto",
        solver: str = "lbfgs",
        warm_start: bool = False,
        max_iter: int = 200,
        tol: float = 1e-4,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.mu = mu
        self.init = init
        self.solver = solver
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        check_whole("n_neighbors", self.n_neighbors)
        if not 0 < self.mu < 1:
            raise ValueError(f"mu ({self.mu!r}) must be above 0 and below 1; it is the weight of the push")
        names, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        if len(names) < 2:
            raise ValueError(f"y holds one class only ({names.tolist()[0]!r}); give at least two classes")
        small, least = names[counts.argmin()], int(counts.min())
        if least == 1:
            raise ValueError(f"class {small!r} has one sample only, so it has no target neighbor; leave it out")
        self.n_neighbors_ = min(self.n_neighbors, least - 1)
        if self.n_neighbors_ < self.n_neighbors:
            self._warn(
                f"class {small!r} has {least} members, so n_neighbors ({self.n_neighbors}) was lowered to {self.n_neighbors_}; "
                "set it to that, or leave the class out",
                UserWarning,
            )
        found: np.ndarray = codes
        return found

    def _loss(self, x: np.ndarray, targets: np.ndarray, units: Units, exact: bool) -> Loss:
        order = np.argsort(targets, kind="stable")
        bounds = torch.from_numpy(np.searchsorted(targets[order], np.arange(targets.max() + 2)))
        return LMNNLoss(solver_points(x, units, order, exact), bounds, self._target_neighbors(x, order, bounds), self.mu)

    def _target_neighbors(self, x: np.ndarray, order: np.ndarray, bounds: Tensor) -> Tensor:
        """(n, k) positions, in the sorted order, of the nearest points of each point's class."""
        found = []
        for first, last in zip(bounds.tolist(), bounds.tolist()[1:], strict=False):
            same = torch.from_numpy(x[order[first:last]])
            points = Points(same, ids=torch.arange(len(same)))
            found.append(nearest(points, points, self.n_neighbors_, exclude_same_id=True).positions + first)
        return torch.cat(found)

    def _prepared_start(self, loss: Loss, point: np.ndarray) -> np.ndarray:
        """Scale the start so that target neighbors lie 1 away on average: the margin is 1 in the embedding."""
        assert isinstance(loss, LMNNLoss)
        reach, _ = loss(point)  # no impostors are listed yet
        mean = reach / (1 - self.mu) / loss.targets.numel()
        return point / np.sqrt(mean) if mean > 0 else point

    def _descend(self, loss: Loss, start: np.ndarray, iterations: int, report: Callback) -> Solution:
        """Run a few iterations on the impostors of the last scan, scan again, repeat.

        A round that raised the exact loss is repeated with the impostors of both scans.
        """
        assert isinstance(loss, LMNNLoss)
        value, loss.pairs = loss.scan(start)
        point, spent = start, 0
        while spent < iterations:
            found = solve(loss, point, self.solver, min(ROUND, iterations - spent), self.tol / 10, report)
            spent += max(found.iterations, 1)
            after, pairs = loss.scan(found.point)
            if after > value:
                if pairs.weight > 1 or loss.pairs.weight > 1:
                    return Solution(
                        point, value, spent, False, "too many impostors to list; scale the features or lower n_neighbors", False
                    )
                loss.pairs = joined(loss.pairs, pairs, len(loss.points))
                continue
            gained = value - after
            point, value, loss.pairs = found.point, after, pairs
            if gained <= self.tol * max(value, 1.0):
                return Solution(point, value, spent, True, "converged", False)
        return Solution(point, value, spent, False, f"stopped after max_iter ({iterations}) iterations", True)

    def _mean(self, value: float, n: int) -> float:
        return value / n
