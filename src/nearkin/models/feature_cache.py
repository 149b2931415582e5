"""Features of a frozen body, computed once: a cache in the model folder, by the content of the files.

    features/KEY/part-00000.safetensors     features (m, f) and digests (m, 16) of the files they were computed from

KEY stands for the encoder, its weights and its preprocessing. Parts are complete when they have their name, so an interrupted pass goes
on where it stopped, and files that moved or were copied are found again.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nearkin.data.disk import set_default_permissions
from nearkin.data.files import read_bytes

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
            held = load_file(part)
            digests, features = held["digests"], held["features"]
        except (SafetensorError, OSError, KeyError):
            return  # damaged: computed again
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
        written = target.with_suffix(f".{os.getpid()}.writing")
        rows = torch.from_numpy(np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST).copy())
        save_file({"digests": rows, "features": features.contiguous()}, written)
        set_default_permissions(written)
        os.replace(written, target)
        self._remember(digests, features)

    def get(self, digests: Sequence[bytes]) -> Tensor:
        """(n, f) float32 features of these digests, all of which must be there."""
        if len(self.parts) > 1:
            self.parts = [torch.cat(self.parts)]
        return self.parts[0][torch.tensor([self.rows[digest] for digest in digests])].float()
