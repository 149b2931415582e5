"""Stages of a training: the weights saved in a model folder, and heat maps of the neighbor decisions of each.

Every training keeps its last checkpoints, the best and the last weights; neighborhood discovery keeps one checkpoint for each round.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data.preprocess import preprocessed
from nearkin.models.folder import Model
from nearkin.models.weights import read_tensors
from nearkin.report.grad_cam import grad_cam, last_maps
from nearkin.search import nearest

OTHERS = 500  # references that the nearest one is compared with


class NearestHeat(NamedTuple):
    """Heat maps of n images for their nearest reference."""

    heat: Tensor  # (n, h, w), on the CPU
    found: Tensor  # (n,) position of that reference


def saved_weights(folder: Path) -> dict[str, Path]:
    """Files of weights by stage, in the order of the training: rounds, checkpoints, best and last."""
    saved = sorted((folder / "checkpoints").glob("step-*"))
    rounds = [path for path in saved if "-round-" in path.name]
    steps = [path for path in saved if path not in rounds]
    found = {f"round {_number(path.name)}": path / "tensors.safetensors" for path in rounds}
    # the newest checkpoint of a finished training holds the last weights
    found |= {f"step {_number(path.name)}": path / "tensors.safetensors" for path in steps[:-1]}
    found |= {name: folder / f"{file}.safetensors" for name, file in (("best", "best"), ("last", "weights"))}
    return {name: path for name, path in found.items() if path.exists()}


def load_weights(model: Model, weights: Path) -> None:
    """Load the weights of a stage into the model's network, from a weights file or a checkpoint."""
    tensors = read_tensors(weights, "remove it, or restore it from a copy", str(model.device))
    if weights.name == "tensors.safetensors":
        tensors = {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
        if tensors and all(name.startswith("head.") for name in tensors):  # of a frozen body, which has not changed
            tensors = {**model.network.state_dict(), **tensors}
    model.network.load_state_dict(tensors)


def heat_of_nearest(model: Model, images: Tensor, known: Points, ids: Tensor | None = None, layer: str | None = None) -> NearestHeat:
    """Grad-CAM of unprepared images (n, c, h, w) for their nearest of the embedded references (m, d), with the model's current weights.

    The score is the affinity to the nearest reference minus the mean affinity to others. `layer` is the last one with maps by
    default. With `ids` (n,), a reference with the same id is not a neighbor.
    """
    there = known._replace(embeddings=known.embeddings.to(model.device), ids=None if known.ids is None else known.ids.to(model.device))
    asked = Points(torch.as_tensor(model.encode(images)).to(model.device), ids=None if ids is None else ids.to(model.device))
    found = nearest(asked, there, 1, model.affinity, exclude_same_id=ids is not None).positions[:, 0]
    inputs = preprocessed(images.to(model.device), model.prepare)
    others = there.embeddings[:: max(len(there.embeddings) // OTHERS, 1)]
    heat = grad_cam(
        model.network,
        inputs,
        there.embeddings[found],
        layer or last_maps(model.network, inputs),
        model.smooth_affinity,
        against=others,
        size=(images.shape[2], images.shape[3]),
    )
    return NearestHeat(heat.cpu(), found.cpu())


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
