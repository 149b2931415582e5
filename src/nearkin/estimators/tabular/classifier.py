"""Classify rows of tables by soft nearest neighbors in a trained embedding."""

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import column_or_1d

from nearkin.estimators.linear.inputs import array, like, refuse_moments
from nearkin.estimators.tabular.neighbors import TabularNCA
from nearkin.estimators.targets import read_targets
from nearkin.models.tabular import NumberEmbedding, Scaling


class TabularNCAClassifier(ClassifierMixin, TabularNCA):  # type: ignore[misc]
    """Classify rows of a table by soft nearest neighbors in an embedding trained for it.

    Numbers, categories, booleans, dates and missing cells are recognized by column. Each number is scaled and embedded, a network embeds
    the row, and it is trained by NCA: minus the log of the share of the vote that a row's own class gets from the other rows. A prediction
    is that vote of all training rows, so that it can be explained by them, and changes when rows are added or removed.

    Parameters
    ----------
    scaling : {"quantile", "standard", "robust"}, default="quantile"
        How numbers are scaled: to normal scores by their ranks, by mean and standard deviation, or by median and quartiles.
    number_embedding : {"periodic", "piecewise", "none"}, default="periodic"
        How a scaled number becomes a vector.
    n_components : int, default=64
        Dimensions of the embedding.
    blocks : int, default=1
        Residual blocks of the encoder; 0 is a linear map of the embedded columns.
    hidden : int, default=256
        Units within a block.
    dropout : float, default=0.1
        Probability of dropout within a block.
    frequency_scale : float, default=0.1
        Spread of the frequencies of periodic embeddings at the start: a larger one resolves finer differences of a number.
    distance : {"euclidean", "squared_euclidean"}, default="euclidean"
        Distance between embeddings. A row at distance D votes with a share proportional to exp(-D / temperature).
    temperature : float, default=1.0
        Divides the distances in training, where the encoder learns their scale. For predictions it is multiplied with the factor of 0.5 to
        3 that suits the held-out rows best, so that the shares of the vote are calibrated.
    reference_share : float, default=0.5
        Share of the training rows that a step draws as references, at most 1,024; 1 takes all of them, up to that limit.
    epochs : int, default=40
        The most passes over the training rows. The learning rate falls to 0 along a cosine over them.
    batch_size : int or None, default=None
        Rows per step. None takes a seventh of the rows up to 256, and a sixteenth of large tables up to 1,024.
    learning_rate : float, default=0.002
        Of AdamW, at the start.
    weight_decay : float, default=0.0002
        Of AdamW.
    held_out : float, default=0.15
        Share of the rows that are held out to stop early. They vote in predictions, like all rows. 0 trains for
        all epochs.
    patience : int, default=12
        Epochs without a better held-out loss before training stops.
    n_members : int or None, default=None
        Encoders with different seeds whose predictions are averaged. None is 4 up to 2,500 rows, and 1 above.
    warm_start : bool, default=False
        Begin the next `fit` with the weights of the one before, if the columns are the same.
    n_jobs : int or None, default=None
        Threads to compute with; -1 is all cores, None leaves it to torch.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`: they weigh a row's loss and its vote.
    device : str, default="cpu"
        Where the encoders are trained and evaluated, such as "cuda".
    verbose : int, default=0
        Print the losses after every epoch if not 0.
    random_state : int, RandomState or None, default=None
        Seed of the split, weights and batches. With an int, two fits on a CPU give equal results.

    Attributes
    ----------
    schema_ : TableSchema
        The columns, as they were recognized, and those left out with the reason.
    members_ : list of TabularEncoder
        The trained encoders.
    loss_curves_ : list of list of float
        Held-out loss of every epoch, for every member.
    temperatures_ : list of float
        The temperature of every member's predictions.
    n_rows_ : int
        Rows that vote now.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X had names that are all strings.
    classes_ : ndarray of shape (n_classes,)
        The classes.

    See Also
    --------
    TabularNCARegressor : The same for numbers.
    NeighborhoodClassifier : Another network or objective, images, label sets.

    References
    ----------
    [ye2025modernnca], [goldberger2005nca]

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearkin.estimators import TabularNCAClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TabularNCAClassifier(epochs=5, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.8)
    True
    >>> model.explain(X[:1], n_neighbors=1)[0][0].target.item()
    0
    """

    def __init__(
        self,
        *,
        scaling: Scaling = "quantile",
        number_embedding: NumberEmbedding = "periodic",
        n_components: int = 64,
        blocks: int = 1,
        hidden: int = 256,
        dropout: float = 0.1,
        frequency_scale: float = 0.1,
        distance: str = "euclidean",
        temperature: float = 1.0,
        reference_share: float = 0.5,
        epochs: int = 40,
        batch_size: int | None = None,
        learning_rate: float = 0.002,
        weight_decay: float = 0.0002,
        held_out: float = 0.15,
        patience: int = 12,
        n_members: int | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        class_weight: Any = None,
        device: str = "cpu",
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.scaling = scaling
        self.number_embedding = number_embedding
        self.n_components = n_components
        self.blocks = blocks
        self.hidden = hidden
        self.dropout = dropout
        self.frequency_scale = frequency_scale
        self.distance = distance
        self.temperature = temperature
        self.reference_share = reference_share
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.held_out = held_out
        self.patience = patience
        self.n_members = n_members
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.class_weight = class_weight
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Recognize the columns and train.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            Training rows: a pandas or polars frame, or an array; NaN and None are missing.
        y : array-like of shape (n_samples,)
            Classes.
        sample_weight : array-like of shape (n_samples,), default=None
            A row of weight 2 counts twice in the loss and in every vote; one of weight 0 is left out.

        Returns
        -------
        self : TabularNCAClassifier
            The fitted estimator.
        """
        table, y = self._table(X, reset=True), _column(y)
        check_consistent_length(X, y)
        weights = self._vote_weights(sample_weight, None, len(y))
        table, weights, y = self._weighted_rows(table, weights, y)
        self.classes_ = read_targets(y, "classes").classes
        self._class_weights = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        wrong = np.flatnonzero(~(np.isfinite(self._class_weights) & (self._class_weights >= 0)))
        if len(wrong):
            one = f"class_weight of {self.classes_.tolist()[wrong[0]]!r} ({self._class_weights[wrong[0]]:g})"
            raise ValueError(f"{one} must be a finite number of at least 0")
        targets, classes = self._encoded_targets(y)
        assert classes is not None
        self._fit(table, targets, classes, weights * self._class_weights[classes])
        return self

    def _encoded_targets(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        codes = {name: code for code, name in enumerate(self.classes_.tolist())}
        unknown = sorted({repr(name) for name in y.tolist() if name not in codes})
        if unknown:
            raise ValueError(f"y holds classes that training did not have: {', '.join(unknown[:5])}; fit again to learn them")
        classes = np.array([codes[name] for name in y.tolist()], dtype=np.int64)
        return np.eye(len(codes))[classes], classes

    def _decoded(self, targets: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.classes_[targets.argmax(1)]
        return found

    def _vote_weights(self, sample_weight: Any, classes: np.ndarray | None, n: int) -> np.ndarray:
        weights = super()._vote_weights(sample_weight, classes, n)
        return weights if classes is None else weights * self._class_weights[classes]

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return each class's share of the vote of all training rows.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities.
        """
        shares = self._soft(X)
        return like(shares / shares.sum(1, keepdims=True), X)  # rounding would leave a sure class above 1

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the class with the largest share of the vote.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.
        """
        shares = self._soft(X)
        return like(self.classes_[shares.argmax(1)], X)


def _column(y: Any) -> np.ndarray:
    """Classes (n,), none of them missing."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    refuse_moments(array(y))
    values: np.ndarray = column_or_1d(array(y), warn=True)
    gone = [at for at, one in enumerate(values.tolist()) if one is None or one != one]  # noqa: PLR0124
    if gone:
        raise ValueError(f"y contains NaN or nothing in {len(gone):,} rows, first in {gone[:5]}; remove these rows, or fill in their class")
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ValueError("y contains infinity; give finite classes")
    return values
