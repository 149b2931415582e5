"""Functions with gradients of their own, applied with as little between as torch allows."""

from typing import Any

import torch


def apply(function: type[torch.autograd.Function], *given: Any) -> Any:
    """Return `function.apply(*given)`.

    torch binds the arguments to the signature at every call, which takes as long as several small operators. Only torch.func and
    torch.compile need that; otherwise the arguments go straight to the class below.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*given)  # type: ignore[no-untyped-call]
    return super(torch.autograd.Function, function).apply(*given)  # type: ignore[misc]
