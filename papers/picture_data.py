"""The arrays that the pictures need of a run, saved next to its ledger as NAME.npz: small enough for the repository."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from nearkin.data import Dataset
from nearkin.models.folder import load
from papers.attention import attention_by_round
from papers.cell import Keep, Trial

POINTS = 3000  # of a map, spread over the test part
IMAGES = 36  # next to the filters


def picture_file(trial: Trial, results: Path) -> Path:
    """The file that holds the arrays of a trial."""
    return results / f"{trial.name}.npz"


def model_arrays(keep: Keep, folder: Path, data: Dataset, curve: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """From a model folder, its data and the figures of its epochs: arrays by name."""
    if keep == "curve":
        names = [name for name, value in curve[-1].items() if isinstance(value, float)]
        return {name: np.array([epoch[name] for epoch in curve], dtype=np.float32) for name in names}
    if keep == "rounds":
        return attention_by_round(folder, data)
    model = load(folder, "last")
    part = data.part("test")
    rows = spread(len(part), POINTS if keep == "map" else IMAGES)
    inputs = part.read(part.ids[torch.from_numpy(rows)])
    if keep == "filters":
        first = next(weight for weight in model.network.parameters() if weight.ndim == 4)
        return {"filters": first.detach().cpu().numpy().astype(np.float16), "images": inputs.numpy()}
    assert part.labels is not None
    kept = {"embeddings": np.asarray(model.encode(inputs.numpy()), dtype=np.float32), "labels": part.labels.numpy()[rows].astype(np.int16)}
    state = load_file(folder / "objective.safetensors")
    vectors = state.get("references.vectors")
    if vectors is None or vectors.shape[1] != kept["embeddings"].shape[1] or "affinity.bias" in state:  # no points of the map
        return kept
    return {**kept, "anchors": vectors.cpu().numpy()}


def map_arrays(embeddings: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """From the embeddings (n, 2) and labels (n,) of a whole test part."""
    rows = spread(len(embeddings), POINTS)
    return {"embeddings": embeddings[rows].astype(np.float32), "labels": labels[rows].astype(np.int16)}


def extent(points: np.ndarray) -> dict[str, float]:
    """Root mean square distance of points (n, d) from the origin, `length`, and from their mean, `spread about the mean`."""
    lengths = {"length": points, "spread about the mean": points - points.mean(0)}
    return {name: float(np.sqrt((some**2).sum(1).mean())) for name, some in lengths.items()}


def spread(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` rows, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))
