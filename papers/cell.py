"""A printed table as data: what is printed where, and what we do to get the same figure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

Unit = Literal["error %", "accuracy %", "degrees", "pixels", "seconds", "queries/s", "length", "points", "pairs", "million images"]
Settings = Mapping[str, str]
Keep = Literal["", "map", "filters", "curve", "rounds"]


@dataclass(frozen=True)
class Trial:
    """One thing that is trained (or fitted), tuned on a validation part, and measured once on the test part for every seed.

    `settings` are leaves of a Run. `tune` lists values of further leaves; every combination is tried for `tuning_epochs` with
    a tenth of the training part held out, the best by `figure` is taken, and the training is done anew on the whole training part.
    `method` other than "train" is a classical method, whose options are the settings.
    """

    name: str
    data: str
    settings: Settings = field(default_factory=dict)
    tune: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tuning_epochs: int = 0  # 0: as many as the training itself
    figure: str = "1-nn"
    seeds: int = 3
    method: str = "train"
    keep: Keep = ""  # what the first seed leaves for a picture; "curve" trains with a validation part and never sees the test part
    held_out: bool = False  # measured on a tenth of the training part, which is left out, and never on the test part
    probe: str = ""  # a layer of the network on which a linear classifier is fitted, too
    voters: tuple[str, ...] = ()  # shares of the training part that vote by themselves, too

    @property
    def smaller_is_better(self) -> bool:
        """Whether the figure it is tuned by is an error: degrees or pixels."""
        return self.method == "pose"

    @property
    def follows(self) -> bool:
        """Whether it goes on with what other trials chose, and waits until they have."""
        return any(name in self.settings for name in ("ensemble", "tuned"))

    def candidates(self) -> list[Settings]:
        """Every combination of the values to tune, as leaves."""
        names = list(self.tune)
        return [dict(zip(names, values, strict=True)) for values in product(*self.tune.values())] if names else [{}]


@dataclass(frozen=True)
class Ablation:
    """The row that differs in one thing, and what that is: where a cell falls short, its figure says why, or why not."""

    said: str
    trial: str
    figure: str


@dataclass(frozen=True)
class Cell:
    """One printed figure, and the trial and figure that answer it; without a trial it is another paper's, and only cited."""

    table: str
    row: str
    printed: float | None  # None: nothing is printed, the row is ours
    unit: Unit
    trial: str | None = None
    figure: str = "1-nn"
    column: str = ""
    wanted: float | None = None  # what we set out to reach, where that is not the printed figure
    note: str = ""
    ablations: tuple[Ablation, ...] = ()  # told beside the note where the verdict is "short"
    wide: bool = False  # a row of the page holds all columns, rather than each its own

    @property
    def smaller_is_better(self) -> bool:
        """Errors, seconds and images fall; accuracies, speeds, and points that were counted right, rise."""
        return self.unit not in ("accuracy %", "queries/s", "points")

    @property
    def goal(self) -> float | None:
        """What our mean is held against: the figure that is wanted, or else the printed one."""
        return self.printed if self.wanted is None else self.wanted

    def told(self, value: float | None) -> str:
        """A number in this cell's unit, with as many digits as the unit deserves; nothing for none."""
        form = {"queries/s": ",.0f", "points": ",.0f", "length": ".4f"}.get(self.unit, ".2f")
        return "" if value is None else f"{value:{form}}"

    def value(self, figures: Mapping[str, float]) -> float | None:
        """The figure of one run in this cell's unit; shares become percent, accuracies errors where errors are printed."""
        if self.figure not in figures:
            return None
        found = figures[self.figure]
        if self.unit == "error %":
            return 100 * (1 - found)
        return found * {"accuracy %": 100.0, "million images": 1e-6}.get(self.unit, 1.0)
