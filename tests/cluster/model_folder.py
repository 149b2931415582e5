"""Model folders with random weights: what embedding and search need, without a training."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from nearkin.models.folder import build_network


def model_folder(folder: Path, shape: tuple[int, ...] = (6,), dimension: int = 4, seed: int = 0, hidden: tuple[int, ...] = ()) -> Path:
    """An untrained model that reads vectors (d,) or images (c, h, w)."""
    about: dict[str, Any] = {
        "format": 1,
        "kind": "images" if len(shape) == 3 else "vectors",
        "shape": list(shape),
        "classes": ["a", "b"],
        "targets": [],
        "supervision": "classes",
        "objective": "nca",
        "why": "a test",
        "network": {
            "name": "convnet" if len(shape) == 3 else "mlp",
            "dimension": dimension,
            "normalize": False,
            "options": {"hidden": list(hidden)} if hidden else {},
        },
        "prepare": [],
        "metric": "squared_euclidean",
    }
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    save_file(build_network(about).state_dict(), folder / "weights.safetensors")
    (folder / "model.json").write_text(json.dumps(about))
    return folder
