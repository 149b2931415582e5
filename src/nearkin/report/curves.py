"""Curves: how training went, how a figure depends on a choice, and what a threshold on affinity buys."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearkin.report.drawing import GRAY, INK, LABEL, PALETTE, blank, framed, key, named, shortened

DASHES = ("-", "--", "-.", ":")  # beside the colors, for those who see them alike
NARROWEST = 0.05  # of an axis of shares: below, the noise of a few queries would look like a landslide
STEEP = 30  # a loss that falls by more than this factor is drawn on a logarithmic axis
FEW = 4  # lines among which a legend finds room; of more it stands outside, where no curve is
WIDE = 20  # and so are choices such as k whose largest is so many times the smallest


class Series(NamedTuple):
    """One line of a plot."""

    name: str
    y: ArrayLike  # (t,)
    low: ArrayLike | None = None  # (t,) of its interval
    high: ArrayLike | None = None
    x: ArrayLike | None = None  # (t,) positions of its own; the plot's then only name the ticks


class Trade(NamedTuple):
    """One model's pairs at every threshold, for `pr_roc`."""

    name: str
    recall: ArrayLike  # (t,)
    precision: ArrayLike  # (t,)
    false_rate: ArrayLike  # (s,)
    true_rate: ArrayLike  # (s,)
    average_precision: float
    area: float  # under the ROC curve


def line(
    x: ArrayLike,
    series: Sequence[Series],
    *,
    title: str,
    across: str,
    up: str,
    chance: float | None = None,
    share: bool = True,
    narrowest: float = NARROWEST,
    ticks: Sequence[str] | None = None,
    width: int = 1000,
) -> Any:
    """Figures against a choice (t,): accuracy against k, rounds, neighborhood size or active triplets; bands are intervals.

    `share` says that the figures lie in 0..1 and are shown in percent. An axis that does not start at zero says so, and is never
    so short that noise looks like a trend: of shares it spans `narrowest` at least. Chance is a dotted line, or a number where it
    lies below the axis. `ticks` (t,) names positions that are not numbers, such as layers.
    """
    xs = _row(x, "x")
    if not series:
        raise ValueError("series is empty; give at least one Series(name, y)")
    scale = 100.0 if share else 1.0
    crowded = len(series) > FEW
    room = 1.3 if crowded else 1.0  # of the plot itself, for what stands beside it
    figure = blank(round(room * width), round(0.56 * width))
    axes = framed(figure.add_axes((0.115 / room, 0.15, 0.855 / room, 0.72)))
    spans = []
    for i, one in enumerate(series):
        color = PALETTE[i % len(PALETTE)]
        at = xs if one.x is None else _row(one.x, f"x of {one.name!r}")
        y = _row(one.y, f"y of {one.name!r}", len(at)) * scale
        axes.plot(at, y, DASHES[i % len(DASHES)], color=color, linewidth=1.3, marker="o", markersize=3, label=one.name)
        spans.append(y)
        if one.low is not None and one.high is not None:
            low, high = (_row(bound, f"interval of {one.name!r}", len(at)) * scale for bound in (one.low, one.high))
            axes.fill_between(at, low, high, color=color, alpha=0.18, linewidth=0)
            spans += [low, high]
    below = _limits(axes, np.concatenate(spans), 100 * narrowest if share else None, None if chance is None else chance * scale)
    if len(xs) > 1 and xs.min() > 0 and xs.max() / xs.min() > WIDE:
        axes.set_xscale("log")
    names = [f"{value:g}" for value in xs] if ticks is None else [shortened(name, 12) for name in ticks]
    if len(names) != len(xs):
        raise ValueError(f"ticks names {len(names)} of {len(xs)} positions; name each")
    step = math.ceil(len(xs) / 12)
    axes.set_xticks(xs[::step], names[::step], minor=False)
    axes.set_xticks([], minor=True)
    named(axes, title, across, f"{up}{' (%)' if share else ''}" + (", axis cut below" if below else ""))
    if chance is not None:
        _chance(axes, chance * scale, share)
    if len(series) > 1 or chance is not None:
        key(axes, **({"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if crowded else {"loc": "best"}))
    return figure


def predicted_against_true(truth: ArrayLike, predicted: ArrayLike, what: str, *, width: int = 700) -> Any:
    """Predicted (n,) against true numbers (n,); on the dotted diagonal they agree."""
    x = _row(truth, "truth")
    y = _row(predicted, "predicted", len(x))
    figure = blank(width, round(0.86 * width))
    axes = framed(figure.add_axes((0.13, 0.13, 0.82, 0.78)))
    axes.scatter(x, y, s=float(np.clip(1500 / len(x), 1.0, 6.0)), color=PALETTE[0], alpha=0.5, linewidths=0)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    axes.plot(ends, ends, color=GRAY, linestyle=":", linewidth=1)
    named(axes, f"{what}: predicted from neighbors, against the truth", f"true {what}", f"predicted {what}")
    return figure


def pr_roc(trades: Sequence[Trade], *, kin: float, width: int = 1200) -> Any:
    """Precision against recall, and true against false positives, side by side; `kin` is the share of pairs that are kin.

    A guess has that share as its precision at every recall, and lies on the diagonal of the other panel; both are dotted.
    """
    if not trades:
        raise ValueError("trades is empty; give at least one Trade")
    crowded = len(trades) > FEW
    room = 1 + 0.046 * (len(trades) + 2) if crowded else 1.0  # of the panels alone, for what stands below them
    figure = blank(width, round(0.52 * room * width))
    bottom, height = 1 - 0.87 / room, 0.76 / room
    left, right = (framed(figure.add_axes((begin, bottom, 0.395, height))) for begin in (0.08, 0.585))
    for i, one in enumerate(trades):
        style = {"color": PALETTE[i % len(PALETTE)], "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.3}
        left.plot(_row(one.recall, "recall"), _row(one.precision, "precision"), label=f"{one.name}: {one.average_precision:.3f}", **style)
        right.plot(_row(one.false_rate, "false_rate"), _row(one.true_rate, "true_rate"), label=f"{one.name}: {one.area:.3f}", **style)
    left.axhline(kin, color=GRAY, linestyle=":", linewidth=1, label=f"chance: {kin:.3f}")
    right.plot([0, 1], [0, 1], color=GRAY, linestyle=":", linewidth=1, label="chance: 0.500")
    named(left, "Precision and recall of pairs", "recall: share of kin pairs found", "precision: share of found pairs that are kin")
    named(right, "ROC of pairs", "share of stranger pairs found", "share of kin pairs found")
    for axes, corner in ((left, "best"), (right, "lower right")):
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.03))
        where = {"loc": "uppercenter", "bbox_to_anchor": (0.5, -0.15)} if crowded else {"loc": corner}
        key(axes, title="area", title_fontsize=LABEL, **where)
    return figure


def training_curves(
    epochs: ArrayLike,
    losses: ArrayLike,
    validation: Mapping[str, ArrayLike],
    rate_epochs: ArrayLike,
    rates: ArrayLike,
    *,
    width: int = 1200,
) -> Any:
    """Loss (t,), validation figures (t,; NaN where none was taken) and learning rate (s,) over epochs, one panel for each."""
    at = _row(epochs, "epochs")
    panels: list[tuple[str, str, Mapping[str, ArrayLike]]] = [("Loss of the epoch", "loss", {"loss": losses})]
    panels += [("Validation part", "figure", validation)] if validation else []
    panels += [("Learning rate", "rate", {"rate": rates})]
    figure = blank(width, round(0.34 * width))
    share = 1 / len(panels)
    for i, (title, up, values) in enumerate(panels):
        axes = framed(figure.add_axes((share * (i + 0.24), 0.17, share * 0.71, 0.68)))
        for j, (name, y) in enumerate(values.items()):
            mine = _row(rate_epochs, "rate_epochs") if name == "rate" else at
            ys = _row(y, name, len(mine))
            known = ~np.isnan(ys)
            marker = "o" if known.sum() <= 40 and name != "rate" else None
            style = {"color": PALETTE[j % len(PALETTE)], "linestyle": DASHES[j % len(DASHES)], "label": name}
            axes.plot(mine[known], ys[known], linewidth=1.3, marker=marker, markersize=2.5, **style)
            if name == "loss" and known.any() and ys[known].min() > 0 and ys[known].max() / ys[known].min() > STEEP:
                axes.set_yscale("log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        named(axes, title, "epoch", up)
        if len(values) > 1 or up == "figure":
            key(axes, loc="best")
    return figure


def _limits(axes: Any, shown: np.ndarray, span: float | None, chance: float | None) -> bool:
    """Set the upright axis, of shares at least `span` long (None: no shares); whether it was cut, that is, starts above zero."""
    share = span is not None
    known = shown[np.isfinite(shown)]
    if not len(known):
        raise ValueError("y holds no finite number; there is nothing to draw")
    low, high = float(known.min()), float(known.max())
    least = max(1e-12, 0.02 * abs(high)) if span is None else span
    pad = max(0.08 * (high - low), (least - (high - low)) / 2)
    low, high = low - pad, high + pad
    if share:
        high = min(high, 101.0)
        low = max(low, 0.0)
    if low > 0 and (low < 0.6 * high or (chance is not None and chance > low)):
        low = 0.0
    axes.set_ylim(low, high)
    if share:
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 100])  # nothing is above all
    return low > 0


def _chance(axes: Any, chance: float, share: bool) -> None:
    """A dotted line; where it lies outside the axis, only its number in the key."""
    low, high = axes.get_ylim()
    text = f"chance: {chance:.1f} %" if share else f"chance: {chance:.3g}"
    if low <= chance <= high:
        axes.axhline(chance, color=GRAY, linestyle=":", linewidth=1, label=text)
    else:
        axes.plot([], [], " ", color=INK, label=text + (" (below)" if chance < low else " (above)"))


def _row(values: ArrayLike, name: str, count: int | None = None) -> np.ndarray:
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or not len(row) or (count is not None and len(row) != count):
        wanted = "a row of numbers" if count is None else f"{count} numbers, one for each position"
        raise ValueError(f"{name} has shape {row.shape}; give {wanted}")
    return row
