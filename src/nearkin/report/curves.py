"""Curves: a figure against a choice such as k, precision and recall of pairs, and the course of a training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearkin.report.drawing import GRAY, INK, LABEL, PALETTE, blank, framed, key, named, shortened

DASHES = ("-", "--", "-.", ":")  # in addition to colors, for color-blind readers
MIN_SPAN = 0.05  # of an axis of shares: on a shorter one, the noise of a few queries would look like a trend
STEEP = 30  # a loss that falls by more than this factor is drawn on a logarithmic axis
FEW = 4  # lines up to which the legend is inside the plot
WIDE = 20  # an x axis is logarithmic if its largest value is more than this many times its smallest


class Series(NamedTuple):
    """One line of a plot, for `line`.

    Parameters
    ----------
    name : str
        The name in the legend.
    y : array-like of shape (t,)
        The values.
    low, high : array-like of shape (t,), optional
        The bounds of an interval around the values, drawn as a band.
    x : array-like of shape (t,), optional
        Positions of this line, if they differ from those of the plot, which then only set the ticks.

    Examples
    --------
    >>> from nearkin.report import Series
    >>> Series("accuracy", [0.8, 0.9], low=[0.7, 0.85], high=[0.9, 0.95]).name
    'accuracy'
    """

    name: str
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    x: ArrayLike | None = None


class PairCurves(NamedTuple):
    """The precision-recall curve and the ROC curve of one model, for `pr_roc`.

    Both are over pairs of a query and a reference, which a threshold on affinity accepts or rejects.
    `nearkin.evaluate.pair_curves` computes them.

    Parameters
    ----------
    name : str
        The name in the legend.
    recall, precision : array-like of shape (t,)
        The points of the precision-recall curve.
    false_rate, true_rate : array-like of shape (s,)
        The points of the ROC curve: the shares of negative and of positive pairs that are accepted.
    average_precision : float
        The area under the precision-recall curve.
    area : float
        The area under the ROC curve.

    Examples
    --------
    >>> from nearkin.report import PairCurves
    >>> PairCurves("model", [0, 1], [1, 0.5], [0, 1], [0, 1], 0.75, 0.5).area
    0.5
    """

    name: str
    recall: ArrayLike
    precision: ArrayLike
    false_rate: ArrayLike
    true_rate: ArrayLike
    average_precision: float
    area: float


def line(
    x: ArrayLike,
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    chance: float | None = None,
    share: bool = True,
    min_span: float = MIN_SPAN,
    ticks: Sequence[str] | None = None,
    width: int = 1000,
) -> Any:
    """Plot figures against a choice, such as accuracy against k, with intervals as bands.

    If the y axis does not start at zero, its label says so. The x axis is logarithmic if the values span a wide range.

    Parameters
    ----------
    x : array-like of shape (t,)
        The positions.
    series : sequence of Series
        The lines.
    title : str
        The title of the plot.
    x_label, y_label : str
        The labels of the axes.
    chance : float, optional
        What guessing would get: a dotted line, or a number in the legend if it lies outside the axis.
    share : bool, default=True
        Whether the values are shares in 0..1, to be shown in percent.
    min_span : float, default=0.05
        The shortest y axis for shares, so that noise does not look like a trend. Pass 0 to fit the axis to the values.
    ticks : sequence of str, optional
        Names of the positions, if they are not numbers (layers, for example).
    width : int, default=1000
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Raises
    ------
    ValueError
        If there is no series, if lengths do not match, or if no value is finite.

    Examples
    --------
    >>> from nearkin.report import Series, line
    >>> accuracy = Series("accuracy", [0.8, 0.9, 0.85], low=[0.7, 0.8, 0.75], high=[0.9, 1.0, 0.95])
    >>> figure = line([1, 5, 10], [accuracy], title="k-NN", x_label="k", y_label="accuracy", chance=0.1)
    >>> figure.axes[0].get_xlabel()
    'k'
    """
    xs = _row(x, "x")
    if not series:
        raise ValueError("series is empty; pass at least one Series(name, y)")
    scale = 100.0 if share else 1.0
    crowded = len(series) > FEW
    room = 1.3 if crowded else 1.0  # width of plot and legend over that of the plot alone
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
    below = _limits(axes, np.concatenate(spans), 100 * min_span if share else None, None if chance is None else chance * scale)
    if len(xs) > 1 and xs.min() > 0 and xs.max() / xs.min() > WIDE:
        axes.set_xscale("log")
    names = [f"{value:g}" for value in xs] if ticks is None else [shortened(name, 12) for name in ticks]
    if len(names) != len(xs):
        raise ValueError(f"ticks has {len(names)} names for {len(xs)} positions; pass one for each")
    step = math.ceil(len(xs) / 12)
    axes.set_xticks(xs[::step], names[::step], minor=False)
    axes.set_xticks([], minor=True)
    named(axes, title, x_label, f"{y_label}{' (%)' if share else ''}" + (", axis does not start at 0" if below else ""))
    if chance is not None:
        _chance(axes, chance * scale, share)
    if len(series) > 1 or chance is not None:
        key(axes, **({"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if crowded else {"loc": "best"}))
    return figure


def predicted_against_true(truth: ArrayLike, predicted: ArrayLike, what: str, *, width: int = 700) -> Any:
    """Plot predicted against true numbers; on the dotted diagonal they agree.

    Parameters
    ----------
    truth : array-like of shape (n,)
        The true numbers.
    predicted : array-like of shape (n,)
        The predicted numbers.
    what : str
        The name of the number, for the labels.
    width : int, default=700
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> from nearkin.report import predicted_against_true
    >>> figure = predicted_against_true([1.0, 2.0, 3.0], [1.1, 1.8, 3.2], "age")
    >>> figure.axes[0].get_xlabel()
    'true age'
    """
    x = _row(truth, "truth")
    y = _row(predicted, "predicted", len(x))
    figure = blank(width, round(0.86 * width))
    axes = framed(figure.add_axes((0.13, 0.13, 0.82, 0.78)))
    axes.scatter(x, y, s=float(np.clip(1500 / len(x), 1.0, 6.0)), color=PALETTE[0], alpha=0.5, linewidths=0)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    axes.plot(ends, ends, color=GRAY, linestyle=":", linewidth=1)
    named(axes, f"{what}: predicted from neighbors, against true", f"true {what}", f"predicted {what}")
    return figure


def pr_roc(curves: Sequence[PairCurves], *, positive_share: float, width: int = 1200) -> Any:
    """Plot precision against recall, and the ROC curve, side by side.

    Chance is dotted: guessing has the precision `positive_share` at every recall, and lies on the diagonal of the ROC curve.

    Parameters
    ----------
    curves : sequence of PairCurves
        One entry for each model.
    positive_share : float
        The share of all pairs that are positive (of one class).
    width : int, default=1200
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Raises
    ------
    ValueError
        If `curves` is empty.

    Examples
    --------
    >>> from nearkin.report import PairCurves, pr_roc
    >>> model = PairCurves("model", [0, 0.5, 1], [1, 0.8, 0.1], [0, 0.1, 1], [0, 0.9, 1], 0.7, 0.9)
    >>> figure = pr_roc([model], positive_share=0.1)
    >>> len(figure.axes)
    2
    """
    if not curves:
        raise ValueError("curves is empty; pass at least one PairCurves")
    crowded = len(curves) > FEW
    room = 1 + 0.046 * (len(curves) + 2) if crowded else 1.0  # height of panels and legends over that of the panels alone
    figure = blank(width, round(0.52 * room * width))
    bottom, height = 1 - 0.87 / room, 0.76 / room
    left, right = (framed(figure.add_axes((begin, bottom, 0.395, height))) for begin in (0.08, 0.585))
    for i, one in enumerate(curves):
        style = {"color": PALETTE[i % len(PALETTE)], "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.3}
        left.plot(_row(one.recall, "recall"), _row(one.precision, "precision"), label=f"{one.name}: {one.average_precision:.3f}", **style)
        right.plot(_row(one.false_rate, "false_rate"), _row(one.true_rate, "true_rate"), label=f"{one.name}: {one.area:.3f}", **style)
    left.axhline(positive_share, color=GRAY, linestyle=":", linewidth=1, label=f"chance: {positive_share:.3f}")
    right.plot([0, 1], [0, 1], color=GRAY, linestyle=":", linewidth=1, label="chance: 0.500")
    named(
        left,
        "Precision and recall of pairs",
        "recall: share of positive pairs accepted",
        "precision: share of accepted pairs that are positive",
    )
    named(right, "ROC of pairs", "share of negative pairs accepted", "share of positive pairs accepted")
    for axes, corner in ((left, "best"), (right, "lower right")):
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.03))
        where = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15)} if crowded else {"loc": corner}
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
    """Plot the loss, the validation figures and the learning rate over epochs, one panel for each.

    Parameters
    ----------
    epochs : array-like of shape (t,)
        The epochs.
    losses : array-like of shape (t,)
        The mean loss of each epoch. The axis is logarithmic if it falls by a factor above 30.
    validation : mapping of str to array-like of shape (t,)
        Validation figures by name, NaN for epochs without one; no panel if it is empty.
    rate_epochs : array-like of shape (s,)
        Positions of the learning rates, in epochs.
    rates : array-like of shape (s,)
        The learning rates.
    width : int, default=1200
        The width in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. `nearkin.report.save` writes it.

    Examples
    --------
    >>> from nearkin.report import training_curves
    >>> figure = training_curves([1, 2, 3], [2.0, 1.0, 0.8], {"1-nn": [0.5, 0.7, 0.8]}, [1, 2, 3], [0.1, 0.05, 0.01])
    >>> [axes.get_title() for axes in figure.axes]
    ['Loss of the epoch', 'Validation part', 'Learning rate']
    """
    at = _row(epochs, "epochs")
    panels: list[tuple[str, str, Mapping[str, ArrayLike]]] = [("Loss of the epoch", "loss", {"loss": losses})]
    panels += [("Validation part", "figure", validation)] if validation else []
    panels += [("Learning rate", "rate", {"rate": rates})]
    figure = blank(width, round(0.34 * width))
    share = 1 / len(panels)
    for i, (title, y_label, values) in enumerate(panels):
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
        named(axes, title, "epoch", y_label)
        if len(values) > 1 or y_label == "figure":
            key(axes, loc="best")
    return figure


def _limits(axes: Any, shown: np.ndarray, span: float | None, chance: float | None) -> bool:
    """Set the y axis, for shares at least `span` long (None: not shares); return whether it starts above zero."""
    share = span is not None
    known = shown[np.isfinite(shown)]
    if not len(known):
        raise ValueError("y holds no finite number; pass at least one")
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
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 100])  # no share exceeds 100 %
    return low > 0


def _chance(axes: Any, chance: float, share: bool) -> None:
    """A dotted line, or only a number in the legend if it lies outside the axis."""
    low, high = axes.get_ylim()
    text = f"chance: {chance:.1f} %" if share else f"chance: {chance:.3g}"
    if low <= chance <= high:
        axes.axhline(chance, color=GRAY, linestyle=":", linewidth=1, label=text)
    else:
        axes.plot([], [], " ", color=INK, label=text + (" (below)" if chance < low else " (above)"))


def _row(values: ArrayLike, name: str, count: int | None = None) -> np.ndarray:
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or not len(row) or (count is not None and len(row) != count):
        expected = "numbers of shape (t,)" if count is None else f"{count} numbers, one for each position"
        raise ValueError(f"{name} has shape {row.shape}; pass {expected}")
    return row
