"""Lists of neighbors that weigh, or of which each must be near: what the kernels sum over all references, and the few pairs besides.

The kernels evaluate a list as a whole, -log of its share of the soft choice. Two more forms follow from that and from the affinities of the
pairs that are listed, (n, k) of them; nothing (n, m) is held.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nearkin.compose.criterion import soft_hinge
from nearkin.compose.log_sums import log_ratio
from nearkin.compose.outcome import Outcome
from nearkin.kernels.autograd import Soft
from nearkin.kernels.contract import Work, sizes


def pairwise(queries: Tensor, near: Tensor, squared: bool, temperature: float) -> Tensor:
    """(n, k) affinities of each of the queries (n, d) and its own `near` (n, k, d)."""
    if squared:
        return -(queries[:, None] - near).square().sum(2) / temperature
    return (near @ queries[:, :, None])[:, :, 0] / temperature


def _listed(work: Work, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """(n, k) positions, whether there is one, and its affinity."""
    assert work.listed is not None
    others = work.queries if work.references is None else work.references
    return work.listed, work.listed >= 0, pairwise(work.queries, others[work.listed.clamp_min(0)], work.squared, temperature)


def weighed(soft: Soft, work: Work, temperature: float, share: Tensor) -> Soft:
    """The value of lists whose entries count by a `share` (n, k), from the value where they count in full.

    log sum_all - log sum_j share_j e^s_j = (log sum_all - log sum_j e^s_j) + (log sum_j e^s_j - log sum_j share_j e^s_j)
    """
    _, there, near = _listed(work, temperature)
    counts = there & (share > 0)
    lighter = log_ratio(near, there, share * there)
    valid = soft.valid & counts.any(1)
    return Soft(torch.where(valid, soft.values + lighter, torch.zeros_like(soft.values)), valid)


def each(work: Work, temperature: float, evaluate: Callable[[Work], Soft]) -> Outcome:
    """`criterion.each_positive` of lists: mean_j log(1 + sum_k exp(s_k - s_j)) over the listed j and all k that are not, nor skipped.

    The kernels evaluate the farthest of a list, with the others left out; its value gives the log of the sum over k. Any other value is
    smaller, so that one too small for a float makes no other wrong.
    """
    listed, there, near = _listed(work, temperature)
    far = near.detach().masked_fill(~there, torch.inf).argmin(1, keepdim=True)  # (n, 1)
    others = listed.scatter(1, far, -1)
    soft = evaluate(work._replace(listed=listed.gather(1, far), skip=others if work.skip is None else torch.cat([work.skip, others], 1)))
    value = soft.values.clamp_min(torch.finfo(near.dtype).tiny)
    gap = value + torch.log(-torch.expm1(-value))  # of which it is log(1 + e^gap)
    right = there.sum(1)
    own = 0 if work.skip is None else (work.skip >= 0).sum(1)
    valid = soft.valid & (right + own < sizes(work)[1])
    values = (soft_hinge(gap[:, None] + near.gather(1, far) - near) * there).sum(1) / right.clamp_min(1)
    return Outcome(torch.where(valid, values, torch.zeros_like(values)), valid.to(values.dtype), (right * valid).sum())
