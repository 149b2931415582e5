"""What the classifier and the regressor of table rows share: columns, encoders, soft neighbors, rows that come and go."""

import inspect
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from nearkin.compose.validation import check_choice, check_device, check_finite, check_positive, check_share, check_whole
from nearkin.data.columns import EncodedRows, TableSchema, read_columns
from nearkin.estimators.linear.inputs import array, validated
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
        check_device("device", self.device)
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
            0.0 if self.weight_decay == 0 else check_positive("weight_decay", self.weight_decay),
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
            Weights of their votes, on the scale of those of the training rows; without them a row counts as the mean of these.

        Returns
        -------
        self : object
            The estimator.
        """
        check_is_fitted(self)
        table = self._table(X, reset=False)
        targets, classes = self._encoded_targets(np.asarray(array(y)))
        check_consistent_length(X, targets)
        weights = self._vote_weights(sample_weight, classes, len(targets)) / (1.0 if sample_weight is None else self._mean_weight)
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
        positions : array-like of int, or of bool with one for each row
            Row numbers, as `kneighbors` returns them, or which rows. The rows behind move up.

        Returns
        -------
        self : object
            The estimator.
        """
        check_is_fitted(self)
        given = np.asarray(positions)
        if given.dtype == bool and given.shape == (self.n_rows_,):
            given = np.flatnonzero(given)
        if given.size and given.dtype.kind not in "iu":
            raise ValueError(f"positions {given.tolist()[:5]} must be whole numbers, or {self.n_rows_:,} booleans, one for each row")
        gone = np.unique(given.astype(np.int64))
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
        self._mean_weight = weights.mean()  # rows that are added later are weighed by it, too
        return (table, weights / self._mean_weight, *targets)

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
