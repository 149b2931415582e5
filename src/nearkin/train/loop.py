"""A whole training in one function: inputs in memory, shuffled batches, one objective, one optimizer.

`fit` is for reading, for small data and for comparing objectives on equal terms. `nearkin.train.train` resumes, validates and
writes a model folder.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.compose.validation import check_positive, check_whole
from nearkin.data.checksums import write_json
from nearkin.objectives import Objective
from nearkin.train.folder import save_weights

WEIGHT_DECAY = 0.01
WARM = 0.3  # share of the steps during which the learning rate grows


class Epoch(NamedTuple):
    """What `fit` reports after an epoch."""

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
    """Train a network, and the objective's own parameters, with AdamW and a one-cycle learning rate.

    On a CPU the same `seed` and initial weights give the same weights, bit for bit. The network is left in evaluation mode.
    The id of an input is its row, by which a memory bank recognizes it. Batches that contain a single class are skipped if the
    objective needs negatives from the batch.

    Parameters
    ----------
    network : torch.nn.Module
        Maps a batch of inputs to embeddings (b, d). It is trained in place, on its own device.
    objective : Objective
        Called with embeddings, labels and ids.
    images : Tensor of shape (n, ...)
        All inputs, images or vectors, at least 2.
    labels : Tensor of shape (n, ...) or None
        Classes, numbers or label sets, as the objective needs them; None without labels.
    epochs : int
        Passes over the inputs.
    batch_size : int
        Largest number of inputs per step, at least 2. Batches are of nearly equal size.
    learning_rate : float
        Peak of the one-cycle schedule.
    seed : int
        Seed of batches and of everything random in network and objective.
    report : callable, default=None
        Called after every epoch with an `Epoch`: ``number`` (from 1), ``of`` and ``loss``.

    Returns
    -------
    list of float
        Mean loss of every epoch; NaN if all its batches were skipped.

    Raises
    ------
    ValueError
        If an argument is out of range, or if all batches had to be skipped.

    See Also
    --------
    train : Resumable training with validation, which writes a model folder.

    Examples
    --------
    >>> import torch
    >>> from nearkin import NCA
    >>> from nearkin.train import fit
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(60, 5)
    >>> network = torch.nn.Linear(5, 2)
    >>> losses = fit(network, NCA(), x, (x[:, 0] > 0).long(), epochs=5, batch_size=30, learning_rate=0.1, seed=0)
    >>> losses[-1] < losses[0]
    True
    """
    _check(images, labels, epochs, batch_size, learning_rate)
    device = next(network.parameters()).device
    objective.to(device)
    optimizer = torch.optim.AdamW([*network.parameters(), *objective.parameters()], learning_rate, weight_decay=WEIGHT_DECAY)
    batches = math.ceil(len(images) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: one_cycle(step, epochs * batches))
    shuffle = torch.Generator().manual_seed(seed)
    contrasts = getattr(objective, "supervision", "") == "classes" and objective.known_classes() is None  # needs negatives in the batch
    losses = []
    # Dropout and sampling objectives draw from the global generator; its state is restored afterwards.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        network.train()
        for number in range(1, epochs + 1):
            total, used = 0.0, 0
            # Batches of nearly equal size: a small last one would lack positives and distort batch normalization.
            for ids in torch.randperm(len(images), generator=shuffle).tensor_split(batches):
                here = None if labels is None else labels[ids].to(device)
                skipped = contrasts and here is not None and bool((here == here[0]).all())
                optimizer.zero_grad()
                if not skipped:
                    embeddings = network(images[ids].to(device))
                    loss = objective(embeddings, here, ids=ids)
                    loss.backward()
                optimizer.step()  # does nothing without gradients, but the schedule must come after it
                schedule.step()
                if not skipped:
                    objective.update(embeddings.detach(), here, ids=ids)
                    total, used = total + loss.item(), used + 1
            losses.append(total / used if used else math.nan)
            if report is not None:
                report(Epoch(number, epochs, losses[-1]))
    if all(map(math.isnan, losses)):
        raise ValueError(f"batch_size ({batch_size}): every batch held one class only; use larger batches")
    network.eval()
    return losses


def one_cycle(step: int, steps: int) -> float:
    """The share of the peak learning rate at a step: a linear rise, then a cosine down to nearly 0."""
    warm = WARM * steps
    if step < warm:
        return (step + 1) / (math.ceil(warm) + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


@torch.no_grad()
def embed(network: nn.Module, images: Tensor, batch_size: int = 512) -> Tensor:
    """Embeddings (n, d) of all inputs, in evaluation mode; training mode is restored afterwards."""
    device = next(network.parameters()).device
    mode = network.training
    network.eval()
    try:
        return torch.cat([network(part.to(device)) for part in torch.split(images, batch_size)])
    finally:
        network.train(mode)


def save(folder: Path, network: nn.Module, description: Mapping[str, Any], references: Points | None = None) -> None:
    """Write a model folder: the weights, model.json (how to rebuild the network) and the references for predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(folder / "weights.safetensors", network.state_dict())
    write_json(folder / "model.json", dict(description))
    if references is not None:
        known = {name: value for name, value in references._asdict().items() if value is not None}
        save_weights(folder / "references.safetensors", known)


def _check(images: Tensor, labels: Tensor | None, epochs: int, batch_size: int, learning_rate: float) -> None:
    if len(images) < 2:
        raise ValueError(f"images has {len(images)} entries; give at least 2")
    if labels is not None and len(labels) != len(images):
        raise ValueError(f"labels has {len(labels)} entries for {len(images)} images; give one per image")
    check_whole("epochs", epochs)
    check_whole("batch_size", batch_size, 2, "a point alone has no neighbor")
    check_positive("learning_rate", learning_rate)
