"""What makes neighbors teach: targets of learning without labels, compared in one loop on CIFAR-10.

    python -m papers neighbor-targets --data-root data --device cuda --only soft instance --images 6000000

Every finished row is saved in neighbor-targets.json of --out; the same command continues.

Protocol. ResNet-18, batches of 256, SGD with momentum 0.9, one cosine after a warm-up of a twentieth of the steps, bfloat16. A tenth of the
training part is held out; every row is measured there by the weighted vote (200 neighbors, temperature 0.1) of the other nine tenths; the
test part is read only with --test. Images are counted by the views that pass through a network, the teacher's included.

The student sees a view of every image with crop, flip, color and gray, and takes a step for each if it sees several. The teacher is a
running mean of the student's weights. The target of an image is a mixture:

- its own: what the bank or the teacher knows of the image itself (instance discrimination), and
- its neighbors: softmax over the bank of the similarities at a lower temperature (ReSSL; Zheng et al., 2021); at a temperature near 0 the
  single nearest neighbor (as NNCLR has it; Dwibedi et al., 2021). Where the share of the image itself falls, it begins at 1.

The bank holds one of three things:

- slots: running means of the student's own embeddings (Wu et al., 2018), without a teacher;
- steps: the teacher's embeddings of a second view of every image of a step, by default with crop and flip only (MoCo; He et al., 2020);
- epochs: the teacher's embeddings of all images as they are, made again every few epochs.
"""

import math
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data import open as open_data
from nearkin.data import partition
from nearkin.train.folder import device_name
from nearkin.train.validate import weighted_accuracy
from papers.contest import Rows, run_rows, spread
from papers.neighbor_training import Target, Training, epochs

PARTS = {"held out": "a tenth of the training part held out", "test": "test part"}

RECIPE = "wide-views-fast"  # what `nearkin train --for discovery` uses
LOOKS, ASKED = 5, 2000  # times that a training is looked at, and images whose neighbors are looked at
TARGETS: Mapping[str, Target] = {
    "slot": Target("own slot", own=1.0, bank_of="slots", memory=0.5, hidden=0, decay=1e-3),
    "slot-head": Target("own slot, features before a head", own=1.0, bank_of="slots", memory=0.5),
    "slot-soft": Target("slots, own falls to 0.3", own=0.3, until=0.5, bank_of="slots", memory=0.5, hidden=0, decay=1e-3),
    "slot-soft-head": Target("slots, own falls to 0.3, features before a head", own=0.3, until=0.5, bank_of="slots", memory=0.5),
    "instance": Target("steps, own second view", own=1.0),
    "instance-queue": Target("steps, own second view, bank of 4,096", own=1.0, bank=4096),
    "soft": Target("steps, neighbors"),
    "soft-queue": Target("steps, neighbors, bank of 4,096", bank=4096),
    "soft-strong": Target("steps, neighbors, second view as strong as the first", weak=False),
    "nearest": Target("steps, nearest neighbor", sharp=1e-3),
    "mixed": Target("steps, half own second view, half neighbors", own=0.5),
    "later": Target("steps, own falls to 0", until=0.3),
    "later-predictor": Target("steps, own falls to 0, a predictor", until=0.3, predictor=True),
    "later-mean": Target("steps, own falls to 0, slots are running means", until=0.3, memory=0.5),
    "later-wide": Target("steps, own falls to 0, hidden layer of 2,048", until=0.3, hidden=2048),
    "later-both": Target("steps, own falls to 0, a predictor, slots are running means", until=0.3, memory=0.5, predictor=True),
    "later-end": Target("steps, own falls to 0 at the end", until=1.0),
    "later-fast": Target("steps, own falls to 0, rate 0.12", until=0.3, rate=0.12),
    "instance-wide": Target("steps, own second view, hidden layer of 2,048", own=1.0, hidden=2048),
    "wide-end": Target("steps, own falls to 0 at the end, hidden layer of 2,048", until=1.0, hidden=2048),
    "wide-fast": Target("steps, own falls to 0, hidden layer of 2,048, rate 0.12", until=0.3, hidden=2048, rate=0.12),
    "wide-before": Target(
        "steps, own falls to 0, hidden layer of 2,048, neighbors before the head", until=0.3, hidden=2048, before_head=True
    ),
    "wide-views-fast": Target(
        "steps, own falls to 0, hidden layer of 2,048, two views for the student, rate 0.12", until=0.3, hidden=2048, views=2, rate=0.12
    ),
    "wide-views": Target("steps, own falls to 0, hidden layer of 2,048, two views for the student", until=0.3, hidden=2048, views=2),
    "clean": Target("epochs, own", own=1.0, bank_of="epochs"),
    "clean-soft": Target("epochs, own falls to 0.3", own=0.3, until=0.5, bank_of="epochs"),
    "clean-alone": Target("epochs, own falls to 0", until=0.5, bank_of="epochs"),
}


def row(key: str, data_root: str, device: str) -> dict[str, Any]:
    """Train with the target, images and seed that the key names, and measure on the part that it names."""
    part, name, images, seed = key.split("/")
    target = TARGETS[name]
    data = open_data("cifar10", data_root=data_root)
    if part == "held out":
        own = data.part("train").renumbered()
        data = own.with_split(partition(own, None, {"train": 0.9, "test": 0.1}, 0).names)
    train, asked = data.part("train").renumbered(), data.part("test").renumbered()
    assert train.labels is not None and asked.labels is not None
    if torch.device(device).type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    pixels, labels = train.read(train.ids).to(device), train.labels.to(device)
    queries, answers = asked.read(asked.ids).to(device), asked.labels.to(device)
    training = Training(pixels, target, target.steps(int(images), len(pixels)), int(seed))
    began, losses, looks = time.perf_counter(), list[float](), list[dict[str, float]]()

    def accuracy(averaged: bool) -> float:
        known = training.embedded(pixels, averaged=averaged)
        return weighted_accuracy(Points(training.embedded(queries, averaged=averaged), answers), Points(known, labels))

    for loss in epochs(training):
        losses.append(loss)
        done = training.taken / training.steps
        if done >= (len(looks) + 1) / LOOKS and done < 1:
            looks.append({"done": round(done, 3), "accuracy": accuracy(True), **purity(training, labels)})
    return {
        "accuracy": accuracy(False),
        "averaged": accuracy(True),
        "looks": [*looks, {"done": 1.0, **purity(training, labels)}],
        "images": int(images),
        "steps": training.steps,
        "seconds": round(time.perf_counter() - began, 1),
        "loss": [round(loss, 3) for loss in losses[:: max(1, len(losses) // 8)]],
        "settings": asdict(target),
        "device": device_name(torch.device(device)),
    }


@torch.no_grad()
def purity(training: Training, labels: Tensor) -> dict[str, float]:
    """How often the nearest neighbor in the bank is of the image's class, and the share of its class among soft neighbors."""
    some = torch.arange(0, len(training.images), max(1, len(training.images) // ASKED), device=labels.device)
    mine = training.owners == some[:, None]
    owned = mine.any(1)
    if training.target.bank:  # a bank of the newest images holds few of them
        some, mine = some[owned], mine[owned]
    if not len(some):
        return {}
    bank = training.features if training.target.before_head else training.bank
    shares = training.near(bank[mine.int().argmax(1)], mine)
    same = labels[training.owners.clamp_min(0)] == labels[some][:, None]
    return {"nearest": float(same.gather(1, shares.argmax(1, keepdim=True)).float().mean()), "soft": float((shares * same).sum(1).mean())}


def main(words: Sequence[str]) -> int:
    """Run what is missing."""
    made = ArgumentParser("python -m papers neighbor-targets", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--data-root", default="data", metavar="FOLDER")
    made.add_argument("--only", nargs="*", default=list(TARGETS), choices=list(TARGETS), metavar="NAME")
    made.add_argument("--images", type=int, default=6_000_000, metavar="N", help="views that pass through a network (default: %(default)s)")
    made.add_argument("--seeds", type=int, nargs="*", default=[0], metavar="N")
    made.add_argument("--test", action="store_true", help="train on the whole training part and measure on the test part")
    made.add_argument("--at-once", type=int, default=1, metavar="N", help="rows in parallel, each in a process of its own")
    made.add_argument("--seconds", type=float, default=math.inf, help="start no row after so many seconds")
    made.add_argument("--page", action="store_true", help="run nothing, write the page from what is saved")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    asked = made.parse_args(words)
    saved = Rows(Path(asked.out) / "neighbor-targets.json")
    part = "test" if asked.test else "held out"
    keys = [f"{part}/{name}/{asked.images}/{seed}" for seed in asked.seeds for name in asked.only if not asked.page]
    failed = run_rows(saved, keys, row, asked.data_root, asked.device, at_once=asked.at_once, seconds=asked.seconds)
    saved.write_page(page_of(saved))
    return 1 if failed else 0


def page_of(saved: Mapping[str, Any]) -> str:
    """The page: one table for each part and number of images, the best row first."""
    groups: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for key, found in saved.items():
        part, name, views, _ = key.split("/")
        groups.setdefault((part, int(views)), {}).setdefault(name, []).append(found)
    lines = ["# What makes neighbors teach", "", *(__doc__ or "").partition("Protocol. ")[2].splitlines()]
    for (part, images), rows in sorted(groups.items()):
        lines += [
            "",
            f"## {images / 1e6:g} million images, {PARTS[part]}",
            "",
            "| target | weighted kNN | seeds | seconds |",
            "|---|---|---|---|",
        ]
        means = {name: float(np.mean([one["accuracy"] for one in found])) for name, found in rows.items()}
        for name in sorted(rows, key=lambda name: -means[name]):
            seconds = f"{np.mean([one['seconds'] for one in rows[name]]):.0f}"
            lines.append(f"| {TARGETS[name].title} | {spread([one['accuracy'] for one in rows[name]])} | {len(rows[name])} | {seconds} |")
    devices = sorted({one["device"] for one in saved.values()})
    return "\n".join([*lines, "", f"Accuracy in %, mean and standard deviation over the seeds. Measured on {', '.join(devices)}.", ""])
