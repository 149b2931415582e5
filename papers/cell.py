"""A printed table as data: which figure is printed where, and which run of ours is compared with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

Unit = Literal["error %", "accuracy %", "degrees", "pixels", "seconds", "queries/s", "length", "points", "pairs", "million images"]
Settings = Mapping[str, str]
Keep = Literal["", "map", "filters", "curve", "rounds"]
AFTER_TEST = "†"
LEGEND = f"{AFTER_TEST} settings of this row were chosen or changed after test figures had been seen"


@dataclass(frozen=True)
class Trial:
    """One training or fit: tuned on a validation part, then measured on the test part once for every seed.

    `settings` are leaves of a Run. `tune` lists values of further leaves. Every combination is tried for `tuning_epochs` with a tenth of
    the training part held out; the best by `figure` is used for the training on the whole training part.
    A `method` other than "train" is a classical method whose options are the settings.
    """

    name: str
    data: str
    settings: Settings = field(default_factory=dict)
    tune: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tuning_epochs: int = 0  # 0: as many as the training itself
    figure: str = "1-nn"
    seeds: int = 3
    method: str = "train"
    keep: Keep = ""  # what the first seed saves for a picture; "curve" trains with a validation part and never reads the test part
    held_out: bool = False  # measured on a tenth of the training part, which is left out, and never on the test part
    probe: str = ""  # a layer of the network on which a linear classifier is fitted, too
    voters: tuple[str, ...] = ()  # shares of the training part that vote alone, too
    selected: str = ""  # how fixed settings were selected, if another trial tuned them
    find_rate: bool = False  # a training takes the rate that the rate finder chooses for its seed

    @property
    def smaller_is_better(self) -> bool:
        """Whether the figure used for tuning is an error, in degrees or pixels."""
        return self.method == "pose"

    @property
    def follows(self) -> bool:
        """Whether it needs the settings that other trials chose, and so has to wait for them."""
        return any(name in self.settings for name in ("ensemble", "tuned"))

    @property
    def selection(self) -> str:
        """How its settings were selected, in a few words."""
        if "tuned" in self.settings:
            return "as the short training"
        if "ensemble" in self.settings:
            return "held-out classes"
        if self.find_rate:
            return "rate finder"
        if not self.tune:
            return self.selected or "fixed"
        return {"unseen": "held-out classes", "pose": "held-out points"}.get(self.method, "held-out tenth")

    def candidates(self) -> list[Settings]:
        """Every combination of the values to tune, as leaves."""
        names = list(self.tune)
        return [dict(zip(names, values, strict=True)) for values in product(*self.tune.values())] if names else [{}]


@dataclass(frozen=True)
class Ablation:
    """A row that differs in one thing, and the label of that difference."""

    label: str
    trial: str
    figure: str


@dataclass(frozen=True)
class Cell:
    """One printed figure, and the trial and figure compared with it; without a trial it is cited, or not run where `unavailable`."""

    table: str
    row: str
    printed: float | None  # None: nothing is printed, the row is ours
    unit: Unit
    trial: str | None = None
    figure: str = "1-nn"
    column: str = ""
    target: float | None = None  # a figure to reach, for rows without a printed one
    note: str = ""
    ablations: tuple[Ablation, ...] = ()  # listed in the note where the verdict is "short"
    wide: bool = False  # one line of the page holds all columns of the row
    extra: str = ""  # a second figure of the same trial, shown in a column of its own
    unavailable: str = ""  # why a printed figure of the paper's own has no trial, such as data that cannot be had
    after_test: str = ""  # how the settings were chosen or changed after test figures had been seen; empty: they were not

    @property
    def label(self) -> str:
        """The row's name as every rendering shows it, marked where test figures had a part in its settings."""
        return f"{self.row} {AFTER_TEST}" if self.after_test else self.row

    @property
    def smaller_is_better(self) -> bool:
        """Whether the unit is an error, a time or a cost; accuracies, speeds and counts of correct points rise."""
        return self.unit not in ("accuracy %", "queries/s", "points")

    @property
    def threshold(self) -> float | None:
        """The figure that our mean is marked against: the printed one, or the target where nothing is printed."""
        return self.target if self.printed is None else self.printed

    def text(self, value: float | None) -> str:
        """A number with the digits of this cell's unit; empty for None."""
        form = {"queries/s": ",.0f", "points": ",.0f", "length": ".4f"}.get(self.unit, ".2f")
        return "" if value is None else f"{value:{form}}"

    def value(self, figures: Mapping[str, float]) -> float | None:
        """The figure of one run in this cell's unit: shares become percent, and accuracies errors where errors are printed."""
        if self.figure not in figures:
            return None
        found = figures[self.figure]
        if self.unit == "error %":
            return 100 * (1 - found)
        return found * {"accuracy %": 100.0, "million images": 1e-6}.get(self.unit, 1.0)
