"""What all linear estimators share: input checks, the start, the solver and scikit-learn's conventions."""

import sys
import warnings
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from nearkin.compose.validation import check_positive, check_whole
from nearkin.estimators.linear import plateau
from nearkin.estimators.linear.inputs import FLOATS, array, like, validated
from nearkin.estimators.linear.losses import Loss
from nearkin.estimators.linear.scaling import Units, raw, whitened
from nearkin.estimators.linear.solve import Callback, Solution, solve
from nearkin.estimators.linear.start import checked_components, starting_point


class LinearTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """z = A x with A found by a solver. Subclasses define the targets and the loss of a map."""

    components_: np.ndarray
    n_iter_: int
    loss_: float
    n_features_in_: int
    n_components: int | None
    init: Any
    solver: str
    warm_start: bool
    max_iter: int
    tol: float
    callback: Any
    verbose: int
    random_state: Any
    whiten: bool = True  # whether the solver works in whitened units

    @abstractmethod
    def _encoded(self, y: np.ndarray) -> np.ndarray:
        """Encode y for the loss: (n,) class codes, or (n, t) standardized targets."""

    @abstractmethod
    def _loss(self, x: np.ndarray, targets: np.ndarray, units: Units, exact: bool) -> Loss:
        """The loss of maps of x (n, d) in these units; in float64 if `exact`."""

    @abstractmethod
    def _mean(self, value: float, n: int) -> float:
        """The value of `loss_` from the sum over n points."""

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Learn the map from X and y.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            Training data.
        y : array-like or Tensor of shape (n_samples,) or (n_samples, n_targets)
            Classes, or numbers for the regression estimators (several columns only there).

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_whole("max_iter", self.max_iter)
        check_positive("tol", self.tol)
        checks: dict[str, Any] = {"multi_output": True, "y_numeric": True} if self._numbers() else {}
        x, y = validated(self, X, y, dtype=FLOATS, ensure_min_samples=2, **checks)
        targets = self._encoded(y)
        start, warm = self._start(x, targets)
        units = whitened(x) if self.whiten else raw(x)
        point = (start @ units.back).ravel()
        loss = self._loss(x, targets, units, exact=False)
        if not warm:
            point = self._prepared_start(loss, point)
        if not warm and plateau.flat(loss, point):
            if not self.whiten:  # raw units so far from 1 leave the solver a gradient that is too small or too large, too
                units = whitened(x)
                point, loss = (start @ units.back).ravel(), self._loss(x, targets, units, exact=False)
            point = point * self._scale(x, targets, units, point)
        self._print(f"{'iteration':>9} {'objective':>14}")
        found = self._solved(loss, point, self.max_iter, units)
        if not found.converged and not found.exhausted:
            # The line search failed at the rounding of float32: continue in float64.
            del loss
            before = found.iterations
            found = self._solved(self._loss(x, targets, units, exact=True), found.point, max(self.max_iter - before, 1), units)
            found = found._replace(iterations=before + found.iterations)
        if not found.converged:
            self._warn(f"did not converge: {found.message}; raise max_iter or tol", ConvergenceWarning)
        self.components_ = found.point.reshape(start.shape) @ units.forward
        self.n_iter_ = found.iterations
        self.loss_ = self._mean(found.value, len(x))
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Map X to X A^T.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New data.

        Returns
        -------
        ndarray or Tensor of shape (n_samples, n_components)
            Of the kind and dtype of X.
        """
        check_is_fitted(self)
        x = validated(self, X, dtype=FLOATS, reset=False)
        return like(x @ self.components_.T.astype(x.dtype), X)

    @property
    def _n_features_out(self) -> int:
        """Used by scikit-learn for the names of the output columns."""
        return len(self.components_)

    def _numbers(self) -> bool:
        """Whether y holds numbers, not classes."""
        return False

    def _start(self, x: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, bool]:
        """The map to start from, and whether it is that of the last fit."""
        size = checked_components(self.n_components, x.shape[1])
        if self.warm_start and hasattr(self, "components_"):
            if self.components_.shape != (size, x.shape[1]):
                raise ValueError(
                    f"warm_start: the last transformation has shape {self.components_.shape}, and this fit needs {(size, x.shape[1])}; "
                    "set warm_start=False"
                )
            return self.components_.astype(np.float64), True
        classes = None if self._numbers() else targets
        start = starting_point(array(self.init), x, classes, size, self.n_components is not None, self.random_state)
        return start, False

    def _scale(self, x: np.ndarray, targets: np.ndarray, units: Units, point: np.ndarray) -> float:
        """The factor that moves the start off a plateau, with a warning; 1 if no factor does."""
        some = np.sort(np.random.default_rng(0).permutation(len(x))[: plateau.SAMPLE])
        scale = plateau.better_scale(self._loss(x[some], targets[some], units, exact=True), point)
        if scale is None:
            self._warn("the objective has no gradient at the start, at any scale; try another init", ConvergenceWarning)
            return 1.0
        self._warn(
            f"the start puts all points so {'far apart' if scale < 1 else 'close together'} that the objective has no gradient; "
            f"it was scaled by {scale:.3g}. To choose the scale yourself, scale the features (StandardScaler)",
            UserWarning,
        )
        return scale

    def _solved(self, loss: Loss, start: np.ndarray, iterations: int, units: Units) -> Solution:
        count = 0

        def report(point: np.ndarray, value: float) -> None:
            nonlocal count
            count += 1
            self._print(f"{count:>9} {value:>14.6e}")
            if self.callback is not None:
                self.callback((point.reshape(-1, units.forward.shape[0]) @ units.forward).ravel(), count)

        return self._descend(loss, start, iterations, report)

    def _descend(self, loss: Loss, start: np.ndarray, iterations: int, report: Callback) -> Solution:
        return solve(loss, start, self.solver, iterations, self.tol, report)

    def _prepared_start(self, loss: Loss, point: np.ndarray) -> np.ndarray:
        """The start, adapted to the loss; unchanged by default."""
        return point

    def _print(self, line: str) -> None:
        if self.verbose:
            sys.stdout.write(f"[{type(self).__name__}] {line}\n")

    def _warn(self, message: str, kind: type[Warning]) -> None:
        warnings.warn(f"{type(self).__name__}: {message}", kind, stacklevel=4)

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"requires_y": True, "preserves_dtype": FLOATS, "multioutput": self._numbers()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = self._numbers()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
