"""A small index with classes, numbers or label sets, pictures, two splits, and one picture in both."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex


def png(seed: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (12, 10, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


def index_in(folder: Path, n: int = 40, numbers: bool = False, sets: bool = False, model: str = "m", first: int = 0) -> LocalIndex:
    random = np.random.default_rng(3)
    labels = np.arange(n) % 3
    vectors = (3 * random.normal(size=(3, 6))[labels] + 2 * random.normal(size=(n, 6))).astype(np.float32)
    metadata = [{"split": "test" if row % 4 == 0 else "train"} for row in range(n)]
    if numbers:
        metadata = [{**row, "angle": float(vectors[at, 0]), "group": at} for at, row in enumerate(metadata)]
    if sets:
        metadata = [{**row, "set": ["a", "b"] if at % 3 else ["b"]} for at, row in enumerate(metadata)]
    pictures = [png(row) for row in range(n)]
    pictures[4] = pictures[3]  # a test point that is a training point
    index = LocalIndex.create(folder, model=model, metric="squared_euclidean", dimension=6)
    named = [] if numbers or sets else [f"kind {label}" for label in labels]
    index.add(Entries(vectors, labels=named, sources=[f"point {first + row}" for row in range(n)], metadata=metadata, thumbnails=pictures))
    return index
