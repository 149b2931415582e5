"""Tuning a pretrained encoder on CUB-200-2011, for classes that were not trained on: what of it to train, and by which objective.

    python -m papers tuning --data-root data --weights mobilenet_v2-b0353104.pth --device cuda

The data root holds the folder cub200 (a folder for each class, with or without train/ and test/ above them). Another encoder is named as
`--encoder timm:NAME` or `torchvision:NAME`, with its weights. Trainings are in --work, each with checkpoints, and every finished row is
saved in tuning.json of --out: the same command continues an interrupted run. About a minute a row on a large GPU; `--epochs 2 --rows all-
nca` is a trial.

Protocol. Classes 1 to 100 are for training, the last 20 of them for validation; classes 101 to 200 are the test part, searched by leave-
one-out. Every setting is trained with seed 0 on the first 80 classes, and the one with the best P@1 on the 20 is trained with three seeds
and measured on the test part, once. Nothing is chosen on the test part.
"""

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearkin import data, load
from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.data.dataset import Dataset
from nearkin.data.disk import replacing
from nearkin.evaluate import classification, retrieval
from nearkin.models.encoders import find_encoder
from nearkin.train.config import Run, override
from nearkin.train.encoder import with_encoder
from nearkin.train.folder import device_name
from nearkin.train.training import train
from papers.encoders import Printing, spread

SEEDS, TRAINED, HELD = (0, 1, 2), 100, 20
SHARED = {
    "network.dimension": "512",
    "network.layer_decay": "0.85",
    "network.statistics": "kept",
    "optimizer.name": "adam",
    "optimizer.weight_decay": "1e-4",
    "optimizer.clip": "10",
    "optimizer.learning_rate": "3e-4",
    "schedule.warmup": "0.1",
    "sampler.name": "per_class",
    "sampler.options.per_class": "4",
    "batch_size": "128",
    "augment.name": "crop_flip",
    "augment.options.pixels": "24",
    "precision": "bfloat16",
    "patience": "8",
}
SOFTMAX = {"sampler.name": "shuffled", "objective.name": "normalized_softmax", "objective.options.temperature": "0.05"}
ROWS: Mapping[str, Mapping[str, str]] = {
    "none": {"network.tune": "none"},
    "head": {"network.tune": "head"},
    "blocks-softmax": {"network.tune": "last-blocks=6", "network.rate": "0.3", **SOFTMAX},
    "all-nca": {"network.tune": "all", "network.rate": "0.3"},
    "all-softmax": {"network.tune": "all", "network.rate": "0.3", **SOFTMAX},
    "all-softmax-slow": {"network.tune": "all", "network.rate": "0.1", **SOFTMAX},
    "all-proxy-anchor": {"network.tune": "all", "network.rate": "0.3", "objective.name": "proxy_anchor"},
    "all-multi-similarity": {"network.tune": "all", "network.rate": "0.3", "objective.name": "multi_similarity"},
}


def main(words: Sequence[str]) -> int:
    """Run what is missing and write the page."""
    made = ArgumentParser("python -m papers tuning", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--data-root", default="data", metavar="FOLDER")
    made.add_argument("--encoder", default="mobilenet-v2", metavar="NAME")
    made.add_argument("--weights", metavar="FILE")
    made.add_argument("--device", metavar="DEVICE")
    made.add_argument("--epochs", type=int, default=30, metavar="N")
    made.add_argument("--rows", default=",".join(ROWS), metavar="NAMES")
    made.add_argument("--work", default="runs/tuning", metavar="FOLDER")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    arguments = made.parse_args(words)
    target = Path(arguments.out) / "tuning.json"
    saved: dict[str, Any] = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    run, images = opened(arguments)

    def keep(key: str, row: dict[str, Any]) -> None:
        saved[key] = row
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write((json.dumps(saved, indent=1, sort_keys=True) + "\n").encode())
        print(key, row, flush=True)

    names = arguments.rows.split(",")
    for name in names:
        key = f"{arguments.encoder}/{name}/validation"
        if key not in saved:
            keep(key, trained(run, images, name, 0, arguments, tested=False))
    trials = [name for name in names if name != "none"]
    best = max(trials, key=lambda name: saved[f"{arguments.encoder}/{name}/validation"]["scores"]["p@1"])
    for name in dict.fromkeys(["none", best]):
        for seed in SEEDS[: 1 if name == "none" else None]:
            key = f"{arguments.encoder}/{name}/test/{seed}"
            if key not in saved:
                keep(key, trained(run, images, name, seed, arguments, tested=True))
    page = target.parent.parent / "papers" / "tuning.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(saved), encoding="utf-8")
    print(f"wrote {page}")
    return 0


def opened(arguments: Any) -> tuple[Run, Dataset]:
    """The run with the encoder and its preprocessing, and the images with the split by class."""
    folder = Path(arguments.data_root) / "cub200"
    settings = {"network.pretrained": "true", "data.source": str(folder), "data.leaks": "allow", "epochs": str(arguments.epochs), **SHARED}
    run = override(Run(), settings)
    run = with_encoder(run, find_encoder(arguments.encoder, arguments.weights), settings)
    reading: dict[str, Any] = {"size": run.data.size, "crop": run.data.crop, "interpolation": run.data.interpolation, "channels": 3}
    images = data.open(folder, **reading)
    assert images.labels is not None
    return run, images.with_split(split_of(images.labels.numpy(), tested=False))


def split_of(labels: np.ndarray, *, tested: bool) -> list[str]:
    """The part of every image by its class. The test part is left out of a trial: it is in no part that is read."""
    ends = (TRAINED - HELD, TRAINED)
    last = "test" if tested else "other"
    return ["train" if label < ends[0] else "validation" if label < ends[1] else last for label in labels.tolist()]


def trained(run: Run, images: Dataset, name: str, seed: int, arguments: Any, *, tested: bool) -> dict[str, Any]:
    """Train one row, or go on with it, and measure it by leave-one-out on the validation or the test classes."""
    assert images.labels is not None
    parts = images.with_split(split_of(images.labels.numpy(), tested=True))
    used = parts.subset(parts.split != "test")
    folder = Path(arguments.work) / f"{arguments.encoder.replace(':', '-').replace('/', '-')}-{name}-{seed}"
    chosen = override(run, {**ROWS[name], "seed": str(seed)})
    if not (folder / "metrics.json").exists():
        train(chosen, folder, data=used, device=arguments.device, resume=(folder / "run.json").exists(), reporter=Printing())
    model = load(folder, device=arguments.device)
    asked = parts.part("test" if tested else "validation")
    rows = [torch.as_tensor(model.encode(asked.read(ids))).float().cpu() for ids in torch.split(asked.ids, 256)]
    points = Points(torch.cat(rows), asked.labels, asked.ids)
    found = {**classification(points, None, cosine(), (1,)), **retrieval(points, None, cosine(), (1,))}
    figures = {"p@1": round(found["1-nn"].value, 4), "map@r": round(found["map@r"].value, 4)}
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return {"scores": figures, "seconds": metrics["seconds"], "kept": metrics.get("weights", "best"), "device": device_name(model.device)}


def page_of(saved: Mapping[str, Any]) -> str:
    """The page: the trials on the validation classes, and the test of the chosen one."""
    text = "# Tuning an encoder for unseen classes\n\n" + (__doc__ or "").partition("Protocol. ")[2].strip() + "\n"
    for encoder in dict.fromkeys(key.split("/")[0] for key in saved):
        text += f"\n## {encoder}\n\n| row | classes | P@1 | MAP@R | seeds | seconds |\n|---|---|---|---|---|---|\n"
        for name in ROWS:
            for kind in ("validation", "test"):
                own = f"{encoder}/{name}/{kind}"
                rows = [row for key, row in saved.items() if key == own or key.startswith(f"{own}/")]
                if rows:
                    cells = " | ".join(spread([row["scores"][figure] for row in rows]) for figure in ("p@1", "map@r"))
                    text += f"| {name} | {kind} | {cells} | {len(rows)} | {np.mean([row['seconds'] for row in rows]):.0f} |\n"
    return text
