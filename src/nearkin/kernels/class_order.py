"""The order of points by class, so that the positives of a point are one span."""

from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.engines import has_triton

MOST = 1 << 13  # points up to which comparing all labels was quicker on an H200 than sorting them, a launch for every byte of a label


class ByClass(NamedTuple):
    """Points in the order of their classes, those of a class as they came.

    Parameters
    ----------
    order : Tensor (n,)
        Which point stands at each place.
    place : Tensor (n,)
        Where each point stands.
    span : Tensor (n, 2)
        For each place, where the points of its class begin and end.

    Examples
    --------
    >>> import torch
    >>> from nearkin.kernels.class_order import by_class
    >>> found = by_class(torch.tensor([7, 2, 7, 5]))
    >>> found.order.tolist(), found.place.tolist(), found.span.tolist()
    ([1, 3, 0, 2], [2, 0, 3, 1], [[0, 1], [1, 2], [2, 4], [2, 4]])
    """

    order: Tensor
    place: Tensor
    span: Tensor


def by_class(labels: Tensor) -> ByClass:
    """Order points (n,) by class: by one launch for everyday batches on CUDA, else by sorting.

    Parameters
    ----------
    labels : Tensor (n,)
        Whole numbers.

    Returns
    -------
    ByClass
    """
    traced = torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None
    if labels.is_cuda and not traced and 0 < len(labels) <= MOST and has_triton():
        from nearkin.kernels.triton_class_order import compared

        return ByClass(*compared(labels))
    ranked, order = labels.sort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return ByClass(order, place, torch.stack([torch.searchsorted(ranked, ranked), torch.searchsorted(ranked, ranked, right=True)], dim=1))
