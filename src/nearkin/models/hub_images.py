"""Image encoders of the Hugging Face hub, `hf:NAME`: ViT, DINOv2, ConvNeXt, ResNet, Swin, the image part of CLIP, and others.

Preprocessing comes from preprocessor_config.json. Where that file squeezes images to a square, their center is cut out instead, so that
nothing is distorted.
"""

import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from nearkin.data.pixels import Framing, Interpolation
from nearkin.data.preprocess import Standardize
from nearkin.models.hub import built, hub_json

PREPROCESSOR = "preprocessor_config.json"
RESAMPLING: Mapping[int, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # the numbers of Pillow


class ImageBody(nn.Module):
    """A vision model of transformers: images (n, c, h, w) to features (n, f).

    The features are the model's own pooled output; without one, the vector of the first token, or the mean over the last maps.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        takes = inspect.signature(model.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in takes else {}

    def forward(self, images: Tensor) -> Tensor:
        """As of the class."""
        found = self.model(pixel_values=images, **self.options)
        pooled, last = getattr(found, "pooler_output", None), getattr(found, "last_hidden_state", found)
        if isinstance(pooled, Tensor):
            return pooled.flatten(1)
        if not isinstance(last, Tensor) or last.ndim not in (3, 4):
            what = f"a tensor {tuple(last.shape)}" if isinstance(last, Tensor) else f"a {type(last).__name__}"
            raise TypeError(f"the image encoder returns {what}, and features are needed; name an encoder such as vit, not a detector")
        return last[:, 0] if last.ndim == 3 else last.mean((2, 3))


def image_body(name: str, config: dict[str, Any]) -> ImageBody:
    """The body that a config describes, with new weights; of a model of images and texts, the part that reads images."""
    made = built(name, dict(config.get("vision_config", config)))
    if getattr(getattr(made, "pooler", None), "dense", None) is not None:  # a layer on the first token; files of classifiers have none
        made.pooler = None
    return ImageBody(made)


def reads_images(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a model of the hub reads images."""
    return (folder / PREPROCESSOR).is_file() or bool({"vision_config", "num_channels", "image_size"} & set(config))


def hub_reading(folder: Path, name: str) -> tuple[Framing, Standardize]:
    """How the model's authors preprocess images."""
    path = folder / PREPROCESSOR
    held = hub_json(path, name)
    if not held.get("do_rescale", True) or not math.isclose(held.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=0.01):
        raise ValueError(f"{name}: {path} scales pixels in its own way, which is not supported; name another model")
    short = _side(held.get("size", 224))
    cropped = held.get("do_center_crop", "crop_size" in held) and "crop_size" in held
    size = _side(held["crop_size"]) if cropped else short
    share = min(1.0, size / short) if cropped else float(held.get("crop_pct") or 1.0) if short < 384 else 1.0
    mean, std = (tuple(map(float, held.get(key) or (0.5,) * 3)) for key in ("image_mean", "image_std"))
    standardize = Standardize(mean, std) if held.get("do_normalize", True) else Standardize((0.0,) * 3, (1.0,) * 3)
    return Framing(size, share, RESAMPLING.get(held.get("resample", 2), "bilinear")), standardize


def _side(size: Any) -> int:
    """The side of {"height": 224, "width": 224}, {"shortest_edge": 224} or 224; of a rectangle the shorter one."""
    return int(min(size.values()) if isinstance(size, Mapping) else size)
