"""Functions with gradients of their own, applied with as little between as torch allows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nearkin.compose.value_checks import define_operator, refuse_gradients


def apply(function: type[torch.autograd.Function], *given: Any) -> Any:
    """Return `function.apply(*given)`.

    torch binds the arguments to the signature at every call, which takes as long as several small operators. Only torch.func and
    torch.compile need that; otherwise the arguments go straight to the class below. Where nothing is to be differentiated torch.compile
    (2.13) would give `forward` a context that it does not take, and shift its arguments by one; and within torch.func.grad it would
    silently leave `backward` out. torch.export leaves it out, too: there the value comes with a gradient that is refused.
    """
    if torch.compiler._is_exporting_flag:  # traced by torch 2.11, `is_exporting()` is always True
        value: Tensor = torch.ops.nearkin.value_alone(function.forward(*given), [one for one in given if isinstance(one, Tensor)])
        return value
    if torch.compiler.is_dynamo_compiling():
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError(
                "torch.compile would take gradients of an objective for zeros inside of torch.func.grad; call torch.func.grad without "
                "torch.compile, or compile the loss alone and call its backward()"
            )
        if not _differentiated(given):
            return function.forward(*given)
    if torch.compiler.is_compiling():
        return function.apply(*given)  # type: ignore[no-untyped-call]
    if torch._C._are_functorch_transforms_active():
        try:
            return function.apply(*given)  # type: ignore[no-untyped-call]
        except NotImplementedError as error:
            raise RuntimeError(
                "objectives have no derivatives in forward mode, so torch.func.jvp, jacfwd and hessian do not work on them; use "
                "torch.func.grad or vjp, and for a product with second derivatives torch.func.grad of a product with the gradient"
            ) from error
    return super(torch.autograd.Function, function).apply(*given)  # type: ignore[misc]


def _value(value: Tensor, _: Sequence[Tensor]) -> Tensor:
    return value.clone()


define_operator("value_alone(Tensor value, Tensor[] sources) -> Tensor", _value, _value)
refuse_gradients(
    "value_alone",
    "an exported objective has values and no gradients; export the network alone and call the objective itself on its embeddings, "
    "or compile both with torch.compile",
)


def _differentiated(given: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in given)


class Linear(torch.autograd.Function):
    """Gives row sums (n,) that are piecewise linear in affinities (n, m) their slopes; a second derivative is 0."""

    @staticmethod
    def forward(affinity: Tensor, total: Tensor, slope: Tensor) -> Tensor:
        return total.view_as(total)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return upstream[0][:, None] * slope, None, None
