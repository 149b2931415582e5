"""The public door: everything a caller hands to an objective is checked here, once, and refused in words."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.outcome import REDUCTIONS
from nearkin.compose.points import EMPTY, Points
from nearkin.compose.relation import Supervision

KEPT = (torch.float32, torch.float64)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_embeddings(embeddings: Any, name: str = "embeddings") -> Tensor:
    """A finite (n, d) float tensor; 16 and 8 bits are lifted to float32, where the exponentials are safe."""
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise TypeError(f"{name} must be a float tensor, not {kind}; pass the network's output")
    if embeddings.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(embeddings.shape)}; it must be (n, d): one row a point (flatten the rest)")
    if 0 in embeddings.shape:
        raise ValueError(f"{name} is empty, shape {tuple(embeddings.shape)}; a batch needs at least one point and one dimension")
    lifted: Tensor = embeddings if embeddings.dtype in KEPT else embeddings.float()
    if _looking(lifted) and not math.isfinite(float(lifted.detach().sum())) and not bool(torch.isfinite(lifted).all()):
        rows = (~torch.isfinite(lifted)).any(1).nonzero()[:5, 0].tolist()
        raise ValueError(f"{name} holds NaN or infinity, first in rows {rows}; lower the learning rate or look at the input of these rows")
    return lifted


def _looking(x: Tensor) -> bool:
    """Values are looked at except while a CUDA graph is being captured, when nothing can be read back."""
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def check_labels(labels: Any, supervision: Supervision, like: Tensor, name: str = "labels") -> Tensor | None:
    """Labels of the kind the relation reads, on the embeddings' device."""
    if supervision == "ids":
        return None
    if labels is None:
        raise ValueError(f"{name} are missing; pass {_WANTED[supervision]}")
    labels = _as_tensor(labels, name, like.device)
    if len(labels) != len(like):
        raise ValueError(f"{name} has {len(labels)} entries for {len(like)} embeddings; give one for each")
    if supervision == "classes":
        return _check_classes(labels, name)
    if supervision == "sets":
        return _check_sets(labels, name)
    return _check_numbers(labels, like, name)


_WANTED = {
    "classes": "one integer class for each embedding, shape (n,)",
    "numbers": "the targets, shape (n,) or (n, t)",
    "sets": "multi-hot label sets of zeros and ones, shape (n, C)",
}


def _as_tensor(values: Any, name: str, device: torch.device) -> Tensor:
    if not isinstance(values, Tensor):
        array = np.array(values)  # a copy: torch takes no read-only and no reversed arrays
        if array.dtype.kind in "USO":
            raise TypeError(f"{name} are {array.dtype}, not numbers; encode names first: codes, classes = nearkin.encode_labels({name})")
        values = torch.from_numpy(array)
    if values.ndim == 0:
        raise ValueError(f"{name} is a single value; give one entry for each embedding")
    placed: Tensor = values.to(device)
    return placed


def _check_classes(labels: Tensor, name: str) -> Tensor:
    if labels.ndim != 1:
        raise ValueError(
            f"{name} has shape {tuple(labels.shape)}; classes are (n,). Multi-hot sets take relation=LabelOverlap(), "
            "numbers take NCARegression()"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"{name} are {labels.dtype}; classes must be integers. For numbers use NCARegression(), or round them yourself")
    return labels.long() if labels.dtype in WHOLE or labels.dtype == torch.bool else labels.to(torch.int64)


def _check_sets(labels: Tensor, name: str) -> Tensor:
    if labels.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(labels.shape)}; label sets are (n, C), a column for each label")
    if _looking(labels) and not bool(((labels == 0) | (labels == 1)).all()):
        raise ValueError(f"{name} hold values other than 0 and 1; label sets are multi-hot")
    return labels


def _check_numbers(labels: Tensor, like: Tensor, name: str) -> Tensor:
    if labels.ndim > 2 or labels.is_complex():
        raise ValueError(f"{name} has shape {tuple(labels.shape)}; targets are (n,) or (n, t)")
    if _looking(labels) and not bool(torch.isfinite(labels).all()):
        rows = (~torch.isfinite(labels.reshape(len(labels), -1))).any(1).nonzero()[:5, 0].tolist()
        raise ValueError(f"{name} hold NaN or infinity, first in rows {rows}; drop these points or fill their targets")
    return labels.reshape(len(labels), -1).to(like.dtype)


def check_ids(ids: Any, like: Tensor, name: str = "ids") -> Tensor | None:
    """Integer ids (n,), or None."""
    if ids is None:
        return None
    ids = _as_tensor(ids, name, like.device)
    if ids.dtype not in WHOLE:
        raise TypeError(f"{name} are {ids.dtype}; ids must be integers: the sample's number in the data set")
    if ids.shape != (len(like),):
        raise ValueError(f"{name} has shape {tuple(ids.shape)} for {len(like)} embeddings; give one integer for each")
    whole: Tensor = ids.long()
    return whole


def check_references(references: Any, batch: Points, supervision: Supervision) -> Points:
    """References handed in by the caller, in the same terms as the batch."""
    if not isinstance(references, tuple) or not 1 <= len(references) <= 3:
        raise TypeError(f"references must be Points(embeddings, labels, ids), not {type(references).__name__}")
    given = Points(*references)
    embeddings = check_embeddings(given.embeddings, "references.embeddings").to(batch.embeddings.dtype)
    if embeddings.device != batch.embeddings.device:
        raise ValueError(f"references are on {embeddings.device} and embeddings on {batch.embeddings.device}; move one to the other")
    if embeddings.shape[1] != batch.embeddings.shape[1]:
        raise ValueError(
            f"references have {embeddings.shape[1]} dimensions and embeddings {batch.embeddings.shape[1]}; both come from the same network"
        )
    labels = check_labels(given.labels, supervision, embeddings, "references.labels")
    if labels is not None and batch.labels is not None and labels.shape[1:] != batch.labels.shape[1:]:
        raise ValueError(
            f"references.labels have shape {tuple(labels.shape)} and labels {tuple(batch.labels.shape)}; both need the same columns"
        )
    ids = check_ids(given.ids, embeddings, "references.ids")
    if ids is None or batch.ids is None:
        raise ValueError(
            "references need ids, and so does the batch: without them nobody can tell whether a query meets itself. "
            "Give both ids=, equal for the same sample; for references that are none of the queries use ids=nearkin.compose.fresh_ids(m)"
        )
    return Points(embeddings, labels, ids)


def check_dimension(embeddings: Tensor, dimension: int | None) -> None:
    """Embeddings as wide as the class vectors or the bank that the objective was built with."""
    if dimension is not None and embeddings.shape[1] != dimension:
        raise ValueError(
            f"embeddings have {embeddings.shape[1]} dimensions, but this objective was built for {dimension}; "
            "build it with the network's output size"
        )


def check_reduction(reduction: str) -> None:
    """mean, sum or none."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction {reduction!r} is unknown; choose one of {', '.join(REDUCTIONS)}")


def check_known(labels: Tensor, count: int) -> None:
    """Labels that name one of the C classes of anchors, proxies or centers."""
    if not _looking(labels):
        return
    low, high = map(int, labels.aminmax())
    if low < 0 or high >= count:
        raise ValueError(
            f"labels run from {low} to {high}, but this objective knows the classes 0 to {count - 1}; "
            "encode them with nearkin.encode_labels, or build it with more classes"
        )


def check_two_classes(*labels: Tensor) -> None:
    """More than one class among the points that meet; empty slots are of none. A point alone meets nobody, and costs nothing."""
    if not _looking(labels[0]) or all(len(some) <= 1 for some in labels):
        return
    first = labels[0][0]
    if bool((labels[0] != first).any()):  # as a rule: the queries alone have two
        return
    if all(bool(((some == first) | (some == EMPTY)).all()) for some in labels):
        raise ValueError(
            f"labels hold one class only ({int(first)}): no neighbor could be wrong; draw batches with at least two classes "
            "(where it is a short last one, DataLoader's drop_last=True leaves it out)"
        )
