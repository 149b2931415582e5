"""What of a network is trained: the head, low-rank changes of its layers, the last blocks, or all of it."""

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

BLOCKS = re.compile(r"last-blocks=([1-9]\d*)")
LOW_RANK = re.compile(r"lora(?:=([1-9]\d*))?")
RANK = 8


def check_tune(tune: str) -> None:
    """Refuse an unknown choice of what to train."""
    if tune not in ("auto", "none", "head", "all") and not BLOCKS.fullmatch(tune) and not LOW_RANK.fullmatch(tune):
        raise ValueError(f"network.tune {tune!r} is unknown; choose none, head, lora, lora=RANK, last-blocks=N or all")


class LowRank(nn.Module):
    """A linear layer or a convolution whose frozen weight is changed by a product of two narrow ones, which starts at zero. [hu2022lora]"""

    def __init__(self, layer: nn.Linear | nn.Conv2d, rank: int) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight.requires_grad_(False), layer.bias
        self.low = nn.Parameter(torch.empty(rank, *layer.weight.shape[1:], dtype=layer.weight.dtype, device=layer.weight.device))
        self.high = nn.Parameter(torch.zeros(len(layer.weight), rank, dtype=layer.weight.dtype, device=layer.weight.device))
        nn.init.kaiming_uniform_(self.low, a=math.sqrt(5))
        self.apply_weight: Callable[..., Tensor] = functional.linear
        if isinstance(layer, nn.Conv2d):
            self.apply_weight = partial(functional.conv2d, stride=layer.stride, padding=layer.padding, dilation=layer.dilation)

    def forward(self, x: Tensor) -> Tensor:
        """W x + b + high (low x)."""
        narrow = self.apply_weight(x, self.low)
        change = functional.linear(narrow, self.high) if self.low.ndim == 2 else functional.conv2d(narrow, self.high[:, :, None, None])
        return self.apply_weight(x, self.weight, self.bias) + change

    def merged(self) -> Tensor:
        """The weight with its change."""
        changed: Tensor = self.weight + torch.tensordot(self.high, self.low, 1)
        return changed


def merged_state(network: nn.Module) -> dict[str, Tensor]:
    """The state of a network as it is deployed: low-rank changes are part of the weights."""
    state = network.state_dict()
    for name, part in network.named_modules():
        if isinstance(part, LowRank):
            prefix = f"{name}." if name else ""
            state[f"{prefix}weight"] = part.merged().detach()
            del state[f"{prefix}low"], state[f"{prefix}high"]
    return state


def load_merged(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load what `merged_state` returned; low-rank changes start at zero again."""
    loaded = network.load_state_dict(state, strict=False)
    changes = {f"{name}.{leaf}" for name, part in network.named_modules() if isinstance(part, LowRank) for leaf in ("low", "high")}
    wrong = [*loaded.unexpected_keys, *(name for name in loaded.missing_keys if name not in changes)]
    if wrong:
        raise ValueError(f"the weights are of another network: {', '.join(wrong[:3])}; resume the training")
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, LowRank):
                part.high.zero_()


def choose_trained(network: Any, tune: str) -> None:
    """Mark the parameters of a body and a head that are trained."""
    body = getattr(network, "body", None)
    if tune in ("auto", "all") or body is None:
        return
    body.requires_grad_(False)
    if low := LOW_RANK.fullmatch(tune):
        _add_low_rank(body, int(low[1] or RANK))
        return
    found = BLOCKS.fullmatch(tune)
    if not found:
        return
    blocks, count = blocks_of(body), int(found[1])
    if count > len(blocks):
        raise ValueError(f"network.tune {tune!r}: the encoder has {len(blocks)} blocks; choose at most that many, or all")
    first = id(next(blocks[-count].parameters()))
    after = False
    for parameter in body.parameters():  # in the order of the layers: the last blocks, and what comes after them
        after = after or id(parameter) == first
        parameter.requires_grad_(after)


def add_checkpoints(network: nn.Module) -> None:
    """Keep only the inputs of the blocks for the backward pass, which computes everything else again. [chen2016checkpointing]"""
    for block in blocks_of(getattr(network, "body", network)):
        block.forward = partial(_again_in_backward, block.forward)


def _again_in_backward(forward: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **options)
    return checkpoint(forward, *inputs, use_reentrant=False, **options)


def _add_low_rank(body: nn.Module, rank: int) -> None:
    """Replace the linear layers of a body, or of one without any the convolutions that are not grouped."""
    layers = [name for name, layer in body.named_modules() if type(layer) is nn.Linear]  # torch's own attention reads weights of subclasses
    layers = layers or [name for name, layer in body.named_modules() if _is_plain_convolution(layer)]
    if not layers:
        raise ValueError("network.tune lora changes linear layers or convolutions, and this encoder has none; choose last-blocks=N or all")
    for name in layers:
        parent, _, leaf = name.rpartition(".")
        setattr(body.get_submodule(parent), leaf, LowRank(body.get_submodule(name), rank))  # type: ignore[arg-type]


def _is_plain_convolution(layer: nn.Module) -> bool:
    """Whether a layer is a convolution of all channels, with zeros around the image."""
    return type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros"


def blocks_of(body: nn.Module) -> list[nn.Module]:
    """The blocks of a network: the parts, with parameters, of its longest list of layers that holds most of the weights."""
    total = sum(p.numel() for p in body.parameters())
    lists = [
        [part for part in module.children() if any(True for _ in part.parameters())]
        for module in body.modules()
        if isinstance(module, nn.Sequential | nn.ModuleList) and 2 * sum(p.numel() for p in module.parameters()) >= total
    ]
    return max(lists, key=len, default=[body])
