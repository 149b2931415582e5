"""LMNN: every point's target neighbors nearer than any point of another class, by a margin."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.compose.validation import check_whole
from nearkin.estimators.linear.impostors import LargeMargin, joined
from nearkin.estimators.linear.losses import Price, laid_out
from nearkin.estimators.linear.scaling import Units
from nearkin.estimators.linear.solve import Callback, Solution, solve
from nearkin.estimators.linear.transformer import LinearTransformer
from nearkin.search import nearest

ROUND = 10  # iterations between two scans for impostors


class LMNN(LinearTransformer):
    """Large margin nearest neighbors: k target neighbors are pulled near, and impostors pushed out of a margin of 1 around them.

        minimize  (1 - mu) sum_(i, j) |A x_i - A x_j|^2 + mu sum_(i, j, l) [1 + |A x_i - A x_j|^2 - |A x_i - A x_l|^2]+

    j runs over the `n_neighbors` target neighbors of i, the nearest of its class among the given features, and l over all points of other
    classes. With as many components as features the problem is convex in A^T A. Classes need `n_neighbors` + 1 members. Fitted:
    `components_`, `n_iter_`, `loss_` (the price a point).
    [weinberger2009lmnn]
    Differs: L-BFGS on A instead of projected gradient on A^T A; impostors are looked for every few iterations, and the fit ends
    on the exact price.
    """

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

    def _answers(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        check_whole("n_neighbors", self.n_neighbors)
        if not 0 < self.mu < 1:
            raise ValueError(f"mu ({self.mu!r}) must be above 0 and below 1: the share of the push")
        names, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        if counts.min() <= self.n_neighbors:
            small = names[counts.argmin()]
            raise ValueError(
                f"class {small!r} has {counts.min()} members, and n_neighbors ({self.n_neighbors}) target neighbors need one more; "
                f"lower n_neighbors to {counts.min() - 1} or leave the class out"
                if counts.min() > 1
                else f"class {small!r} has one sample only, and no target neighbor; leave it out"
            )
        found: np.ndarray = codes
        return found

    def _price(self, x: np.ndarray, answers: np.ndarray, units: Units, exact: bool) -> Price:
        order = np.argsort(answers, kind="stable")
        bounds = torch.from_numpy(np.searchsorted(answers[order], np.arange(answers.max() + 2)))
        return LargeMargin(laid_out(x, units, order, exact), bounds, self._targets(x, order, bounds), self.mu)

    def _targets(self, x: np.ndarray, order: np.ndarray, bounds: Tensor) -> Tensor:
        """(n, k) positions, in the sorted order, of each point's nearest of its own class."""
        found = []
        for first, last in zip(bounds.tolist(), bounds.tolist()[1:], strict=False):
            kin = torch.from_numpy(x[order[first:last]])
            points = Points(kin, ids=torch.arange(len(kin)))
            found.append(nearest(points, points, self.n_neighbors, exclude_same_id=True).positions + first)
        return torch.cat(found)

    def _ready(self, price: Price, point: np.ndarray) -> np.ndarray:
        """The start, scaled so that a target neighbor lies 1 away on average: the margin is 1 in the embedding."""
        assert isinstance(price, LargeMargin)
        reach, _ = price(point)  # no impostors are listed yet
        mean = reach / (1 - self.mu) / price.targets.numel()
        return point / np.sqrt(mean) if mean > 0 else point

    def _descend(self, price: Price, start: np.ndarray, iterations: int, report: Callback) -> Solution:
        """Rounds of a few iterations on the impostors of the last scan; a round that raised the exact price is made again with more."""
        assert isinstance(price, LargeMargin)
        value, price.pairs = price.scan(start)
        point, spent = start, 0
        while spent < iterations:
            found = solve(price, point, self.solver, min(ROUND, iterations - spent), self.tol / 10, report)
            spent += max(found.iterations, 1)
            after, pairs = price.scan(found.point)
            if after > value:
                if pairs.weight > 1 or price.pairs.weight > 1:
                    return Solution(
                        point, value, spent, False, "too many impostors to list; scale the features or lower n_neighbors", False
                    )
                price.pairs = joined(price.pairs, pairs, len(price.points))
                continue
            gained = value - after
            point, value, price.pairs = found.point, after, pairs
            if gained <= self.tol * max(value, 1.0):
                return Solution(point, value, spent, True, "the price has settled", False)
        return Solution(point, value, spent, False, f"stopped after max_iter ({iterations}) iterations", True)

    def _mean(self, value: float, n: int) -> float:
        return value / n
