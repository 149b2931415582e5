"""Several ranks as one: every rank embeds its share of the batch and sees all of it; the gradient is that of one process.

Embeddings, labels and ids of all ranks are gathered in rank order. Every rank computes the loss of the whole batch and keeps the
gradient of its own rows. Summed over ranks, the gradient of the network is exactly that of the whole batch. The objective's own
parameters get their complete gradient on every rank, so theirs is not summed. Batch normalization uses the statistics of each
rank, as usual; its running averages are averaged over ranks.
"""

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def start(device: str | torch.device | None = None) -> tuple[int, torch.device]:
    """Join the process group if torchrun started one. Returns the rank and its device: the named one, else its own GPU, else the CPU."""
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, place
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    if not dist.is_initialized():
        # Imported before the group exists: its functions keep the current group as a default argument, which would keep gloo's
        # threads alive after `stop`. A gloo thread that frees a tensor while Python exits aborts the process.
        import_module("torch.distributed.nn.functional")
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    return dist.get_rank(), place


def wait_for_all() -> None:
    """Wait until every rank has reached this call."""
    if dist.is_initialized():
        dist.barrier()


def is_first() -> bool:
    """Whether this is the rank that writes files and reports."""
    return not dist.is_initialized() or dist.get_rank() == 0


def stop() -> None:
    """Leave the group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def count() -> int:
    """How many ranks there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def number() -> int:
    """The number of this rank, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def share(ids: Tensor) -> Tensor:
    """This rank's rows of a batch of ids: contiguous, of nearly equal size."""
    if count() == 1:
        return ids
    return torch.tensor_split(ids, count())[dist.get_rank()]


def gather(rows: Tensor) -> Tensor:
    """The rows of all ranks in rank order; shares may differ in size. The gradient goes back to this rank's rows."""
    if count() == 1:
        return rows
    gathered: Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        sizes = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(count())]
        dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
        lengths = [int(size) for size in sizes]
        padded = rows.new_zeros(max(lengths), *rows.shape[1:])
        padded[: len(rows)] = rows
        pieces = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(pieces, padded)
        ctx.start = sum(lengths[: dist.get_rank()])
        ctx.length = len(rows)
        return torch.cat([piece[:length] for piece, length in zip(pieces, lengths, strict=True)])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        # Every rank computes the whole loss, so the gradient of its own rows is complete.
        return upstream[0][ctx.start : ctx.start + ctx.length]


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients of the network over ranks: each rank has only those of its own rows."""
    if count() == 1:
        return
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)


@torch.no_grad()
def align(module: nn.Module) -> None:
    """Copy the parameters of rank 0 and average floating buffers; called before the first step and before a checkpoint."""
    if count() == 1:
        return
    for p in module.parameters():
        dist.broadcast(p.data, 0)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer.div_(count())
