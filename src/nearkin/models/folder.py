"""A model folder: what training leaves behind and everything else starts from.

    model.json              what goes in, which network, how inputs are prepared, the metric, and why this objective
    run.json                the Run that made it
    weights.safetensors     the last weights; best.safetensors those that did best on the validation part, if there is one
    objective.safetensors   the objective's own parameters and state
    references.safetensors  embeddings of the training part with their labels or targets: what predictions look at. By the best weights
                            where there are any; references-last.safetensors are then those of the last. Binary codes are kept packed
    split.json, metrics.json, log.jsonl, README.md (the model card), checkpoints/

Nothing in it is a pickle.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from nearkin.compose.affinity import Affinity, InnerProduct, SquaredEuclidean, cosine, signs
from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.data import images as pictures
from nearkin.data import preprocess
from nearkin.models.catalog import build, channels_last
from nearkin.models.paths import model_page
from nearkin.search import Neighbors, nearest
from nearkin.search.packing import pack, unpack
from nearkin.search.voting import vote

Picture = str | Path | Image.Image
Inputs = Tensor | np.ndarray | Picture | Sequence[Picture] | Sequence[np.ndarray]


class Model:
    """A trained network with what it takes to use it. `load` makes one."""

    def __init__(self, network: nn.Module, about: dict[str, Any], references: Points | None = None) -> None:
        self.network = network.eval()
        self.about = about
        self.references = references
        self.prepare = preprocess.restore(about["prepare"])
        self.affinity = METRICS[about["metric"]]

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.network.parameters(), torch.zeros(())).device

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by number."""
        return tuple(self.about["classes"])

    @property
    def binary(self) -> bool:
        """Whether it was trained for codes: its embeddings are then +-1."""
        return bool(self.about["metric"] == "hamming")

    @property
    def smooth_affinity(self) -> Affinity:
        """An affinity with a gradient for the network's own outputs: for codes their product with the other's signs."""
        return InnerProduct() if self.binary else self.affinity

    @property
    def soft_affinity(self) -> Affinity | None:
        """The affinity whose softmax says who is a neighbor: at the temperature of the training.

        Where that is not known, Euclidean distances go without one, and of cosines, which all lie in -1..1, no softmax would say anything.
        """
        if "temperature" not in self.about:
            return None if self.about["metric"] == "cosine" else self.affinity
        temperature = float(self.about["temperature"])
        return cosine(temperature) if self.about["metric"] == "cosine" else SquaredEuclidean(temperature)

    @torch.no_grad()
    def encode(self, inputs: Inputs, batch_size: int = 512) -> Tensor | np.ndarray:
        """Embeddings (n, d): of images (n, c, h, w) uint8 or float in 0..1, of vectors (n, d), or of pictures: files by path, or Pillow's.

        Channels may also come last, and of gray images they may be missing. A tensor gives a tensor, anything else a numpy array. A model
        for codes gives +-1; `codes` packs them.
        """
        points = self._read(inputs)
        mode = self.network.training
        self.network.eval()
        try:
            rows = [self.network(self._prepared(part.to(self.device))).float() for part in torch.split(points, batch_size)]
        finally:
            self.network.train(mode)
        embeddings = signs(torch.cat(rows)) if self.binary else torch.cat(rows)
        return embeddings.to(inputs.device) if isinstance(inputs, Tensor) else embeddings.cpu().numpy()

    def codes(self, inputs: Inputs) -> np.ndarray:
        """(n, ceil(d / 8)) uint8: the signs of the embedding, eight in a byte."""
        return pack(self.encode(inputs))

    def neighbors(self, inputs: Inputs, k: int = 10) -> Neighbors:
        """The k nearest training points of each input, as positions among `references`, with affinities."""
        embeddings = torch.as_tensor(self.encode(inputs)).to(self.device)
        return nearest(embeddings, self._known().embeddings, k, self.affinity)

    def predict(self, inputs: Inputs, k: int = 10) -> Tensor | np.ndarray:
        """By the k nearest training points: the majority's class number, or the mean of their targets."""
        known = self._known()
        if known.labels is None:
            raise ValueError("this model was trained without labels and can predict none; use neighbors()")
        labels, answering, classes = known.labels, known.embeddings, self.about["supervision"] == "classes"
        if classes and bool((labels < 0).any()):  # points whose class is not known have none to tell
            labels, answering = labels[labels >= 0], answering[labels >= 0]
        asked = torch.as_tensor(self.encode(inputs)).to(self.device)
        theirs = labels[nearest(asked, answering, k, self.affinity).positions]
        found = vote(theirs) if classes else theirs.float().mean(1)
        return found if isinstance(inputs, Tensor) else found.cpu().numpy()

    def _known(self) -> Points:
        if self.references is None:
            raise ValueError("the model folder has no references.safetensors; train it to the end, or embed the training part again")
        return self.references

    def _prepared(self, points: Tensor) -> Tensor:
        return preprocess.preprocessed(points, self.prepare) if points.ndim == 4 else points.float()

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.about["shape"]))
        network, known = self.about["network"], 0 if self.references is None else len(self.references.embeddings)
        return f"<Model {network['name']}: {self.about['kind']} {shape} to {network['dimension']} numbers, {known:,} references>"

    def _read(self, inputs: Inputs) -> Tensor:
        shape = tuple(self.about["shape"])
        some: Any = [inputs] if isinstance(inputs, Picture) else inputs.to_numpy() if hasattr(inputs, "to_numpy") else inputs  # a DataFrame
        if not isinstance(some, Tensor) and len(some) and isinstance(some[0], Picture):
            if len(shape) != 3:
                raise ValueError(f"this model reads vectors of {shape[0]} numbers, not image files")
            channels, side = channels_and_size(self.about)
            assert channels is not None
            some = torch.stack([pictures.decode_picture(picture, channels, side) for picture in some])
        points = some if isinstance(some, Tensor) else torch.from_numpy(np.ascontiguousarray(some))
        if len(shape) == 3 and tuple(points.shape[1:]) != shape:  # as files of arrays have them
            points = points[:, None] if points.ndim == 3 else points.movedim(-1, 1) if points.ndim == 4 else points
        if not len(points) or tuple(points.shape[1:]) != shape:
            raise ValueError(f"inputs have shape {tuple(np.shape(some))}; this model reads (n, {', '.join(map(str, shape))})")
        if self._wants_fractions and points.is_floating_point() and float(points.max()) > 2:
            raise ValueError(f"inputs reach {float(points.max()):g}, and floats are pixels in 0..1: divide them by 255, or pass uint8")
        return points

    @property
    def _wants_fractions(self) -> bool:
        """Whether it was trained with pixels in 0..1: an estimator's images may be of any scale."""
        return any(isinstance(step, preprocess.Standardize) and max(step.mean) <= 1 for step in self.prepare)


def load(folder: str | Path, which: Literal["best", "last"] = "best", device: str | torch.device | None = None) -> Model:
    """A model from its folder; "best" falls back to the last weights when there was no validation part."""
    folder = Path(folder)
    about = about_of(folder)
    network = build_network(_without_first_weights(about))
    best, there = folder / "best.safetensors", folder / "references.safetensors"
    weights = best if which == "best" and best.exists() else folder / "weights.safetensors"
    if not weights.exists():
        told = f"{weights} is not there: the training has not come to its end"
        raise FileNotFoundError(f"{told}; `nearkin train --resume {quote(str(folder))}` goes on with it")
    if best.exists() and which == "last":
        there = folder / "references-last.safetensors"
    network.load_state_dict(load_file(weights))
    network = channels_last(network)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Model(network.to(device), about, _references(there, torch.device(device), int(about["network"]["dimension"])))


def about_of(folder: Path) -> dict[str, Any]:
    """What model.json says."""
    about: dict[str, Any] = json.loads(model_page(folder).read_text(encoding="utf-8"))
    return about


def _without_first_weights(about: dict[str, Any]) -> dict[str, Any]:
    """The same description without the file that training started from: the folder has weights of its own, and must do without it."""
    options = {name: value for name, value in about["network"]["options"].items() if name != "weights"}
    return {**about, "network": {**about["network"], "options": options}}


def channels_and_size(about: dict[str, Any]) -> tuple[int | None, int | None]:
    """(channels, side) that other people's pictures are brought to; no side where the model's are not square, nothing for vectors."""
    if about["kind"] != "images":
        return None, None
    channels, height, width = about["shape"]
    return channels, height if height == width else None


def build_network(about: dict[str, Any]) -> nn.Module:
    """The network that model.json describes, with fresh weights."""
    chosen, shape = about["network"], tuple(about["shape"])
    if len(shape) == 3:  # preparation may crop
        shape = tuple(preprocess.preprocessed(torch.zeros(1, *shape), preprocess.restore(about["prepare"])).shape[1:])
    kind: dict[str, Any] = {"image_shape": shape} if len(shape) == 3 else {"dimension_in": shape[0]}
    return build(chosen["name"], **kind, dimension=chosen["dimension"], normalize=chosen["normalize"], **chosen["options"])


def kept_references(known: Points, *, binary: bool) -> dict[str, Tensor]:
    """What references.safetensors holds: embeddings (n, d), or codes (n, ceil(d / 8)), with labels and ids where there are any."""
    kept = {"codes": torch.from_numpy(pack(known.embeddings))} if binary else {"embeddings": known.embeddings}
    more = {"labels": known.labels, "ids": known.ids}
    return {**kept, **{name: tensor for name, tensor in more.items() if tensor is not None}}


def _references(path: Path, device: torch.device, dimension: int) -> Points | None:
    if not path.exists():
        return None
    tensors = load_file(path, device=str(device))
    if "codes" in tensors:
        tensors["embeddings"] = torch.from_numpy(unpack(tensors["codes"].cpu().numpy(), dimension)).to(device)
    return Points(tensors["embeddings"], tensors.get("labels"), tensors.get("ids"))
