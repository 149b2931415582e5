"""Where the networks of successive rounds of discovery look: the material of figure 7 of [huang2019and]."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from nearkin.data import Dataset
from nearkin.data.preprocess import preprocessed
from nearkin.explore.grad_cam import grad_cam, last_maps
from nearkin.model import Model, load
from nearkin.search import nearest

SHOWN = 8  # test images, of as many classes as there are
OTHERS = 500  # references that the nearest one is told apart from
CHUNK = 1024


def looked_by_round(folder: Path, data: Dataset) -> dict[str, np.ndarray]:
    """Of a few test images, after every round: where the network looks to find their nearest training point, and whether that is right.

    images (n, c, h, w), heat (rounds, n, h, w) and right (rounds, n).
    """
    model = load(folder, "last")
    train, test = data.part("train"), data.part("test")
    assert train.labels is not None and test.labels is not None
    rows = _of_different_classes(test.labels)
    images = test.read(test.ids[rows])
    stages = [*sorted(folder.glob("round-*.safetensors")), folder / "weights.safetensors"]
    heat, right = [], []
    for weights in stages:
        model.network.load_state_dict(load_file(weights, device=str(model.device)))
        seen, found = _looked(model, images, train)
        heat.append(seen.cpu().numpy().astype(np.float16))
        right.append((train.labels[found] == test.labels[rows]).numpy())
    return {"images": images.numpy(), "heat": np.stack(heat), "right": np.stack(right)}


def _looked(model: Model, images: Tensor, train: Dataset) -> tuple[Tensor, Tensor]:
    """Heat (n, h, w) of the images' affinity to their nearest training point, and which that is, (n,)."""
    known = torch.cat([torch.as_tensor(model.encode(train.read(ids))) for ids in torch.split(train.ids, CHUNK)]).to(model.device)
    asked = torch.as_tensor(model.encode(images)).to(model.device)
    found = nearest(asked, known, 1, model.affinity).positions[:, 0]
    inputs = preprocessed(images.to(model.device), model.prepare)
    others = known[:: max(len(known) // OTHERS, 1)]
    return grad_cam(model.network, inputs, known[found], last_maps(model.network, inputs), model.affinity, against=others), found.cpu()


def _of_different_classes(labels: Tensor) -> Tensor:
    """(n,) the first row of each of the first classes."""
    first = [int((labels == number).nonzero()[0, 0]) for number in torch.unique(labels)[:SHOWN].tolist()]
    return torch.tensor(first)
