"""Logs of sums of exponentials, row by row: what every soft choice is made of.

A row's largest entry is taken out first, what is masked never enters, and a row without anything is -inf without a gradient. Values and
slopes come from the same few passes over the matrix. On a CPU a pass over truth values takes as long as six over floats.
"""

from typing import Any

import torch
from torch import Tensor

FAR = 69.0  # e^-69 is 1e-30; on a CPU exponentials that are much smaller take up to a hundred times as long
LEAST = 2e-30  # of a row's largest exponential: up to here they count for nothing


def may_read(x: Tensor) -> bool:
    """Whether a shorter way may be chosen by what x holds: on CUDA the host would wait for it, and no graph could record the step."""
    return x.device.type == "cpu"


def logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    """Row-wise log of the sum of exp(x) over the mask; -inf, without a gradient, where a row has nothing.

    What lies FAR below a row's largest is left out on a CPU: no sum of floats would notice it.
    """
    summed: Tensor = _LogSumExp.apply(x, mask)  # type: ignore[no-untyped-call]
    return summed


class _LogSumExp(torch.autograd.Function):
    """One copy of the matrix forwards, which its gradient keeps, and one backwards: autograd's own takes a dozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        shares = torch.where(mask, x, -torch.inf)
        top = shares.amax(1, keepdim=True) if x.shape[1] else x.new_full((len(x), 1), -torch.inf)
        empty = top == -torch.inf
        _exponentials(shares, top.masked_fill(empty, 0.0))
        sums = shares.sum(1, keepdim=True)
        shares.div_(sums.masked_fill(empty, 1.0))
        ctx.save_for_backward(x, mask, shares)
        return (top + sums.log())[:, 0]

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        x, mask, shares = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            shares = (x - logsumexp(x, mask).clamp_min(torch.finfo(x.dtype).min)[:, None]).masked_fill(~mask, -torch.inf).exp()
        return upstream[0][:, None] * shares, None


def _exponentials(x: Tensor, top: Tensor) -> Tensor:
    """e^(x - top) in place, on a CPU 0 from FAR below on."""
    x.sub_(top)
    return torch.threshold_(x.clamp_min_(-FAR).exp_(), LEAST, 0.0) if may_read(x) else x.exp_()


def log_ratio(x: Tensor, all_of: Tensor, share: Tensor) -> Tensor:
    """(n,) log sum_j all_of e^x - log sum_j share e^x: minus the log of a share's chance in a choice by softmax.

    all_of (n, m): truth values; share (n, m): 0..1, also outside of all_of. A row in which one of both is empty is 0, and so is its
    gradient. On a CPU one matrix of exponentials serves both sums, but in rows where the share is too small a part for that.
    """
    if not x.shape[1] or share.requires_grad:
        return _apart(x, all_of, share)
    found, slope, rest = _together(x, all_of.to(x.dtype), share) if may_read(x) else (*_beside(x, all_of, share), None)
    values: Tensor = _LogRatio.apply(x, all_of, share, found, slope)  # type: ignore[no-untyped-call]
    return values if rest is None else values.index_copy(0, rest, _apart(x[rest], all_of[rest], share[rest]))


def _apart(x: Tensor, all_of: Tensor, share: Tensor) -> Tensor:
    counts = share > 0
    whole, part = logsumexp(x, all_of), logsumexp(x + torch.where(counts, share, 1).log(), counts)  # a log of 0 takes ten times that of 1
    both = all_of.any(1) & counts.any(1)  # by what there is: a nan among the affinities must show
    zero = torch.zeros_like(whole)
    return torch.where(both, whole, zero) - torch.where(both, part, zero)


@torch.no_grad()
def _together(x: Tensor, all_of: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Values (n,), their slopes (n, m), and the rows that this cannot tell: one sum is empty, too small beside the largest, or nan."""
    outside = (all_of + share).le_(0.0)  # 1 where neither looks
    x = torch.add(x, outside, alpha=-torch.finfo(x.dtype).max)
    _exponentials(x, x.amax(1, keepdim=True))
    whole, part = torch.linalg.vecdot(x, all_of), torch.linalg.vecdot(x, share)
    least = 1e5 * LEAST / torch.finfo(x.dtype).eps
    told = torch.minimum(whole, part) >= least  # a nan is not
    rest = None if bool(told.all()) else (~told).nonzero()[:, 0]
    if rest is not None:
        whole, part = whole.index_fill_(0, rest, 1.0), part.index_fill_(0, rest, 1.0)
    slope = all_of.div_(whole[:, None]).addcdiv_(share, part[:, None], value=-1).mul_(x)
    if rest is not None:
        slope.index_fill_(0, rest, 0.0)
    return whole.div_(part).log_(), slope, rest


@torch.no_grad()
def _beside(x: Tensor, all_of: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Values and slopes, each sum by itself, in as few kernels as torch has: on CUDA small matrices wait for their launches."""
    counts = share > 0
    whole, part = torch.where(all_of, x, -torch.inf), torch.where(counts, x + share.log(), -torch.inf)
    none = ~(all_of.any(1) & counts.any(1))
    values = (whole.logsumexp(1) - part.logsumexp(1)).masked_fill_(none, 0.0)
    return values, whole.softmax(1).sub_(part.softmax(1)).masked_fill_(none[:, None], 0.0)


class _LogRatio(torch.autograd.Function):
    """Gives values the slopes that were found with them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, all_of: Tensor, share: Tensor, values: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(x, all_of, share, slope)
        return values

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        x, all_of, share, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            slope = torch.autograd.grad(_apart(x, all_of, share).sum(), x, create_graph=True)[0]
        return upstream[0][:, None] * slope, None, None, None, None
