"""The subject of an evaluation: a model, embedded queries, and the embedded references they are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data import Dataset, Loader, preprocess
from nearkin.data.progress import Report, Ticker
from nearkin.models.folder import Model
from nearkin.report.sanity import digests, fingerprints

CHUNK = 512
UNKNOWN = "class not known"  # reason for leaving out a point that is not damaged


@dataclass(frozen=True, eq=False)
class Side:
    """One set of embedded points, queries or references. All fields have the same rows."""

    name: str  # test part, training part, ...
    data: Dataset
    points: Points  # embeddings (n, d), labels as the data have them, ids
    prints: Tensor  # (n, p) fingerprints
    contents: Sequence[bytes]  # (n,) digests
    off_center: float  # of the inputs of the network
    left_out: dict[str, int] = field(default_factory=dict)  # reason -> how many
    features: Tensor | None = None  # (n, f) of a pretrained encoder under the head

    def __len__(self) -> int:
        return len(self.points.embeddings)


class Subject(NamedTuple):
    """A model and the points it is evaluated on. Without a gallery each query is compared with the other queries."""

    model: Model
    queries: Side
    gallery: Side | None
    classes: tuple[str, ...]  # by number, those of the model first
    supervision: str  # classes, numbers, sets or ids
    split: str  # the part of the data the queries are
    notes: tuple[str, ...] = ()  # about the data, for the reader
    others: tuple[Side, ...] = ()  # other parts of the run's data, whose labels are checked

    @property
    def references(self) -> Side:
        """The points that neighbors are searched in."""
        return self.queries if self.gallery is None else self.gallery


def embedded(model: Model, data: Dataset, name: str, report: Report | None = None) -> Side:
    """Embed a data set. Damaged files (if they may be skipped) and points without a finite embedding are left out and counted.

    So are points of unknown class if other classes are known; if no class is known, the data count as unlabeled.
    """
    _check_shape(model, data)
    data, unknown = _of_known_class(data)
    loader = Loader(data, device=model.device, report=report)
    ticker = Ticker(report, f"embedding the {name}", len(data), "points")
    frozen = model.has_features and "features" in model.about  # a frozen encoder is a baseline of its own
    rows, prints, kept, contents, below = [], [], [], [], list[Tensor]()
    total, squares, count = torch.zeros((), dtype=torch.float64), 0.0, 0
    for inputs, ids in loader(torch.split(data.ids, CHUNK)):
        if frozen:
            below.append(model.features(inputs).cpu())
        rows.append(model.from_features(below[-1]) if frozen else torch.as_tensor(model.encode(inputs)))
        plain = data.plain(ids.cpu()) if model.reads_texts else inputs
        fed = prepared(model, plain).flatten(1).double()
        total, squares, count = total + fed.sum(0).cpu(), squares + float(fed.square().sum()), count + len(fed)
        prints.append(fingerprints(plain).cpu())
        contents += digests(inputs)
        kept.append(ids.cpu())
        ticker.update(sum(map(len, kept)))
    embeddings, ids = torch.cat(rows), torch.cat(kept)
    finite = torch.isfinite(embeddings).all(1).cpu()
    if not bool(finite.any()):
        raise ValueError(f"no point of the {name} has a finite embedding; check the inputs, or train again with a lower learning rate")
    data = data.subset(data.rows(ids)[finite])
    answers = None if data.point_labels is None else data.point_labels.to(embeddings.device)
    left_out = {"damaged": len(loader.skipped), "embedding not finite": int((~finite).sum()), UNKNOWN: unknown}
    return Side(
        name,
        data,
        Points(embeddings[finite.to(embeddings.device)], answers, data.ids.to(embeddings.device)),
        torch.cat(prints)[finite],
        [content for content, good in zip(contents, finite.tolist(), strict=True) if good],
        _off_center(total / count, squares / count),
        {reason: number for reason, number in left_out.items() if number},
        torch.cat(below)[finite] if below else None,
    )


def _of_known_class(data: Dataset) -> tuple[Dataset, int]:
    """The points of known class and the number of others; all points without labels if no class is known."""
    if data.labels is None or data.supervision != "classes":
        return data, 0
    known = data.labels >= 0
    if not bool(known.any()):
        return replace(data, labels=None, classes=(), by="ids"), 0
    return (data, 0) if bool(known.all()) else (data.subset(known), int((~known).sum()))


def prepared(model: Model, inputs: Tensor) -> Tensor:
    """The inputs of the network: preprocessed images (n, c, h, w), or vectors (n, d)."""
    return preprocess.prepared(inputs.to(model.device), model.prepare)


def in_classes_of(side: Side, classes: Sequence[str]) -> tuple[Side, tuple[str, ...]]:
    """The side with its labels numbered as in `classes`, and these with new classes appended."""
    labels, theirs = side.data.labels, side.data.classes
    if labels is None or side.points.labels is None or side.data.supervision != "classes":
        return side, tuple(classes)
    together = (*classes, *(name for name in theirs if name not in classes))
    table = torch.tensor([together.index(name) for name in theirs])
    data = replace(side.data, labels=table[labels], classes=together)
    return replace(side, data=data, points=side.points._replace(labels=table.to(side.points.labels.device)[side.points.labels])), together


def with_distinct_ids(side: Side, gallery: Side) -> Side:
    """The side with ids shifted so that none is in the gallery: points of other data are different points."""
    assert side.points.ids is not None and gallery.points.ids is not None
    shift = int(gallery.points.ids.max()) + 1 - int(side.points.ids.min())
    return replace(side, points=side.points._replace(ids=side.points.ids + shift))


def _off_center(mean: Tensor, square: float) -> float:
    """The mean's length over the spread, from the mean (p,) and the mean squared length."""
    length = float(mean.square().sum())
    spread = max(square - length, 0.0)
    return (length / spread) ** 0.5 if spread > 0 else (float("inf") if length > 0 else 0.0)


def _check_shape(model: Model, data: Dataset) -> None:
    expected = tuple(model.about["shape"])
    if tuple(data.shape) != expected:
        raise ValueError(f"{data.name} holds points of shape {tuple(data.shape)}; this model reads {expected}; pass data of that shape")
