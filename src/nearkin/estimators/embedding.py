"""The deep transformer."""

from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from nearkin.estimators.learning import DeepEstimator
from nearkin.estimators.linear.inputs import FLOATS, array, like, validated
from nearkin.estimators.targets import Answers, understood


class NeighborhoodEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DeepEstimator):  # type: ignore[misc]
    """An embedding by a network whose nearest neighbors are right: by classes, by numbers, by label sets, or without labels.

    objective: "auto" chooses by y (NCA for classes, NCA regression for numbers, NCA of sets for multi-hot rows, instance
    discrimination without y), or the name of an objective with `objective_options`, or an Objective. network: "auto" (a perceptron with
    one hidden layer; a convnet with `image_shape`), the name of a network with `network_options`, or a torch module.
    supervision: "auto", or "classes", "numbers", "sets", "ids" where y alone could mean two things (whole numbers).
    image_shape: (channels, height, width) that each row of X unfolds to. Trained by AdamW with one cycle of the learning rate.

    numpy in, numpy out; torch in, torch out. Scale the features first (StandardScaler).
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

    def _understood(self, y: np.ndarray | None) -> Answers:
        return understood(y, self.supervision)

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Train on X (n, d) and y: (n,) classes or numbers, (n, t) numbers, (n, C) multi-hot sets, or None."""
        if y is None:
            x = validated(self, X, dtype=FLOATS, ensure_min_samples=2)
        else:
            x, y = validated(self, X, array(y), dtype=FLOATS, ensure_min_samples=2, multi_output=True)
        self._learn(x, y)
        self._n_features_out = self.about_["network"]["dimension"]
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Embeddings (n, n_components)."""
        embedded, dtype = self._encode(X)
        return like(embedded.astype(dtype), X)

    def _more_tags(self) -> dict[str, Any]:
        """For scikit-learn before 1.6."""
        return {"preserves_dtype": FLOATS}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
