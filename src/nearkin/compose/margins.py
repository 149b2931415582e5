"""Margins on the own class: criteria that make the affinity of a positive smaller before the softmax.

The affinity is a plain cosine; the criterion lowers it for positives, which depends on the label and therefore belongs here, and divides
by the temperature afterwards.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from nearkin.compose.criterion import any_positive, own_column, right_and_wrong
from nearkin.compose.derivatives import apply
from nearkin.compose.outcome import Outcome
from nearkin.compose.relation import Related


def sine(cosine: Tensor) -> Tensor:
    """sin of the angle in [0, pi] with this cosine; 0 where its square is all rounding, as of equal points: its gradient would be any."""
    square = 1 - cosine.square()
    inside = square > 8 * torch.finfo(cosine.dtype).eps
    return torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)


def turned(cosine: Tensor, angle: float) -> Tensor:
    """cos(theta + angle) from cos(theta), without an arc cosine."""
    return _turned(cosine, sine(cosine), angle)


def _turned(cosine: Tensor, sine: Tensor, angle: float) -> Tensor:
    return cosine * math.cos(angle) - sine * math.sin(angle)


@dataclass(frozen=True)
class MarginSoftmax:
    """Minus the log share of the positives in a softmax of cosines, after the cosine of every positive was lowered by a margin.

        kind="cosine":  cos(theta) - margin
        kind="angle":   cos(theta + margin) where theta <= pi - margin, and beyond cos(theta) - margin sin(margin),
                        so that a larger angle never costs less

    Parameters
    ----------
    margin : float, default=0.5
        The margin; an angle in radians with kind="angle".
    kind : {"angle", "cosine"}, default="angle"
        What the margin is added to.
    temperature : float, default=1/64
        Divides the cosines after the margin.

    Examples
    --------
    >>> import torch
    >>> from nearkin.compose import MarginSoftmax, Related
    >>> related = Related(torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]]))
    >>> MarginSoftmax(0.5, "cosine", 1.0)(torch.tensor([[0.5, 0.0]]), related).values  # both are 0 after the margin
    tensor([0.6931])
    >>> MarginSoftmax(0.5, "angle", 1.0)(torch.tensor([[1.0, 0.0]]), related).values  # log(1 + exp(-cos(0.5)))
    tensor([0.3477])
    """

    margin: float = 0.5
    kind: Literal["angle", "cosine"] = "angle"
    temperature: float = 1 / 64
    columns: ClassVar[str] = "classes"

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        right, _ = right_and_wrong(relation)
        return any_positive(torch.where(right, self._lowered(affinity), affinity) / self.temperature, relation)

    def by_column(self, affinity: Tensor, column: Tensor, there: Tensor | None, apart: bool) -> Outcome:
        """Do the same where the one positive of query i stands in column[i].

        Parameters
        ----------
        affinity : Tensor
            (n, m) cosines.
        column : Tensor
            (n,) columns.
        there : Tensor or None
            None: all columns are candidates.
        apart : bool
            Whether the positive is left out of the denominator.

        Returns
        -------
        Outcome
            The value and the weight of every query.
        """
        at = column[:, None]
        if self.kind == "cosine":
            scaled = affinity / self.temperature
            lowered = scaled.scatter_add(1, at, scaled.new_full(at.shape, -self.margin / self.temperature))
        else:
            found, slope = _lowered_and_slope(affinity.detach().gather(1, at), self.margin)
            found = affinity.detach().scatter(1, at, found).div_(self.temperature)
            lowered = apply(_LoweredColumn, affinity, at, found, slope, self.margin, self.temperature)
        return own_column(lowered, column, there, apart)

    def _lowered(self, cosine: Tensor) -> Tensor:
        if self.kind == "cosine":
            return cosine - self.margin
        lowered: Tensor = apply(_Lowered, cosine, *_lowered_and_slope(cosine.detach(), self.margin), self.margin)
        return lowered


def _lowered_and_slope(cosine: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """The cosine after the angular margin, and its derivative: cos(margin) + cosine / sine sin(margin), and 1 beyond."""
    sin, within = sine(cosine), cosine >= -math.cos(margin)
    lowered = torch.where(within, _turned(cosine, sin, margin), cosine - margin * math.sin(margin))
    steep = torch.where(sin > 0, cosine / torch.where(sin > 0, sin, 1.0), 0.0)
    return lowered, torch.where(within, math.cos(margin) + steep * math.sin(margin), 1.0)


class _Lowered(torch.autograd.Function):
    """Gives the cosine after the angular margin the slope that was found with it."""

    @staticmethod
    def forward(cosine: Tensor, lowered: Tensor, slope: Tensor, margin: float) -> Tensor:
        return lowered.view_as(lowered)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        cosine, _, slope, ctx.margin = inputs
        ctx.save_for_backward(cosine, slope)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        cosine, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            slope = _lowered_and_slope(cosine, ctx.margin)[1]
        return upstream[0] * slope, None, None, None


class _LoweredColumn(torch.autograd.Function):
    """(n, m) cosines over the temperature, after the margin in one column of each row: two passes over the matrix, and two backwards."""

    @staticmethod
    def forward(cosine: Tensor, at: Tensor, found: Tensor, slope: Tensor, margin: float, temperature: float) -> Tensor:
        return found.view_as(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        cosine, at, _, slope, ctx.margin, ctx.temperature = inputs
        ctx.save_for_backward(cosine, at, slope)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        cosine, at, slope = ctx.saved_tensors
        pull = upstream[0] / ctx.temperature
        if torch.is_grad_enabled():  # for a second derivative
            slope = _lowered_and_slope(cosine.gather(1, at), ctx.margin)[1]
            return pull.scatter(1, at, pull.gather(1, at) * slope), *[None] * 5
        return pull.scatter_(1, at, pull.gather(1, at) * slope), *[None] * 5
