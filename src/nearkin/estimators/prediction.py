"""Deep nearest neighbors that predict: a class or a label set by vote, a number by the mean."""

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from nearkin.compose.validation import check_whole
from nearkin.estimators.learning import DeepEstimator
from nearkin.estimators.linear.inputs import FLOATS, array, like, validated
from nearkin.estimators.targets import Answers, understood


class NeighborhoodClassifier(ClassifierMixin, DeepEstimator):  # type: ignore[misc]
    """k nearest neighbors in an embedding trained for them: the vote of the `n_neighbors` nearest training rows.

    y holds one class for each row, or a multi-hot set (n, C): then each label is predicted that more than half of the neighbors
    have. `predict_proba` is the share of the neighbors. `kneighbors()` gives the neighbors of the training rows themselves,
    without self. The other parameters are those of NeighborhoodEmbedding.
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        n_components: int = 32,
        *,
        objective: Any = "auto",
        network: Any = "auto",
        objective_options: dict[str, Any] | None = None,
        network_options: dict[str, Any] | None = None,
        image_shape: tuple[int, int, int] | None = None,
        epochs: int = 50,
        batch_size: int = 256,
        learning_rate: float = 0.01,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.objective = objective
        self.network = network
        self.objective_options = objective_options
        self.network_options = network_options
        self.image_shape = image_shape
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.verbose = verbose
        self.random_state = random_state

    def _understood(self, y: np.ndarray | None) -> Answers:
        assert y is not None
        answers = understood(y)
        return understood(y, "classes") if answers.supervision == "numbers" else answers  # which refuses continuous targets in words

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on X (n, d) and y: (n,) classes or (n, C) multi-hot sets."""
        check_whole("n_neighbors", self.n_neighbors)
        x, y = validated(self, X, array(y), dtype=FLOATS, ensure_min_samples=2, multi_output=True)
        self._learn(x, y)
        self.classes_ = self.answers_.classes
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """(n, C) the share of the neighbors that are of each class; for sets a list of (n, 2), without and with each label."""
        shares = self._shares(X)
        if self.answers_.supervision == "sets":
            return [like(np.stack([1 - share, share], 1), X) for share in shares.T]
        return like(shares, X)

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """How clear the vote is: (n, C) shares; for two classes (n,), and for sets (n, C), the share above one half."""
        shares = self._shares(X)
        if self.answers_.supervision == "sets":
            return like(shares - 0.5, X)
        return like(shares[:, 1] - 0.5 if len(self.classes_) == 2 else shares, X)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """(n,) the class of most neighbors, the first of equals; for sets (n, C) the labels of more than half of them."""
        shares = self._shares(X)
        if self.answers_.supervision == "sets":
            return like((shares > 0.5).astype(np.int64), X)
        return like(self.classes_[shares.argmax(1)], X)

    def _shares(self, X: Any) -> np.ndarray:  # noqa: N803
        check_is_fitted(self)
        positions = np.asarray(self.kneighbors(X, return_distance=False))
        assert self.answers_.labels is not None
        labels = self.answers_.labels.numpy()[positions]  # (n, k) codes or (n, k, C) sets
        if self.answers_.supervision == "sets":
            return np.asarray(labels.mean(1, dtype=np.float64))
        counts = np.zeros((len(labels), len(self.classes_)))
        for column in labels.T:
            counts[np.arange(len(labels)), column] += 1
        shares: np.ndarray = counts / labels.shape[1]
        return shares

    def _more_tags(self) -> dict[str, Any]:
        """For scikit-learn before 1.6."""
        return {"multilabel": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class NeighborhoodRegressor(RegressorMixin, DeepEstimator):  # type: ignore[misc]
    """k nearest neighbors regression in an embedding trained for it: the mean target of the `n_neighbors` nearest training rows.

    y is (n,) or (n, t). `kneighbors()` gives the neighbors of the training rows themselves, without self. The other parameters are
    those of NeighborhoodEmbedding.
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        n_components: int = 32,
        *,
        objective: Any = "auto",
        network: Any = "auto",
        objective_options: dict[str, Any] | None = None,
        network_options: dict[str, Any] | None = None,
        image_shape: tuple[int, int, int] | None = None,
        epochs: int = 50,
        batch_size: int = 256,
        learning_rate: float = 0.01,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.objective = objective
        self.network = network
        self.objective_options = objective_options
        self.network_options = network_options
        self.image_shape = image_shape
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.verbose = verbose
        self.random_state = random_state

    def _understood(self, y: np.ndarray | None) -> Answers:
        return understood(y, "numbers")

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on X (n, d) and y, (n,) or (n, t) numbers."""
        check_whole("n_neighbors", self.n_neighbors)
        x, y = validated(self, X, array(y), dtype=FLOATS, ensure_min_samples=2, multi_output=True, y_numeric=True)
        self._learn(x, y)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """(n,) or (n, t): the mean of the neighbors' targets."""
        check_is_fitted(self)
        positions = np.asarray(self.kneighbors(X, return_distance=False))
        assert self.answers_.labels is not None
        found = self.answers_.labels.numpy()[positions].mean(1)  # (n, t)
        return like(found[:, 0] if self.answers_.flat else found, X)

    def _more_tags(self) -> dict[str, Any]:
        """For scikit-learn before 1.6."""
        return {"multioutput": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
