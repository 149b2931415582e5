"""Tuning all weights of a pretrained encoder on CUB-200-2011, for classes that were not trained on: by which objective, and at which rate.

    python -m papers tuning --data-root data --weights mobilenet_v2-b0353104.pth --device cuda --at-once 3

The data root holds the folder cub200 (a folder for each class, with or without train/ and test/ above them). Another encoder is named as
`--encoder timm:NAME` or `torchvision:NAME`, with its weights. Images are decoded once, into --work. Every finished row is saved in
tuning.json of --out: the same command continues an interrupted run, and `--epochs 1 --objectives nca` is a trial.

Protocol. The first half of the classes (1 to 100) is for training, and a fifth of these (81 to 100) for validation; the other half (101
to 200) is the test part. Both parts are searched by leave-one-out with the cosine of the features under the classifier: the untouched
network and the tuned one differ in their weights only. Each objective is trained with seed 0 on classes 1 to 80 at three rates; the best
of them by P@1 on the validation classes is tried with one change at a time: twice as long, with lower rates for the first layers, and
with a head of 512 dimensions. The best of all these is trained with three seeds on classes 1 to 100 and measured on the test classes,
once. The share is that of the tuned weights in a mean of untouched and tuned ones (Wortsman et al., 2022); it is chosen in the same way, on
the validation classes. Nothing is chosen on the test part. Batch normalization keeps its statistics; crops of a quarter of the area or
more, and flips.
"""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin import data, load
from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.data.dataset import Dataset
from nearkin.data.disk import replacing
from nearkin.data.loader import Loader
from nearkin.evaluate import classification, retrieval
from nearkin.models.encoders import find_encoder
from nearkin.train.assemble import build_whole
from nearkin.train.config import Run, leaves, override
from nearkin.train.encoder import with_encoder
from nearkin.train.folder import device_name
from nearkin.train.inputs import Prepare, preparation
from nearkin.train.training import train
from papers.contest import Printing, Rows, spread

SEEDS = (0, 1, 2)
RATES = ("3e-05", "0.0001", "0.0003")  # of the body
SHARES = ("0.25", "0.5", "0.75", "1")  # of the tuned weights
HEAD_RATE = 1e-3  # of a head, and of proxies beside it
PROXY_RATE = 1e-2  # of proxies where there is no head
CHUNK = 256  # images embedded at a time
SHARED = {
    "network.tune": "all",
    "network.statistics": "kept",
    "network.normalize": "true",
    "optimizer.name": "adam",
    "optimizer.weight_decay": "0",
    "optimizer.clip": "10",
    "schedule.warmup": "0.1",
    "sampler.name": "per_class",
    "sampler.options.per_class": "4",
    "augment.name": "resized_crop",
    "augment.options.scale": "0.25",
    "data.validation": "0",
    "data.test": "0",
    "data.leaks": "allow",
    "validate_every": "1000",
    "checkpoint_seconds": "600",
}
OBJECTIVES: Mapping[str, Mapping[str, str]] = {
    "nca": {"objective.name": "nca", "objective.options.temperature": "0.1"},
    "normalized-softmax": {"objective.name": "normalized_softmax", "objective.options.temperature": "0.05"},
    "proxy-anchor": {"objective.name": "proxy_anchor"},
    "multi-similarity": {"objective.name": "multi_similarity"},
}
CHANGES = ("longer", "decay", "head")  # of the best objective and rate


class Setting(NamedTuple):
    """What is trained: an objective, the rate of the body, and one change of the others or none."""

    objective: str
    rate: str
    change: str = "none"

    def words(self, epochs: int, features: int) -> dict[str, str]:
        """The settings of a run."""
        head = self.change == "head"
        shown = {"network.dimension": "512"} if head else {"network.dimension": str(features), "network.options.head": "false"}
        top = HEAD_RATE if head else PROXY_RATE
        rates = {"optimizer.learning_rate": str(top), "network.rate": str(float(self.rate) / top)}
        decay = {"network.layer_decay": "0.85"} if self.change == "decay" else {}
        length = {"epochs": str(2 * epochs if self.change == "longer" else epochs)}
        return {**shown, **rates, **decay, **length, **OBJECTIVES[self.objective]}

    @property
    def name(self) -> str:
        """The setting in a key."""
        return "_".join(self)


class Job(NamedTuple):
    """One row: a training that is measured on the validation classes, or on the test classes, for shares of the tuned weights."""

    setting: Setting
    part: str
    seed: int
    shares: Sequence[str]
    features: int
    arguments: Namespace

    @property
    def key(self) -> str:
        """Its name in tuning.json."""
        return f"{self.arguments.encoder}/{self.part}/{self.setting.name}/{self.seed}"


def main(words: Sequence[str]) -> int:
    """Run what is missing and write the page."""
    arguments = parser().parse_args(words)
    saved = Rows(Path(arguments.out) / "tuning.json")
    store(arguments)
    if f"{arguments.encoder}/untouched" not in saved:
        saved.keep(f"{arguments.encoder}/untouched", untouched(arguments))
    features = saved[f"{arguments.encoder}/untouched"]["features"]
    names = arguments.objectives.split(",")
    trials = [Setting(name, rate) for name in names for rate in arguments.rates.split(",")]
    with ProcessPoolExecutor(arguments.at_once, get_context("spawn")) as pool:

        def run(jobs: Sequence[Job]) -> None:
            waiting = {pool.submit(row_of, job): job.key for job in jobs if job.key not in saved}
            for done in as_completed(waiting):
                saved.keep(waiting[done], done.result())

        def tried(settings: Sequence[Setting]) -> Job:
            jobs = [Job(setting, "validation", 0, SHARES, features, arguments) for setting in settings]
            run(jobs)
            return max(jobs, key=lambda job: best_share(saved[job.key])[1])

        first = tried(trials).setting
        chosen = tried([first, *(first._replace(change=change) for change in arguments.changes.split(",") if change)])
        shares = tuple(dict.fromkeys((best_share(saved[chosen.key])[0], "1")))
        run([chosen._replace(part="test", seed=seed, shares=shares) for seed in SEEDS[: arguments.seeds]])
    saved.write_page(page_of(saved))
    return 0


def parser() -> ArgumentParser:
    """The command line."""
    made = ArgumentParser("python -m papers tuning", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--data-root", default="data", metavar="FOLDER")
    made.add_argument("--encoder", default="mobilenet-v2", metavar="NAME")
    made.add_argument("--weights", metavar="FILE")
    made.add_argument("--crop", type=float, metavar="SHARE", help="share of the short side that is cut out (default: the encoder's)")
    made.add_argument("--device", metavar="DEVICE")
    made.add_argument("--epochs", type=int, default=10, metavar="N")
    made.add_argument("--batch", type=int, default=128, metavar="N", help="images of a step (default: %(default)s)")
    made.add_argument("--objectives", default=",".join(OBJECTIVES), metavar="NAMES")
    made.add_argument("--rates", default=",".join(RATES), metavar="NUMBERS", help="learning rates of the body (default: %(default)s)")
    made.add_argument("--changes", default=",".join(CHANGES), metavar="NAMES")
    made.add_argument("--seeds", type=int, default=len(SEEDS), metavar="N")
    made.add_argument("--at-once", type=int, default=1, metavar="N", help="trainings at a time (default: %(default)s)")
    made.add_argument("--work", default="runs/tuning", metavar="FOLDER")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    return made


def settings_of(arguments: Namespace) -> tuple[Run, int]:
    """The run with the encoder and its preprocessing, and the size of the decoded images."""
    precision = "bfloat16" if device_of(arguments).type == "cuda" else "float32"
    run = override(Run(), {"network.pretrained": "true", "precision": precision, **SHARED, "batch_size": str(arguments.batch)})
    run = with_encoder(run, find_encoder(arguments.encoder, arguments.weights), SHARED)
    run = run if arguments.crop is None else replace(run, data=replace(run.data, crop=arguments.crop))
    assert run.data.size is not None
    size = {"preprocess.options.crop": str(run.data.size), "augment.options.size": str(run.data.size)}
    return override(run, size), round(run.data.size / run.data.crop)


def store(arguments: Namespace, name: str = "cub200") -> None:
    """Decode all images of a set once: training crops them at random, and measuring cuts out the center."""
    place = stored(arguments, name)
    if place.exists():
        return
    run, size = settings_of(arguments)
    images = data.open(Path(arguments.data_root) / name, size=size, interpolation=run.data.interpolation, channels=3)
    pixels = Loader(images, resident_bytes=images.nbytes, report=print).resident
    assert pixels is not None and images.labels is not None
    place.parent.mkdir(parents=True, exist_ok=True)
    known = {"labels": images.labels.tolist(), "classes": list(images.classes)}
    place.with_suffix(".json").write_text(json.dumps(known), encoding="utf-8")
    with replacing(place) as file:
        np.save(file, pixels.numpy())


def stored(arguments: Namespace, name: str = "cub200") -> Path:
    """The file of decoded images."""
    return Path(arguments.work) / f"{name}-{arguments.encoder.replace(':', '-').replace('/', '-')}.npy"


def read_stored(place: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The decoded images (n, c, h, w), read as they are needed, their classes (n,) and the names of these."""
    known = json.loads(place.with_suffix(".json").read_text(encoding="utf-8"))
    return np.load(place, mmap_mode="c"), np.array(known["labels"]), known["classes"]


def images_of(arguments: Namespace, part: str) -> Dataset:
    """The images of a part: train, validation, test, or both of the first, which are trained on for the test."""
    pixels, labels, classes = read_stored(stored(arguments))
    half = len(classes) // 2
    inner = half - max(1, half // 5)
    first, end = {"train": (0, inner), "validation": (inner, half), "both": (0, half), "test": (half, len(classes))}[part]
    rows = np.flatnonzero((labels >= first) & (labels < end))
    own = torch.from_numpy(labels[rows] - first)
    return Dataset(f"cub200 {part}", torch.from_numpy(pixels[rows]), labels=own, classes=tuple(classes[first:end]))


def untouched(arguments: Namespace) -> dict[str, Any]:
    """The figures of the untouched network, and the number of its features."""
    run, _ = settings_of(arguments)
    run = override(run, {"network.options.head": "false"})
    device, scores, features = device_of(arguments), {}, 0
    for part in ("validation", "test"):
        images = images_of(arguments, part)
        points = embedded(build_whole(run, images, device).network, run, images, device)
        scores[part], features = measured(points), points.embeddings.shape[1]
    return {"scores": scores, "features": features, "device": device_name(device)}


def device_of(arguments: Namespace) -> torch.device:
    """Where to train."""
    return torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def row_of(job: Job) -> dict[str, Any]:
    """Train one setting and measure it, for each share of the tuned weights."""
    arguments, testing = job.arguments, job.part == "test"
    run, _ = settings_of(arguments)
    began = time.perf_counter()
    chosen = override(run, {**job.setting.words(arguments.epochs, job.features), "seed": str(job.seed)})
    folder = Path(arguments.work) / job.key.replace("/", "-").replace(":", "-")
    if folder.exists():
        rmtree(folder)  # of a training that was interrupted
    device, learned = device_of(arguments), images_of(arguments, "both" if testing else "train")
    metrics = train(chosen, folder, data=learned, device=device, reporter=Printing(), given=leaves())
    asked = images_of(arguments, job.part)
    first = build_whole(chosen, learned, device).network.state_dict()
    model = load(folder, device=device)
    last = {name: value.clone() for name, value in model.network.state_dict().items()}
    scores = {}
    for share in job.shares:
        model.network.load_state_dict(dict(mixed(first, last, float(share))))
        scores[share] = measured(embedded(model.network, chosen, asked, device))
    rmtree(folder)
    loss = round(metrics["curve"][-1]["loss"], 4)
    whole = round(time.perf_counter() - began, 1)
    return {"scores": scores, "loss": loss, "seconds": metrics["seconds"], "whole seconds": whole, "device": device_name(device)}


def mixed(first: Mapping[str, Tensor], last: Mapping[str, Tensor], share: float) -> Iterator[tuple[str, Tensor]]:
    """A mean of the weights of the body, before and after; a head is taken as it was trained."""
    for name, value in last.items():
        blended = name.startswith("body.") and value.is_floating_point()
        yield name, torch.lerp(first[name].to(value), value, share) if blended else value


@torch.no_grad()
def embedded(network: torch.nn.Module, run: Run, images: Dataset, device: torch.device) -> Points:
    """The images as the network embeds them."""
    prepare = Prepare(preparation(run, images), "images")
    network.eval()
    rows = [network(prepare(images.read(ids).to(device))).float().cpu() for ids in torch.split(images.ids, CHUNK)]
    return Points(torch.cat(rows), images.labels, images.ids)


def measured(points: Points) -> dict[str, float]:
    """P@1 and MAP@R by leave-one-out."""
    found = {**classification(points, None, cosine(), (1,)), **retrieval(points, None, cosine(), (1,))}
    return {"p@1": round(found["1-nn"].value, 4), "map@r": round(found["map@r"].value, 4)}


def best_share(row: Mapping[str, Any]) -> tuple[str, float]:
    """The share of the tuned weights with the best P@1; of equals the larger."""
    scores = row["scores"]
    share = max(scores, key=lambda one: (scores[one]["p@1"], float(one)))
    return share, scores[share]["p@1"]


def page_of(saved: Mapping[str, Any]) -> str:
    """The page: the result on the test classes, and all trials on the validation classes."""
    text = "# Tuning an encoder for unseen classes\n\n" + (__doc__ or "").partition("Protocol. ")[2].strip() + "\n\n"
    text += "Figures in percent; mean and standard deviation over the seeds. The difference is that to the untouched network.\n"
    for encoder in dict.fromkeys(key.split("/")[0] for key in saved):
        rows = {key.partition("/")[2]: row for key, row in saved.items() if key.split("/")[0] == encoder}
        text += f"\n## {encoder}\n\n{_result(rows)}\n{_trials(rows)}"
    return text


def _result(rows: Mapping[str, Any]) -> str:
    floor = rows["untouched"]["scores"]["test"]
    text = "| test classes | share | P@1 | MAP@R | difference in P@1 | seeds | seconds |\n|---|---|---|---|---|---|---|\n"
    text += f"| untouched | | {100 * floor['p@1']:.1f} | {100 * floor['map@r']:.1f} | | | |\n"
    for name in dict.fromkeys(key.split("/")[1] for key in rows if key.startswith("test/")):
        some = [row for key, row in rows.items() if key.startswith(f"test/{name}/")]
        share = best_share(rows[f"validation/{name}/0"])[0]
        for shown in dict.fromkeys((share, "1")):
            found = [row["scores"][shown] for row in some]
            cells = " | ".join(spread([one[figure] for one in found]) for figure in ("p@1", "map@r"))
            gain = 100 * (np.mean([one["p@1"] for one in found]) - floor["p@1"])
            title = _title(name) + ("" if shown == share else " (all weights as tuned; not the chosen share)")
            text += f"| {title} | {shown} | {cells} | {gain:+.1f} | {len(some)} | {np.mean([row['seconds'] for row in some]):.0f} |\n"
    devices = ", ".join(sorted({row["device"] for row in rows.values()}))
    tested = any(key.startswith("test/") for key in rows)
    missing = "" if tested else "Not all trials were run, so no setting was chosen and tested. "
    return text + f"\n{missing}Measured on {devices}.\n"


def _trials(rows: Mapping[str, Any]) -> str:
    floor = rows["untouched"]["scores"]["validation"]["p@1"]
    heads = " | ".join(f"P@1, share {share}" for share in SHARES)
    text = f"| validation classes | {heads} | loss | seconds |\n|{'---|' * (len(SHARES) + 3)}\n"
    text += f"| untouched: {100 * floor:.1f} |{' |' * (len(SHARES) + 2)}\n"
    for key, row in rows.items():
        if key.startswith("validation/"):
            cells = " | ".join(f"{100 * row['scores'][share]['p@1']:.1f}" for share in SHARES)
            text += f"| {_title(key.split('/')[1])} | {cells} | {row['loss']:.3f} | {row['seconds']:.0f} |\n"
    return text


def _title(name: str) -> str:
    """A setting in words."""
    objective, rate, change = name.split("_")
    changes = {"longer": ", twice as long", "decay": ", lower rates for first layers", "head": ", head of 512"}
    return f"{objective.replace('-', ' ')}, rate {float(rate):g}{changes.get(change, '')}"
