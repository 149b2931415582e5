"""Rows of the contest of encoders that train the encoder itself: all weights, low-rank changes, and losses of pytorch-metric-learning.

Every row takes the same number of steps with the same batches, crops and optimizer. The rows of `KEPT` are what `nearkin train --tune all`
makes of the training and validation parts, with each of some objectives; nothing is chosen by the others.
"""

import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from nearkin import load
from nearkin.data.augment import augmented
from nearkin.data.dataset import Dataset
from nearkin.data.samplers import PerClass
from nearkin.models import build
from nearkin.models.adapters import library
from nearkin.models.head import features_after
from nearkin.train.assemble import build_whole, set_training
from nearkin.train.config import Run, leaves, override
from nearkin.train.inputs import Prepare, augmentation, preparation
from nearkin.train.training import train
from papers.contest import Printing
from papers.tuning import CHUNK, PROXY_RATE, device_of, settings_of

STEPS, EPOCHS = 150, 6  # whichever is more
PER_CLASS = 4  # images of a class in a batch, or more where there are few classes
RATES = {"all": 1e-4, "lora": 1e-3}  # of the body: that of papers/tuning.md, and the tenfold for low-rank changes
CLIP = 10.0
ENCODER = ("name", "weights", "options", "pretrained", "normalize", "statistics")  # settings of a network that are its encoder's


class Plan(NamedTuple):
    """The batches of a training."""

    batch: int
    per_class: int
    epochs: int


def plan_of(labels: Tensor, batch: int) -> Plan:
    """Batches of at most `batch` images, and enough epochs of them."""
    sizes = labels.bincount()
    per_class = max(PER_CLASS, math.ceil(batch / len(sizes)))
    batch = min(batch, int(sizes.clamp_max(per_class).sum()))
    an_epoch = len(labels) // batch
    return Plan(batch, per_class, math.ceil(max(STEPS, EPOCHS * an_epoch) / an_epoch))


def run_of(method: str, images: Dataset, seed: int, arguments: Namespace) -> Run:
    """The settings of a row: the features under the classifier are the embedding."""
    assert images.labels is not None
    run, _ = settings_of(arguments)
    tune, plan = "lora" if method == "LoRA" else "all", plan_of(images.labels, arguments.batch)
    shown = {"network.tune": tune, "network.dimension": str(width_of(run)), "network.options.head": "false"}
    rates = {"optimizer.learning_rate": str(PROXY_RATE), "network.rate": str(RATES[tune] / PROXY_RATE), "optimizer.clip": str(CLIP)}
    batches = {"batch_size": str(plan.batch), "sampler.options.per_class": str(plan.per_class), "epochs": str(plan.epochs)}
    return override(run, {**shown, **rates, **batches, "objective.name": "proxy_anchor", "seed": str(seed)})


def width_of(run: Run) -> int:
    """How many numbers the encoder of a run returns for an image."""
    assert run.data.size is not None
    shape = (3, run.data.size, run.data.size)
    return features_after(cast(Any, build(run.network.name, image_shape=shape, head=False, **run.network.options)).body, shape)


def tuned(method: str, images: Dataset, seed: int, arguments: Namespace) -> Callable[[Tensor], Tensor]:
    """Train a row; returns its embedding of images."""
    assert images.labels is not None
    there, labels = torch.unique(images.labels, return_inverse=True)  # no proxies for classes of other parts
    images = replace(images, labels=labels, classes=tuple(images.classes[at] for at in there.tolist()))
    run, device = run_of(method, images, seed, arguments), device_of(arguments)
    network = (_with_losses(method) if method in LOSSES else _ours)(run, images, device)
    return partial(embedded, network.eval(), Prepare(preparation(run, images), "images"), device)


@torch.no_grad()
def embedded(network: nn.Module, prepare: Prepare, device: torch.device, pixels: Tensor) -> Tensor:
    """The embeddings of images."""
    return torch.cat([network(prepare(some.to(device))).float() for some in torch.split(pixels, CHUNK)])


def command(objective: str, seed: int, arguments: Namespace) -> tuple[Run, Sequence[str]]:
    """The run of `nearkin train --tune all` with an objective, and the settings that are chosen there; all others are the command's own."""
    shared, _ = settings_of(arguments)
    words = {"network.tune": "all", "seed": str(seed), "checkpoint_seconds": "600", **OBJECTIVES[objective]}
    encoder = replace(Run().network, **{name: getattr(shared.network, name) for name in ENCODER})
    run = replace(Run(), network=encoder, data=shared.data, preprocess=shared.preprocess)
    return override(run, words), [*words, "preprocess.name"]


def kept(method: str, train_part: Dataset, validation: Dataset, seed: int, arguments: Namespace) -> tuple[Callable[[Tensor], Tensor], str]:
    """Train as the command does and take what it keeps by the validation part; returns the embedding, and in a word what it is."""
    run, given = command(KEPT[method], seed, arguments)
    images, device = joined(train_part, validation), device_of(arguments)
    with TemporaryDirectory() as folder:
        metrics = train(run, Path(folder) / "model", data=images, device=device, reporter=Printing(), given=given)
        network = load(Path(folder) / "model", device=device).network
    epoch = metrics.get("kept", {}).get("epoch")
    what = "frozen" if metrics["weights"] == "frozen" else "map" if epoch == 0 else f"epoch {epoch} of {metrics['epochs']}"
    return partial(embedded, network.eval(), Prepare(preparation(run, images), "images"), device), what


def joined(train_part: Dataset, validation: Dataset) -> Dataset:
    """The training and validation parts as one data set, whose classes are those of both."""
    assert isinstance(train_part.inputs, Tensor) and isinstance(validation.inputs, Tensor)
    assert train_part.labels is not None and validation.labels is not None
    there, labels = torch.unique(torch.cat([train_part.labels, validation.labels]), return_inverse=True)
    names = tuple(train_part.classes[at] for at in there.tolist())
    found = Dataset(train_part.name, torch.cat([train_part.inputs, validation.inputs]), labels=labels, classes=names)
    return found.with_split(["train"] * len(train_part) + ["validation"] * len(validation))


def _ours(run: Run, images: Dataset, device: torch.device) -> nn.Module:
    with TemporaryDirectory() as folder:
        train(run, Path(folder) / "model", data=images, device=device, reporter=Printing(), given=leaves())
        return load(Path(folder) / "model", device=device).network


def _with_losses(method: str) -> Callable[[Run, Dataset, torch.device], nn.Module]:
    """A plain loop around a loss of pytorch-metric-learning, with the batches, crops and rates of our rows."""

    def fitted(run: Run, images: Dataset, device: torch.device) -> nn.Module:
        assert images.labels is not None and isinstance(images.inputs, Tensor)
        network = build_whole(run, images, device).network
        loss, miner = LOSSES[method](int(images.labels.max()) + 1, run.network.dimension)
        loss, labels = loss.to(device), images.labels.to(device)
        sampler = PerClass(images.labels, run.batch_size, per_class=int(run.sampler.options["per_class"]), seed=run.seed)
        steps = run.epochs * len(sampler)
        top = run.optimizer.learning_rate
        groups = [{"params": list(network.parameters()), "lr": top * run.network.rate}, {"params": list(loss.parameters()), "lr": top}]
        optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        warm = max(1, round(run.schedule.warmup * steps))
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda at: min((at + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(at - warm, 0) / max(steps - warm, 1))))
        )
        held, crops, prepare = images.inputs.to(device), augmentation(run, images, "triplet"), Prepare(preparation(run, images), "images")
        generator = torch.Generator(device).manual_seed(run.seed)
        set_training(network, run.network)
        for _ in range(run.epochs):
            for drawn in sampler:
                ids = drawn.to(device)
                inputs = prepare(augmented(held[ids], crops, generator))
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=run.precision == "bfloat16"):
                    embeddings = network(inputs)
                embeddings = embeddings.float()
                value = loss(embeddings, labels[ids], None if miner is None else miner(embeddings, labels[ids]))
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], CLIP)
                optimizer.step()
                rate.step()
        return network

    return fitted


def _part(name: str) -> Any:
    return library("pytorch-metric-learning", f"pytorch_metric_learning.{name}")


def _multi_similarity(_: int, __: int) -> tuple[Any, Any]:
    return _part("losses").MultiSimilarityLoss(), _part("miners").MultiSimilarityMiner()


def _triplet(_: int, __: int) -> tuple[Any, Any]:
    return _part("losses").TripletMarginLoss(), _part("miners").TripletMarginMiner(type_of_triplets="semihard")


def _proxy_anchor(classes: int, dimension: int) -> tuple[Any, Any]:
    return _part("losses").ProxyAnchorLoss(classes, dimension), None


LOSSES: Mapping[str, Callable[[int, int], tuple[Any, Any]]] = {
    "PML multi-similarity": _multi_similarity,
    "PML triplet": _triplet,
    "PML proxy anchor": _proxy_anchor,
}
OBJECTIVES: Mapping[str, Mapping[str, str]] = {
    "proxy anchor": {"objective.name": "proxy_anchor"},
    "multi-similarity": {"objective.name": "multi_similarity"},
    "triplet": {"objective.name": "triplet", "objective.options.choice": "semi-hard"},
    "normalized softmax": {"objective.name": "normalized_softmax", "objective.options.temperature": "0.05"},
    "NCA": {"objective.name": "nca", "objective.options.temperature": "0.1"},
}
DEFAULT = "NCA"  # of the command
KEPT = {f"kept {name}": name for name in OBJECTIVES}
TUNED = {
    "LoRA": "`--tune lora`, proxy anchor (ours)",
    "all": "`--tune all`, proxy anchor (ours)",
    "PML multi-similarity": "all weights, pytorch-metric-learning's MultiSimilarityLoss and miner",
    "PML triplet": "all weights, pytorch-metric-learning's TripletMarginLoss and semihard miner",
    "PML proxy anchor": "all weights, pytorch-metric-learning's ProxyAnchorLoss",
}
