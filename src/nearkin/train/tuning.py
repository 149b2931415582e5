"""What of a network is trained: the head, the last blocks, or all of it."""

import re
from typing import Any

from torch import nn

BLOCKS = re.compile(r"last-blocks=([1-9]\d*)")


def check_tune(tune: str) -> None:
    """Refuse an unknown choice of what to train."""
    if tune not in ("none", "head", "all") and not BLOCKS.fullmatch(tune):
        raise ValueError(f"network.tune {tune!r} is unknown; choose none, head, last-blocks=N or all")


def choose_trained(network: Any, tune: str) -> None:
    """Mark the parameters of a body and a head that are trained."""
    body = getattr(network, "body", None)
    if tune == "all" or body is None:
        return
    body.requires_grad_(False)
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


def blocks_of(body: nn.Module) -> list[nn.Module]:
    """The blocks of a network: the parts, with parameters, of its longest list of layers that holds most of the weights."""
    total = sum(p.numel() for p in body.parameters())
    lists = [
        [part for part in module.children() if any(True for _ in part.parameters())]
        for module in body.modules()
        if isinstance(module, nn.Sequential | nn.ModuleList) and 2 * sum(p.numel() for p in module.parameters()) >= total
    ]
    return max(lists, key=len, default=[body])
