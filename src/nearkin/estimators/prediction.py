"""Nearest neighbors in a trained embedding that predict: classes and label sets by vote, numbers by the mean."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch.nn.functional import one_hot

from nearkin.compose import Affinity, SquaredEuclidean, cosine
from nearkin.compose.validation import check_choice, check_whole
from nearkin.estimators.learning import DeepEstimator
from nearkin.estimators.linear.inputs import FLOATS, array, like, validated
from nearkin.estimators.targets import Targets, read_targets

# Metrics whose softmax at the objective's temperature was trained.
SOFT: dict[str, Callable[[float], Affinity]] = {"squared_euclidean": SquaredEuclidean, "cosine": cosine}


class NeighborhoodClassifier(ClassifierMixin, DeepEstimator):  # type: ignore[misc]
    """Classify by the vote of the nearest training rows in an embedding trained for it.

    y holds one class per row, or a multi-hot label set (n, C). For sets, a label is predicted if more than half of the
    neighbors have it. Scale the features first (`StandardScaler`).

    Parameters
    ----------
    n_neighbors : int, default=5
        Neighbors that vote if `weights` is "uniform". More than the number of training rows means all of them.
    n_components : int, default=32
        Dimensions of the embedding. Not used if `network` is a module.
    objective : str or Objective, default="auto"
        What is optimized. "auto" chooses by y: NCA for classes, NCA of sets for multi-hot rows. Or the
        name of an objective (its parameters go to `objective_options`), or an `Objective` instance, which is copied.
    network : str or torch.nn.Module, default="auto"
        "auto" is a perceptron with one hidden layer, or a convnet if `image_shape` is given. Or the name of a network (its
        parameters go to `network_options`), or a module, which is copied.
    objective_options : dict, default=None
        Parameters of a named objective, such as ``{"temperature": 0.5}``.
    network_options : dict, default=None
        Parameters of a named network, such as ``{"hidden": [256, 256]}``.
    image_shape : tuple of int, default=None
        (channels, height, width) of the image that each row of X holds; X stays (n, channels * height * width).
    weights : {"soft", "uniform"}, default="soft"
        Who votes. "soft": all training rows, with the softmax of their affinities at the temperature of the objective, as it was trained.
        "uniform": the nearest `n_neighbors`, one vote each; so do all objectives that are no softmax over Euclidean distances or cosines.
    epochs : int, default=50
        Passes over the training rows.
    batch_size : int, default=256
        Rows per step, at least 2. Neighbors are searched within a batch; raise it if there are many classes.
    learning_rate : float, default=0.01
        Peak of the one-cycle schedule of AdamW.
    verbose : int, default=0
        Print the loss after every epoch if not 0.
    random_state : int, RandomState or None, default=None
        Seed of weights, batches and dropout. With an int, two fits on a CPU give equal results.

    Attributes
    ----------
    network_ : torch.nn.Module
        The trained network, in float64.
    objective_ : Objective
        The objective after training.
    loss_curve_ : list of float
        Mean loss of every epoch.
    references_ : Points
        Embeddings, targets and ids of the training rows, among which neighbors are searched.
    targets_ : Targets
        y as the objective reads it.
    about_ : dict
        Description of the model, as `save` writes it to model.json.
    classes_ : ndarray of shape (n_classes,)
        The classes; for label sets the numbers of the columns.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had names that are all strings.

    See Also
    --------
    NeighborhoodEmbedding : The embedding alone.
    NeighborhoodRegressor : The same for numbers.

    References
    ----------
    [goldberger2005nca]

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nearkin.estimators import NeighborhoodClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), NeighborhoodClassifier(n_components=2, epochs=10, random_state=0))
    >>> bool(model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.8)
    True
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
        weights: str = "soft",
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
        self.weights = weights
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.verbose = verbose
        self.random_state = random_state

    def _read_targets(self, y: np.ndarray | None) -> Targets:
        assert y is not None
        targets = read_targets(y)
        return read_targets(y, "classes") if targets.supervision == "numbers" else targets  # raises on continuous targets

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train the network.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like or Tensor of shape (n_samples,) or (n_samples, n_labels)
            Classes, or multi-hot label sets.

        Returns
        -------
        self : NeighborhoodClassifier
            The fitted estimator.
        """
        check_whole("n_neighbors", self.n_neighbors)
        check_choice("weights", self.weights, ("soft", "uniform"))
        x, y = validated(self, X, array(y), dtype=FLOATS, ensure_min_samples=2, multi_output=True)
        self._learn(x, y)
        self.classes_ = self.targets_.classes
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return each class's share of the vote.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray or Tensor of shape (n_samples, n_classes), or list of them
            For label sets a list with one (n_samples, 2) per label: the shares without and with it.
        """
        shares = self._shares(X)
        if self.targets_.supervision == "sets":
            return [like(np.stack([1 - share, share], 1), X) for share in shares.T]
        return like(shares, X)

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """Return how clear the vote is.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray or Tensor
            Shares (n_samples, n_classes); for two classes (n_samples,), and for label sets (n_samples, n_labels), the share
            minus one half.
        """
        shares = self._shares(X)
        if self.targets_.supervision == "sets":
            return like(shares - 0.5, X)
        return like(shares[:, 1] - 0.5 if len(self.classes_) == 2 else shares, X)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the class with the largest share of the vote, or the labels with more than half of it.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray or Tensor of shape (n_samples,) or (n_samples, n_labels)
            Classes, the first one of equal shares; or multi-hot label sets.
        """
        shares = self._shares(X)
        if self.targets_.supervision == "sets":
            return like((shares > 0.5).astype(np.int64), X)
        return like(self.classes_[shares.argmax(1)], X)

    def _shares(self, X: Any) -> np.ndarray:  # noqa: N803
        check_is_fitted(self)
        assert self.targets_.labels is not None
        affinity = SOFT.get(self.about_["metric"]) if self.weights == "soft" and "temperature" in self.about_ else None
        if affinity is not None:
            return self._soft_shares(X, affinity(self.about_["temperature"]))
        positions = np.asarray(self.kneighbors(X, return_distance=False))
        labels = self.targets_.labels.numpy()[positions]  # (n, k) codes or (n, k, C) sets
        if self.targets_.supervision == "sets":
            return np.asarray(labels.mean(1, dtype=np.float64))
        counts = np.zeros((len(labels), len(self.classes_)))
        for column in labels.T:
            counts[np.arange(len(labels)), column] += 1
        shares: np.ndarray = counts / labels.shape[1]
        return shares

    def _soft_shares(self, X: Any, affinity: Affinity) -> np.ndarray:  # noqa: N803
        """(n, C): the vote of all training rows, block by block."""
        known, labels = self.references_.embeddings, self.targets_.labels
        assert labels is not None
        votes = labels.double() if labels.ndim == 2 else one_hot(labels, len(self.classes_)).double()
        queries = torch.from_numpy(self._encode(X)[0])
        blocks = [torch.softmax(affinity(some, known), 1) @ votes for some in torch.split(queries, max(1, 2**23 // len(known)))]
        shares: np.ndarray = torch.cat(blocks).clamp_max(1).numpy()  # rounding would leave a sure class above 1
        return shares

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"multilabel": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class NeighborhoodRegressor(RegressorMixin, DeepEstimator):  # type: ignore[misc]
    """Predict numbers by the mean over the nearest training rows in an embedding trained for it.

    y is (n,) or (n, t). Scale the features first (`StandardScaler`).

    Parameters
    ----------
    n_neighbors : int, default=5
        Neighbors that are averaged. More than the number of training rows means all of them.
    n_components : int, default=32
        Dimensions of the embedding. Not used if `network` is a module.
    objective : str or Objective, default="auto"
        What is optimized. "auto" chooses by y: NCA regression. Or the
        name of an objective (its parameters go to `objective_options`), or an `Objective` instance, which is copied.
    network : str or torch.nn.Module, default="auto"
        "auto" is a perceptron with one hidden layer, or a convnet if `image_shape` is given. Or the name of a network (its
        parameters go to `network_options`), or a module, which is copied.
    objective_options : dict, default=None
        Parameters of a named objective, such as ``{"temperature": 0.5}``.
    network_options : dict, default=None
        Parameters of a named network, such as ``{"hidden": [256, 256]}``.
    image_shape : tuple of int, default=None
        (channels, height, width) of the image that each row of X holds; X stays (n, channels * height * width).
    epochs : int, default=50
        Passes over the training rows.
    batch_size : int, default=256
        Rows per step, at least 2. Neighbors are searched within a batch; raise it if there are many classes.
    learning_rate : float, default=0.01
        Peak of the one-cycle schedule of AdamW.
    verbose : int, default=0
        Print the loss after every epoch if not 0.
    random_state : int, RandomState or None, default=None
        Seed of weights, batches and dropout. With an int, two fits on a CPU give equal results.

    Attributes
    ----------
    network_ : torch.nn.Module
        The trained network, in float64.
    objective_ : Objective
        The objective after training.
    loss_curve_ : list of float
        Mean loss of every epoch.
    references_ : Points
        Embeddings, targets and ids of the training rows, among which neighbors are searched.
    targets_ : Targets
        y as the objective reads it.
    about_ : dict
        Description of the model, as `save` writes it to model.json.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had names that are all strings.

    See Also
    --------
    NeighborhoodEmbedding : The embedding alone.
    LinearNCARegression : A linear map with the same objective.

    References
    ----------
    [taylor2010pose]

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nearkin.estimators import NeighborhoodRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), NeighborhoodRegressor(10, epochs=5, random_state=0))
    >>> model.fit(X, y).predict(X).shape
    (442,)
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

    def _read_targets(self, y: np.ndarray | None) -> Targets:
        return read_targets(y, "numbers")

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train the network.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like or Tensor of shape (n_samples,) or (n_samples, n_targets)
            Numbers.

        Returns
        -------
        self : NeighborhoodRegressor
            The fitted estimator.
        """
        check_whole("n_neighbors", self.n_neighbors)
        x, y = validated(self, X, array(y), dtype=FLOATS, ensure_min_samples=2, multi_output=True, y_numeric=True)
        self._learn(x, y)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the mean target of the neighbors.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray or Tensor of shape (n_samples,) or (n_samples, n_targets)
            Of the shape of y in `fit`.
        """
        check_is_fitted(self)
        positions = np.asarray(self.kneighbors(X, return_distance=False))
        assert self.targets_.labels is not None
        found = self.targets_.labels.numpy()[positions].mean(1)  # (n, t)
        return like(found[:, 0] if self.targets_.flat else found, X)

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"multioutput": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
