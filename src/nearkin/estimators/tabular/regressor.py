"""Regress on rows of tables by soft nearest neighbors in a trained embedding."""

import math
import warnings
from itertools import count
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from nearkin.compose.validation import check_share
from nearkin.estimators.linear.inputs import array, like, refuse_moments
from nearkin.estimators.tabular.neighbors import TabularNCA
from nearkin.models.tabular import NumberEmbedding, Scaling


class TabularNCARegressor(RegressorMixin, TabularNCA):  # type: ignore[misc]
    """Predict numbers of a table's rows by the mean over soft nearest neighbors in an embedding trained for it.

    Numbers, categories, booleans, dates and missing cells are recognized by column. The network is trained on the squared error of the
    soft mean; targets are standardized for it. `predict_interval` gives intervals from the spread of the neighbors' own targets.

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
        Share of the rows that are held out to stop early and to calibrate intervals. They vote in predictions, like all rows. 0 trains for
        all epochs.
    patience : int, default=12
        Epochs without a better held-out loss before training stops.
    n_members : int or None, default=None
        Encoders with different seeds whose predictions are averaged. None is 4 up to 2,500 rows, and 1 above.
    warm_start : bool, default=False
        Begin the next `fit` with the weights of the one before, if the columns are the same.
    n_jobs : int or None, default=None
        Threads to compute with; -1 is all cores, None leaves it to torch.
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

    See Also
    --------
    TabularNCAClassifier : The same for classes.
    NeighborhoodRegressor : Another network or objective.

    References
    ----------
    [ye2025modernnca], [taylor2010pose]

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nearkin.estimators import TabularNCARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = TabularNCARegressor(epochs=3, random_state=0).fit(X[::2], y[::2])
    >>> model.predict_interval(X[1::2], coverage=0.8).shape
    (221, 2)
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
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Recognize the columns and train.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            Training rows: a pandas or polars frame, or an array; NaN and None are missing.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            A row of weight 2 counts twice in the loss and in every vote; one of weight 0 is left out.

        Returns
        -------
        self : TabularNCARegressor
            The fitted estimator.
        """
        table = self._table(X, reset=True)
        y = _numbers(y)
        check_consistent_length(X, y)
        weights = self._vote_weights(sample_weight, None, len(y))
        table, weights, y = self._weighted_rows(table, weights, y)
        self._flat = y.ndim == 1
        columns = y.reshape(len(y), -1)
        with np.errstate(over="ignore"):
            spread = columns.std(0)
        if not np.isfinite(spread).all():
            raise ValueError(
                f"y holds numbers as large as {np.abs(columns).max():g}, whose squares overflow; divide them, or fit their logarithm"
            )
        self._mean, self._spread = columns.mean(0), np.where(spread > 0, spread, 1.0)
        self._fit(table, self._encoded_targets(y)[0], None, weights)
        self._scores = self._held_out_scores()
        return self

    def _encoded_targets(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return (_numbers(y).reshape(len(y), -1) - self._mean) / self._spread, None

    def _decoded(self, targets: np.ndarray) -> np.ndarray:
        found: np.ndarray = targets * self._spread + self._mean
        return found[:, 0] if self._flat else found

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the mean target of the soft neighbors.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Of the shape of y in `fit`.
        """
        return like(self._decoded(self._soft(X)), X)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:  # noqa: N803
        """Return intervals that hold the target with the given probability (split conformal prediction).

        Half the width is the standard deviation of the neighbors' own targets, times a factor: the quantile of the same ratio for the
        held-out rows, each predicted by all other rows.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            New rows.
        coverage : float, default=0.9
            Share of the targets that the intervals should hold.

        Returns
        -------
        ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper ends; infinite where the held-out rows are too few for this coverage.

        Raises
        ------
        ValueError
            If no rows were held out.
        """
        check_is_fitted(self)
        check_share("coverage", coverage, below_one=True)
        if not len(self._scores):
            raise ValueError(f"no rows were held out to calibrate intervals (held_out={self.held_out}, too few rows); hold out more")
        queries = self._embedded(self._table(X, reset=False))
        means, spreads = self._means_and_spreads(queries)
        rank = int(np.ceil((len(self._scores) + 1) * coverage))
        ordered = np.sort(self._scores, 0)
        if rank > len(ordered):
            needed = next(rows for rows in count(len(ordered) + 1) if math.ceil((rows + 1) * coverage) <= rows)
            warnings.warn(
                f"coverage {coverage} needs {needed:,} held-out rows, and {len(ordered):,} were held out: the intervals are infinite; "
                "lower coverage, or hold out more rows",
                stacklevel=2,
            )
        factor = ordered[rank - 1] if rank <= len(ordered) else np.full(ordered.shape[1], np.inf)  # (t,)
        ends = np.stack([self._mean + self._spread * (means + sign * factor * spreads) for sign in (-1, 1)], -1)
        found: np.ndarray = ends[:, 0] if self._flat else ends
        return found

    def _means_and_spreads(self, queries: list[Tensor], without: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(n, t) means of the neighbors' targets, and standard deviations: a floor keeps equal neighbors from claiming certainty."""
        both = torch.cat([self._targets, self._targets.square()], 1)
        found = self._soft_means(queries, without, both).mean(0).cpu().double().numpy()
        means, squares = np.split(found, 2, 1)
        return means, np.sqrt(np.maximum(squares - means**2, 0)) + 0.05

    def _held_out_scores(self) -> np.ndarray:
        """(h, t): errors of the held-out rows, each predicted by all rows but itself, over the spread of its neighbors."""
        if not len(self._held):
            return np.empty((0, self._targets.shape[1]))
        at = torch.from_numpy(self._held).to(self.device)
        means, spreads = self._means_and_spreads([known[at] for known in self._known], at)
        scores: np.ndarray = np.abs(self._targets[at].cpu().double().numpy() - means) / spreads
        return scores

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"allow_nan": True, "multioutput": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _numbers(y: Any) -> np.ndarray:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    refuse_moments(array(y))
    values = np.asarray(array(y))
    if values.dtype.kind == "c":
        raise ValueError("complex data not supported: y must be real numbers")
    found: np.ndarray = check_array(values, ensure_2d=False, dtype=np.float64, input_name="y")
    return found
