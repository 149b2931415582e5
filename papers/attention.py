"""Attention of the networks of successive rounds of discovery, for figure 7 of [huang2019and]."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data import Dataset
from nearkin.models.folder import Model, load
from nearkin.report.stages import heat_of_nearest, load_weights, saved_weights

SHOWN = 8  # test images, of as many classes as there are
CHUNK = 1024


def attention_by_round(folder: Path, data: Dataset) -> dict[str, np.ndarray]:
    """Of a few test images, after every round: attention for the nearest training point, and whether its class is right.

    images (n, c, h, w), heat (rounds, n, h, w) and right (rounds, n).
    """
    model = load(folder, "last")
    train, test = data.part("train"), data.part("test")
    assert train.labels is not None and test.labels is not None
    rows = _of_different_classes(test.labels)
    images = test.read(test.ids[rows])
    heat, right = [], []
    for name, weights in saved_weights(folder).items():
        if name != "last" and not name.startswith("round"):
            continue
        load_weights(model, weights)
        known = encoded(model, train)
        seen, found = heat_of_nearest(model, images, Points(known))
        heat.append(seen.numpy().astype(np.float16))
        right.append((train.labels[found] == test.labels[rows]).numpy())
    return {"images": images.numpy(), "heat": np.stack(heat), "right": np.stack(right)}


def encoded(model: Model, part: Dataset) -> Tensor:
    """(n, d) embeddings of a part, read in chunks."""
    return torch.cat([torch.as_tensor(model.encode(part.read(ids))) for ids in torch.split(part.ids, CHUNK)])


def _of_different_classes(labels: Tensor) -> Tensor:
    """(n,) the first row of each of the first classes."""
    first = [int((labels == number).nonzero()[0, 0]) for number in torch.unique(labels)[:SHOWN].tolist()]
    return torch.tensor(first)
