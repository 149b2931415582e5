"""Autocast would lower products of matrices to 16 bits; what an objective computes keeps its 32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def lowered(x: Any) -> bool:
    """Whether autocast is on where x is. Tensors without values ("meta") know no autocast."""
    return isinstance(x, Tensor) and x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def exact(x: Tensor) -> AbstractContextManager[Any]:
    """Return a block without autocast where x is."""
    return torch.autocast(x.device.type, enabled=False) if lowered(x) else nullcontext()
