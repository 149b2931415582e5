"""Matryoshka training: every prefix of one embedding beside a model that was trained at that size.

    python -m papers matryoshka --data-root data --device cuda
    python -m papers matryoshka --data-root data --sets cub --features cub200-features.npz

The data root holds mnist and cifar10; `--features` names an array file with the features x of CUB-200-2011 by a frozen encoder, the classes
y and the split (`--write-features` makes it, from the folder cub200 of the data root). Every finished row is saved in matryoshka.json of
--out: the same command continues an interrupted run. About 6 minutes on a large GPU for the images, and 7 of one processor for CUB.

Protocol. The sizes are the powers of two from 8 to 128. A model of every size is trained alone, by NCA; one more model of 128 numbers is
trained by `objective.name=matryoshka`, which is a sum of NCA on its prefixes, and every prefix is searched by itself. Both kinds have the
same network, batches, augmentation and number of epochs. The learning rate of both is chosen among two or three, and the weights of the
prefixes between equal ones and ones that halve with each size, by the mean 10-NN accuracy on a tenth of the training part that is held
out; then three seeds are trained on the whole training part and measured once on the test part. Nothing is chosen on the test part.

CUB's held-out tenth has 600 images only, so that its rates and weights, those of the models alone included, are chosen by the mean over
three such tenths. Weights that fall to a quarter with each size are tried there, too: on the held-out images the prefix of 8 numbers was
short at halved weights, and steeper ones close the gap (falling to a sixteenth was no better in the mean). This was added after the
figures of the test part with halved weights had been seen; the choice itself is by held-out images. MNIST and CIFAR-10 were run before
and choose between the first two: whether steeper weights would be chosen there is not known.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from nearkin.data import Dataset, partition
from nearkin.data import open as open_data
from nearkin.data.disk import replacing
from nearkin.data.preprocess import IMAGENET
from nearkin.models import build
from nearkin.models.encoders import find_encoder
from nearkin.models.folder import load
from nearkin.search import nearest
from nearkin.search.voting import vote
from nearkin.train.config import Run, override
from nearkin.train.folder import device_name
from nearkin.train.training import train
from papers.cell import Settings
from papers.contest import spread
from papers.ren2014_trials import FAST

SIZES, SEEDS, TUNING_SEED, K = (8, 16, 32, 64, 128), (0, 1, 2), 1000, 10
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cub": "CUB-200-2011, features of a frozen MobileNetV2, linear map"}
SETS: Mapping[str, Settings] = {
    "mnist": {**FAST["mnist"]},
    "cifar10": {**FAST["cifar10"], "epochs": "16"},
    "cub": {
        "network.name": "linear",
        "optimizer.name": "adam",
        "optimizer.weight_decay": "0",
        "schedule.name": "one_cycle",
        "sampler.name": "per_class",
        "sampler.options.per_class": "8",
        "batch_size": "400",
        "epochs": "12",
    },
}
RATES: Mapping[str, tuple[str, ...]] = {"mnist": ("0.1", "0.3"), "cifar10": ("0.03", "0.1"), "cub": ("1e-3", "3e-3", "1e-2")}
WEIGHTS = {"equal": (1, 1, 1, 1, 1), "halved": (16, 8, 4, 2, 1), "quartered": (256, 64, 16, 4, 1)}  # by size
TRIED: Mapping[str, tuple[str, ...]] = {"mnist": ("equal", "halved"), "cifar10": ("equal", "halved"), "cub": tuple(WEIGHTS)}
CUTS: Mapping[str, int] = {"mnist": 1, "cifar10": 1, "cub": 3}  # held-out tenths by which rates and weights are chosen
PLAIN = {"validate_every": "1000000", "checkpoint_seconds": "1e9", "data.validation": "0", "data.leaks": "allow"}


def main(words: Sequence[str]) -> int:
    """Run what is missing and write the page."""
    made = ArgumentParser("python -m papers matryoshka", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--data-root", default="data", metavar="FOLDER")
    made.add_argument("--sets", default=",".join(SETS), metavar="NAMES")
    made.add_argument(
        "--features", metavar="FILE", help="features of cub200: x, y and split (default: cub200-features.npz in the data root)"
    )
    made.add_argument("--write-features", action="store_true", help="encode the images of cub200 first")
    made.add_argument("--weights", metavar="FILE", help="of the encoder mobilenet-v2, for --write-features")
    made.add_argument("--page", action="store_true", help="run nothing, write the page from what is saved")
    made.add_argument("--seeds", type=int, default=len(SEEDS), metavar="N")
    made.add_argument("--epochs", type=int, metavar="N", help="instead of the usual number, for a trial")
    made.add_argument("--device", metavar="DEVICE")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    arguments = made.parse_args(words)
    target = Path(arguments.out) / "matryoshka.json"
    saved: dict[str, Any] = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    features = Path(arguments.features or Path(arguments.data_root) / "cub200-features.npz")
    if arguments.write_features:
        write_features(Path(arguments.data_root) / "cub200", features, arguments.weights, arguments.device)

    def kept(key: str, make: Callable[[], dict[str, Any]], how: tuple[str, str]) -> dict[str, Any]:
        if key not in saved or (saved[key]["rate"], saved[key]["weights"]) != how:  # of another choice
            saved[key] = make()
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                file.write((json.dumps(saved, indent=1, sort_keys=True) + "\n").encode())
            print(key, saved[key], flush=True)
        return dict(saved[key])

    for name in [] if arguments.page else arguments.sets.split(","):
        data = open_data(features if name == "cub" else name, data_root=arguments.data_root)
        for row in ("prefixes", *map(str, SIZES)):
            run_row(name, row, data, arguments, kept)
    page = target.parent.parent / "papers" / "matryoshka.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(saved), encoding="utf-8")
    print(f"wrote {page}")
    return 0


def run_row(name: str, row: str, data: Dataset, arguments: Namespace, kept: Callable[..., dict[str, Any]]) -> None:
    """One row: choose the rate without the test part, then measure every seed."""
    own = data.part("train").renumbered()

    def row_of(key: str, how: tuple[str, str], seed: int, points: Dataset) -> dict[str, Any]:
        return kept(f"{name}/{row}/{key}", lambda: trained(name, row, how, seed, points, arguments), how)

    ways = [(rate, weights) for rate in RATES[name] for weights in (TRIED[name] if row == "prefixes" else ("equal",))]
    tried: dict[tuple[str, str], list[float]] = {how: [] for how in ways}
    for number in range(CUTS[name]):
        cut = partition(own, None, {"train": 0.9, "test": 0.1}, TUNING_SEED + number)
        held_out = own.with_split(cut.names)
        for how in ways:
            key = f"held out/{' '.join(how)}" + (f"/{number}" if number else "")
            tried[how] += row_of(key, how, TUNING_SEED + number, held_out)["scores"].values()
    best = max(tried, key=lambda how: float(np.mean(tried[how])))
    for seed in SEEDS[: arguments.seeds]:
        row_of(f"test/{seed}", best, seed, data)


def trained(name: str, row: str, how: tuple[str, str], seed: int, data: Dataset, arguments: Namespace) -> dict[str, Any]:
    """Train one model and measure the 10-NN accuracy of its test part, for every prefix or for the whole."""
    rate, weights = how
    settings = {**PLAIN, **SETS[name], "optimizer.learning_rate": rate, "seed": str(seed), "data.source": name}
    settings |= {"network.dimension": str(SIZES[-1]) if row == "prefixes" else row, "objective.name": "nca"}
    if row == "prefixes":
        settings |= {"objective.name": "matryoshka", "objective.options.dimensions": json.dumps(SIZES)}
        settings |= {"objective.options.weights": json.dumps(WEIGHTS[weights])}
    if arguments.epochs:
        settings["epochs"] = str(arguments.epochs)
    with TemporaryDirectory() as folder:
        metrics = train(override(Run(), settings), Path(folder) / "model", data=data, device=arguments.device)
        model = load(Path(folder) / "model", device=arguments.device)
        sides = [embedded(model, data.part(part)) for part in ("train", "test")]
    (references, known), (queries, labels) = sides
    found = {}
    for size in SIZES if row == "prefixes" else (int(row),):
        near = nearest(queries[:, :size].contiguous(), references[:, :size].contiguous(), K).positions
        found[str(size)] = round(float((vote(known[near]) == labels).double().mean()), 5)
    seconds, device = round(metrics["seconds"], 1), device_name(model.device)
    return {"scores": found, "rate": rate, "weights": weights, "seconds": seconds, "device": device}


def embedded(model: Any, part: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings (n, d) and labels (n,), where the model is."""
    assert part.labels is not None
    rows = [torch.as_tensor(model.encode(part.read(ids).to(model.device))) for ids in torch.split(part.ids, 5000)]
    return torch.cat(rows).float(), part.labels.to(model.device)


@torch.no_grad()
def write_features(folder: Path, target: Path, weights: str | None, device: str | None) -> None:
    """Encode the images by a frozen MobileNetV2."""
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    images = open_data(folder, size=224)
    found = find_encoder("mobilenet-v2", weights)
    body = build("mobilenet-v2", image_shape=(3, 224, 224), weights=found.weights).body.eval().to(place)  # type: ignore[union-attr]
    rows = [body(IMAGENET(images.read(ids).to(place))).flatten(1).half().cpu() for ids in torch.split(images.ids, 256)]
    assert images.labels is not None
    np.savez(target, x=torch.cat(rows).numpy(), y=images.labels.numpy(), split=images.split)


def page_of(saved: Mapping[str, Any]) -> str:
    """The page: a table for each set."""
    text = "# Matryoshka training\n\n" + (__doc__ or "").partition("Protocol. ")[2].strip() + "\n"
    for name, title in TITLES.items():
        whole = [row for key, row in sorted(saved.items()) if key.startswith(f"{name}/prefixes/test/")]
        if not whole:
            continue
        text += f"\n## {title}\n\n10-NN accuracy in percent, {whole[0]['device']}, {len(whole)} seeds.\n\n"
        text += "| numbers | trained alone | prefix of 128 | difference |\n|---|---|---|---|\n"
        for size in map(str, SIZES):
            alone = [row["scores"][size] for key, row in sorted(saved.items()) if key.startswith(f"{name}/{size}/test/")]
            prefix = [row["scores"][size] for row in whole]
            if alone:
                gap = 100 * (np.mean(prefix) - np.mean(alone))
                text += f"| {size} | {spread(alone)} | {spread(prefix)} | {gap:+.2f} |\n"
        alone_rates = (f"{size}: {saved[f'{name}/{size}/test/0']['rate']}" for size in SIZES if f"{name}/{size}/test/0" in saved)
        text += f"\nChosen: rate {whole[0]['rate']} and {whole[0]['weights']} weights for the prefixes; alone {', '.join(alone_rates)}.\n"
    return text
