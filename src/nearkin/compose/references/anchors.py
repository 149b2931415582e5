"""Anchors: fixed class vectors, never trained, and the ways to place them far from one another."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.compose.references.abstract import References, class_labels
from nearkin.compose.validation import check_finite, check_whole

MOST_COSINES = 2**29  # that `packed` looks at in all by default


class Anchors(References):
    """Fixed class vectors: row c stands for class c and never moves.

    Parameters
    ----------
    vectors : Tensor
        (C, d) floats. Make them with `orthonormal`, `simplex`, `packed` or `circle`; `assign` shuffles the rows over the classes.

    Examples
    --------
    >>> from nearkin.compose import Anchors, orthonormal
    >>> Anchors(orthonormal(3, 4)).known_classes()
    3
    """

    columns: ClassVar[str | None] = "classes"
    predicts: ClassVar[bool] = True
    vectors: Tensor
    labels: Tensor

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        if vectors.ndim != 2 or len(vectors) < 2 or not vectors.is_floating_point():
            raise ValueError(f"anchors have shape {tuple(vectors.shape)} and type {vectors.dtype}; give a float tensor (C, d) with C >= 2")
        check_finite("anchors", vectors, "make them with orthonormal, circle, simplex or packed")
        self.register_buffer("vectors", vectors.detach().clone())
        self.register_buffer("labels", class_labels(len(vectors)), persistent=False)

    def forward(self, batch: Points) -> Points:
        return Points(self.vectors.to(batch.embeddings.dtype), self.labels)

    def update(self, batch: Points) -> None:
        return None

    def extra_repr(self) -> str:
        return f"num_classes={len(self.vectors)}, dimension={self.vectors.shape[1]}"

    def known_classes(self) -> int:
        return len(self.vectors)

    def known_dimension(self) -> int:
        return self.vectors.shape[1]


def assign(vectors: Tensor, seed: int) -> Tensor:
    """Shuffle anchors over the classes in a seeded random order.

    Parameters
    ----------
    vectors : Tensor
        (C, d) anchors.
    seed : int
        Of the order.

    Returns
    -------
    Tensor
        (C, d) the same rows.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import assign
    >>> sorted(assign(torch.eye(3), 0).argmax(1).tolist())
    [0, 1, 2]
    """
    order = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))
    return vectors[order.to(vectors.device)]


def smallest_angle(vectors: Tensor) -> float:
    """Return the angle in degrees between the two nearest anchors.

    Parameters
    ----------
    vectors : Tensor
        (C, d) anchors.

    Returns
    -------
    float
        Between 0 and 180.

    Examples
    --------
    >>> from nearkin.compose import orthonormal, smallest_angle
    >>> smallest_angle(orthonormal(3, 3))
    90.0
    """
    check_whole("the number of anchors", len(vectors), 2, "an angle needs two")
    v = torch.nn.functional.normalize(vectors.double(), dim=1)
    near = (v @ v.T).fill_diagonal_(-torch.inf).argmax(1)
    other = v[near]
    # From the sum and the difference: acos of a cosine near +-1 loses half of its digits.
    angle = 2 * torch.atan2((v - other).norm(dim=1), (v + other).norm(dim=1))
    return math.degrees(float(angle.min()))


def orthonormal(num_classes: int, dimension: int) -> Tensor:
    """Return the first C unit axes of R^d, 90 degrees apart [hao2018anchor, section 4].

    Parameters
    ----------
    num_classes : int
        The number of classes C.
    dimension : int
        The embedding's size d.

    Returns
    -------
    Tensor
        (C, d).

    Examples
    --------
    >>> from nearkin.compose import orthonormal
    >>> orthonormal(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    check_whole("num_classes", num_classes, 2, "with fewer there is nothing to tell apart")
    if num_classes > dimension:
        raise ValueError(
            f"{num_classes} orthonormal anchors do not fit into {dimension} dimensions; raise dimension to {num_classes}, or use packed()"
        )
    return torch.eye(num_classes, dimension)


def circle(num_classes: int) -> Tensor:
    """Return C points of the unit circle at the angles 2 pi c / C [hao2018anchor, section 4.1].

    Parameters
    ----------
    num_classes : int
        The number of classes C.

    Returns
    -------
    Tensor
        (C, 2).

    Examples
    --------
    >>> from nearkin.compose import circle, smallest_angle
    >>> round(smallest_angle(circle(6)))
    60
    """
    check_whole("num_classes", num_classes, 2, "with fewer there is nothing to tell apart")
    angle = torch.arange(num_classes, dtype=torch.float64) * (2 * math.pi / num_classes)
    return torch.stack([angle.cos(), angle.sin()], dim=1).float()


def simplex(num_classes: int, dimension: int) -> Tensor:
    """Return C unit vectors with every cosine equal to -1 / (C - 1), the widest there is; needs C <= d + 1 [kasarla2022maximum].

    Built one dimension at a time: each new axis carries one corner, and the rest is a smaller simplex below it.

    Parameters
    ----------
    num_classes : int
        The number of classes C.
    dimension : int
        The embedding's size d.

    Returns
    -------
    Tensor
        (C, d).

    Examples
    --------
    >>> from nearkin.compose import simplex, smallest_angle
    >>> round(smallest_angle(simplex(3, 2)))
    120
    """
    check_whole("num_classes", num_classes, 2, "with fewer there is nothing to tell apart")
    if num_classes > dimension + 1:
        raise ValueError(
            f"a simplex of {num_classes} anchors does not fit into {dimension} dimensions; "
            f"raise dimension to {num_classes - 1}, or use packed()"
        )
    corners = torch.zeros(num_classes, dimension, dtype=torch.float64)
    radius = 1.0
    for axis in range(num_classes - 1):
        rest = num_classes - 1 - axis
        corners[axis, axis] = radius
        corners[axis + 1 :, axis] = -radius / rest
        radius *= math.sqrt(1 - 1 / rest**2)
    return corners.float()


def packed(num_classes: int, dimension: int, seed: int = 0, restarts: int | None = None, steps: int | None = None) -> Tensor:
    """Return C unit vectors of R^d, as far from one another as is known or found.

    C <= d + 1 gives the simplex, d = 2 the circle, and C <= 2 d the axes with their opposites, 90 degrees apart: no others are wider.
    Beyond
    that, vectors are pushed apart by gradient descent and the best of several starts is taken: a log-sum-exp of the cosines is minimized
    whose sharpness grows from a gentle mean to the maximum.

    Parameters
    ----------
    num_classes : int
        The number of classes C.
    dimension : int
        The embedding's size d.
    seed : int, default=0
        Of the starts; the closed forms do not use it.
    restarts : int, optional
        How many starts. By default 12 up to 172 classes; above, fewer, so that starts * steps * C^2 stays below 2^29 (a minute or two on
        one core).
    steps : int, optional
        Of each start. By default 1500; for many classes fewer, but at least 100.

    Returns
    -------
    Tensor
        (C, d).

    Examples
    --------
    >>> from nearkin.compose import packed, smallest_angle
    >>> round(smallest_angle(packed(6, 3)))
    90
    """
    check_whole("num_classes", num_classes, 2, "with fewer there is nothing to tell apart")
    check_whole("dimension", dimension, 2, "on a line only two directions exist")
    if num_classes <= dimension + 1:
        return simplex(num_classes, dimension)
    if dimension == 2:
        return circle(num_classes)
    if num_classes <= 2 * dimension:
        axes = torch.eye(dimension)
        return torch.cat([axes, -axes])[:num_classes]
    restarts, steps = _effort(num_classes, restarts, steps)
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(restarts, num_classes, dimension, dtype=torch.float64, generator=generator, requires_grad=True)
    own = torch.eye(num_classes, dtype=torch.bool)
    optimizer = torch.optim.Adam([v], lr=0.05)
    for step in range(steps):
        progress = step / steps
        sharpness = 5.0 * 2000.0**progress
        optimizer.param_groups[0]["lr"] = 0.05 * 0.002**progress
        optimizer.zero_grad()
        direction = v / v.norm(dim=2, keepdim=True)
        cosine = (direction @ direction.transpose(1, 2)).masked_fill(own, -torch.inf)
        ((sharpness * cosine).flatten(1).logsumexp(1) / sharpness).sum().backward()
        optimizer.step()
    with torch.no_grad():
        direction = v / v.norm(dim=2, keepdim=True)
        worst = (direction @ direction.transpose(1, 2)).masked_fill(own, -torch.inf).flatten(1).amax(1)
        best: Tensor = direction[worst.argmin()].float()
        return best


def _effort(num_classes: int, restarts: int | None, steps: int | None) -> tuple[int, int]:
    """How many starts and steps `packed` takes by default."""
    rounds = MOST_COSINES // num_classes**2
    if restarts is None:
        restarts = min(12, max(1, rounds // (steps or 1500)))
    if steps is None:
        steps = min(1500, max(100, rounds // restarts))
    return restarts, steps
