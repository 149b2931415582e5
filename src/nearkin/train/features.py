"""The features of a frozen encoder for every image or text of a data set, each computed once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nearkin.data.corrections import source_names
from nearkin.data.dataset import Dataset
from nearkin.data.images import Files
from nearkin.data.loader import MIN_FILES_FOR_WORKERS, NAMED, Loader, without_points
from nearkin.data.progress import Ticker
from nearkin.data.texts import Texts
from nearkin.models.feature_cache import FeatureCache, content_digests
from nearkin.models.folding import folded
from nearkin.train.reporter import Reporter

CHUNK = 128  # points read at a time
ON_CPU = 32  # points that pass through the encoder at a time on a CPU, where larger tensors are slower
CONSTANT = 1e-5  # spread of features over their size below which they differ by rounding only
STORED = 8  # chunks in a part of the cache


class Featured(NamedTuple):
    """Images or texts that can be read, and the same points as features."""

    images: Dataset
    features: Dataset


class OnFeatures(nn.Module):
    """The head of a network alone, for points that are features of its frozen body."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Tensor) -> Tensor:
        embeddings: Tensor = self.head(features)
        return embeddings


def featured(
    body: nn.Module, prepare: Callable[[Tensor], Tensor], images: Dataset, folder: Path, key: str, device: torch.device, log: Reporter
) -> Featured:
    """Compute the features of all images, or read them from the cache. Damaged files are left out, or named in one error."""
    cache, digests = FeatureCache(folder, key), content_digests(images)
    missing = torch.tensor([row for row, digest in enumerate(digests) if digest not in cache], dtype=torch.int64)
    if len(missing) < len(images):
        log.message(f"features of {len(images) - len(missing):,} of {len(images):,} {images.kind} are in the cache")
    damaged: dict[int, str] = {}
    if len(missing):
        damaged = _compute(body.eval().to(device), prepare, images.subset(missing), cache, [digests[row] for row in missing.tolist()], log)
    if damaged and isinstance(images.inputs, Files) and images.inputs.on_error == "skip":
        for reason in list(damaged.values())[:NAMED]:
            log.message(f"left out: {reason}")
        log.message(f"{images.name}: {len(damaged):,} of {len(images):,} images are damaged and left out")
    kept = without_points(images, damaged)
    gone = set(images.rows(list(damaged)).tolist()) if damaged else set()
    features = cache.get([digest for row, digest in enumerate(digests) if row not in gone])
    _check_features(features, kept)
    return Featured(kept, replace(kept, inputs=features, sources=source_names(kept)))


@torch.no_grad()
def _compute(
    body: nn.Module, prepare: Callable[[Tensor], Tensor], images: Dataset, cache: FeatureCache, digests: list[bytes], log: Reporter
) -> dict[int, str]:
    """Fill the cache; returns the damaged files by id, with the reason."""
    device, trial = next(body.parameters()).device, images
    if isinstance(images.inputs, Files):  # damaged ones are reported together, out of all images and not of those that are computed
        trial = replace(images, inputs=replace(images.inputs, on_error="skip"))
    workers = None if len(images) > MIN_FILES_FOR_WORKERS else 0
    loader = Loader(trial, device=device, resident_bytes=-1, workers=workers, report=lambda _: None)
    ticker, done = Ticker(log.message, "computing features", len(images), images.kind), 0
    rows: list[Tensor] = []
    held: list[bytes] = []
    body, piece = folded(body), ON_CPU if device.type == "cpu" else CHUNK
    for inputs, ids in loader(torch.split(_in_order(images), CHUNK)):
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            rows += [body(prepare(part)).flatten(1).float().cpu() for part in inputs.split(piece)]  # type: ignore[no-untyped-call]
        held += [digests[row] for row in images.rows(ids.cpu()).tolist()]
        done += len(ids)
        ticker.update(done)
        if len(held) >= STORED * CHUNK:
            cache.add(held, torch.cat(rows))
            rows, held = [], []
    if rows:
        cache.add(held, torch.cat(rows))
    return loader.skipped


def _in_order(data: Dataset) -> Tensor:
    """Ids in the order in which they are computed: texts of similar length together, as a batch takes as long as its longest text."""
    if not isinstance(data.inputs, Texts):
        return data.ids
    return data.ids[torch.tensor([len(text) for text in data.inputs.texts]).argsort()]


def _check_features(features: Tensor, images: Dataset) -> None:
    wrong = (~torch.isfinite(features).all(1)).nonzero()[:, 0].tolist()
    if wrong:
        first = images.sources[wrong[0]]
        raise ValueError(
            f"the encoder returns NaN or infinity for {len(wrong):,} of {len(features):,} {images.kind}, first for {first}; "
            f"check the weights file, or leave these {images.kind} out"
        )
    if len(features) > 1 and float(features.std(0).mean()) <= CONSTANT * float(features.abs().mean()):
        raise ValueError(
            f"the encoder returns the same features for all {len(features):,} {images.kind}, up to rounding: it cannot tell them apart; "
            f"check that the weights file belongs to this encoder, and that the {images.kind} differ"
        )


def facts_of(about: dict[str, Any], weights: str) -> dict[str, Any]:
    """What the features of an encoder depend on, for `feature_key`."""
    return {
        "network": about["network"]["name"],
        "weights": weights,
        "shape": about["shape"],
        "framing": about.get("framing", {}),
        "prepare": about["prepare"],
        **({"tokenizer": about["tokenizer"]} if "tokenizer" in about else {}),
    }
