"""Logs of sums of exponentials, row by row: what every soft choice is made of.

A row's largest entry is taken out first, what is masked never enters, and a row without anything is -inf without a gradient. Values and
slopes come from the same few passes over the matrix. On a CPU a pass over truth values takes as long as six over floats.
"""

from typing import Any

import torch
from torch import Tensor

from nearkin.compose.derivatives import apply
from nearkin.compose.value_checks import may_read

FAR = 69.0  # e^-69 is 1e-30; on a CPU exponentials that are much smaller take up to a hundred times as long
LEAST = 2e-30  # of a row's largest exponential: up to here they count for nothing


def logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    """Row-wise log of the sum of exp(x) over the mask; -inf, without a gradient, where a row has nothing.

    What lies FAR below a row's largest is left out on a CPU: no sum of floats would notice it.
    """
    if torch.compiler.is_compiling():
        return _fused(x, mask)
    summed: Tensor = apply(_LogSumExp, x, mask, *_summed(x.detach(), mask))
    return summed


def _fused(x: Tensor, mask: Tensor, share: Tensor | None = None) -> Tensor:
    """The same by operations that a compiler joins into one pass, forwards and backwards: slopes found beforehand would be stored.

    With `share` (n, m), above 0 on the mask, the exponentials are multiplied by it.
    """
    top = torch.where(mask, x.detach(), -torch.inf).amax(1, keepdim=True)
    empty = top[:, 0] == -torch.inf
    exponentials = torch.where(mask, x - top.masked_fill(empty[:, None], 0.0), -torch.inf).exp()
    sums = (exponentials if share is None else exponentials * share).sum(1)
    return (top[:, 0] + sums.masked_fill(empty, 1.0).log()).masked_fill(empty, -torch.inf)


class _LogSumExp(torch.autograd.Function):
    """One copy of the matrix forwards, which its gradient keeps, and one backwards: autograd's own takes a dozen."""

    @staticmethod
    def forward(x: Tensor, mask: Tensor, summed: Tensor, shares: Tensor) -> Tensor:
        return summed.view_as(summed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, mask, _, shares = inputs
        ctx.save_for_backward(x, mask, shares)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        x, mask, shares = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            shares = (x - logsumexp(x, mask).clamp_min(torch.finfo(x.dtype).min)[:, None]).masked_fill(~mask, -torch.inf).exp()
        return upstream[0][:, None] * shares, None, None, None


def _summed(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The logs (n,), and every entry's share (n, m) in its row's sum; in as few kernels as torch has where small matrices wait for them."""
    shares = torch.where(mask, x, -torch.inf)
    if not may_read(x) and x.shape[1]:
        summed = shares.logsumexp(1)
        return summed, shares.softmax(1).masked_fill_((summed == -torch.inf)[:, None], 0.0)
    top = shares.amax(1, keepdim=True) if x.shape[1] else x.new_full((len(x), 1), -torch.inf)
    empty = top == -torch.inf
    _exponentials(shares, top.masked_fill(empty, 0.0))
    sums = shares.sum(1, keepdim=True)
    return (top + sums.log())[:, 0], shares.div_(sums.masked_fill(empty, 1.0))


def _exponentials(x: Tensor, top: Tensor) -> Tensor:
    """e^(x - top) in place, 0 from FAR below on."""
    return torch.threshold_(x.sub_(top).clamp_min_(-FAR).exp_(), LEAST, 0.0)


def log_ratio(x: Tensor, all_of: Tensor, share: Tensor) -> Tensor:
    """(n,) log sum_j all_of e^x - log sum_j share e^x: minus the log of a share's chance in a choice by softmax.

    all_of (n, m): truth values; share (n, m): 0..1, also outside of all_of. A row in which one of both is empty is 0, and so is its
    gradient. On a CPU one matrix of exponentials serves both sums, but in rows where the share is too small a part for that.
    """
    if not x.shape[1] or share.requires_grad:
        return _apart(x, all_of, share)
    if torch.compiler.is_compiling():
        whole, part = _fused(x, all_of), _fused(x, share > 0, share)
        none = (whole == -torch.inf) | (part == -torch.inf)
        return whole.masked_fill(none, 0.0) - part.masked_fill(none, 0.0)
    found, slope = (_together if may_read(x) else _beside)(x.detach(), all_of, share)
    values: Tensor = apply(_LogRatio, x, all_of, share, found, slope)
    return values


def _apart(x: Tensor, all_of: Tensor, share: Tensor) -> Tensor:
    """By two sums that autograd knows."""
    counts, weighted = _weighted(x, share)
    whole, part = logsumexp(x, all_of), logsumexp(weighted, counts)
    both = all_of.any(1) & counts.any(1)  # by what there is: a nan among the affinities must show
    zero = torch.zeros_like(whole)
    return torch.where(both, whole, zero) - torch.where(both, part, zero)


def _weighted(x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """What has a share, and x + log share there."""
    counts = share > 0
    return counts, x + torch.where(counts, share, 1).log()  # a log of 0 takes ten times that of 1


@torch.no_grad()
def _beside(x: Tensor, all_of: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Values (n,) and their slopes (n, m), each sum by itself."""
    counts, weighted = _weighted(x, share)
    (whole, mine), (part, right) = _summed(x, all_of), _summed(weighted, counts)
    none = ~(all_of.any(1) & counts.any(1))
    return whole.sub_(part).masked_fill_(none, 0.0), mine.sub_(right).masked_fill_(none[:, None], 0.0)


@torch.no_grad()
def _together(x: Tensor, all_of: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The same by one matrix, but rows that this cannot tell: one sum is empty, too small beside the largest, or nan."""
    chosen = all_of.to(x.dtype)
    outside = (chosen + share).le_(0.0)  # 1 where neither looks
    near = torch.add(x, outside, alpha=-torch.finfo(x.dtype).max)
    _exponentials(near, near.amax(1, keepdim=True))
    whole, part = torch.linalg.vecdot(near, chosen), torch.linalg.vecdot(near, share)
    safe = torch.minimum(whole, part) >= 1e5 * LEAST / torch.finfo(x.dtype).eps
    slope = chosen.div_(whole[:, None]).addcdiv_(share, part[:, None], value=-1).mul_(near)
    values = whole.div_(part).log_()
    if not bool(safe.all()):
        rest = (~safe).nonzero()[:, 0]
        values[rest], slope[rest] = _beside(x[rest], all_of[rest], share[rest])
    return values, slope


class _LogRatio(torch.autograd.Function):
    """Gives values the slopes that were found with them."""

    @staticmethod
    def forward(x: Tensor, all_of: Tensor, share: Tensor, values: Tensor, slope: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, all_of, share, _, slope = inputs
        ctx.save_for_backward(x, all_of, share, slope)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        x, all_of, share, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            slope = torch.autograd.grad(_apart(x, all_of, share).sum(), x, create_graph=True)[0]
        return upstream[0][:, None] * slope, None, None, None, None
