"""Score: a number with its confidence interval, its chance level, and what was left out.

Nothing may be chosen by a score of the test part: such scores refuse to be compared, so `max`, `sorted` and `best` raise an error.
You can read, print and tabulate them freely.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nearkin.evaluate.rendering import html_table

LEVEL = 0.95  # of every interval
DRAWS = 1000
BLOCKS = 1000  # if there are more queries, they are resampled in this many blocks
FLOATS = 1 << 22  # random numbers held at once
_SHARES = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(9)])
_POISSON = np.searchsorted(_SHARES[:-1], (np.arange(1 << 16) + 0.5) / (1 << 16)).astype(np.float32)  # a count for each value of 16 bits


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """One number of an evaluation, with its interval, chance level and what was left out.

    `float(score)`, `f"{score:.3f}"` and `round(score, 3)` read the value. Scores of one name can be compared and sorted, better is
    larger, unless one of them was measured on the test part: choose models on the validation part.

    Parameters
    ----------
    name : str
        The metric, such as "precision@1".
    value : float
        NaN if nothing was counted, which `left_out` explains, or where it is not defined, such as r2 of constant targets, which `notes`
        say. It is never NaN without one of the two.
    low, high : float
        The 95% confidence interval; NaN where there is none.
    chance : float or None
        The value of an embedding without information; None where that is not defined.
    per_query : Tensor (n,) float64 or None
        The value of each query, NaN for a query that was left out; None if the metric is not a mean over queries.
    counted : int
        The number of queries (or points, or pairs) behind the value.
    left_out : mapping of str to int
        Why and how many queries were left out.
    notes : tuple of str
        What the reader should know, such as a k that was clamped.
    larger_is_better : bool
        False for errors.
    split : str or None
        The part of the data that was measured, if known.

    Examples
    --------
    >>> from nearkin.evaluate import Score
    >>> Score("map", 0.75, 0.7, 0.8, chance=0.1, counted=200, left_out={"no positive in the gallery": 3})
    <map 0.75 [0.7, 0.8], chance 0.1, 200 counted, 3 no positive in the gallery>
    >>> max(Score("map", 0.75), Score("map", 0.8)).value
    0.8
    >>> max(Score("map", 0.75, split="test"), Score("map", 0.8, split="test"))
    Traceback (most recent call last):
    ValueError: map was measured on the test part, which must not be used to choose; compare scores of the validation part
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    chance: float | None = None
    per_query: Tensor | None = None  # (n,)
    counted: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    larger_is_better: bool = True
    split: str | None = None

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __repr__(self) -> str:
        bounds = "" if math.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        chance = "" if self.chance is None else f", chance {self.chance:.4g}"
        out = "".join(f", {count:,} {reason}" for reason, count in self.left_out.items())
        return f"<{self.name} {self.value:.4g}{bounds}{chance}, {self.counted:,} counted{out}>"

    def _repr_html_(self) -> str:
        bounds = "" if math.isnan(self.low) else f"{self.low:.4g} to {self.high:.4g}"
        chance = "" if self.chance is None else f"{self.chance:.4g}"
        out = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        cells = [self.name, f"{self.value:.4g}", bounds, chance, f"{self.counted:,}", out]
        return html_table("; ".join(self.notes), ("figure", "value", "95% interval", "chance", "counted", "left out"), [cells])

    def __lt__(self, other: "Score") -> bool:
        return self._comparable(other) < other._comparable(self)

    def __gt__(self, other: "Score") -> bool:
        return self._comparable(other) > other._comparable(self)

    def as_dict(self) -> dict[str, object]:
        """Return all fields except the per-query values, ready for JSON: NaN becomes None.

        Returns
        -------
        dict of str to object
        """
        names = ("name", "value", "low", "high", "chance", "counted", "larger_is_better", "split")
        plain: dict[str, object] = {name: _or_none(getattr(self, name)) for name in names}
        return {**plain, "left_out": dict(self.left_out), "notes": list(self.notes)}

    def _comparable(self, other: "Score") -> float:
        """The value to compare by, larger is better; raises an error where a comparison is not allowed."""
        if not isinstance(other, Score):
            raise ValueError(f"{self.name} is compared with {other!r}, which is not a Score; use float(score) to compare with a number")
        for score in (self, other):
            if score.split == "test":
                raise ValueError(
                    f"{score.name} was measured on the test part, which must not be used to choose; compare scores of the validation part"
                )
        if self.name != other.name:
            raise ValueError(f"{self.name} and {other.name} are different metrics; compare scores of one name")
        return self.value if self.larger_is_better else -self.value


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve over thresholds on the affinity, from the strictest to the loosest, and the area under it.

    Parameters
    ----------
    name : str
        "precision-recall" or "roc".
    x : Tensor (t,)
        Recall, or false positive rate.
    y : Tensor (t,)
        Precision, or true positive rate.
    thresholds : Tensor (t,)
        Descending; a pair counts as positive when its affinity is at least this.
    area : Score
        The area under the curve.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.evaluate import roc_curve
    >>> curve = roc_curve(Points(torch.tensor([[0.0], [0.1], [5.0], [5.2]]), torch.tensor([0, 0, 1, 1])))
    >>> curve.name, float(curve.x[0]), float(curve.y[-1])
    ('roc', 0.0, 1.0)
    """

    name: str
    x: Tensor  # (t,)
    y: Tensor  # (t,)
    thresholds: Tensor  # (t,)
    area: Score


def best(scores: Mapping[str, Score]) -> str:
    """Return the key of the best score.

    Parameters
    ----------
    scores : mapping of str to Score
        Scores of one metric, such as one for each model.

    Returns
    -------
    str
        The first key among equals.

    Raises
    ------
    ValueError
        If a score was measured on the test part, the metrics differ, or there are none.

    Examples
    --------
    >>> from nearkin.evaluate import Score, best
    >>> best({"small": Score("map", 0.7, split="validation"), "large": Score("map", 0.8, split="validation")})
    'large'
    """
    if not scores:
        raise ValueError("scores is empty; there is nothing to choose from")
    keys = list(scores)
    winner = keys[0]
    for key in keys:  # the first is compared with itself, so that a single score of the test part is refused too
        if scores[key] > scores[winner]:
            winner = key
    return winner


def mean_score(
    name: str,
    per_query: Tensor,
    *,
    chance: float | None = None,
    left_out: Mapping[str, int] | None = None,
    notes: tuple[str, ...] = (),
    larger_is_better: bool = True,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Score:
    """Return the mean of `per_query` (n,) over the entries that are not NaN, with a bootstrap interval over queries."""
    ((low, high),) = bootstrap_intervals(per_query[:, None], draws, seed)
    values = per_query.double()
    known = values[~values.isnan()]
    value = float(known.mean()) if len(known) else math.nan
    out = {reason: count for reason, count in (left_out or {}).items() if count}
    return Score(name, value, low, high, chance, values, len(known), out, notes, larger_is_better, split)


def bootstrap_intervals(values: Tensor, draws: int = DRAWS, seed: int = 0) -> list[tuple[float, float]]:
    """The 95% bootstrap intervals of the mean of each column of `values` (n, c), over queries; NaN entries are left out.

    All columns use the same resamples, so they can be compared. More than 1,000 queries are resampled in 1,000 blocks.
    """
    values = values.detach().double().cpu()
    known = ~values.isnan()
    if draws == 0 or len(values) == 0:
        return [(math.nan, math.nan)] * values.shape[1]
    middle = values.nanmean(0).nan_to_num(0.0)  # subtracted first, so that float32 is precise enough
    facts = torch.cat([(values - middle).nan_to_num(0.0), known], 1).float()  # (n, 2c)
    sums = torch.cat([counts @ _blocks(facts) for counts in resamples(min(len(facts), BLOCKS), draws, seed)]).double()  # (draws, 2c)
    means = middle + sums[:, : values.shape[1]] / sums[:, values.shape[1] :]
    return [interval(column[~column.isnan()]) for column in means.T]


def _blocks(facts: Tensor) -> Tensor:
    """Sums (at most BLOCKS, c) of facts (n, c), over queries assigned to blocks at random."""
    if len(facts) <= BLOCKS:
        return facts
    sums = torch.zeros(BLOCKS, facts.shape[1], dtype=facts.dtype)
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))
    return sums.index_add_(0, torch.arange(len(facts)) % BLOCKS, facts[order])


def resamples(n: int, draws: int, seed: int) -> Iterator[Tensor]:
    """Yield how often each of n queries is drawn, (some, n) float32, about `draws` rows in all.

    Each count is an independent Poisson variable with mean 1: for many points this equals the bootstrap, and is n times faster to draw.
    """
    generator = np.random.default_rng(seed)
    step = max(FLOATS // n, 1)
    for start in range(0, draws, step):
        counts = torch.from_numpy(_POISSON[generator.integers(1 << 16, size=(min(step, draws - start), n), dtype=np.uint16)])
        yield counts[counts.any(1)]  # with very few queries, a resample may be empty


def interval(drawn: Tensor) -> tuple[float, float]:
    """The middle 95% of values (draws,); NaN if there are none."""
    if len(drawn) == 0:
        return math.nan, math.nan
    low, high = torch.quantile(drawn.double(), torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)).tolist()
    return low, high


def _or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
