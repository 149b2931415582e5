"""The transformer with a trained network."""

from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from nearkin.estimators.learning import DeepEstimator
from nearkin.estimators.linear.inputs import FLOATS, array, like, validated
from nearkin.estimators.targets import Targets, read_targets


class NeighborhoodEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DeepEstimator):  # type: ignore[misc]
    """Embed rows with a network trained so that nearest neighbors are right.

    The network learns from classes, numbers, label sets or without y. NumPy input gives NumPy output, torch input gives
    torch output. Scale the features first (`StandardScaler`).

    Parameters
    ----------
    n_components : int, default=32
        Dimensions of the embedding. Not used if `network` is a module.
    objective : str or Objective, default="auto"
        What is optimized. "auto" chooses by y: NCA for classes, NCA regression for numbers, NCA of sets
        for multi-hot rows, instance discrimination without y. Or the
        name of an objective (its parameters go to `objective_options`), or an `Objective` instance, which is copied.
    network : str or torch.nn.Module, default="auto"
        "auto" is a perceptron with one hidden layer, or a convnet if `image_shape` is given. Or the name of a network (its
        parameters go to `network_options`), or a module, which is copied.
    supervision : {"auto", "classes", "numbers", "sets", "ids"}, default="auto"
        How to read y. Set it where y is ambiguous: whole numbers are classes unless you pass "numbers". "ids" ignores y.
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
    NeighborhoodClassifier : Predict classes or label sets by the vote of the nearest training rows.
    NeighborhoodRegressor : Predict numbers by the mean of the nearest training rows.
    LinearNCA : A linear map instead of a network.

    References
    ----------
    [goldberger2005nca]

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nearkin.estimators import NeighborhoodEmbedding
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), NeighborhoodEmbedding(2, epochs=5, random_state=0))
    >>> model.fit_transform(X, y).shape
    (150, 2)
    """

    def __init__(
        self,
        n_components: int = 32,
        *,
        objective: Any = "auto",
        network: Any = "auto",
        supervision: str = "auto",
        objective_options: dict[str, Any] | None = None,
        network_options: dict[str, Any] | None = None,
        image_shape: tuple[int, int, int] | None = None,
        epochs: int = 50,
        batch_size: int = 256,
        learning_rate: float = 0.01,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.network = network
        self.supervision = supervision
        self.objective_options = objective_options
        self.network_options = network_options
        self.image_shape = image_shape
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.verbose = verbose
        self.random_state = random_state

    def _read_targets(self, y: np.ndarray | None) -> Targets:
        return read_targets(y, self.supervision)

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Train the network.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like or Tensor, default=None
            (n_samples,) classes or numbers, (n_samples, n_targets) numbers, (n_samples, n_labels) multi-hot label sets, or
            None to learn without labels.

        Returns
        -------
        self : NeighborhoodEmbedding
            The fitted estimator.
        """
        if y is None:
            x = validated(self, X, dtype=FLOATS, ensure_min_samples=2)
        else:
            x, y = validated(self, X, array(y), dtype=FLOATS, ensure_min_samples=2, multi_output=True)
        self._learn(x, y)
        self._n_features_out = self.about_["network"]["dimension"]
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Embed rows.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray or Tensor of shape (n_samples, n_components)
            Of the kind and dtype of X.
        """
        embedded, dtype = self._encode(X)
        return like(embedded.astype(dtype), X)

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"preserves_dtype": FLOATS}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
