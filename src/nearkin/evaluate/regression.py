"""Regression: how far off are predicted numbers?"""

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
    """mae, rmse, r2 and spearman of predictions (n,) or (n, t) against targets of the same shape.

    Several targets are averaged with equal weight. Chance is the best constant prediction. With `period` (360 for degrees)
    differences are taken round the circle, and only mae and rmse have a meaning and are given.
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
    """The mean angle in degrees between predicted and true directions (n, t), t >= 2; zero vectors are left out and counted."""
    y = numbers(targets, len(targets), "targets")
    p = numbers(predicted, len(y), "predicted")
    if p.shape != y.shape or y.ndim != 2 or y.shape[1] < 2:
        raise ValueError(f"predicted have shape {tuple(p.shape)} and targets {tuple(y.shape)}; give directions (n, t), t >= 2, for both")
    lengths = p.norm(dim=1), y.norm(dim=1)
    zero = (lengths[0] == 0) | (lengths[1] == 0)
    a, b = p / lengths[0][:, None], y / lengths[1][:, None]
    # 2 atan2(|a - b|, |a + b|) keeps its digits at 0 and 180 degrees, where acos loses half of them
    angle = torch.rad2deg(2 * torch.atan2((a - b).norm(dim=1), (a + b).norm(dim=1)))
    left_out = {"a vector of length zero": int(zero.sum())}
    values = torch.where(zero, torch.nan, angle)
    return mean_score("angular_error", values, chance=90.0, left_out=left_out, larger_is_better=False, split=split, draws=draws, seed=seed)


Figure = Callable[[Tensor, Tensor, Tensor], Tensor]  # weights (s, n), a (n, t), b (n, t) -> (s,)


class _Resampling(NamedTuple):
    """What every score of one call shares."""

    split: str | None
    draws: int
    seed: int
    notes: tuple[str, ...]


def _resampled(name: str, a: Tensor, b: Tensor, figure: Figure, chance: float | None, how: _Resampling) -> Score:
    """A figure that is no mean over queries, with the middle 95 % of it over resampled queries."""
    once = torch.ones(1, len(a), dtype=torch.float64, device=a.device)
    drawn = [figure(weights.to(a.device).double(), a, b) for weights in resamples(len(a), how.draws, how.seed)]
    values = torch.cat(drawn).cpu() if drawn else torch.empty(0)
    low, high = interval(values[~values.isnan()])
    return Score(name, float(figure(once, a, b)[0]), low, high, chance, None, len(a), {}, how.notes, name != "rmse", how.split)


def _rmse(weights: Tensor, gap: Tensor, _: Tensor) -> Tensor:
    return ((weights @ gap.square()).mean(1) / weights.sum(1)).sqrt()


def _r2(weights: Tensor, gap: Tensor, y: Tensor) -> Tensor:
    """One minus the squared error over that of the mean, averaged over the targets that vary."""
    around = y - y.mean(0)
    total = weights @ around.square() - (weights @ around).square() / weights.sum(1, keepdim=True)
    return torch.where(_varies(y), 1 - weights @ gap.square() / total, torch.nan).nanmean(1)


def _correlation(weights: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation, averaged over the targets that vary; of ranks it is Spearman's."""
    a, b, size = a - a.mean(0), b - b.mean(0), weights.sum(1, keepdim=True)
    means = weights @ a / size, weights @ b / size
    together = weights @ (a * b) / size - means[0] * means[1]
    own = (weights @ a.square() / size - means[0].square()) * (weights @ b.square() / size - means[1].square())
    found = together / own.clamp_min(0).sqrt()
    return torch.where(_varies(b) & (own > 0), found, torch.where(_varies(b), 0.0, torch.nan)).nanmean(1)


def _varies(y: Tensor) -> Tensor:
    return (y != y[:1]).any(0)


def _ranks(x: Tensor) -> Tensor:
    """(n, t) ranks from 1, the mean of their places for equals."""
    turned = x.T.contiguous()
    ordered = turned.sort(dim=1).values
    first, last = torch.searchsorted(ordered, turned), torch.searchsorted(ordered, turned, right=True)
    return ((first + last + 1) / 2).double().T


def _constant_targets(y: Tensor) -> tuple[str, ...]:
    still = int((~_varies(y)).sum())
    return (f"{still} of {y.shape[1]} targets never vary and are left out of r2 and spearman",) if still else ()
