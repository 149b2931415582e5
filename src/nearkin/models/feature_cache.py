"""Features of a frozen body, computed once: a cache in the model folder, by the content of the files or texts.

    features/KEY/part-00000.safetensors     features (m, f) and digests (m, 16) of the files they were computed from

KEY stands for the encoder, its weights and its preprocessing. Parts are complete when they have their name, so an interrupted pass goes
on where it stopped, and files that moved or were copied are found again.
"""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nearkin.data.dataset import Dataset
from nearkin.data.disk import replacing
from nearkin.data.files import read_bytes
from nearkin.data.images import Files
from nearkin.data.texts import Texts

DIGEST = 16  # bytes
READERS = 8  # threads that read files for their digests
FOLDER = "features"


def feature_key(**facts: Any) -> str:
    """A short name for what determines features: encoder, weights, preprocessing."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def file_digests(paths: Sequence[str]) -> list[bytes]:
    """A hash of the content of every file; b"" for one that cannot be read."""
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(_file_digest, paths))


def has_contents(data: Dataset) -> bool:
    """Whether the points are images or texts of which every one is at hand, so that its features can be kept by its content."""
    return isinstance(data.inputs, Files | Texts) or (data.kind == "images" and isinstance(data.inputs, Tensor))


def content_digests(data: Dataset) -> list[bytes]:
    """A hash of the content of every image or text."""
    if isinstance(data.inputs, Texts):
        return data.inputs.digests()
    if isinstance(data.inputs, Tensor):
        return [hashlib.blake2b(image.numpy(), digest_size=DIGEST).digest() for image in data.inputs.contiguous()]
    assert isinstance(data.inputs, Files)
    return file_digests(data.inputs.paths)


def _file_digest(path: str) -> bytes:
    try:
        return hashlib.blake2b(read_bytes(path), digest_size=DIGEST).digest()
    except Exception:  # it is reported when it is decoded
        return b""


class FeatureCache:
    """Features by digest, of one key, in a model folder; other model folders next to it are read, too."""

    def __init__(self, model_folder: Path, key: str) -> None:
        self.place = model_folder / FOLDER / key
        self.rows: dict[bytes, int] = {}
        self.parts: list[Tensor] = []
        self.count = 0
        siblings = sorted(model_folder.resolve().parent.glob(f"*/{FOLDER}/{key}")) if model_folder.parent.exists() else []
        for folder in dict.fromkeys([self.place.resolve(), *(one.resolve() for one in siblings)]):
            for part in sorted(folder.glob("part-*.safetensors")):
                self._take(part)

    def __len__(self) -> int:
        return self.count

    def _take(self, part: Path) -> None:
        try:
            with safe_open(part, framework="pt") as file:
                digests, features, right = file.get_tensor("digests"), file.get_tensor("features"), (file.metadata() or {})["sha256"]
        except (SafetensorError, OSError, KeyError):
            return  # damaged: computed again
        if right != _content_digest(digests, features):
            return
        self._remember([row.tobytes() for row in digests.numpy()], features)

    def _remember(self, digests: Sequence[bytes], features: Tensor) -> None:
        for at, digest in enumerate(digests):
            self.rows.setdefault(digest, self.count + at)
        self.parts.append(features)
        self.count += len(features)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self.rows

    def add(self, digests: Sequence[bytes], features: Tensor) -> None:
        """Store features (m, f) on disk and remember them."""
        self.place.mkdir(parents=True, exist_ok=True)
        number = len(list(self.place.glob("part-*.safetensors")))
        target = self.place / f"part-{number:05d}.safetensors"
        rows = torch.from_numpy(np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST).copy())
        features = features.contiguous()
        content = save({"digests": rows, "features": features}, {"sha256": _content_digest(rows, features)})
        with replacing(target) as file:
            file.write(content)
        self._remember(digests, features)

    def get(self, digests: Sequence[bytes]) -> Tensor:
        """(n, f) float32 features of these digests, all of which must be there."""
        if len(self.parts) > 1:
            self.parts = [torch.cat(self.parts)]
        return self.parts[0][torch.tensor([self.rows[digest] for digest in digests])].float()


def _content_digest(digests: Tensor, features: Tensor) -> str:
    found = hashlib.sha256(digests.contiguous().numpy().tobytes())
    found.update(features.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
