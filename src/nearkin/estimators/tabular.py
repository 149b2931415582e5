"""Classify and regress rows of tables by soft nearest neighbors in a trained embedding."""

import inspect
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from nearkin.compose.validation import check_choice, check_finite, check_positive, check_share, check_whole
from nearkin.data.columns import EncodedRows, TableSchema, read_columns
from nearkin.estimators.linear.inputs import array, like, validated
from nearkin.estimators.targets import read_targets
from nearkin.models.tabular import NumberEmbedding, NumberScaling, Scaling, TabularEncoder
from nearkin.search.soft_neighbors import Votes, soft_mean, vote
from nearkin.train.tabular import Schedule, TableRows, batch_size_for, embed, members_for, split_rows, train

DISTANCES = ("euclidean", "squared_euclidean")
FLOAT64_ROWS = 20_000  # up to here predictions are computed in float64 and do not depend on the other queries' rounding
_FINITE = "ensure_all_finite" if "ensure_all_finite" in inspect.signature(check_array).parameters else "force_all_finite"


class Neighbor(NamedTuple):
    """A training row that speaks for a prediction."""

    position: int
    distance: float
    share: float  # of the vote
    target: Any
    row: dict[str, Any]


class TabularNCA(BaseEstimator, ABC):  # type: ignore[misc]
    """What the classifier and the regressor share: columns, encoders, soft neighbors, rows that come and go."""

    scaling: Scaling
    number_embedding: NumberEmbedding
    n_components: int
    blocks: int
    hidden: int
    dropout: float
    frequency_scale: float
    distance: str
    temperature: float
    reference_share: float
    epochs: int
    batch_size: int | None
    learning_rate: float
    weight_decay: float
    held_out: float
    patience: int
    n_members: int | None
    warm_start: bool
    n_jobs: int | None
    device: str
    verbose: int
    random_state: Any

    @abstractmethod
    def _encoded_targets(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Targets (n, t) and, for classes, their codes (n,)."""

    @abstractmethod
    def _decoded(self, targets: np.ndarray) -> np.ndarray:
        """The targets of rows as the user gave them."""

    def _table(self, X: Any, reset: bool) -> Any:  # noqa: N803
        """X after scikit-learn's checks of its columns: a frame as it is, anything else as an array."""
        if hasattr(X, "columns"):
            return validated(self, X, reset=reset, skip_check_array=True)
        X = array(X)  # noqa: N806
        kind = np.asarray(X).dtype.kind if isinstance(X, list | tuple | np.ndarray) else "f"
        dtype = object if kind in "OUS" else np.float64
        return validated(self, X, reset=reset, dtype=dtype, ensure_min_samples=2 if reset else 1, **{_FINITE: "allow-nan"})

    def _inputs(self, rows: EncodedRows) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self._scaling(rows.numbers)).to(self.device), torch.from_numpy(rows.categories).to(self.device)

    def _fit(self, table: Any, targets: np.ndarray, classes: np.ndarray | None, weights: np.ndarray) -> None:
        schedule = self._schedule(len(targets))
        count = members_for(len(targets)) if self.n_members is None else check_whole("n_members", self.n_members)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=1 + count).tolist()
        before: list[TabularEncoder] = getattr(self, "members_", []) if self.warm_start else []
        self.schema_ = TableSchema.learned(table)
        encoded = self.schema_.encode(table)
        self._scaling = NumberScaling.fitted(encoded.numbers, self.scaling)
        numbers, categories = self._inputs(encoded)
        rows = TableRows(
            numbers.float(),
            categories,
            torch.from_numpy(targets).float().to(self.device),
            None if classes is None else torch.from_numpy(classes).to(self.device),
            torch.from_numpy(weights).float().to(self.device),
        )
        share = check_share("held_out", self.held_out, below_one=True)
        parts = split_rows(classes, len(targets), share, seeds[0])
        self.members_, self.loss_curves_, self.temperatures_ = [], [], []
        for number, seed in enumerate(seeds[1:]):
            with torch.random.fork_rng(devices=[]), _threads(self.n_jobs):
                torch.manual_seed(seed)
                if classes is not None and number:  # every row is learned by most members; intervals need rows that no member learned
                    parts = split_rows(classes, len(targets), share, seed)
                encoder = self._encoder(numbers.shape[1]).to(self.device)
                if number < len(before):
                    _continue(encoder, before[number])
                report = self._report(number + 1, count) if self.verbose else None
                curve, factor = train(encoder, rows, parts, schedule, seed, report)
            self.members_.append(encoder)
            self.loss_curves_.append(curve)
            self.temperatures_.append(self.temperature * factor)
        self._keep(table, numbers, categories, targets, weights)
        self._held = parts[1]

    def _schedule(self, n: int) -> Schedule:
        check_choice("distance", self.distance, DISTANCES)
        check_share("reference_share", self.reference_share)
        return Schedule(
            self.distance,
            check_positive("temperature", self.temperature),
            self.reference_share,
            batch_size_for(n) if self.batch_size is None else check_whole("batch_size", self.batch_size, 2),
            check_whole("epochs", self.epochs),
            check_whole("patience", self.patience),
            check_positive("learning_rate", self.learning_rate),
            float(self.weight_decay),
        )

    def _encoder(self, numbers: int) -> TabularEncoder:
        return TabularEncoder(
            numbers,
            self.schema_.category_counts,
            self.n_components,
            number_embedding=self.number_embedding,
            frequency_scale=check_positive("frequency_scale", self.frequency_scale),
            blocks=self.blocks,
            hidden=self.hidden,
            dropout=self.dropout,
        )

    def _report(self, member: int, count: int) -> Any:
        def report(epoch: int, loss: float, held_out: float | None) -> None:
            of = f"member {member} of {count}, " if count > 1 else ""
            told = "" if held_out is None else f", held-out loss {held_out:.6g}"
            sys.stdout.write(f"[{type(self).__name__}] {of}epoch {epoch} of at most {self.epochs}: loss {loss:.6g}{told}\n")

        return report

    def _keep(self, table: Any, numbers: Tensor, categories: Tensor, targets: np.ndarray, weights: np.ndarray) -> None:
        """The rows vote: their embeddings by every member, targets and weights; and their cells, to show them."""
        dtype = torch.float64 if len(targets) <= FLOAT64_ROWS else torch.float32
        self.members_ = [member.to(dtype) for member in self.members_]
        self._known = [embed(member, numbers.to(dtype), categories) for member in self.members_]
        self._targets = torch.from_numpy(targets).to(self.device, dtype)
        self._weights = torch.from_numpy(weights).to(self.device, dtype)
        self._cells = {name: cells.plain() for name, cells in read_columns(table).items()}

    @property
    def n_rows_(self) -> int:
        """Rows that vote now."""
        return len(self._targets)

    def _votes(self) -> list[Votes]:
        return [Votes(known, self._targets, self._weights.log()) for known in self._known]

    def _embedded(self, table: Any) -> list[Tensor]:
        """New rows by every member."""
        numbers, categories = self._inputs(self.schema_.encode(table))
        return [embed(member, numbers.to(self._targets.dtype), categories) for member in self.members_]

    def _soft_means(self, queries: list[Tensor], without: Tensor | None = None, targets: Tensor | None = None) -> Tensor:
        """(members, n, t)."""
        of = zip(queries, self._votes(), self.temperatures_, strict=True)
        with _threads(self.n_jobs):
            return torch.stack([soft_mean(asked, votes, self.distance, warm, without, targets) for asked, votes, warm in of])

    def _soft(self, X: Any) -> np.ndarray:  # noqa: N803
        check_is_fitted(self)
        found: np.ndarray = self._soft_means(self._embedded(self._table(X, reset=False))).mean(0).cpu().double().numpy()
        return found

    def embed(self, X: Any) -> np.ndarray:  # noqa: N803
        """Embed rows; the members' embeddings stand side by side.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_members * n_components)
            The squared distance of two rows is the mean over the members.
        """
        check_is_fitted(self)
        found = torch.cat(self._embedded(self._table(X, reset=False)), 1) / len(self.members_) ** 0.5
        result: np.ndarray = found.cpu().numpy()
        return result

    def kneighbors(self, X: Any = None, n_neighbors: int = 5, return_distance: bool = True) -> Any:  # noqa: N803
        """Find the nearest training rows of each row of X, nearest first.

        Parameters
        ----------
        X : frame or array-like of shape (n_queries, n_features), default=None
            Queries. None asks for the neighbors of every training row, without the row itself.
        n_neighbors : int, default=5
            Number of neighbors; more than there are rows means all of them.
        return_distance : bool, default=True
            Whether to return the distances, too.

        Returns
        -------
        distances : ndarray of shape (n_queries, k)
            Euclidean distances of the embeddings. Only if `return_distance`.
        positions : ndarray of shape (n_queries, k)
            Row numbers in the training data, after rows were added or removed.
        """
        check_is_fitted(self)
        known = torch.cat(self._known, 1) / len(self.members_) ** 0.5
        queries = known if X is None else torch.from_numpy(self.embed(X)).to(self.device)
        k = min(check_whole("n_neighbors", n_neighbors), self.n_rows_ - (X is None))
        found = []
        for at in torch.split(torch.arange(len(queries), device=known.device), max(1, 2**23 // self.n_rows_)):
            away = torch.cdist(queries[at], known)
            if X is None:
                away[torch.arange(len(at)), at] = torch.inf
            found.append(away.topk(k, largest=False))
        positions = torch.cat([one.indices for one in found]).cpu().numpy()
        return (torch.cat([one.values for one in found]).cpu().numpy(), positions) if return_distance else positions

    def explain(self, X: Any, n_neighbors: int = 5) -> list[list[Neighbor]]:  # noqa: N803
        """Show the training rows that speak for each prediction.

        Parameters
        ----------
        X : frame or array-like of shape (n_queries, n_features)
            Queries.
        n_neighbors : int, default=5
            Rows for each query, those with the largest share of the vote.

        Returns
        -------
        list of list of Neighbor
            For each query its neighbors, with position, distance, share of the vote, target, and row: a dict of the columns.
        """
        check_is_fitted(self)
        queries = self._embedded(self._table(X, reset=False))
        k = min(check_whole("n_neighbors", n_neighbors), self.n_rows_)
        asked, known = (torch.cat(parts, 1) / len(self.members_) ** 0.5 for parts in (queries, self._known))
        found = list[list[Neighbor]]()
        of = zip(queries, self._votes(), self.temperatures_, strict=True)
        members = [vote(one, votes, self.distance, temperature) for one, votes, temperature in of]
        for blocks in zip(*members, strict=True):
            best = torch.stack([shares for shares, _ in blocks]).mean(0).topk(k)
            for query, shares, positions in zip(blocks[0][1].tolist(), best.values, best.indices, strict=True):
                away = torch.cdist(asked[query : query + 1], known[positions])[0]
                found.append(self._neighbors(positions.tolist(), away.tolist(), shares.tolist()))
        return found

    def _neighbors(self, positions: list[int], distances: list[float], shares: list[float]) -> list[Neighbor]:
        targets = self._decoded(self._targets[positions].cpu().double().numpy())
        rows = [{name: cells[at] for name, cells in self._cells.items()} for at in positions]
        return [Neighbor(*one) for one in zip(positions, distances, shares, list(targets), rows, strict=True)]

    def add_rows(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Let more rows vote; nothing is trained.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            Rows with the columns of the training rows.
        y : array-like of shape (n_samples,)
            Their targets; classes must be known ones.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of their votes.

        Returns
        -------
        self : object
            The estimator.
        """
        check_is_fitted(self)
        table = self._table(X, reset=False)
        targets, classes = self._encoded_targets(np.asarray(array(y)))
        check_consistent_length(X, targets)
        weights = self._vote_weights(sample_weight, classes, len(targets))
        self._known = [torch.cat(both) for both in zip(self._known, self._embedded(table), strict=True)]
        self._targets = torch.cat([self._targets, torch.from_numpy(targets).to(self._targets)])
        self._weights = torch.cat([self._weights, torch.from_numpy(weights).to(self._weights)])
        added = {name: cells.plain() for name, cells in read_columns(table).items()}
        self._cells = {name: np.concatenate([cells, added[name]]) for name, cells in self._cells.items()}
        return self

    def remove_rows(self, positions: Any) -> Self:
        """Let rows vote no more; nothing is trained, but what the encoders learned from these rows stays.

        Parameters
        ----------
        positions : array-like of int
            Row numbers, as `kneighbors` returns them. The rows behind move up.

        Returns
        -------
        self : object
            The estimator.
        """
        check_is_fitted(self)
        gone = np.unique(np.asarray(positions, dtype=np.int64))
        if len(gone) and (gone[0] < 0 or gone[-1] >= self.n_rows_):
            raise ValueError(f"positions {gone.tolist()[:5]} must be rows from 0 to {self.n_rows_ - 1}; there are {self.n_rows_:,} rows")
        if len(gone) == self.n_rows_:
            raise ValueError("positions are all rows, and none would be left to vote; keep at least one")
        kept = np.setdiff1d(np.arange(self.n_rows_), gone)
        at = torch.from_numpy(kept).to(self.device)
        self._known = [known[at] for known in self._known]
        self._targets, self._weights = self._targets[at], self._weights[at]
        self._cells = {name: cells[kept] for name, cells in self._cells.items()}
        return self

    def _vote_weights(self, sample_weight: Any, classes: np.ndarray | None, n: int) -> np.ndarray:
        """(n,) weights of loss and vote: those given, times those of the classes."""
        if sample_weight is None:
            return np.ones(n)
        weights = np.asarray(array(sample_weight), dtype=np.float64)
        weights = np.full(n, float(weights)) if weights.ndim == 0 else weights
        if weights.shape != (n,):
            raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n,)}!")
        check_finite("sample_weight", weights)
        if (weights < 0).any() or not weights.any():
            raise ValueError("sample_weight must not be negative, nor zero for all rows: a row of weight zero is left out")
        return weights

    def _weighted_rows(self, table: Any, weights: np.ndarray, *targets: np.ndarray | None) -> tuple[Any, ...]:
        """Everything without the rows of weight 0, and the weights with mean 1."""
        kept = np.flatnonzero(weights > 0)
        if len(kept) < len(weights):
            table = _rows_at(table, kept)
            targets = tuple(None if part is None else part[kept] for part in targets)
            weights = weights[kept]
        return (table, weights / weights.mean(), *targets)

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"allow_nan": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags


def _continue(encoder: TabularEncoder, before: TabularEncoder) -> None:
    """Start from the weights of a fit before, if it had the same columns and settings."""
    new, old = encoder.state_dict(), before.state_dict()
    if {name: part.shape for name, part in new.items()} == {name: part.shape for name, part in old.items()}:
        encoder.load_state_dict(old)


@contextmanager
def _threads(n_jobs: int | None) -> Iterator[None]:
    """Compute with so many threads."""
    if n_jobs is None:
        yield
        return
    if n_jobs != -1:
        check_whole("n_jobs", n_jobs)
    before = torch.get_num_threads()
    torch.set_num_threads((os.cpu_count() or 1) if n_jobs == -1 else n_jobs)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rows_at(table: Any, at: np.ndarray) -> Any:
    return table.iloc[at] if hasattr(table, "iloc") else table[at]


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
        spread = columns.std(0)
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


def _column(y: Any) -> np.ndarray:
    """Classes (n,), none of them missing."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    values: np.ndarray = column_or_1d(array(y), warn=True)
    gone = [at for at, one in enumerate(values.tolist()) if one is None or one != one]  # noqa: PLR0124
    if gone:
        raise ValueError(f"y contains NaN or nothing in {len(gone):,} rows, first in {gone[:5]}; remove these rows, or fill in their class")
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ValueError("y contains infinity; give finite classes")
    return values


def _numbers(y: Any) -> np.ndarray:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    values = np.asarray(array(y))
    if values.dtype.kind == "c":
        raise ValueError("complex data not supported: y must be real numbers")
    found: np.ndarray = check_array(values, ensure_2d=False, dtype=np.float64, input_name="y")
    return found
