"""What a CUDA graph could not record, refused on any device."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

READS_BACK = ("_local_scalar_dense", "is_nonzero", "equal")
SHAPED_BY_VALUES = ("nonzero", "masked_select", "unique_dim", "unique_consecutive", "_unique", "_unique2", "bincount", "repeat_interleave")
MADE_FROM_NUMBERS = ("lift_fresh",)
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")


class Recordable(TorchDispatchMode):
    """Refuses reading a value back, a shape that depends on values, and a tensor made from numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in (*READS_BACK, *SHAPED_BY_VALUES, *MADE_FROM_NUMBERS), func
        if name in INDEXING:
            assert not any(isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]), f"{func} by a mask"
        return func(*args, **(kwargs or {}))
