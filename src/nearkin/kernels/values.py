"""Turn the two summaries of every query into its loss, in plain torch."""

import math

import torch
from torch import Tensor

from nearkin.kernels.contract import Form, Values, Work


def values_of(work: Work, form: Form, first: Tensor, second: Tensor, slope: float) -> Values:
    """See `Engine.values`."""
    positive, negative = first != -torch.inf, second != -torch.inf  # nan counts as present: broken embeddings must show in the loss
    if work.targets is not None:
        return Values(second, positive, slope * positive.to(second.dtype), torch.where(positive, first, 0.0), second)
    gap = (second - first).double() * math.log(2)  # B - A in natural units; nan without any candidate
    # A gap of -inf has loss 0 and no gradient; a gap of inf (no positive) has loss 1.
    if form == "log":
        valid = positive
        gap = torch.where(positive & negative, gap, -torch.inf)
        value, weight = torch.nn.functional.softplus(gap, threshold=40), torch.sigmoid(gap)
    else:
        valid = positive | negative
        gap = torch.where(valid, gap, -torch.inf)
        value = torch.sigmoid(gap)
        weight = value * torch.sigmoid(-gap)
    finite = torch.where(positive, first, torch.where(negative, second, 0.0))
    return Values(value.to(first.dtype), valid, (slope * weight).to(first.dtype), finite, torch.where(negative, second, finite))
