"""Stages of a training: the weights that a model folder kept on the way, and where each of them looks to find a neighbor.

Every training keeps its last checkpoints, the best and the last weights; rounds of discovery leave a checkpoint each.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data.preprocess import preprocessed
from nearkin.models.folder import Model
from nearkin.report.grad_cam import grad_cam, last_maps
from nearkin.search import nearest

OTHERS = 500  # references that the nearest one is told apart from


class Look(NamedTuple):
    """Where a network looks in n images to find their nearest reference."""

    heat: Tensor  # (n, h, w), on the CPU
    found: Tensor  # (n,) which reference that is


def stages(folder: Path) -> dict[str, Path]:
    """Files of weights by name, in the order of the training: rounds, checkpoints, best and last."""
    saved = sorted((folder / "checkpoints").glob("step-*"))
    rounds = [path for path in saved if "-round-" in path.name]
    steps = [path for path in saved if path not in rounds]
    found = {f"round {_number(path.name)}": path / "tensors.safetensors" for path in rounds}
    # the newest checkpoint of a finished training holds the last weights
    found |= {f"step {_number(path.name)}": path / "tensors.safetensors" for path in steps[:-1]}
    found |= {name: folder / f"{file}.safetensors" for name, file in (("best", "best"), ("last", "weights"))}
    return {name: path for name, path in found.items() if path.exists()}


def put(model: Model, weights: Path) -> None:
    """Give the model's network the weights of a stage, a file of them or a checkpoint's."""
    tensors = load_file(weights, device=str(model.device))
    if weights.name == "tensors.safetensors":
        tensors = {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
    model.network.load_state_dict(tensors)


def looked(model: Model, images: Tensor, known: Points, ids: Tensor | None = None, layer: str | None = None) -> Look:
    """For images (n, c, h, w) as they are stored and embedded references (m, d), with the model's present weights.

    The heat is of the affinity to the nearest reference against that to the others, at `layer`, the last with maps unless told. With
    `ids` (n,), a reference of the same id is passed over.
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
    return Look(heat.cpu(), found.cpu())


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
