"""Poses as numbers: turns as (sin, cos), errors in degrees and pixels, and predictions by near and by soft neighbors."""

from typing import Literal

import torch
from torch import Tensor

from nearkin.compose.affinity import SquaredEuclidean
from nearkin.compose.points import Points
from nearkin.search import nearest

PoseUnit = Literal["degrees", "pixels"]
CHUNK = 1024
FACTORS = tuple(2.0**power for power in range(-4, 9))  # of the mean squared distance to the nearest, as temperatures
SAMPLED = 2000  # training points by which the temperature is chosen


def turns(degrees: Tensor) -> Tensor:
    """(n,) degrees as (n, 2) sin and cos: neighbors on the circle are neighbors in the plane, also 355 and 0."""
    radians = degrees.double().deg2rad()
    return torch.stack([radians.sin(), radians.cos()], dim=1).float()


def degrees_of(directions: Tensor) -> Tensor:
    """(n, 2) sin and cos, of any length, back to (n,) degrees in 0..360."""
    directions = directions.double()
    return torch.atan2(directions[:, 0], directions[:, 1]).rad2deg() % 360


def degrees_between(predicted: Tensor, true: Tensor) -> Tensor:
    """(n,) degrees, 0 to 180, between directions (n, 2) and (n, 2)."""
    return _signed(predicted, true).abs()


def degrees_between_own_zero(predicted: Tensor, true: Tensor, objects: Tensor) -> Tensor:
    """As `degrees_between` after subtracting the mean deviation of each object, (n,): is the turn right except for its zero?

    One number per object is fitted to the true poses, so this is a diagnosis and not a prediction.
    """
    deviation = _signed(predicted, true)
    for one in set(objects.tolist()):
        mine = objects == one
        deviation[mine] -= degrees_of(turns(deviation[mine]).mean(0, keepdim=True))
    return ((deviation + 180) % 360 - 180).abs()


def pixels_between(predicted: Tensor, true: Tensor) -> Tensor:
    """(n,) pixels: the mean distance of the places (n, 2 m), x and y of each in turn."""
    steps = (predicted.double() - true.double()).reshape(len(true), -1, 2)
    return steps.square().sum(2).sqrt().mean(1)


def soft_prediction(queries: Tensor, references: Points, temperature: float, own: Tensor | None = None) -> Tensor:
    """The neighbors' mean target (n, t), weighted as in NCA regression: sum_j p_j y_j, p = softmax(-distance^2 / temperature).

    own: (n,) the row among the references that each query is, where it must not choose itself.
    """
    assert references.labels is not None
    affinity, targets, predicted = SquaredEuclidean(temperature), references.labels.double(), []
    for first in range(0, len(queries), CHUNK):
        near = affinity(queries[first : first + CHUNK], references.embeddings).double()  # (b, m)
        if own is not None:
            near.scatter_(1, own[first : first + CHUNK, None], -torch.inf)
        predicted.append(near.softmax(1) @ targets)
    return torch.cat(predicted)


def fitting_temperature(references: Points, seed: int = 0) -> float:
    """For embeddings without a scale of their own: the temperature with which training points predict each other best."""
    assert references.labels is not None
    n = len(references.embeddings)
    own = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:SAMPLED].to(references.embeddings.device)
    queries, targets = references.embeddings[own], references.labels[own].double()
    nearest_two = nearest(queries, references.embeddings, min(2, n), SquaredEuclidean())
    scale = max(-float(nearest_two.affinity[:, -1].double().mean()), 1e-12)
    errors = [float((soft_prediction(queries, references, scale * factor, own) - targets).square().sum(1).mean()) for factor in FACTORS]
    return scale * FACTORS[errors.index(min(errors))]


def pose_figures(name: str, predicted: Tensor, true: Tensor, unit: PoseUnit, objects: Tensor | None = None) -> dict[str, float]:
    """The mean error of predictions (n, t); of turns also the median, which objects without a front do not dominate."""
    if unit == "pixels":
        return {f"{name} pixels": float(pixels_between(predicted, true).mean())}
    error = degrees_between(predicted, true)
    figures = {f"{name} degrees": float(error.mean()), f"{name} degrees, median": float(error.median())}
    if objects is not None:
        figures[f"{name} degrees, own zero"] = float(degrees_between_own_zero(predicted, true, objects).mean())
    return figures


def measure_pose(
    queries: Points, references: Points, unit: PoseUnit, temperature: float | None = None, objects: Tensor | None = None
) -> dict[str, float]:
    """The errors of the pose of the nearest neighbor and of the mean pose of the soft neighbors.

    Labels are (n, 2) sin and cos for degrees, (n, 2 m) places for pixels. temperature: that of the objective the embeddings were
    trained with; None chooses one by leave-one-out among the references. objects: (n,) adds the error without the own zero of each.
    """
    if queries.labels is None or references.labels is None:
        raise ValueError("labels are None; poses are measured against the true ones, so pass Points(embeddings, labels)")
    found = nearest(queries.embeddings, references.embeddings, 1, SquaredEuclidean())
    temperature = fitting_temperature(references) if temperature is None else temperature
    predictions = {"1-nn": references.labels[found.positions[:, 0]], "soft": soft_prediction(queries.embeddings, references, temperature)}
    figures: dict[str, float] = {}
    for name, predicted in predictions.items():
        figures |= pose_figures(name, predicted, queries.labels, unit, objects)
    return figures


def _signed(predicted: Tensor, true: Tensor) -> Tensor:
    """(n,) degrees in -180..180 from the true to the predicted direction."""
    return (degrees_of(predicted) - degrees_of(true) + 180) % 360 - 180
