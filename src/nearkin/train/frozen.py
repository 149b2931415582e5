"""A frozen encoder: its features, what training must beat, and the model folder where nothing does."""

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.compose.validation import check_whole
from nearkin.data import preprocess
from nearkin.data.augment import augmented
from nearkin.data.checksums import forget, write_json
from nearkin.data.dataset import Dataset
from nearkin.models.encoders import weights_digest
from nearkin.models.feature_cache import feature_key
from nearkin.models.folder import kept_references
from nearkin.models.head import unit_length
from nearkin.train.assemble import Cut, Whole
from nearkin.train.card import write_card
from nearkin.train.config import Run
from nearkin.train.encoder import METRIC, Start, begin_head, start_of
from nearkin.train.features import Featured, facts_of, featured
from nearkin.train.folder import device_name, save_weights, write_run
from nearkin.train.inputs import Prepare, augmentation
from nearkin.train.reporter import Reporter
from nearkin.train.tuning import merged_state
from nearkin.train.validate import known_points, neighbor_figures, reported

WHY = "the encoder's own features are the embedding; nothing was trained"
LEFT_BY_TRAINING = ("best.safetensors", "best-objective.safetensors", "objective.safetensors", "references-last.safetensors")


def featured_by(whole: Whole, run: Run, images: Dataset, folder: Path, device: torch.device, log: Reporter) -> Featured:
    """The features of the encoder's body for all images; model.json gets their key, for the cache."""
    key = feature_key(**facts_of(whole.about, weights_digest(run.network.weights)))
    whole.about["features"] = key
    prepare = Prepare(preprocess.restore(whole.about["prepare"]), images.kind)
    return featured(cast(Any, whole.network).body, prepare, images, folder, key, device, log)


def check_views(run: Run) -> None:
    """Views of images are computed once for a frozen encoder; other networks see new ones in every step."""
    views, frozen = check_whole("network.views", run.network.views, 0), run.network.pretrained and run.network.tune == "head"
    changed = run.augment.name not in ("auto", "none")
    if views and not frozen:
        raise ValueError(
            f"network.views ({views}) are for a frozen encoder with --tune head; augment.name alone changes images in every step"
        )
    if views and not changed:
        raise ValueError(f"network.views ({views}) are all equal without augmentation; set augment.name, or network.views=0")
    if frozen and changed and not views:
        raise ValueError(
            f"augment {run.augment.name!r} changes inputs in every step, and the features of a frozen encoder are computed once: "
            "set network.views=8, say, to compute those of 8 views of each, or pass --tune all"
        )


def views_by(run: Run, whole: Whole, images: Dataset, folder: Path, device: torch.device, log: Reporter) -> Tensor:
    """(n, views + 1, f) features of every image and of its augmented views; those of views are kept like the others."""
    steps, prepare = augmentation(run, images, whole.about["objective"]), Prepare(preprocess.restore(whole.about["prepare"]), images.kind)
    body, facts = cast(Any, whole.network).body, facts_of(whole.about, weights_digest(run.network.weights))
    found = [featured(body, prepare, images, folder, feature_key(**facts), device, log)]
    for number in range(run.network.views):
        generator = torch.Generator(device).manual_seed(1000 * run.seed + number)
        key = feature_key(**facts, augment=[run.augment.name, dict(run.augment.options)], seed=run.seed, view=number)
        log.message(f"view {number + 1} of {run.network.views} of the training {images.kind}")
        found.append(featured(body, partial(_changed, steps, generator, prepare), images, folder, key, device, log))
    return torch.stack([cast(Tensor, one.features.inputs) for one in found], 1)


def _changed(steps: tuple[Any, ...], generator: torch.Generator, prepare: Prepare, inputs: Tensor) -> Tensor:
    return prepare(augmented(inputs, steps, generator))


def begin(run: Run, whole: Whole, data: Cut, log: Reporter) -> Start:
    """Measure the frozen features and a linear map of them on the validation part, print both, and start the head from the map."""
    dimension = Run().network.dimension if run.network.options.get("head") is False else run.network.dimension
    start = start_of(data.train, data.validation, dimension, next(whole.network.parameters()).device)
    for line in start.lines():
        log.message(f"validation ({known_points(data.validation):,} points), {line}")
    return start._replace(begun=begin_head(cast(Any, whole.network).head, start.map))


@dataclass
class Frozen:
    """Writes a model folder whose embeddings are the features of the encoder, of length 1."""

    run: Run
    folder: Path
    whole: Whole | None
    data: Cut
    start: Start | None
    log: Reporter
    curve: list[dict[str, Any]] = field(default_factory=list)

    def write(self) -> dict[str, Any]:
        """Write all files; returns the content of metrics.json."""
        if self.whole is None:
            raise ValueError("network.tune=none takes an encoder's features as they are, and there is no encoder; set --encoder")
        began, train = time.perf_counter(), self.data.train
        body, known = cast(Any, self.whole.network).body, _embedded(train)
        about = self._about(known.embeddings.shape[1])
        for name in LEFT_BY_TRAINING:
            forget(self.folder / name, self.folder)
            (self.folder / name).unlink(missing_ok=True)
        save_weights(self.folder / "weights.safetensors", {f"body.{name}": value for name, value in merged_state(body).items()})
        save_weights(self.folder / "references.safetensors", kept_references(known, binary=False))
        device = device_name(next(body.parameters()).device)
        metrics: dict[str, Any] = {"epochs": len(self.curve), "steps": 0, "images": 0, "device": device}
        metrics |= {"seed": self.run.seed, "weights": "frozen", "curve": self.curve, **(self.start.as_dict() if self.start else {})}
        test = self.data.test
        if test is not None and reported(test) != "ids":
            metrics["test"] = neighbor_figures(_embedded(test), known, reported(train), METRIC)
            metrics["test points"] = known_points(test)
        metrics["seconds"] = round(time.perf_counter() - began, 3)
        write_run(self.folder, self.run)
        write_json(self.folder / "model.json", about)
        write_json(self.folder / "split.json", self.data.split)
        write_json(self.folder / "metrics.json", metrics)
        counts = {name: len(part) for name, part in self.data._asdict().items() if isinstance(part, Dataset)}
        write_card(self.folder, self.run, about, metrics, counts)
        return metrics

    def _about(self, dimension: int) -> dict[str, Any]:
        assert self.whole is not None
        about = {**self.whole.about, "objective": "none", "why": WHY, "metric": METRIC}
        about.pop("temperature", None)
        options = {**about["network"]["options"], "head": False}
        return {**about, "network": {**about["network"], "dimension": dimension, "normalize": True, "options": options}}


def _embedded(data: Dataset) -> Points:
    assert isinstance(data.inputs, Tensor)
    answers = data.labels if reported(data) == "classes" else data.point_labels
    return Points(unit_length(data.inputs), answers, data.ids)
