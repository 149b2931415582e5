"""Probabilistic PCA: principal components as a Gaussian model with noise, in closed form."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from nearkin.estimators.linear.inputs import FLOATS, like, validated
from nearkin.estimators.linear.start import checked_components


class ProbabilisticPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Probabilistic PCA: x = W t + mean + noise with t standard normal, by maximum likelihood.

    .. math::
        W = U_q (\Lambda_q - \sigma^2 I)^{1/2}, \qquad
        \operatorname{transform}(x) = M^{-1} W^T (x - \text{mean}), \quad M = W^T W + \sigma^2 I

    :math:`\sigma^2` is the mean of the discarded eigenvalues of the covariance. The embedding is the posterior mean of t:
    weak directions are shrunk, where PCA keeps them as they are.

    Parameters
    ----------
    n_components : int, default=None
        Number of factors q. It must be below the number of features, or no direction is left for the noise. None takes
        one less than the number of features.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Maps centered data to the posterior mean.
    loadings_ : ndarray of shape (n_features, n_components)
        W.
    noise_variance_ : float
        :math:`\sigma^2`.
    mean_ : ndarray of shape (n_features,)
        Mean of each feature.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had names that are all strings.

    See Also
    --------
    LinearNCA : A linear map learned from classes.

    References
    ----------
    [tipping1999ppca]

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearkin.estimators import ProbabilisticPCA
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = ProbabilisticPCA(2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> round(model.noise_variance_, 3)
    0.051
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Fit the model.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            Training data, at least two features.
        y : None
            Ignored.

        Returns
        -------
        self : ProbabilisticPCA
            The fitted estimator.
        """
        x = validated(self, X, dtype=FLOATS, ensure_min_samples=2)
        d = x.shape[1]
        if d < 2:
            raise ValueError("X has n_features = 1, and the noise needs a direction of its own; give at least 2 features")
        q = checked_components(d - 1 if self.n_components is None else self.n_components, d)
        if q == d:
            raise ValueError(f"n_components ({q}) must be below the number of features ({d}); use at most {d - 1}")
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
        """Return the posterior means of the factors.

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
        found = (x - self.mean_.astype(x.dtype)) @ self.components_.T.astype(x.dtype)
        return like(found, X)

    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the log-likelihood of each row under the model.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New data.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-likelihoods.
        """
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
        """Return the mean log-likelihood.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New data.
        y : None
            Ignored.

        Returns
        -------
        float
            Mean of `score_samples`.
        """
        return float(self.score_samples(X).mean())

    @property
    def _n_features_out(self) -> int:
        """Used by scikit-learn for the names of the output columns."""
        return len(self.components_)

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"preserves_dtype": FLOATS}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _spectrum(x: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors (d, min(n, d)) of the covariance (divided by n), largest first; missing values are zero.

    Values at the level of rounding are set to zero: `transform` would magnify a direction in which no points differ.
    """
    n, d = x.shape
    rounding = max(n, d) * np.finfo(np.float64).eps
    if n > d:
        centered = x - mean
        values, vectors = np.linalg.eigh(centered.T.astype(np.float64) @ centered / n)
        return np.where(values > rounding * values[-1], values, 0)[::-1], vectors[:, ::-1]
    _, lengths, turned = np.linalg.svd(x - mean, full_matrices=False)
    values = np.zeros(d)
    values[: len(lengths)] = np.where(lengths > rounding * lengths[0], lengths, 0) ** 2 / n
    return values, np.hstack([turned.T, np.zeros((d, d - len(lengths)))])
