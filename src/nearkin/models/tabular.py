"""The encoder of table rows: numbers scaled and embedded one by one, categories by one-hot or learned vectors, residual blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from nearkin.compose.validation import check_choice, check_share, check_whole

Scaling = Literal["quantile", "standard", "robust"]
SCALINGS = ("quantile", "standard", "robust")
NumberEmbedding = Literal["periodic", "piecewise", "none"]
NUMBER_EMBEDDINGS = ("periodic", "piecewise", "none")
KNOTS = 1000  # of a column's distribution function
FARTHEST = 5.0  # scaled numbers end here, so that an outlier is far from the others and no farther
ONE_HOT = 16  # columns with more categories get learned vectors


@dataclass(frozen=True)
class NumberScaling:
    """Scale the columns of numbers, each by its own distribution; missing numbers become 0, the middle.

    "quantile" maps a column to normal scores by its mean ranks, so that units, skew and outliers do not matter. "standard" subtracts the
    mean and divides by the standard deviation, "robust" does so with the median and the interquartile range.

    Parameters
    ----------
    knots : tuple of ndarray
        One array for each column: increasing values.
    scores : tuple of ndarray
        The scaled value at each knot; linear in between.
    clipped : bool
        Whether values beyond the first and last knot take its score.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.models.tabular import NumberScaling
    >>> scaling = NumberScaling.fitted(np.array([[1.0], [10.0], [1000.0]]))
    >>> scaling(np.array([[10.0], [np.nan], [1e9]])).round(2).ravel().tolist()
    [0.0, 0.0, 0.97]
    """

    knots: tuple[np.ndarray, ...]
    scores: tuple[np.ndarray, ...]
    clipped: bool = True

    @classmethod
    def fitted(cls, numbers: np.ndarray, scaling: Scaling = "quantile") -> Self:
        """Learn the scaling of training rows.

        Parameters
        ----------
        numbers : ndarray of shape (n, p)
            NaN is missing.
        scaling : {"quantile", "standard", "robust"}, default="quantile"
            How to scale.

        Returns
        -------
        NumberScaling
        """
        check_choice("scaling", scaling, SCALINGS)
        one = _normal_scores if scaling == "quantile" else _standard if scaling == "standard" else _robust
        found = [one(column[~np.isnan(column)]) for column in numbers.T]
        return cls(tuple(knots for knots, _ in found), tuple(scores for _, scores in found), scaling == "quantile")

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        scaled = np.empty(numbers.shape)
        for at, (knots, scores) in enumerate(zip(self.knots, self.scores, strict=True)):
            if self.clipped:
                scaled[:, at] = np.interp(numbers[:, at], knots, scores)
            else:
                slope = (scores[1] - scores[0]) / (knots[1] - knots[0])
                scaled[:, at] = np.clip(scores[0] + (numbers[:, at] - knots[0]) * slope, -FARTHEST, FARTHEST)
        return np.where(np.isnan(numbers), 0.0, scaled)


def _normal_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values' mean ranks as quantiles of the normal distribution; equal values have one rank."""
    if not len(values):
        return np.zeros(1), np.zeros(1)
    ordered = np.sort(values)
    knots = np.unique(ordered)
    if len(knots) > KNOTS:
        knots = np.unique(np.quantile(ordered, np.linspace(0, 1, KNOTS), method="nearest"))
    ranks = (np.searchsorted(ordered, knots, "left") + np.searchsorted(ordered, knots, "right")) / 2 / len(ordered)
    return knots, np.clip(ndtri(ranks), -FARTHEST, FARTHEST)


def _standard(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = float(values.mean()) if len(values) else 0.0
    return _line(middle, float(values.std()) if len(values) else 1.0)


def _robust(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)) if len(values) else (0.0, 0.0, 1.0)
    spread = (high - low) / 1.349 or float(values.std())  # of a normal distribution, the standard deviation
    return _line(float(middle), float(spread))


def _line(middle: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
    spread = spread if spread > 0 and math.isfinite(spread) else 1.0
    return np.array([middle, middle + spread]), np.array([0.0, 1.0])


class _Waves(torch.autograd.Function):
    """[cos x, sin x] along the last axis; the gradient reuses both, where autograd would compute them again."""

    @staticmethod
    def forward(ctx: Any, angles: Tensor) -> Tensor:
        waves = torch.cat([angles.cos(), angles.sin()], -1)
        ctx.save_for_backward(waves)
        return waves

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (waves,) = ctx.saved_tensors
        cosine, sine = waves.chunk(2, -1)
        of_cosine, of_sine = gradient.chunk(2, -1)
        found: Tensor = of_sine * cosine - of_cosine * sine
        return found


class PeriodicNumbers(nn.Module):
    """Embed every number x by ReLU(W [cos(2 pi f x), sin(2 pi f x)]) and x itself, so that straight lines stay easy to learn.

    The frequencies f are learned for each column, W is shared by all columns.

    Parameters
    ----------
    columns : int
        Columns of numbers.
    frequencies : int, default=32
        Frequencies of each column.
    scale : float, default=0.1
        Standard deviation of the frequencies at the start: larger ones resolve finer differences of a number.
    size : int, default=24
        Length of a number's embedding, without the number itself.

    References
    ----------
    [gorishniy2022numbers]
    """

    def __init__(self, columns: int, frequencies: int = 32, scale: float = 0.1, size: int = 24) -> None:
        super().__init__()
        start = torch.empty(columns, frequencies)
        self.frequencies = nn.Parameter(nn.init.trunc_normal_(start, std=scale, a=-3 * scale, b=3 * scale))
        self.linear = nn.Linear(2 * frequencies, size)
        self.size = columns * (size + 1)

    def forward(self, numbers: Tensor) -> Tensor:
        """(n, p) to (n, p * (size + 1))."""
        angles = 2 * math.pi * self.frequencies * numbers[..., None]  # (n, p, f)
        waves: Tensor = _Waves.apply(angles)  # type: ignore[no-untyped-call]
        return torch.cat([self.linear(waves).relu().flatten(1), numbers], 1)


class PiecewiseNumbers(nn.Module):
    """Embed every number by how far it lies in each of a few bins: 0 before the bin, 1 behind it, linear within.

    Parameters
    ----------
    columns : int
        Columns of numbers, scaled to normal scores.
    bins : int, default=16
        Bins of each column, equally likely under the normal distribution.

    References
    ----------
    [gorishniy2022numbers]
    """

    edges: Tensor

    def __init__(self, columns: int, bins: int = 16) -> None:
        super().__init__()
        inner = ndtri(np.arange(1, bins) / bins)
        self.register_buffer("edges", torch.from_numpy(np.concatenate([[-3.0], inner, [3.0]])).float())
        self.size = columns * bins

    def forward(self, numbers: Tensor) -> Tensor:
        """(n, p) to (n, p * bins)."""
        low, high = self.edges[:-1], self.edges[1:]
        return ((numbers[..., None] - low) / (high - low)).clamp(0, 1).flatten(1)


class _Plain(nn.Module):
    """The numbers themselves."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.size = columns

    def forward(self, numbers: Tensor) -> Tensor:
        return numbers


class _Categories(nn.Module):
    """Columns of few categories by one-hot vectors, the others by learned ones; code 0 (unseen) is the zero vector of both."""

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__()
        self.counts = tuple(counts)
        sizes = [count if count <= ONE_HOT else min(32, 4 + math.isqrt(count)) for count in counts]
        many = {at: (count, size) for at, (count, size) in enumerate(zip(counts, sizes, strict=True)) if count > ONE_HOT}
        self.vectors = nn.ModuleDict({str(at): nn.Embedding(count + 1, size, padding_idx=0) for at, (count, size) in many.items()})
        self.size = sum(sizes)

    def forward(self, codes: Tensor) -> Tensor:
        parts = [self._column(at, count, codes[:, at]) for at, count in enumerate(self.counts)]
        return torch.cat(parts, 1)

    def _column(self, at: int, count: int, codes: Tensor) -> Tensor:
        if count > ONE_HOT:
            found: Tensor = self.vectors[str(at)](codes)
            return found
        like = next(iter(self.vectors.parameters()), torch.empty(0)).dtype if len(self.vectors) else torch.get_default_dtype()
        return nn.functional.one_hot(codes, count + 1)[:, 1:].to(like)


class _Residual(nn.Module):
    """x + W2 dropout(ReLU(W1 norm(x)))."""

    def __init__(self, size: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(size), nn.Linear(size, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, size))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.layers(x)
        return found


class TabularEncoder(nn.Module):
    """Embed rows of a table: numbers one by one, categories, then a linear map and residual blocks.

    Parameters
    ----------
    numbers : int
        Columns of scaled numbers.
    categories : sequence of int, default=()
        Number of categories of each other column; their codes begin at 1, and 0 is an unseen one.
    dimension : int, default=64
        Size of the embedding.
    number_embedding : {"periodic", "piecewise", "none"}, default="periodic"
        How a number becomes a vector; "none" takes the number itself.
    frequency_scale : float, default=0.1
        See `PeriodicNumbers`.
    blocks : int, default=1
        Residual blocks; 0 is a linear map of the embedded columns.
    hidden : int, default=256
        Units within a block.
    dropout : float, default=0.1
        Probability of dropout within a block.

    References
    ----------
    [ye2025modernnca], [gorishniy2022numbers]

    Examples
    --------
    >>> import torch
    >>> from nearkin.models.tabular import TabularEncoder
    >>> encoder = TabularEncoder(3, (2, 40), dimension=8)
    >>> encoder(torch.zeros(5, 3), torch.zeros(5, 2, dtype=torch.long)).shape
    torch.Size([5, 8])
    """

    def __init__(
        self,
        numbers: int,
        categories: Sequence[int] = (),
        dimension: int = 64,
        *,
        number_embedding: NumberEmbedding = "periodic",
        frequency_scale: float = 0.1,
        blocks: int = 1,
        hidden: int = 256,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_choice("number_embedding", number_embedding, NUMBER_EMBEDDINGS)
        check_whole("blocks", blocks, 0)
        check_share("dropout", dropout, below_one=True)
        if number_embedding == "periodic":
            self.numbers: nn.Module = PeriodicNumbers(numbers, scale=frequency_scale)
        else:
            self.numbers = PiecewiseNumbers(numbers) if number_embedding == "piecewise" else _Plain(numbers)
        self.categories = _Categories(categories)
        size = int(self.numbers.size) + self.categories.size
        dimension = check_whole("dimension", dimension)
        self.linear = nn.Linear(size, dimension)
        self.blocks = nn.Sequential(*(_Residual(dimension, check_whole("hidden", hidden), dropout) for _ in range(blocks)))
        if blocks:
            self.blocks.append(nn.BatchNorm1d(dimension))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Embed rows.

        Parameters
        ----------
        numbers : Tensor of shape (n, p)
            Scaled, without missing ones.
        categories : Tensor of shape (n, q)
            Codes.

        Returns
        -------
        Tensor of shape (n, dimension)
        """
        parts = [self.numbers(numbers)]
        if categories.shape[1]:
            parts.append(self.categories(categories).to(parts[0]))
        found: Tensor = self.blocks(self.linear(torch.cat(parts, 1)))
        return found


class RowNetwork(nn.Module):
    """The encoders of a table's rows as one network: it scales the numbers, and sets the members' embeddings side by side.

    Parameters
    ----------
    members : sequence of TabularEncoder
        The encoders; the squared distance of two rows is the mean of theirs.
    scaling : NumberScaling
        Of the columns of numbers, which come first in a row; the codes of the categories follow.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from nearkin.models.tabular import NumberScaling, RowNetwork, TabularEncoder
    >>> scaling = NumberScaling.fitted(np.array([[1.0], [10.0], [1000.0]]))
    >>> network = RowNetwork([TabularEncoder(1, (3,), dimension=4) for _ in range(2)], scaling).eval()
    >>> network(torch.tensor([[5.0, 1.0], [float("nan"), 0.0]])).shape
    torch.Size([2, 8])
    """

    knots: Tensor
    scores: Tensor

    def __init__(self, members: Sequence[TabularEncoder], scaling: NumberScaling) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.clipped = scaling.clipped
        longest = max([2, *map(len, scaling.knots)])
        self.register_buffer("knots", _padded(scaling.knots, longest, np.inf))
        self.register_buffer("scores", _padded(scaling.scores, longest, None))

    def scaled(self, numbers: Tensor) -> Tensor:
        """The numbers (n, p) as `NumberScaling` scales them; missing ones become 0."""
        if not numbers.shape[1]:
            return numbers
        values = numbers.T.contiguous()
        after = torch.searchsorted(self.knots, values) if self.clipped else torch.ones_like(values, dtype=torch.int64)
        after = after.clamp(1, self.knots.shape[1] - 1)
        low, high = self.knots.gather(1, after - 1), self.knots.gather(1, after)
        first, last = self.scores.gather(1, after - 1), self.scores.gather(1, after)
        share = torch.where(torch.isinf(high), torch.zeros_like(low), (values - low) / (high - low))
        share = share.clamp(0, 1) if self.clipped else share
        found = (first + share * (last - first)).clamp(-FARTHEST, FARTHEST)
        return torch.where(torch.isnan(values), torch.zeros_like(found), found).T

    def forward(self, rows: Tensor) -> Tensor:
        """Embed rows.

        Parameters
        ----------
        rows : Tensor of shape (n, p + q)
            Numbers, NaN where missing, then the codes of categories.

        Returns
        -------
        Tensor of shape (n, members * dimension)
        """
        p = len(self.knots)
        numbers, codes = self.scaled(rows[:, :p]).float(), rows[:, p:].long()
        found: Tensor = torch.cat([member(numbers, codes) for member in self.members], 1) / len(self.members) ** 0.5
        return found


def _padded(arrays: Sequence[np.ndarray], longest: int, end: float | None) -> Tensor:
    """(p, longest): each array, then `end`, or its own last value again."""
    rows = [np.append(one, np.full(longest - len(one), one[-1] if end is None else end)) for one in arrays]
    return torch.from_numpy(np.array(rows, dtype=np.float32).reshape(len(rows), longest))


def tabular(
    dimension_in: int,
    dimension: int = 64,
    *,
    normalize: bool = False,
    categories: Sequence[int] = (),
    members: int = 1,
    knots: int = 2,
    clipped: bool = True,
    number_embedding: NumberEmbedding = "periodic",
    frequency_scale: float = 0.1,
    blocks: int = 1,
    hidden: int = 256,
    dropout: float = 0.1,
) -> nn.Module:
    """Build the network of a table's rows, which `nearkin train table.csv` trains.

    Parameters
    ----------
    dimension_in : int
        Numbers and categories of a row.
    dimension : int, default=64
        Size of the embedding, of all members together.
    normalize : bool, default=False
        Not for tables: distances have a scale here.
    categories : sequence of int, default=()
        Number of categories of each of the last columns.
    members : int, default=1
        Encoders side by side.
    knots : int, default=2
        Of the scaling of the numbers.
    clipped : bool, default=True
        Whether the scaling ends at the first and the last knot.
    number_embedding : {"periodic", "piecewise", "none"}, default="periodic"
        See `TabularEncoder`.
    frequency_scale : float, default=0.1
        See `PeriodicNumbers`.
    blocks : int, default=1
        Residual blocks.
    hidden : int, default=256
        Units within a block.
    dropout : float, default=0.1
        Probability of dropout within a block.

    Returns
    -------
    nn.Module
    """
    if normalize:
        raise ValueError("normalize is not for tables, whose distances have a scale; leave it false")
    numbers = dimension_in - len(categories)
    each = check_whole("dimension", dimension) // check_whole("members", members)
    encoders = [
        TabularEncoder(
            numbers,
            categories,
            each,
            number_embedding=number_embedding,
            frequency_scale=frequency_scale,
            blocks=blocks,
            hidden=hidden,
            dropout=dropout,
        )
        for _ in range(members)
    ]
    line = np.linspace(0.0, 1.0, check_whole("knots", knots, 2))
    return RowNetwork(encoders, NumberScaling((line,) * numbers, (line,) * numbers, clipped))
