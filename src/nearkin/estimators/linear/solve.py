"""Minimize the loss of a map: L-BFGS or nonlinear conjugate gradient, in float64."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from nearkin.compose.validation import check_choice

SOLVERS = {"lbfgs": "L-BFGS-B", "conjugate_gradient": "CG"}
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]  # from a flat map to value and flat gradient
Callback = Callable[[np.ndarray, float], None]


class Solution(NamedTuple):
    """Where the solver ended."""

    point: np.ndarray
    value: float
    iterations: int
    converged: bool
    message: str
    exhausted: bool  # stopped by max_iter


def solve(function: Function, start: np.ndarray, solver: str, max_iter: int, tol: float, callback: Callback | None = None) -> Solution:
    """Minimize from a flat start until the value falls by less than `tol` of itself (or of 1), or no gradient entry exceeds `tol`.

    `callback` gets the point and the value after every iteration. The conjugate gradient is Polak and Ribiere's, the optimizer
    of [taylor2010pose].
    """
    check_choice("solver", solver, tuple(SOLVERS))
    watch = _Monitor(callback, tol if solver == "conjugate_gradient" else 0.0)
    options: dict[str, Any] = {"maxiter": max_iter, "gtol": tol}
    if solver == "lbfgs":
        options["ftol"] = tol
    found = optimize.minimize(function, start, jac=True, method=SOLVERS[solver], callback=watch, options=options)
    converged = bool(found.success) or watch.settled
    exhausted = not converged and found.nit >= max_iter
    message = f"stopped after max_iter ({max_iter}) iterations" if exhausted else str(found.message).rstrip(".")
    return Solution(found.x, float(found.fun), int(found.nit), converged, message, exhausted)


class _Monitor:
    """Calls the callback, and stops the conjugate gradient: SciPy's has no tolerance on the value."""

    def __init__(self, callback: Callback | None, tol: float) -> None:
        self.callback, self.tol = callback, tol
        self.before = np.inf
        self.settled = False

    def __call__(self, intermediate_result: Any) -> None:
        value = float(intermediate_result.fun)
        if self.callback is not None:
            self.callback(intermediate_result.x, value)
        size = max(abs(value), abs(self.before), 1.0)
        if self.tol and np.isfinite(self.before) and self.before - value <= self.tol * size:
            self.settled = True
            raise StopIteration
        self.before = value
