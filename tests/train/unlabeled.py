"""A small training without labels, and digits for it."""

import numpy as np
import torch
from PIL import Image

from nearkin.data import Dataset
from nearkin.data import open as open_data

BASE = {
    "network.name": "mlp",
    "network.dimension": "8",
    "network.options.hidden": "[32]",
    "objective.name": "neighborhood_discovery",
    "augment.name": "shift",
    "augment.options.pixels": "1",
    "batch_size": "50",
    "epochs": "5",
    "validate_every": "100",
    "checkpoint_seconds": "1e9",
    "data.validation": "0",
}


def digits(count=200, test=60, **more):
    data = open_data("digits").subset(torch.arange(count + test)).renumbered()
    split = np.array(["train"] * count + ["test"] * test)
    return Dataset("digits", data.inputs, labels=data.labels, classes=data.classes, split=split, **more)


def photographs(folder, count):
    """Digits as files of a new folder, in their order."""
    folder.mkdir()
    for row, image in enumerate(digits(count, 0).inputs[:, 0].numpy()):
        Image.fromarray(image).save(folder / f"{row:02}.png")
    return folder
