"""Score: a figure that says how sure it is, what chance would give, and whom it left out.

Nothing is chosen by a figure of the test part: two such scores refuse to be compared, so `max`, `sorted` and `best` fail on
them with the mend. Reading, printing and tabulating them is free.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

LEVEL = 0.95  # of every interval
DRAWS = 1000
BLOCKS = 1000  # of queries that are drawn together when there are more
FLOATS = 1 << 22  # drawn numbers held at once
_SHARES = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(9)])
_POISSON = np.searchsorted(_SHARES[:-1], (np.arange(1 << 16) + 0.5) / (1 << 16)).astype(np.float32)  # one count for 16 random bits


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """One figure of an evaluation. `low` and `high` bound it with 95 % confidence, NaN where no interval is known."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    chance: float | None = None  # what an embedding that knows nothing would get; None where that is not defined
    per_query: Tensor | None = None  # (n,) float64, NaN for a query that was left out
    counted: int = 0  # queries (or points, or pairs) behind the figure
    left_out: Mapping[str, int] = field(default_factory=dict)  # reason -> how many
    notes: tuple[str, ...] = ()  # what the reader should know, such as a k that had to be lowered
    larger_is_better: bool = True
    split: str | None = None  # the part of the data it was measured on, if told

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __repr__(self) -> str:
        sure = "" if math.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        chance = "" if self.chance is None else f", chance {self.chance:.4g}"
        out = "".join(f", {count:,} {reason}" for reason, count in self.left_out.items())
        return f"<{self.name} {self.value:.4g}{sure}{chance}, {self.counted:,} counted{out}>"

    def __lt__(self, other: "Score") -> bool:
        return self._worth(other) < other._worth(self)

    def __gt__(self, other: "Score") -> bool:
        return self._worth(other) > other._worth(self)

    def as_dict(self) -> dict[str, object]:
        """Everything but the per-query values, ready for JSON: NaN becomes None."""
        names = ("name", "value", "low", "high", "chance", "counted", "larger_is_better", "split")
        plain: dict[str, object] = {name: _or_none(getattr(self, name)) for name in names}
        return {**plain, "left_out": dict(self.left_out), "notes": list(self.notes)}

    def _worth(self, other: "Score") -> float:
        """What it is chosen by, larger is better; the test part answers no such question."""
        if not isinstance(other, Score):
            raise ValueError(f"{self.name} is compared with {other!r}, which is no Score; float(score) reads the figure")
        for score in (self, other):
            if score.split == "test":
                raise ValueError(
                    f"{score.name} was measured on the test part, and nothing is chosen there; compare scores of the validation part"
                )
        if self.name != other.name:
            raise ValueError(f"{self.name} and {other.name} are different figures; compare scores of one name")
        return self.value if self.larger_is_better else -self.value


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve over thresholds of affinity, from the strictest to the loosest, and the area under it."""

    name: str
    x: Tensor  # (t,) recall, or false positive rate
    y: Tensor  # (t,) precision, or true positive rate
    thresholds: Tensor  # (t,) a pair counts as found when its affinity is at least this
    area: Score


def best(scores: Mapping[str, Score]) -> str:
    """The key of the best score, the first among equals; refuses scores of the test part."""
    if not scores:
        raise ValueError("scores is empty; there is nothing to choose from")
    keys = list(scores)
    winner = keys[0]
    for key in keys:  # the first meets itself: a single score of the test part is refused, too
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
    """The mean of `per_query` (n,) over the entries that are not NaN, with a bootstrap interval over queries."""
    ((low, high),) = bootstrap_intervals(per_query[:, None], draws, seed)
    values = per_query.double()
    known = values[~values.isnan()]
    value = float(known.mean()) if len(known) else math.nan
    out = {reason: count for reason, count in (left_out or {}).items() if count}
    return Score(name, value, low, high, chance, values, len(known), out, notes, larger_is_better, split)


def bootstrap_intervals(values: Tensor, draws: int = DRAWS, seed: int = 0) -> list[tuple[float, float]]:
    """The middle 95 % of the means of resampled queries, for each column of `values` (n, c); NaN entries are no queries.

    All columns see the same resamples, so differences between them can be trusted as far as each of them. More than 1,000
    queries are drawn in 1,000 blocks.
    """
    values = values.detach().double().cpu()
    known = ~values.isnan()
    if draws == 0 or len(values) == 0:
        return [(math.nan, math.nan)] * values.shape[1]
    middle = values.nanmean(0).nan_to_num(0.0)  # taken out first: float32 then has digits enough
    facts = torch.cat([(values - middle).nan_to_num(0.0), known], 1).float()  # (n, 2c)
    sums = torch.cat([counts @ _blocks(facts) for counts in resamples(min(len(facts), BLOCKS), draws, seed)]).double()  # (draws, 2c)
    means = middle + sums[:, : values.shape[1]] / sums[:, values.shape[1] :]
    return [interval(column[~column.isnan()]) for column in means.T]


def _blocks(facts: Tensor) -> Tensor:
    """Sums (at most BLOCKS, c) of facts (n, c): queries dealt out at random."""
    if len(facts) <= BLOCKS:
        return facts
    sums = torch.zeros(BLOCKS, facts.shape[1], dtype=facts.dtype)
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))
    return sums.index_add_(0, torch.arange(len(facts)) % BLOCKS, facts[order])


def resamples(n: int, draws: int, seed: int) -> Iterator[Tensor]:
    """How often each of n queries is drawn, (some, n) float32, in pieces of about `draws` rows together.

    Each count is Poisson's with mean 1, independent of the others: the bootstrap for many points, and n times faster to draw.
    """
    generator = np.random.default_rng(seed)
    step = max(FLOATS // n, 1)
    for start in range(0, draws, step):
        counts = torch.from_numpy(_POISSON[generator.integers(1 << 16, size=(min(step, draws - start), n), dtype=np.uint16)])
        yield counts[counts.any(1)]  # of very few queries, none may have been drawn


def interval(drawn: Tensor) -> tuple[float, float]:
    """The middle 95 % of drawn values (draws,); NaN if there are none."""
    if len(drawn) == 0:
        return math.nan, math.nan
    low, high = torch.quantile(drawn.double(), torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)).tolist()
    return low, high


def _or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
