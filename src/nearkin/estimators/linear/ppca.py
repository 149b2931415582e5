"""Probabilistic PCA: principal components as a Gaussian model with noise, in closed form."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from nearkin.estimators.linear.inputs import FLOATS, like, validated
from nearkin.estimators.linear.start import checked_components


class ProbabilisticPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Probabilistic PCA: x = W t + mean + noise, with t standard normal, by maximum likelihood.

        W = U_q (Lambda_q - sigma^2 I)^(1/2),   sigma^2 = the mean of the discarded eigenvalues of the covariance
        transform:  the posterior mean  M^-1 W^T (x - mean),   M = W^T W + sigma^2 I

    Weak directions are shrunk where PCA keeps them as they are. `n_components` must be below the number of features, or no noise is left;
    None takes one fewer. Fitted: `components_` (q, d) maps centerd data to the posterior mean, `loadings_` (d, q) is W, `noise_variance_`
    is sigma^2, `mean_`. `score_samples` is the log-likelihood of each row. [tipping1999ppca]
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Fit to X (n, d); y is not looked at."""
        x = validated(self, X, dtype=FLOATS, ensure_min_samples=2)
        d = x.shape[1]
        if d < 2:
            raise ValueError("X has n_features = 1, and the noise needs a direction of its own; give 2 features or more")
        q = checked_components(d - 1 if self.n_components is None else self.n_components, d)
        if q == d:
            raise ValueError(f"n_components ({q}) must be below the number of features ({d}): the noise needs a direction; ask for {d - 1}")
        self.mean_ = x.mean(0, dtype=np.float64)
        values, vectors = _spectrum(x, self.mean_)  # largest first
        self.noise_variance_ = float(values[q:].sum() / (d - q))
        strengths = np.sqrt(np.maximum(values[:q] - self.noise_variance_, 0))
        self.loadings_ = vectors[:, :q] * strengths  # (d, q)
        # M is diagonal in this basis: Lambda_q
        shrunk = np.divide(strengths, values[:q], out=np.zeros(q), where=values[:q] > 0)
        self.components_ = (vectors[:, :q] * shrunk).T
        self._kept, self._directions = values[:q], vectors[:, :q]
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Posterior means of the factors, (n, n_components)."""
        check_is_fitted(self)
        x = validated(self, X, dtype=FLOATS, reset=False)
        found = (x - self.mean_.astype(x.dtype)) @ self.components_.T.astype(x.dtype)
        return like(found, X)

    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803
        """The log-likelihood of each row under the model, (n,)."""
        check_is_fitted(self)
        x = validated(self, X, dtype=FLOATS, reset=False) - self.mean_
        d, q, noise = x.shape[1], len(self._kept), max(self.noise_variance_, np.finfo(np.float64).tiny)
        inside = x @ self._directions  # (n, q)
        kept = np.maximum(self._kept, noise)
        outside = np.maximum((x**2).sum(1) - (inside**2).sum(1), 0)
        mahalanobis = (inside**2 / kept).sum(1) + outside / noise
        logs = np.log(kept).sum() + (d - q) * np.log(noise)
        likely: np.ndarray = -0.5 * (d * np.log(2 * np.pi) + logs + mahalanobis)
        return likely

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The mean log-likelihood."""
        return float(self.score_samples(X).mean())

    @property
    def _n_features_out(self) -> int:
        """For scikit-learn's names of the columns."""
        return len(self.components_)

    def _more_tags(self) -> dict[str, Any]:
        """For scikit-learn before 1.6."""
        return {"preserves_dtype": FLOATS}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _spectrum(x: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors (d, min(n, d)) of the covariance (divided by n), largest first; missing values are zero.

    So are those that are nothing but rounding: a direction in which no points differ would be magnified beyond all numbers.
    """
    n, d = x.shape
    rounding = max(n, d) * np.finfo(np.float64).eps
    if n > d:
        centerd = x - mean
        values, vectors = np.linalg.eigh(centerd.T.astype(np.float64) @ centerd / n)
        return np.where(values > rounding * values[-1], values, 0)[::-1], vectors[:, ::-1]
    _, lengths, turned = np.linalg.svd(x - mean, full_matrices=False)
    values = np.zeros(d)
    values[: len(lengths)] = np.where(lengths > rounding * lengths[0], lengths, 0) ** 2 / n
    return values, np.hstack([turned.T, np.zeros((d, d - len(lengths)))])
