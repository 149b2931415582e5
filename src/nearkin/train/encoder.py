"""Training that starts from a pretrained encoder: which one, with which settings, and what it must beat.

The frozen features, and a linear map of them, are evaluated on the validation part first. The map is where the head starts; training
keeps the weights that are best on the validation part, and the frozen features stay the model if nothing is better.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.data.dataset import Dataset
from nearkin.data.images import Files, image_files, sides_of
from nearkin.data.pixels import Framing
from nearkin.models.encoders import HOW_TO_GET_ONE, Encoder, find_encoder, installed_encoder
from nearkin.models.head import unit_length
from nearkin.models.hub import hub_config, hub_files
from nearkin.models.hub_images import reads_images
from nearkin.models.text_encoders import TextEncoder, find_text_encoder
from nearkin.train.config import Part, Run
from nearkin.train.linear_map import SHRINKAGES, LinearMap, Whitening
from nearkin.train.reporter import Reporter
from nearkin.train.validate import known_points, neighbor_figures, noise, reported, score

PHOTOGRAPHS = 64  # pixels of the median short side from which files are photographs, for which encoders are made
FEW = 5_000  # images without labels, up to which a network trained on them alone was seen to be no better than their pixels
SMALL = 4  # times by which images may be enlarged for an encoder without a warning
TEMPERATURE = 0.1  # of NCA on vectors of length 1
METRIC = "cosine"
WHY_PROXIES = "features of classes that are not trained on are tuned best by it"


def settled(run: Run, given: Collection[str] | None) -> Run:
    """The run with the encoder that it names: found, and with its preprocessing. Before any data are read."""
    if not run.network.pretrained:
        return run
    if reads_texts(run):
        found = find_text_encoder(run.network.name, run.network.weights, length=run.data.size, download=run.network.download)
        return with_text_encoder(run, found, given or ())
    return with_encoder(run, find_encoder(run.network.name, run.network.weights, download=run.network.download), given or ())


def automatic(run: Run, data: Dataset, given: Collection[str] | None, log: Reporter) -> Run:
    """The run with an encoder that is on this machine, if the data are photographs and the user named no network."""
    named = {"network.name", "network.weights", "network.pretrained"}
    if given is None or named & set(given) or run.network.scratch or run.network.name != "auto" or not are_photographs(data):
        return run
    if run.data.size is not None and run.data.size < PHOTOGRAPHS and "network.tune" not in given:
        fix = f"at --size {run.data.size} a small network is trained from scratch"
        log.message(f"{fix}: pretrained encoders are for {PHOTOGRAPHS} pixels and more; --encoder NAME takes one all the same")
        return run
    found = installed_encoder()
    if found is None:
        log.message(f"no pretrained encoder was found, so a small network is trained from scratch; for photographs, {HOW_TO_GET_ONE}")
        return run
    log.message(f"starting from the pretrained encoder {found.network} ({found.weights}); --from-scratch trains a small network instead")
    run = replace(run, network=replace(run.network, pretrained=True))
    return with_encoder(run, found, given)


def warn_of_few(data: Dataset, log: Reporter) -> None:
    """Say that a network trained on few images without labels may be no better than raw pixels."""
    if data.kind == "images" and len(data) <= FEW and data.supervision == "ids" and data.by is None:
        better = "; a pretrained encoder (--encoder) is the better start" if are_photographs(data) else ""
        log.message(
            f"{len(data):,} images without labels are few: a network trained on them from scratch is often no better than raw pixels"
            f"{better}; `nearkin evaluate MODEL LABELED --compare` with a few labeled images says whether it is"
        )


def are_photographs(data: Dataset) -> bool:
    """Whether the data are files of images large enough for a pretrained encoder."""
    if not isinstance(data.inputs, Files):
        return False
    sides = sides_of(data.inputs.paths[:: max(1, len(data) // 200)])
    return sides is not None and sides.median >= PHOTOGRAPHS


def with_encoder(run: Run, encoder: Encoder, given: Collection[str]) -> Run:
    """The settings that belong to an encoder; those of the user stay."""
    framing, standardize = encoder.reading.framing, encoder.reading.standardize
    options = {**encoder.options, **run.network.options}
    network = replace(run.network, name=encoder.network, weights=str(encoder.weights.resolve()), options=options)
    network = network if "network.normalize" in given else replace(network, normalize=True)
    network = network if "network.statistics" in given else replace(network, statistics="kept")
    network = network if network.tune != "auto" else replace(network, tune="all" if "network.rate" in given else "head")
    data = run.data if run.data.size is not None else replace(run.data, size=framing.size)
    if (data.crop, data.interpolation) == (1.0, "bilinear"):
        data = replace(data, crop=framing.crop, interpolation=framing.interpolation)
    constants = Part("standardize", {"mean": list(standardize.mean), "std": list(standardize.std)})
    preprocess = run.preprocess if {"preprocess.name", "preprocess.options.mean"} & set(given) else constants
    return replace(run, network=network, data=data, preprocess=preprocess)


def reads_texts(run: Run) -> bool:
    """Whether the encoder of a run reads texts; a model of the hub that reads both does if the data are a column of texts."""
    name, network = run.network.name, run.network
    if not name.startswith("hf:") or run.data.text_column:
        return name == "words" or name.partition(":")[0] in ("hf", "sentence-transformers")
    if "config" in network.options:  # found before
        return not reads_images(Path(network.weights or "").parent, network.options["config"])
    folder, _ = hub_files(name, network.weights, download=network.download)
    return not reads_images(folder, hub_config(folder, name))


def with_text_encoder(run: Run, encoder: TextEncoder, given: Collection[str]) -> Run:
    """The settings that belong to a text encoder; those of the user stay."""
    options = {**encoder.options, **run.network.options}
    network = replace(run.network, name=encoder.network, weights=str(encoder.weights.resolve()), options=options, pretrained=True)
    network = network if "network.normalize" in given else replace(network, normalize=True)
    network = network if network.tune != "auto" else replace(network, tune="all" if "network.rate" in given else "head")
    return replace(run, network=network, data=replace(run.data, size=encoder.tokenizer.length))


def objective_on_unit_length(run: Run, train: Dataset) -> Run:
    """NCA at a temperature that suits embeddings of length 1, unless another objective or temperature was chosen."""
    chosen = run.objective.name not in ("auto", "nca") or train.supervision != "classes" or not run.network.normalize
    if chosen or run.objective.options or not run.network.pretrained:
        return run
    return replace(run, objective=Part(run.objective.name, {"temperature": TEMPERATURE}))


def reframed(run: Run, data: Dataset) -> Dataset:
    """The image files in the size of the encoder, in color."""
    assert isinstance(data.inputs, Files) and run.data.size is not None
    framing = Framing(run.data.size, run.data.crop, run.data.interpolation)
    return replace(data, inputs=image_files(data.inputs.paths, framing, 3, data.inputs.on_error))


def report_framing(run: Run, data: Dataset, log: Reporter) -> None:
    """Say to which size images are cut for the encoder, and warn where they are far smaller."""
    log.message(f"images are cut to {data.shape[2]} x {data.shape[1]}, as {run.network.name} reads them; --size changes that")
    sides = sides_of(data.inputs.paths[:: max(1, len(data) // 200)]) if isinstance(data.inputs, Files) else None
    if sides is not None and SMALL * sides.median <= data.shape[1]:
        log.message(
            f"warning: the short side of the images is {sides.median} pixels (the median): enlarged that much, "
            "they show an encoder little; compare with --from-scratch"
        )


class Start(NamedTuple):
    """What training starts from and must beat, measured on the validation part."""

    frozen: dict[str, float]
    linear: dict[str, float]
    map: LinearMap | None
    points: int = 0  # of the validation part
    begun: bool = False  # whether the head is that map

    def beats(self, best: float) -> bool:
        """Whether the frozen features are better than the best weights, by the figure that weights are chosen by.

        On classes that were not trained on, they are also where the best weights are not better by a standard error: what tells apart
        the classes of training often tells apart less of others, and a few held-out classes show that badly.
        """
        frozen = score(self.frozen)
        if frozen is None:
            return False
        if "recall@1" in self.frozen and self.points:
            return frozen >= best - max(math.sqrt(frozen * (1 - frozen) / self.points), 1 / self.points)
        return frozen > best

    def as_dict(self) -> dict[str, Any]:
        """For metrics.json."""
        return {name: found for name, found in (("frozen", self.frozen), ("frozen + linear map", self.linear)) if found}

    def lines(self) -> list[str]:
        """One line for each, in words."""
        rows = (("frozen", self.frozen), ("frozen + linear map", self.linear))
        return [f"{name}: {', '.join(f'{key} {value:.4f}' for key, value in found.items())}" for name, found in rows if found]


def start_of(train: Dataset, validation: Dataset | None, dimension: int, device: torch.device | str = "cpu") -> Start:
    """Measure the frozen features and the best linear map of them, which is computed on a device.

    Without a validation part nothing is measured.
    """
    known, linear = _unit(train), None
    frozen = {} if validation is None or reported(validation) == "ids" else _figures(train, known, validation, _unit(validation))
    best: dict[str, float] = {}
    if train.labels is not None and train.supervision == "classes" and not train.partly_labeled and int(train.labels.max()) > 0:
        assert isinstance(train.inputs, Tensor)
        whitening = Whitening(train.inputs.to(device), train.labels.to(device))
        for shrinkage in (whitening.shrinkage, *SHRINKAGES):
            made = LinearMap(*(part.cpu() for part in whitening.map(dimension, shrinkage)))
            found = {}
            if frozen and validation is not None:
                found = _figures(train, unit_length(made(train.inputs)), validation, unit_length(made(_rows(validation))))
            if linear is None or (found and (score(found) or 0) > (score(best) or 0) + noise(best, known_points(validation))):
                best, linear = found, made
    return Start(frozen, best, linear, known_points(validation))


def _rows(data: Dataset) -> Tensor:
    assert isinstance(data.inputs, Tensor)
    return data.inputs


def _unit(data: Dataset) -> Tensor:
    return unit_length(_rows(data))


def _figures(train: Dataset, known: Tensor, part: Dataset, asked: Tensor) -> dict[str, float]:
    kind = reported(train)
    answers, theirs = (one.labels if kind == "classes" else one.point_labels for one in (train, part))
    return neighbor_figures(Points(asked, theirs, part.ids), Points(known, answers, train.ids), kind, METRIC)


def begin_head(head: nn.Module, linear: LinearMap | None) -> bool:
    """Start a linear head from a map, if their sizes agree; returns whether they do."""
    layer = getattr(head, "linear", None)
    if linear is None or not isinstance(layer, nn.Linear) or layer.bias is None or layer.weight.shape != linear.weight.shape:
        return False
    with torch.no_grad():
        layer.weight.copy_(linear.weight)
        layer.bias.copy_(linear.bias)
    return True


def compares(run: Run, data: Dataset) -> bool:
    """Whether there is a head to start from the features, or a validation part to compare training with them."""
    head = run.network.tune in ("none", "head") or run.network.options.get("head") is not False
    return head or run.data.validation > 0 or "validation" in data.parts


def begins_with_features(run: Run, start: Start, given: Collection[str] | None) -> bool:
    """Whether an encoder is tuned without a head, since its features are better on the validation part than the map a head would be.

    That is so for classes that are not trained on. A dimension or a head that the user chose stays.
    """
    chosen = given is None or {"network.dimension", "network.options.head", "codes.learn"} & set(given)
    linear = score(start.linear)
    return not chosen and run.network.tune not in ("none", "head") and linear is not None and start.beats(linear)


def as_embedding(run: Run, features: Dataset, log: Reporter) -> Run:
    """The run with the features of the encoder as the embedding.

    Unless an objective was chosen, it is proxy anchor, which was the best on the validation classes of docs/papers/tuning.md.
    """
    dimension = _rows(features).shape[1]
    log.message(
        f"the frozen features are better than the linear map: they are the embedding that is tuned, of {dimension:,} numbers; "
        "--dimension puts a head on them"
    )
    network = replace(run.network, dimension=dimension, options={**run.network.options, "head": False})
    return replace(run, network=network, objective=Part("proxy_anchor") if run.objective.name == "auto" else run.objective)
