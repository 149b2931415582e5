"""A model folder with an index, small enough to be made in a second: an untrained network and sixty colored pictures."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from nearkin import data as sources
from nearkin.index.collection import Collection, build_index
from nearkin.models.folder import build_network
from nearkin.train.loop import save

SIDE, D = 16, 8
COLORS = {"blue": (40, 60, 200), "green": (40, 180, 60), "red": (210, 50, 40)}


def picture(color: str, seed: int, size: tuple[int, int] = (24, 20)) -> Image.Image:
    rng = np.random.default_rng(seed)
    pixels = np.array(COLORS[color]) + rng.normal(0, 18, (size[1], size[0], 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def make_pictures(folder: Path, each: int = 20, first: int = 0) -> Path:
    for number, color in enumerate(COLORS):
        (folder / color).mkdir(parents=True)
        for i in range(each):
            picture(color, 1000 * number + first + i).save(folder / color / f"{first + i:03d}.png")
    return folder


def make_model(folder: Path, seed: int = 0) -> Path:
    about = {
        "format": 1,
        "kind": "images",
        "shape": [3, SIDE, SIDE],
        "classes": list(COLORS),
        "targets": [],
        "supervision": "classes",
        "objective": "nca",
        "why": "a test",
        "network": {"name": "convnet", "dimension": D, "normalize": False, "options": {}},
        "prepare": [],
        "metric": "squared_euclidean",
    }
    torch.manual_seed(seed)
    save(folder, build_network(about), about)
    return folder


def opened(folder: Path) -> sources.Dataset:
    return sources.open(folder, size=SIDE, channels=3)


def make_collection(folder: Path) -> Collection:
    """folder/model with an index of folder/pictures."""
    collection, _ = build_index(make_model(folder / "model"), opened(make_pictures(folder / "pictures")), device="cpu")
    return collection
