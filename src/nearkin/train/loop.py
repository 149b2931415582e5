"""The whole of training on one page: images in memory, shuffled batches, one objective, one optimizer, no options to learn.

`fit` is for reading, for small data and for comparing objectives on equal terms; `training` is the one that resumes,
validates and fills a model folder.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.compose.validation import check_positive, check_whole
from nearkin.objectives import Objective
from nearkin.train.folder import save_weights

WEIGHT_DECAY = 0.01
WARM = 0.3  # share of the steps on which the learning rate grows


class Epoch(NamedTuple):
    """What a reporter is told when an epoch has ended."""

    number: int  # from 1
    of: int
    loss: float  # mean over the epoch's batches


Report = Callable[[Epoch], None]


def fit(
    network: nn.Module,
    objective: Objective,
    images: Tensor,
    labels: Tensor | None,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    report: Report | None = None,
) -> list[float]:
    """Train the network, and the objective's own parameters, by AdamW with one cycle of the learning rate; the loss of every epoch.

    `learning_rate` is the cycle's peak. An image's id is its row, so that a memory bank knows it again. On a CPU the same
    `seed` and start weights give the same weights, bit for bit. The network is left in evaluation mode. A batch in which no neighbor
    could be wrong, since it drew one class only, is passed over.
    """
    _check(images, labels, epochs, batch_size, learning_rate)
    device = next(network.parameters()).device
    objective.to(device)
    optimizer = torch.optim.AdamW([*network.parameters(), *objective.parameters()], learning_rate, weight_decay=WEIGHT_DECAY)
    batches = math.ceil(len(images) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: one_cycle(step, epochs * batches))
    shuffle = torch.Generator().manual_seed(seed)
    contrasts = getattr(objective, "supervision", "") == "classes" and objective.known_classes() is None  # needs two classes in a batch
    losses = []
    # Dropout and sampling objectives draw from torch's own generator; it is put back as it was.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        network.train()
        for number in range(1, epochs + 1):
            total, valid = 0.0, 0
            # Even batches: a last one of a few images would hold no kin to find and upset batch normalization.
            for ids in torch.randperm(len(images), generator=shuffle).tensor_split(batches):
                here = None if labels is None else labels[ids].to(device)
                passed_over = contrasts and here is not None and bool((here == here[0]).all())
                optimizer.zero_grad()
                if not passed_over:
                    embeddings = network(images[ids].to(device))
                    loss = objective(embeddings, here, ids=ids)
                    loss.backward()
                optimizer.step()  # without a gradient nothing moves
                schedule.step()
                if not passed_over:
                    objective.update(embeddings.detach(), here, ids=ids)
                    total, valid = total + loss.item(), valid + 1
            losses.append(total / valid if valid else math.nan)
            if report is not None:
                report(Epoch(number, epochs, losses[-1]))
    if all(map(math.isnan, losses)):
        raise ValueError(f"batch_size ({batch_size}): every batch held one class only; use larger batches")
    network.eval()
    return losses


def one_cycle(step: int, steps: int) -> float:
    """The share of the peak learning rate at a step: up in a straight line, then down along a cosine, nearly to 0 at the end."""
    warm = WARM * steps
    if step < warm:
        return (step + 1) / (math.ceil(warm) + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


@torch.no_grad()
def embed(network: nn.Module, images: Tensor, batch_size: int = 512) -> Tensor:
    """Embeddings (n, d) of all images, in evaluation mode; the network's mode is put back."""
    device = next(network.parameters()).device
    mode = network.training
    network.eval()
    try:
        return torch.cat([network(part.to(device)) for part in torch.split(images, batch_size)])
    finally:
        network.train(mode)


def save(folder: Path, network: nn.Module, description: Mapping[str, Any], references: Points | None = None) -> None:
    """weights.safetensors, model.json (what it takes to build the network again) and what predictions look at."""
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(folder / "weights.safetensors", network.state_dict())
    (folder / "model.json").write_text(json.dumps(dict(description), indent=2) + "\n", encoding="utf-8")
    if references is not None:
        known = {name: value for name, value in references._asdict().items() if value is not None}
        save_weights(folder / "references.safetensors", known)


def _check(images: Tensor, labels: Tensor | None, epochs: int, batch_size: int, learning_rate: float) -> None:
    if len(images) < 2:
        raise ValueError(f"images holds {len(images)}; training needs at least 2 to compare")
    if labels is not None and len(labels) != len(images):
        raise ValueError(f"labels has {len(labels)} entries for {len(images)} images; give one for each")
    check_whole("epochs", epochs)
    check_whole("batch_size", batch_size, 2, "a point alone has no neighbor")
    check_positive("learning_rate", learning_rate)
