"""Regression: the errors of predicted numbers."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.points import takes_arrays
from nearkin.evaluate.neighbors import numbers
from nearkin.evaluate.score import DRAWS, Score, interval, mean_score, resamples


@takes_arrays
def regression(
    predicted: Tensor, targets: Tensor, *, period: float | None = None, split: str | None = None, draws: int = DRAWS, seed: int = 0
) -> dict[str, Score]:
    """Measure the errors of predicted numbers: mae, rmse, r2 and Spearman's correlation.

    Chance is the best constant prediction: the median for mae, the mean for rmse and r2.

    Parameters
    ----------
    predicted : Tensor or ndarray (n,) or (n, t)
        Predicted numbers.
    targets : Tensor or ndarray of the same shape
        True numbers. Several targets are averaged with equal weight; constant targets are left out of r2 and spearman, with a note.
    period : float, optional
        The period of circular targets, such as 360 for degrees: differences are taken on the circle, and only mae and rmse are returned.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    draws : int, default 1000
        Bootstrap resamples of the queries for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    dict of str to Score
        "mae", "rmse", "r2", "spearman" (ranks of equal values are averaged).

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import regression
    >>> found = regression(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]), draws=0)
    >>> round(found["mae"].value, 4), found["r2"].value, found["spearman"].value
    (0.3333, 0.5, 1.0)
    >>> regression(torch.tensor([359.0]), torch.tensor([1.0]), period=360, draws=0)["mae"].value
    2.0
    """
    y = numbers(targets, len(targets), "targets")
    p = numbers(predicted, len(y), "predicted")
    if p.shape != y.shape:
        raise ValueError(f"predicted have shape {tuple(p.shape)} and targets {tuple(y.shape)}; both must be the same")
    y, p = y.reshape(len(y), -1), p.reshape(len(y), -1)
    gap = p - y
    if period is not None:
        gap = (gap + period / 2) % period - period / 2
    constant = period is None
    off = float((y - y.median(0).values).abs().mean()) if constant else None
    spread = float((y - y.mean(0)).square().mean().sqrt()) if constant else None
    how = _Resampling(split, draws, seed, _constant_targets(y) if constant else ())
    found = {
        "mae": mean_score("mae", gap.abs().mean(1), chance=off, larger_is_better=False, split=split, draws=draws, seed=seed),
        "rmse": _resampled("rmse", gap, y, _rmse, spread, how._replace(notes=())),
    }
    if constant:
        found["r2"] = _resampled("r2", gap, y, _r2, 0.0, how)
        found["spearman"] = _resampled("spearman", _ranks(p), _ranks(y), _correlation, 0.0, how)
    return found


@takes_arrays
def angular_error(predicted: Tensor, targets: Tensor, *, split: str | None = None, draws: int = DRAWS, seed: int = 0) -> Score:
    """Measure the mean angle in degrees between predicted and true directions.

    Chance is 90 degrees.

    Parameters
    ----------
    predicted : Tensor or ndarray (n, t), t >= 2
        Predicted directions of any length. Pairs with a vector of length zero are left out and counted.
    targets : Tensor or ndarray (n, t)
        True directions.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    draws : int, default 1000
        Bootstrap resamples of the queries for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    Score
        "angular_error"; smaller is better.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import angular_error
    >>> angle = angular_error(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), draws=0)
    >>> round(angle.value, 3)
    90.0
    """
    y = numbers(targets, len(targets), "targets")
    p = numbers(predicted, len(y), "predicted")
    if p.shape != y.shape or y.ndim != 2 or y.shape[1] < 2:
        raise ValueError(f"predicted have shape {tuple(p.shape)} and targets {tuple(y.shape)}; give directions (n, t), t >= 2, for both")
    lengths = p.norm(dim=1), y.norm(dim=1)
    zero = (lengths[0] == 0) | (lengths[1] == 0)
    a, b = p / lengths[0][:, None], y / lengths[1][:, None]
    # 2 atan2(|a - b|, |a + b|) is precise at 0 and 180 degrees, where acos loses half of the digits
    angle = torch.rad2deg(2 * torch.atan2((a - b).norm(dim=1), (a + b).norm(dim=1)))
    left_out = {"a vector of length zero": int(zero.sum())}
    values = torch.where(zero, torch.nan, angle)
    return mean_score("angular_error", values, chance=90.0, left_out=left_out, larger_is_better=False, split=split, draws=draws, seed=seed)


Statistic = Callable[[Tensor, Tensor, Tensor], Tensor]  # weights (s, n), a (n, t), b (n, t) -> (s,)


class _Resampling(NamedTuple):
    """Settings that all scores of one call share."""

    split: str | None
    draws: int
    seed: int
    notes: tuple[str, ...]


def _resampled(name: str, a: Tensor, b: Tensor, statistic: Statistic, chance: float | None, how: _Resampling) -> Score:
    """A score that is not a mean over queries, with its 95% interval over resampled queries."""
    once = torch.ones(1, len(a), dtype=torch.float64, device=a.device)
    drawn = [statistic(weights.to(a.device).double(), a, b) for weights in resamples(len(a), how.draws, how.seed)]
    values = torch.cat(drawn).cpu() if drawn else torch.empty(0)
    low, high = interval(values[~values.isnan()])
    return Score(name, float(statistic(once, a, b)[0]), low, high, chance, None, len(a), {}, how.notes, name != "rmse", how.split)


def _rmse(weights: Tensor, gap: Tensor, _: Tensor) -> Tensor:
    return ((weights @ gap.square()).mean(1) / weights.sum(1)).sqrt()


def _r2(weights: Tensor, gap: Tensor, y: Tensor) -> Tensor:
    """One minus the squared error over that of the mean, averaged over the targets that are not constant."""
    around = y - y.mean(0)
    total = weights @ around.square() - (weights @ around).square() / weights.sum(1, keepdim=True)
    return torch.where(_varies(y) & (total > 0), 1 - weights @ gap.square() / total, torch.nan).nanmean(1)  # a resample may not vary


def _correlation(weights: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation, averaged over the targets that are not constant; on ranks it is Spearman's."""
    a, b, size = a - a.mean(0), b - b.mean(0), weights.sum(1, keepdim=True)
    means = weights @ a / size, weights @ b / size
    together = weights @ (a * b) / size - means[0] * means[1]
    own = (weights @ a.square() / size - means[0].square()) * (weights @ b.square() / size - means[1].square())
    found = together / own.clamp_min(0).sqrt()
    return torch.where(_varies(b) & (own > 0), found, torch.where(_varies(b), 0.0, torch.nan)).nanmean(1)


def _varies(y: Tensor) -> Tensor:
    return (y != y[:1]).any(0)


def _ranks(x: Tensor) -> Tensor:
    """(n, t) ranks from 1, averaged over equal values."""
    turned = x.T.contiguous()
    ordered = turned.sort(dim=1).values
    first, last = torch.searchsorted(ordered, turned), torch.searchsorted(ordered, turned, right=True)
    return ((first + last + 1) / 2).double().T


def _constant_targets(y: Tensor) -> tuple[str, ...]:
    still = int((~_varies(y)).sum())
    return (f"{still} of {y.shape[1]} targets are constant and are left out of r2 and spearman",) if still else ()
